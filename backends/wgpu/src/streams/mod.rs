//! Streams: a lane for each, with its clock and its open encoder.

mod clock;
mod lane;
mod table;

pub(crate) use clock::{Clock, Flight};
pub(crate) use lane::{Lane, Work};
pub(crate) use table::Streams;
