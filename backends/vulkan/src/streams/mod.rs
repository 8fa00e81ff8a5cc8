//! Streams: a lane for each, on a queue.

mod commands;
#[cfg_attr(not(feature = "testing"), path = "no_gate.rs")]
mod gate;
mod lane;
mod table;

pub(crate) use commands::{allocate_commands, full_barrier, host_barrier};
pub(crate) use gate::Gate;
pub(crate) use lane::{Lane, LaneState};
pub(crate) use table::Streams;
pub use table::Timeline;
