//! Fills, copies, uploads and downloads, all recorded in the stream's encoder.

mod host;
mod moves;
mod pattern;

pub(crate) use moves::Transfers;
