//! Memory: classes, and segments with memory of their own.

mod backed;
mod classes;
mod count;
mod descriptor;
mod export;
mod segment;
mod space;

pub(crate) use backed::reclaiming;
pub(crate) use classes::{ClassFacts, IMAGE, READBACK, buffer_info};
#[cfg(unix)]
pub use export::ExportedMemory;
pub use segment::{Segment, SegmentMemory};
pub(crate) use space::Memory;
