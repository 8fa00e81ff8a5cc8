//! The bytes of the host that the program has from the system's allocator.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicI64, Ordering};

/// The system's allocator, counted.
struct Counting;

static BYTES: AtomicI64 = AtomicI64::new(0);
static MOST: AtomicI64 = AtomicI64::new(0);

#[global_allocator]
static COUNTING: Counting = Counting;

/// Returns the number of bytes that the program has now.
pub(crate) fn host_bytes() -> i64 {
    BYTES.load(Ordering::Relaxed)
}

/// Returns the most bytes that the program had during some work, beyond those before it.
pub(crate) fn most_during(work: impl FnOnce()) -> i64 {
    let before = host_bytes();
    MOST.store(before, Ordering::Relaxed);
    work();
    MOST.load(Ordering::Relaxed) - before
}

fn count(bytes: usize) {
    let now = BYTES.fetch_add(bytes as i64, Ordering::Relaxed) + bytes as i64;
    MOST.fetch_max(now, Ordering::Relaxed);
}

// SAFETY: every call goes to the system's allocator as it came, and counting touches no memory that is handed out.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller keeps to the rules of `alloc`, which are those of the system's allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: as in `alloc`. The system provides large memory of zeros without writing to it.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        BYTES.fetch_sub(layout.size() as i64, Ordering::Relaxed);
        // SAFETY: the caller has the memory from this allocator, and so from the system's, with the same layout.
        unsafe { System.dealloc(memory, layout) }
    }
}
