//! What policies share that take segments from the driver: their ladder, and getting a segment.

mod grow;
mod ladder;

#[cfg(test)]
pub(crate) use ladder::Attempt;
pub(crate) use ladder::Rung;
