#![doc = include_str!("../README.md")]

mod activity;
mod aligned;
mod allocator;
mod bond;
mod buffer;
mod builder;
mod close;
pub mod conf;
mod configure;
mod created;
mod drive;
mod error;
pub mod events;
mod fit;
mod frees;
mod grow;
pub mod hooks;
mod idle;
mod lane;
mod latch;
#[cfg(not(loom))]
pub mod later;
mod notes;
mod observe;
mod pages;
mod pinned;
mod pool;
mod raw;
mod rounding;
mod scrub;
#[cfg(not(loom))]
mod sleep;
mod sources;
mod state;
mod stream;
mod sync;
mod tag;
pub mod text;
pub mod typed;
#[cfg(not(loom))]
mod waiters;

pub use aligned::ALIGNMENT_MAX;
pub use allocator::Allocator;
pub use buffer::{Buffer, Readiness};
pub use builder::{Builder, ENVIRONMENT};
pub use configure::Configured;
pub use error::explain::{Explanation, Hole, PinnedBlock, Remedy, RemedyAction};
pub use error::{BuildError, Error, ErrorKind, OutOfMemory, PauseError, ResumeError};
pub use fit::{Bound, Fit, ServedBy};
pub use observe::activity::DriverActivity;
pub use observe::peak::PeakScope;
#[cfg(any(feature = "tracing", feature = "metrics"))]
pub use observe::telemetry;
pub use observe::usage::{BeyondDevice, Usage};
pub use observe::{history, live, snapshot, summary};
pub use pinned::{Pinned, PinnedBuffer};
pub use pool::{Capture, Pool};
pub use raw::number::RawBuffer;
pub use raw::source::SegmentSource;
#[cfg(not(loom))]
pub use sleep::{Group, GroupStats, Keep};
pub use stream::Stream;
pub use tag::{TagScope, current_tag, tag, with_tag};

pub use millpond_backend as backend;
pub use millpond_core::stats;
pub use millpond_core::stats::{IdleStats, MemoryStats, PageStats, PinnedBy, PoolStats, Sharing, SlackStats};
pub use millpond_core::{
    BlockState, BlockView, Checkpoint, FreeRange, NoRoom, Obstacle, Pin, PoolId, Relief, Report, SegmentId,
    SegmentView, Side, WasteLedger, settings,
};
#[cfg(feature = "plant")]
pub use millpond_core::{looks, plant};
