//! How much the core looks at: shards that are visited, streams that are asked, free blocks, pages and windows that a
//! search goes past. Tests of growth count that, since a time would differ from run to run.
//!
//! Only the feature `plant` counts. Without it nothing of this remains. No decision rests on a count.

#[cfg(feature = "plant")]
mod counter {
    extern crate std;

    use core::cell::Cell;

    std::thread_local! {
        static LOOKS: Cell<u64> = const { Cell::new(0) };
    }

    /// Counts some looks.
    pub(crate) fn note(count: usize) {
        LOOKS.set(LOOKS.get() + count as u64);
    }

    /// Returns the number of looks so far on this thread.
    pub fn looks() -> u64 {
        LOOKS.get()
    }
}

#[cfg(feature = "plant")]
pub use counter::looks;
#[cfg(feature = "plant")]
pub(crate) use counter::note;

/// Counts nothing.
#[cfg(not(feature = "plant"))]
#[inline(always)]
pub(crate) fn note(_count: usize) {}
