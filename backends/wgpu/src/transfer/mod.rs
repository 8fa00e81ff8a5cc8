//! Fills, copies, uploads and downloads, all recorded in the stream's encoder.

mod bytes;
mod host;
mod moves;
mod pattern;
mod readback;

pub(crate) use moves::Transfers;
