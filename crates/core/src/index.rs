//! The free blocks of one side of one shard, ordered by (size, birth or address): exact best fit without a tree.
//!
//! Sizes are multiples of 512, so a size has a number of units. Up to 2 MiB each number of units has a *bin* of its
//! own; above, every octave is cut into 64 bins. Two levels of bitmaps find the next bin that is not empty. A bin is
//! one word: empty, the one block in it (nearly always), or a list of several, sorted. The index knows blocks by their
//! ids and asks for a block's [`Entry`] only where several must be put in order. An index has 32 KiB of bins, which an
//! idle stream never touches.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::bucket::{Bucket, Entry};
use crate::ids::BlockId;
use crate::units::QUANTUM;

/// Sizes below this many units have a bin each.
const EXACT_UNITS: u64 = 4096;
const EXACT_LOG: u32 = EXACT_UNITS.ilog2();
/// Octaves above it are cut into this many bins.
const CUTS: u64 = 64;
const CUTS_LOG: u32 = CUTS.ilog2();
/// The largest size is below 2^61 bytes, so 2^52 units.
const OCTAVES: u64 = 52 - EXACT_LOG as u64;
/// A power of two, so that the bounds of the tables below are a mask away.
const BINS: usize = ((EXACT_UNITS + OCTAVES * CUTS) as usize).next_power_of_two();
const WORDS: usize = BINS / 64;
const SUMMARIES: usize = WORDS / 64;

/// What a bin holds, in one word: [`EMPTY`], one more than a block's id, or [`LIST`] and the number of a bucket.
type Bin = u32;

const EMPTY: Bin = 0;
const LIST: Bin = 1 << 31;

/// Ids of blocks in an index are below this.
pub(crate) const BLOCK_IDS: u32 = LIST - 1;

const fn bin_with(block: BlockId) -> Bin {
    block.0 + 1
}

const fn block_in(held: Bin) -> BlockId {
    BlockId(held - 1)
}

const fn number_of(held: Bin) -> usize {
    (held & !LIST) as usize
}

/// The ordered set of free blocks.
///
/// Invariant: bit `b` of `words` is set exactly when bin `b` is not empty; bit `w` of `summary` exactly when word `w`
/// is not 0; each bucket belongs to one bin and is not empty, or is spare and empty.
pub(crate) struct FreeIndex {
    summary: [u64; SUMMARIES],
    words: [u64; WORDS],
    bins: Box<[Bin; BINS]>,
    buckets: Vec<Bucket>,
    spare: Vec<Bin>,
}

#[inline]
const fn bin_of(size: u64) -> usize {
    let units = size / QUANTUM;
    if units < EXACT_UNITS {
        return units as usize & (BINS - 1);
    }
    let log = units.ilog2();
    let cut = (units >> (log - CUTS_LOG)) & (CUTS - 1);
    // The mask changes nothing below 2^61 bytes, and tells the compiler that the bin exists.
    (EXACT_UNITS + ((log - EXACT_LOG) as u64) * CUTS + cut) as usize & (BINS - 1)
}

/// Made on the heap and zeroed there, where the system gives such memory away untouched.
fn empty_bins() -> Box<[Bin; BINS]> {
    match alloc::vec![EMPTY; BINS].into_boxed_slice().try_into() {
        Ok(bins) => bins,
        Err(_) => unreachable!("as many were asked for"),
    }
}

impl FreeIndex {
    pub(crate) fn new() -> Self {
        Self { summary: [0; SUMMARIES], words: [0; WORDS], bins: empty_bins(), buckets: Vec::new(), spare: Vec::new() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.summary == [0; SUMMARIES]
    }

    /// Puts a block of `size` bytes into its bin if that is empty, as it nearly always is. Answers whether it was.
    #[inline(always)]
    pub(crate) fn insert_alone(&mut self, block: BlockId, size: u64) -> bool {
        let bin = bin_of(size);
        let empty = self.bins[bin] == EMPTY;
        if empty {
            let word = bin / 64;
            self.bins[bin] = bin_with(block);
            self.words[word] |= 1 << (bin % 64);
            self.summary[word / 64] |= 1 << (word % 64);
        }
        empty
    }

    /// Puts a block into a bin that others are in. `entry_of` tells the order of blocks, this one included.
    #[inline(never)]
    pub(crate) fn insert_among(&mut self, block: BlockId, size: u64, entry_of: impl Fn(BlockId) -> Entry) {
        let bin = bin_of(size);
        let held = self.bins[bin];
        let list = if held & LIST != 0 {
            held
        } else {
            let list = self.spare.pop().unwrap_or_else(|| {
                self.buckets.push(Bucket::new());
                LIST | (self.buckets.len() - 1) as u32
            });
            self.buckets[number_of(list)].insert(entry_of(block_in(held)));
            self.bins[bin] = list;
            list
        };
        self.buckets[number_of(list)].insert(entry_of(block));
    }

    /// Takes a block of `size` bytes out of its bin if it is alone there. Answers whether it was.
    #[inline(always)]
    pub(crate) fn remove_alone(&mut self, block: BlockId, size: u64) -> bool {
        let bin = bin_of(size);
        let alone = self.bins[bin] == bin_with(block);
        if alone {
            self.empty(bin);
        }
        alone
    }

    /// Takes a block out of a bin that has, or had, others.
    ///
    /// # Panics
    ///
    /// If it is not there: the caller's picture of the free blocks has parted from the index.
    #[inline(never)]
    pub(crate) fn remove_among(&mut self, entry: &Entry) {
        let bin = bin_of(entry.size);
        let list = self.bins[bin];
        assert!(list & LIST != 0, "{entry:?} is not in bin {bin}, which holds {list:#x}");
        let bucket = &mut self.buckets[number_of(list)];
        assert!(bucket.remove(entry), "{entry:?} is not in bin {bin}");
        if bucket.is_empty() {
            self.spare.push(list);
            self.empty(bin);
        }
    }

    #[inline(always)]
    fn empty(&mut self, bin: usize) {
        let word = bin / 64;
        self.bins[bin] = EMPTY;
        self.words[word] &= !(1 << (bin % 64));
        if self.words[word] == 0 {
            self.summary[word / 64] &= !(1 << (word % 64));
        }
    }

    /// The smallest block of at least `size` bytes; the oldest or lowest of equals.
    #[inline(always)]
    pub(crate) fn best_fit(&self, size: u64, size_of: impl Fn(BlockId) -> u64) -> Option<BlockId> {
        let bin = bin_of(size);
        let held = self.bins[bin];
        if held != EMPTY {
            if bin < EXACT_UNITS as usize {
                return Some(self.first_in(held));
            }
            // Here sizes are mixed, and some may be too small.
            if held & LIST == 0 {
                if size_of(block_in(held)) >= size {
                    return Some(block_in(held));
                }
            } else if let Some(found) = self.among_from(held, &Entry::floor(size)) {
                return Some(found);
            }
        }
        self.bin_after(bin).map(|bin| self.first_in(self.bins[bin]))
    }

    /// The block that follows in order.
    pub(crate) fn next_after(&self, entry: &Entry) -> Option<BlockId> {
        let bin = bin_of(entry.size);
        let held = self.bins[bin];
        let behind = Entry { rank: entry.rank + 1, block: BlockId(0), ..*entry };
        // Alone in its bin, it is the entry itself.
        let here = if held & LIST == 0 { None } else { self.among_from(held, &behind) };
        here.or_else(|| self.bin_after(bin).map(|bin| self.first_in(self.bins[bin])))
    }

    /// The block that follows one that is alone in its bin; the outer `None` says that it is not alone.
    #[inline(always)]
    pub(crate) fn next_after_alone(&self, block: BlockId, size: u64) -> Option<Option<BlockId>> {
        let bin = bin_of(size);
        let alone = self.bins[bin] == bin_with(block);
        alone.then(|| self.bin_after(bin).map(|bin| self.first_in(self.bins[bin])))
    }

    /// The first block of a bucket that is at or behind a key.
    #[inline(never)]
    fn among_from(&self, held: Bin, key: &Entry) -> Option<BlockId> {
        self.bucket(held).at_or_behind(key).map(|entry| entry.block)
    }

    /// The block that comes before the first one of at least `size` bytes, or the last of all.
    pub(crate) fn last_below(&self, size: u64, entry_of: impl Fn(BlockId) -> Entry) -> Option<BlockId> {
        self.before(&Entry::floor(size), entry_of)
    }

    /// The block that comes before in order.
    pub(crate) fn before(&self, key: &Entry, entry_of: impl Fn(BlockId) -> Entry) -> Option<BlockId> {
        let bin = bin_of(key.size);
        let entries = self.entries(bin, &entry_of);
        if let Some(last) = entries.iter().rfind(|entry| **entry < *key) {
            return Some(last.block);
        }
        let bin = (0..bin).rev().find(|&b| self.is_marked(b))?;
        self.entries(bin, &entry_of).last().map(|entry| entry.block)
    }

    /// All blocks in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = BlockId> {
        self.iter_from(0)
    }

    /// The blocks of at least about `size` bytes in order: from the first block of that size's bin on.
    pub(crate) fn iter_from(&self, size: u64) -> impl Iterator<Item = BlockId> {
        let first = bin_of(size);
        let bins = (first / 64..WORDS).filter(|&word| self.words[word] != 0).flat_map(|word| word * 64..word * 64 + 64);
        bins.filter(move |&bin| bin >= first && self.is_marked(bin)).flat_map(|bin| {
            let held = self.bins[bin];
            let (one, several) =
                if held & LIST == 0 { (Some(block_in(held)), None) } else { (None, Some(self.bucket(held))) };
            one.into_iter().chain(several.into_iter().flat_map(Bucket::iter).map(|entry| entry.block))
        })
    }

    fn entries(&self, bin: usize, entry_of: &impl Fn(BlockId) -> Entry) -> Vec<Entry> {
        match self.bins[bin] {
            EMPTY => Vec::new(),
            held if held & LIST != 0 => self.bucket(held).iter().copied().collect(),
            held => alloc::vec![entry_of(block_in(held))],
        }
    }

    #[inline]
    fn is_marked(&self, bin: usize) -> bool {
        self.words[bin / 64] & (1 << (bin % 64)) != 0
    }

    fn bucket(&self, held: Bin) -> &Bucket {
        &self.buckets[number_of(held)]
    }

    #[inline(always)]
    fn first_in(&self, held: Bin) -> BlockId {
        if held & LIST == 0 { block_in(held) } else { self.first_among(held) }
    }

    #[inline(never)]
    fn first_among(&self, held: Bin) -> BlockId {
        match self.bucket(held).first() {
            Some(entry) => entry.block,
            None => panic!("bucket {held:#x} is in use and empty"),
        }
    }

    /// The next bin behind `bin` that is not empty.
    #[inline(always)]
    fn bin_after(&self, bin: usize) -> Option<usize> {
        let word = bin / 64;
        let rest = self.words[word] & above(bin % 64);
        if rest != 0 {
            return Some((word * 64 + rest.trailing_zeros() as usize) & (BINS - 1));
        }
        let mut group = word / 64;
        let mut words = self.summary[group] & above(word % 64);
        while words == 0 {
            group += 1;
            if group == SUMMARIES {
                return None;
            }
            words = self.summary[group];
        }
        let word = (group * 64 + words.trailing_zeros() as usize) & (WORDS - 1);
        Some((word * 64 + self.words[word].trailing_zeros() as usize) & (BINS - 1))
    }

    /// Panics if the structure contradicts itself.
    pub(crate) fn check(&self, entry_of: impl Fn(BlockId) -> Entry) {
        let mut lists = 0;
        for bin in 0..BINS {
            let held = self.bins[bin];
            assert_eq!(self.is_marked(bin), held != EMPTY, "bin {bin}: its bit against what it holds, {held:#x}");
            if held != EMPTY && held & LIST != 0 {
                lists += 1;
                let bucket = self.bucket(held);
                assert!(!bucket.is_empty() && bucket.iter().is_sorted_by(|a, b| a < b), "bin {bin}: {bucket:?}");
                assert!(bucket.iter().all(|e| *e == entry_of(e.block)), "bin {bin} is out of date: {bucket:?}");
            }
            if held != EMPTY {
                let misplaced = self.entries(bin, &entry_of).into_iter().find(|entry| bin_of(entry.size) != bin);
                assert_eq!(misplaced, None, "in bin {bin} although it belongs elsewhere");
            }
        }
        for (word, bits) in self.words.iter().enumerate() {
            let marked = self.summary[word / 64] & (1 << (word % 64)) != 0;
            assert_eq!(marked, *bits != 0, "word {word}: its summary bit against {bits:#x}");
        }
        assert_eq!(lists + self.spare.len(), self.buckets.len(), "buckets in use and spare against buckets");
    }
}

/// The bits above `bit`.
const fn above(bit: usize) -> u64 {
    // Two shifts, as a shift by 64 is not one.
    (u64::MAX << bit) << 1
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;

    use super::*;

    #[test]
    fn bins_rise_with_size_up_to_the_largest() {
        let mut last = 0;
        for shift in 9..=60 {
            for size in [1u64 << shift, (1u64 << shift) + (1u64 << shift) / 2] {
                let bin = bin_of(size / QUANTUM * QUANTUM);
                assert!(bin >= last && bin < BINS, "size {size} in bin {bin} after {last}");
                last = bin;
            }
        }
    }

    fn remove(index: &mut FreeIndex, entry: &Entry) {
        if !index.remove_alone(entry.block, entry.size) {
            index.remove_among(entry);
        }
    }

    #[test]
    fn agrees_with_an_ordered_set() {
        let mut index = FreeIndex::new();
        let mut model: BTreeSet<Entry> = BTreeSet::new();
        // Every entry ever made, by the number of its block.
        let mut made: Vec<Entry> = Vec::new();
        let mut random = 0x9e37_79b9_7f4a_7c15_u64;
        let mut next = move || {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random
        };
        for step in 0..20_000 {
            let units = match next() % 3 {
                0 => next() % 8 + 1,
                1 => next() % 5000 + 1,
                _ => next() % 300_000 + 4000,
            };
            let (size, rank) = (units * QUANTUM, next() % 256);
            let known = model.iter().find(|e| (e.size, e.rank) == (size, rank)).copied();
            let e = known.unwrap_or_else(|| {
                made.push(Entry { size, rank, block: BlockId(made.len() as u32) });
                made[made.len() - 1]
            });
            let entry_of = |block: BlockId| made[block.0 as usize];
            if model.remove(&e) {
                remove(&mut index, &e);
            } else {
                model.insert(e);
                if !index.insert_alone(e.block, e.size) {
                    index.insert_among(e.block, e.size, entry_of);
                }
            }
            // Taken from the front now and then, so that lists shrink and bins empty.
            if step % 3 == 0
                && let Some(first) = model.pop_first()
            {
                remove(&mut index, &first);
            }
            let probe = next() % 310_000 * QUANTUM + QUANTUM;
            let block_of = |entry: Option<&Entry>| entry.map(|entry| entry.block);
            assert_eq!(
                index.best_fit(probe, |block| entry_of(block).size),
                block_of(model.range(Entry::floor(probe)..).next())
            );
            assert_eq!(index.last_below(probe, entry_of), block_of(model.range(..Entry::floor(probe)).next_back()));
            assert_eq!(index.before(&e, entry_of), block_of(model.range(..e).next_back()));
            if model.contains(&e) {
                assert_eq!(index.next_after(&e), block_of(model.range(e..).find(|o| **o != e)));
            }
        }
        index.check(|block| made[block.0 as usize]);
        assert!(index.iter().eq(model.iter().map(|entry| entry.block)));
    }
}
