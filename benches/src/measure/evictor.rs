//! A program's own work between two requests, which takes the processor's caches.

use std::hint::black_box;

/// The number of operations of a pass that are timed behind an eviction; all of them where there are fewer.
const SAMPLES: usize = 2000;

/// A cache line.
#[derive(Clone)]
#[repr(align(64))]
struct Line([u64; 8]);

/// Memory that is written between two operations, so that what an allocator needs is no longer in the caches that
/// are smaller.
pub struct Evictor(Vec<Line>);

impl Evictor {
    /// The bytes that are written for a record: more than the first two caches of a core have, and less than the last
    /// one, which all cores share.
    pub const USUAL: usize = 8 << 20;

    /// Creates one that writes this number of bytes, rounded up to whole lines. Takes milliseconds for some MiB.
    pub fn new(bytes: usize) -> Self {
        // Not zeros, for which the system may have one page in all places.
        Self(vec![Line([1; 8]); bytes.div_ceil(size_of::<Line>())])
    }

    /// Writes a word of every line. Takes some 100 us for 8 MiB.
    pub fn evict(&mut self) {
        for line in &mut self.0 {
            line.0[0] = line.0[0].wrapping_add(1);
        }
        black_box(&mut self.0);
    }

    /// Returns how many operations lie between two that are timed, in a list of this length. The number is odd, so that
    /// of a list in which allocations and frees alternate both are timed.
    pub fn stride(operations: usize) -> usize {
        (operations / SAMPLES) | 1
    }
}

#[cfg(test)]
mod tests {
    use super::{Evictor, SAMPLES};

    #[test]
    fn each_line_is_written() {
        let mut evictor = Evictor::new(4 * 64 + 1);
        evictor.evict();
        evictor.evict();
        assert_eq!(evictor.0.iter().map(|line| line.0[0]).collect::<Vec<_>>(), [3; 5]);
    }

    #[test]
    fn about_as_many_are_timed_of_any_list_and_of_both_kinds() {
        for operations in [1, 100, SAMPLES, 100_000, 670_855] {
            let stride = Evictor::stride(operations);
            assert_eq!(stride % 2, 1, "{operations}");
            let timed = operations.div_ceil(stride);
            assert!((operations.min(SAMPLES / 2)..=2 * SAMPLES).contains(&timed), "{timed} of {operations}");
        }
    }
}
