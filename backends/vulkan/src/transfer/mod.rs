//! Fills, copies, uploads and downloads, and other recording into the streams' own command buffers.

mod moves;
mod record;
mod staging;

pub(crate) use record::Transfers;
