//! The crate `offset-allocator`: offsets in one range, by a table of size classes. It has no lock, no streams and no
//! statistics, and never calls a driver: the fastest peer, and a floor for what such features may cost.

use std::sync::Arc;

use offset_allocator::{Allocation, Allocator};
use parking_lot::Mutex;

use super::Subject;

/// The unit of its sizes in bytes, as a size has only 32 bits.
const UNIT_BYTES: u64 = 512;

/// The number of blocks and gaps that it can keep: enough for every workload here.
const NODES: u32 = 1 << 20;

fn range() -> Allocator {
    Allocator::with_max_allocs(u32::MAX, NODES)
}

#[inline]
fn allocate(range: &mut Allocator, bytes: u64) -> Allocation {
    let units = bytes.div_ceil(UNIT_BYTES) as u32;
    match range.allocate(units) {
        Some(block) => block,
        None => panic!("the range has no {units} units left: {:?}", range.storage_report()),
    }
}

/// One range.
pub struct Offset(Allocator);

impl Offset {
    /// Creates an empty range of [`DEVICE_BYTES`](super::DEVICE_BYTES).
    #[allow(clippy::new_without_default)] // 16 MiB of tables are no default value.
    pub fn new() -> Self {
        Self(range())
    }
}

impl Subject for Offset {
    type Block = Allocation;

    #[inline]
    fn allocate(&mut self, bytes: u64, _stream: u16) -> Allocation {
        allocate(&mut self.0, bytes)
    }

    #[inline]
    fn free(&mut self, block: Allocation) {
        self.0.free(block);
    }
}

/// One range behind a lock that all threads share.
#[derive(Clone)]
pub struct SharedOffset(Arc<Mutex<Allocator>>);

impl SharedOffset {
    /// Creates an empty range; clones share it.
    #[allow(clippy::new_without_default)] // As for `Offset`.
    pub fn new() -> Self {
        Self(Arc::new(Mutex::new(range())))
    }
}

impl Subject for SharedOffset {
    type Block = Allocation;

    #[inline]
    fn allocate(&mut self, bytes: u64, _stream: u16) -> Allocation {
        allocate(&mut self.0.lock(), bytes)
    }

    #[inline]
    fn free(&mut self, block: Allocation) {
        self.0.lock().free(block);
    }
}
