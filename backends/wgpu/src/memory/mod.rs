//! Memory: segments, each a buffer.

mod account;
mod segment;
mod space;

pub(crate) use account::Account;
pub use segment::Segment;
pub(crate) use segment::aligned;
pub use space::EXCLUSIVE;
pub(crate) use space::Memory;
