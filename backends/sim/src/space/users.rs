//! The users of physical memory: the unfinished work that touches it.

use millpond_backend::Point;

use super::violation::Access;

/// One unfinished task's use of some physical bytes.
#[derive(Clone)]
pub(crate) struct User {
    /// The device whose stream the task runs on, the task's number there, and the point that covers it.
    pub(crate) device: u64,
    pub(crate) task: u64,
    pub(crate) point: Point,
    pub(crate) access: Access,
    /// The offset in the physical memory.
    pub(crate) start: u64,
    pub(crate) bytes: u64,
    /// The segment or range through which the task touches the bytes, the offset in it, and the address.
    pub(crate) segment: u64,
    pub(crate) at: u64,
    pub(crate) address: u64,
    /// Bytes to poison when the task completes: (start in the physical memory, length).
    pub(crate) poison: Vec<(u64, u64)>,
}

/// Returns the common part of two spans of (start, length), if there is one.
pub(crate) fn common(a: (u64, u64), b: (u64, u64)) -> Option<(u64, u64)> {
    let start = a.0.max(b.0);
    let end = (a.0 + a.1).min(b.0 + b.1);
    (start < end).then(|| (start, end - start))
}
