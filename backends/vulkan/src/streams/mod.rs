//! Streams: a lane for each, on a queue.

mod commands;
mod gate;
mod lane;
mod ring;
mod table;

pub(crate) use commands::{allocate_commands, full_barrier, host_barrier};
pub(crate) use gate::Gate;
pub(crate) use lane::{Lane, LaneState};
pub(crate) use ring::{Piece, RING_BYTES, Ring};
pub(crate) use table::Streams;
pub use table::Timeline;
