//! Device bytes of which only those that were touched are stored.
//!
//! Memory is kept in leaves of 4 KiB. They are small because a few bytes in every page of a large device should cost
//! far less than the pages. A leaf has bytes of its own from the first uneven write on; leaves that a fill has made
//! even are kept as runs, so that filling a segment of gigabytes costs one entry; and a leaf in neither is all zeros.

use std::collections::BTreeMap;
use std::ops::Range;

/// The bytes of a leaf.
const LEAF_BYTES: u64 = 4 << 10;

/// The bytes of one piece of physical memory, at first all zeros.
///
/// Invariant: a leaf is in one run at most, and in none if it has bytes of its own; no run is of zeros.
#[derive(Default)]
pub(crate) struct Sparse {
    /// Leaves with bytes of their own.
    leaves: BTreeMap<u64, Box<[u8]>>,
    /// Leaves whose bytes are all the same: first leaf to (the leaf behind the last one, value).
    runs: BTreeMap<u64, (u64, u8)>,
}

/// The part of a range that lies in one leaf.
struct Part {
    leaf: u64,
    /// The offset in the leaf.
    start: usize,
    /// The offset in the caller's bytes.
    done: usize,
    length: usize,
}

/// Splits `bytes` bytes at `offset` at the borders of leaves.
fn parts(offset: u64, bytes: u64) -> impl Iterator<Item = Part> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == bytes {
            return None;
        }
        let at = offset + done;
        let start = at % LEAF_BYTES;
        let length = (LEAF_BYTES - start).min(bytes - done);
        let part = Part { leaf: at / LEAF_BYTES, start: start as usize, done: done as usize, length: length as usize };
        done += length;
        Some(part)
    })
}

impl Sparse {
    pub(crate) fn write(&mut self, offset: u64, from: &[u8]) {
        for Part { leaf, start, done, length } in parts(offset, from.len() as u64) {
            self.own_bytes(leaf)[start..start + length].copy_from_slice(&from[done..done + length]);
        }
    }

    pub(crate) fn read(&self, offset: u64, to: &mut [u8]) {
        for Part { leaf, start, done, length } in parts(offset, to.len() as u64) {
            let to = &mut to[done..done + length];
            match self.leaves.get(&leaf) {
                Some(bytes) => to.copy_from_slice(&bytes[start..start + length]),
                None => to.fill(self.even(leaf)),
            }
        }
    }

    /// Fills bytes with one value. The whole leaves cost one entry, whatever the length, and the removal of what was
    /// stored for them before.
    pub(crate) fn fill(&mut self, offset: u64, bytes: u64, value: u8) {
        let end = offset + bytes;
        let whole = offset.div_ceil(LEAF_BYTES)..end / LEAF_BYTES;
        if whole.start >= whole.end {
            return self.fill_parts(offset, bytes, value);
        }
        self.forget(whole.clone());
        if value != 0 {
            self.runs.insert(whole.start, (whole.end, value));
        }
        let (first, last) = (whole.start * LEAF_BYTES, whole.end * LEAF_BYTES);
        self.fill_parts(offset, first - offset, value);
        self.fill_parts(last, end - last, value);
    }

    /// Fills less than a leaf at a time.
    fn fill_parts(&mut self, offset: u64, bytes: u64, value: u8) {
        for Part { leaf, start, length, .. } in parts(offset, bytes) {
            if self.leaves.contains_key(&leaf) || self.even(leaf) != value {
                self.own_bytes(leaf)[start..start + length].fill(value);
            }
        }
    }

    /// Returns the value of every byte of a leaf that has no bytes of its own.
    fn even(&self, leaf: u64) -> u8 {
        self.runs.range(..=leaf).next_back().filter(|(_, (end, _))| *end > leaf).map_or(0, |(_, (_, value))| *value)
    }

    fn own_bytes(&mut self, leaf: u64) -> &mut [u8] {
        if !self.leaves.contains_key(&leaf) {
            let value = self.even(leaf);
            self.cut_runs(leaf..leaf + 1);
            self.leaves.insert(leaf, vec![value; LEAF_BYTES as usize].into_boxed_slice());
        }
        self.leaves.get_mut(&leaf).expect("the leaf is there or was just made")
    }

    /// Makes whole leaves zeros, which are not stored.
    fn forget(&mut self, range: Range<u64>) {
        self.cut_runs(range.clone());
        let own: Vec<u64> = self.leaves.range(range).map(|(leaf, _)| *leaf).collect();
        for leaf in own {
            self.leaves.remove(&leaf);
        }
    }

    /// Removes leaves from the runs that they are in.
    fn cut_runs(&mut self, range: Range<u64>) {
        let before = self.runs.range(..range.start).next_back().map(|(start, run)| (*start, *run));
        let inside = self.runs.range(range.clone()).map(|(start, run)| (*start, *run));
        let cut: Vec<_> = before.filter(|(_, (end, _))| *end > range.start).into_iter().chain(inside).collect();
        for (start, (end, value)) in cut {
            self.runs.remove(&start);
            if start < range.start {
                self.runs.insert(start, (range.start, value));
            }
            if end > range.end {
                self.runs.insert(range.end, (end, value));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rand_xoshiro::SplitMix64;
    use rand_xoshiro::rand_core::{Rng as _, SeedableRng as _};

    use super::*;

    #[test]
    fn random_writes_and_fills_read_back_as_in_plain_memory() {
        const BYTES: u64 = 10 * LEAF_BYTES;
        for seed in 0..40 {
            let (mut sparse, mut plain, mut random) =
                (Sparse::default(), vec![0; BYTES as usize], SplitMix64::seed_from_u64(seed));
            for _ in 0..120 {
                // Half of the offsets are at the border of a leaf, where mistakes are likely.
                let mut place = || {
                    let at = random.next_u64() % BYTES;
                    if random.next_u64().is_multiple_of(2) { at / LEAF_BYTES * LEAF_BYTES } else { at }
                };
                let (one, other) = (place(), place());
                let (start, end) = (one.min(other), one.max(other));
                let (value, how) = ((random.next_u64() % 4) as u8, random.next_u64() % 3);
                let part = &mut plain[start as usize..end as usize];
                if how == 0 {
                    part.iter_mut().enumerate().for_each(|(at, byte)| *byte = value.wrapping_add(at as u8));
                    sparse.write(start, part);
                } else {
                    part.fill(value);
                    sparse.fill(start, end - start, value);
                }
                let mut seen = vec![0xEE; BYTES as usize];
                sparse.read(0, &mut seen);
                assert!(seen == plain, "seed {seed}: they differ after {start}..{end} became {value}");
            }
            let mut behind = 0;
            for (&start, &(end, value)) in &sparse.runs {
                assert!(behind <= start && start < end && value != 0, "run {start}..{end} of {value}");
                assert_eq!(sparse.leaves.range(start..end).count(), 0, "leaves of their own in a run");
                behind = end;
            }
        }
    }

    #[test]
    fn a_fill_costs_one_entry_and_one_with_zeros_none() {
        let mut sparse = Sparse::default();
        sparse.fill(0, 1 << 40, 7);
        assert_eq!((sparse.runs.len(), sparse.leaves.len()), (1, 0));
        sparse.write(5 * LEAF_BYTES, &[1]);
        assert_eq!((sparse.runs.len(), sparse.leaves.len()), (2, 1));
        sparse.fill(0, 1 << 40, 0);
        assert_eq!((sparse.runs.len(), sparse.leaves.len()), (0, 0));
    }
}
