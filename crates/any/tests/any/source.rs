//! A pool whose segments another allocator supplies.

#![allow(unsafe_code)] // A source is an unsafe trait.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use millpond_any::millpond::SegmentSource;
use millpond_any::millpond::backend::{Backend, ClassId};
use millpond_any::millpond_sim::Sim;
use millpond_any::{AnyDevice, AnySegment, StreamId};

use crate::on;

const MIB: u64 = 1 << 20;

/// A source that takes its segments from the device itself, and counts them.
struct Counted(Arc<AtomicU64>);

// SAFETY: the segments are the device's own, which keeps the contract.
unsafe impl SegmentSource<AnyDevice> for Counted {
    fn reserve(&self, device: &AnyDevice, _stream: StreamId, bytes: u64) -> Option<AnySegment> {
        let segment = device.reserve(ClassId::DEVICE, bytes).ok()?;
        self.0.fetch_add(segment.bytes(), Ordering::Relaxed);
        Some(segment)
    }

    unsafe fn release(&self, device: &AnyDevice, _stream: StreamId, segment: AnySegment) {
        self.0.fetch_sub(segment.bytes(), Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { device.release(segment) }
    }
}

#[test]
fn another_allocator_supplies_a_pool() {
    let sim = Sim::new();
    let (allocator, lent) = (on(&sim), Arc::new(AtomicU64::new(0)));
    let stream = allocator.create_stream().unwrap();
    let pool = allocator.create_pool_from(Counted(Arc::clone(&lent))).unwrap();
    let buffer = pool.stream(stream.id()).unwrap().allocate(30 * MIB).unwrap();
    let segment = buffer.segment().unwrap();
    assert_eq!((segment.class(), segment.bytes()), (ClassId::DEVICE, 30 * MIB));
    assert_eq!((lent.load(Ordering::Relaxed), sim.held_bytes()), (30 * MIB, 30 * MIB));
    let id = pool.id();
    drop((buffer, pool));
    allocator.empty_cache_of(id).unwrap();
    assert_eq!((lent.load(Ordering::Relaxed), sim.held_bytes()), (0, 0));
}
