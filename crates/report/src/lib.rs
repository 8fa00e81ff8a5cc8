#![doc = include_str!("../README.md")]

mod columns;
mod data;
mod headline;
mod holders;
mod map;
mod named;
mod owners;
mod page;
mod places;
mod plot;
#[cfg(feature = "png")]
mod png;
mod recorded;
mod sampler;
mod scout;
mod series;
mod shared;
mod spans;
pub mod text;
mod times;
mod tree;
mod verdict;
mod who;

pub use columns::{Column, Extent};
pub use data::{ColumnSeries, FitsData, MomentData, PassData, PinData, Pinned, Program, RefusalData, Run};
pub use headline::{Enough, Headline};
pub use holders::{Group, Holders};
pub use map::{Map, Placed, Row, Scale};
pub use named::Named;
pub use owners::{Block, Lifetime, blocks};
pub use page::page;
pub use plot::{PlotError, life_plot, timeline_plot};
#[cfg(feature = "png")]
pub use png::{SCALE, png};
pub use recorded::Recorded;
pub use sampler::{Agenda, Chosen, Moment, Refusal, Sample, Sampled, Sampler, moments};
pub use scout::{PassSeen, Peak, Scout, Scouted};
pub use series::Series;
pub use spans::Spans;
pub use times::micros;
pub use tree::Tree;
pub use who::Who;
