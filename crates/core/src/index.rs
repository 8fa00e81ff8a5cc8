//! The free blocks of one side of one shard, ordered by (size, birth or address): exact best fit without a tree.
//!
//! Sizes are multiples of 512, so a size has a number of units. Up to 2 MiB each number of units has a *bin* of its
//! own; above, every octave is cut into 256 bins. Two levels of bitmaps find the next bin that is not empty. A bin is
//! one word: empty, the one block in it (nearly always), or the root of a heap of several. The index knows blocks by
//! their ids and asks for a block's [`Key`] only where several must be put in order. An index has 64 KiB of bins,
//! which the index of a stream that allocates nothing never uses.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::heap::Heaps;
pub(crate) use crate::heap::Key;
use crate::ids::BlockId;
use crate::units::QUANTUM;

/// The number of units below which each size has a bin of its own.
const EXACT_UNITS: u64 = 4096;
const EXACT_LOG: u32 = EXACT_UNITS.ilog2();
/// The number of bins into which each octave above is cut.
const CUTS: u64 = 256;
const CUTS_LOG: u32 = CUTS.ilog2();
/// The number of octaves above: the largest size is below 2^61 bytes, so 2^52 units.
const OCTAVES: u64 = 52 - EXACT_LOG as u64;
/// The number of bins, a power of two, so that a mask keeps an index within the tables below.
const BINS: usize = ((EXACT_UNITS + OCTAVES * CUTS) as usize).next_power_of_two();
const WORDS: usize = BINS / 64;
const SUMMARIES: usize = WORDS / 64;

/// The content of a bin, in one word: [`EMPTY`], or one more than the id of the one block in it, or one more than that
/// of the root of a heap, marked as [`SEVERAL`].
type Bin = u32;

const EMPTY: Bin = 0;
const SEVERAL: Bin = 1 << 31;

/// The limit of the block ids in an index: each is below this number.
pub(crate) const BLOCK_IDS: u32 = SEVERAL - 1;

const fn bin_with(block: BlockId) -> Bin {
    block.0 + 1
}

/// Returns the first block of a bin that is not empty.
const fn first_in(held: Bin) -> BlockId {
    BlockId((held & !SEVERAL) - 1)
}

/// The ordered set of free blocks.
///
/// Invariant: bit `b` of `words` is set exactly when bin `b` is not empty; bit `w` of `summary` exactly when word `w`
/// is not 0; a heap has more than one block.
pub(crate) struct FreeIndex {
    summary: [u64; SUMMARIES],
    words: Box<[u64; WORDS]>,
    bins: Box<[Bin; BINS]>,
    heaps: Heaps,
    /// Whether a block came or went since [`take_changed`](Self::take_changed) was called last.
    has_changed: bool,
}

/// Returns the bin of a size in bytes.
#[inline]
pub(crate) const fn bin_of(size: u64) -> usize {
    let units = size / QUANTUM;
    if units < EXACT_UNITS {
        return units as usize & (BINS - 1);
    }
    let log = units.ilog2();
    let cut = (units >> (log - CUTS_LOG)) & (CUTS - 1);
    // The mask changes nothing below 2^61 bytes, and shows the compiler that the bin exists.
    (EXACT_UNITS + ((log - EXACT_LOG) as u64) * CUTS + cut) as usize & (BINS - 1)
}

/// Creates a table of zeros on the heap, where the system provides such memory without writing to it.
fn zeroed<T: Clone + Default, const N: usize>() -> Box<[T; N]> {
    match alloc::vec![T::default(); N].into_boxed_slice().try_into() {
        Ok(table) => table,
        Err(_) => unreachable!("as many were asked for"),
    }
}

impl FreeIndex {
    pub(crate) fn new() -> Self {
        Self { summary: [0; SUMMARIES], words: zeroed(), bins: zeroed(), heaps: Heaps::default(), has_changed: false }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.summary == [0; SUMMARIES]
    }

    /// Returns whether a block came or went since [`take_changed`](Self::take_changed) was called last.
    pub(crate) fn has_changed(&self) -> bool {
        self.has_changed
    }

    /// Returns whether a block came or went since this was called last.
    pub(crate) fn take_changed(&mut self) -> bool {
        core::mem::take(&mut self.has_changed)
    }

    /// Puts a block of `size` bytes into its bin if that is empty, as it nearly always is. Returns whether it was.
    #[inline(always)]
    pub(crate) fn insert_alone(&mut self, block: BlockId, size: u64) -> bool {
        let bin = bin_of(size);
        let empty = self.bins[bin] == EMPTY;
        self.has_changed = true;
        if empty {
            let word = bin / 64;
            self.bins[bin] = bin_with(block);
            self.words[word] |= 1 << (bin % 64);
            self.summary[word / 64] |= 1 << (word % 64);
        }
        empty
    }

    /// Puts a block into a bin that other blocks are in. `key_of` gives the order of blocks, including this one.
    #[inline(always)]
    pub(crate) fn insert_among(&mut self, block: BlockId, size: u64, key_of: impl Fn(BlockId) -> Key) {
        let bin = bin_of(size);
        let held = self.bins[bin];
        let first = first_in(held);
        if held & SEVERAL == 0 {
            self.heaps.plant(first, key_of(first));
        }
        self.bins[bin] = SEVERAL | bin_with(self.heaps.insert(first, block, key_of(block)));
    }

    /// Takes a block of `size` bytes out of its bin, where it nearly always is alone.
    ///
    /// # Panics
    ///
    /// Panics if it is not there: the caller's view of the free blocks then no longer agrees with the index.
    #[inline(always)]
    pub(crate) fn remove(&mut self, block: BlockId, size: u64) {
        self.remove_from(bin_of(size), block);
    }

    /// Does the work of [`remove`](Self::remove) where the bin is known.
    #[inline(always)]
    pub(crate) fn remove_from(&mut self, bin: usize, block: BlockId) {
        self.has_changed = true;
        if self.bins[bin & (BINS - 1)] == bin_with(block) {
            self.empty(bin & (BINS - 1));
        } else {
            self.remove_among(block, bin);
        }
    }

    #[inline(never)]
    fn remove_among(&mut self, block: BlockId, bin: usize) {
        let held = self.bins[bin];
        assert!(held & SEVERAL != 0, "block {} is not in bin {bin}, which holds {held:#x}", block.0);
        match self.heaps.remove(first_in(held), block) {
            Some(first) if self.heaps.is_alone(first) => self.bins[bin] = bin_with(first),
            Some(first) => self.bins[bin] = SEVERAL | bin_with(first),
            None => self.empty(bin),
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

    /// Returns the smallest block of at least `size` bytes, the oldest or lowest among equals.
    #[inline(always)]
    pub(crate) fn best_fit(&self, size: u64, size_of: impl Fn(BlockId) -> u64) -> Option<BlockId> {
        self.best_fit_in(size, size_of).map(|(block, _)| block)
    }

    /// Does the search of [`best_fit`](Self::best_fit), and returns also the bin that the block is in.
    #[inline(always)]
    pub(crate) fn best_fit_in(&self, size: u64, size_of: impl Fn(BlockId) -> u64) -> Option<(BlockId, usize)> {
        let bin = bin_of(size);
        let held = self.bins[bin];
        if held != EMPTY {
            let first = first_in(held);
            // Below this number all blocks of a bin have the same size.
            if bin < EXACT_UNITS as usize || size_of(first) >= size {
                return Some((first, bin));
            }
            // This bin has blocks of several sizes, and the first is too small.
            if held & SEVERAL != 0
                && let Some(found) = self.at_or_behind(held, Key::floor(size))
            {
                return Some((found, bin));
            }
        }
        self.bin_after(bin).map(|bin| (first_in(self.bins[bin]), bin))
    }

    #[inline(never)]
    fn at_or_behind(&self, held: Bin, key: Key) -> Option<BlockId> {
        self.heaps.at_or_behind(first_in(held), key)
    }

    /// Returns the block that follows the one with this key.
    pub(crate) fn next_after(&self, key: Key) -> Option<BlockId> {
        let bin = bin_of(key.size);
        let held = self.bins[bin];
        let behind = Key { rank: key.rank + 1, ..key };
        // A block that is alone in its bin is the one with this key.
        let here = if held & SEVERAL == 0 { None } else { self.at_or_behind(held, behind) };
        here.or_else(|| self.bin_after(bin).map(|bin| first_in(self.bins[bin])))
    }

    /// Returns the block that follows one that is alone in its bin. The outer `None` means that it is not alone.
    #[inline(always)]
    pub(crate) fn next_after_alone(&self, block: BlockId, size: u64) -> Option<Option<BlockId>> {
        let bin = bin_of(size);
        let alone = self.bins[bin] == bin_with(block);
        alone.then(|| self.bin_after(bin).map(|bin| first_in(self.bins[bin])))
    }

    /// Returns all blocks in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = BlockId> {
        self.iter_from(0)
    }

    /// Returns the blocks of at least about `size` bytes in order, beginning with the first block of that size's bin.
    pub(crate) fn iter_from(&self, size: u64) -> impl Iterator<Item = BlockId> {
        self.bins_from(size).flat_map(|bin| {
            // Nearly every bin has one block.
            let held = self.bins[bin];
            let (alone, several) =
                if held & SEVERAL == 0 { (Some(first_in(held)), Vec::new()) } else { (None, self.blocks(bin)) };
            alone.into_iter().chain(several)
        })
    }

    /// Calls `see` with each block, in no certain order: to put those of one bin in order takes longer.
    pub(crate) fn visit(&self, mut see: impl FnMut(BlockId)) {
        let mut ahead = Vec::new();
        for held in self.bins_from(0).map(|bin| self.bins[bin]) {
            if held & SEVERAL == 0 {
                see(first_in(held));
            } else {
                self.heaps.visit(first_in(held), &mut ahead, &mut see);
            }
        }
    }

    /// Returns the bins that are not empty, beginning with that of a size.
    fn bins_from(&self, size: u64) -> impl Iterator<Item = usize> {
        let first = bin_of(size);
        let here = self.is_marked(first).then_some(first);
        core::iter::successors(here.or_else(|| self.bin_after(first)), |&bin| self.bin_after(bin))
    }

    /// Returns the blocks of a bin in order.
    fn blocks(&self, bin: usize) -> Vec<BlockId> {
        match self.bins[bin] {
            EMPTY => Vec::new(),
            held if held & SEVERAL == 0 => alloc::vec![first_in(held)],
            held => self.heaps.sorted(first_in(held)),
        }
    }

    #[inline]
    fn is_marked(&self, bin: usize) -> bool {
        self.words[bin / 64] & (1 << (bin % 64)) != 0
    }

    /// Returns the next bin behind `bin` that is not empty.
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
    pub(crate) fn check(&self, key_of: impl Fn(BlockId) -> Key) {
        for (word, bins) in self.bins.chunks_exact(64).enumerate() {
            // Tests check after every step, and nearly all bins are empty: those of a word are compared at once.
            if self.words[word] == 0 && *bins == [EMPTY; 64] {
                continue;
            }
            for (bit, &held) in bins.iter().enumerate() {
                self.check_bin(word * 64 + bit, held, &key_of);
            }
        }
        for (word, bits) in self.words.iter().enumerate() {
            let marked = self.summary[word / 64] & (1 << (word % 64)) != 0;
            assert_eq!(marked, *bits != 0, "word {word}: its summary bit against {bits:#x}");
        }
    }

    fn check_bin(&self, bin: usize, held: Bin, key_of: &impl Fn(BlockId) -> Key) {
        assert_eq!(self.is_marked(bin), held != EMPTY, "bin {bin}: its bit against what it holds, {held:#x}");
        if held & SEVERAL != 0 {
            self.heaps.check(first_in(held), key_of);
            assert!(!self.heaps.is_alone(first_in(held)), "bin {bin} has a heap of one block");
        }
        if held != EMPTY {
            let misplaced = self.blocks(bin).into_iter().map(key_of).find(|key| bin_of(key.size) != bin);
            assert_eq!(misplaced, None, "in bin {bin} although it belongs elsewhere");
        }
    }
}

/// Returns the bits above `bit`.
const fn above(bit: usize) -> u64 {
    // There are two shifts, because a shift by 64 would overflow.
    (u64::MAX << bit) << 1
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;

    use millpond_trace::Random;

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

    /// A free block: its key, and the block.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
    struct Entry {
        size: u64,
        rank: u64,
        block: BlockId,
    }

    fn remove(index: &mut FreeIndex, entry: &Entry) {
        index.remove(entry.block, entry.size);
    }

    #[test]
    fn agrees_with_an_ordered_set() {
        let mut index = FreeIndex::new();
        let mut model: BTreeSet<Entry> = BTreeSet::new();
        // All entries ever made, by the number of their block.
        let mut made: Vec<Entry> = Vec::new();
        let mut random = Random::new(1);
        for step in 0..20_000 {
            let units = match random.below(3) {
                0 => random.below(8) + 1,
                1 => random.below(5000) + 1,
                _ => random.below(300_000) + 4000,
            };
            let (size, rank) = (units * QUANTUM, random.below(256));
            let known = model.iter().find(|e| (e.size, e.rank) == (size, rank)).copied();
            let e = known.unwrap_or_else(|| {
                made.push(Entry { size, rank, block: BlockId(made.len() as u32) });
                made[made.len() - 1]
            });
            let key_of = |block: BlockId| {
                let Entry { size, rank, .. } = made[block.0 as usize];
                Key { size, rank }
            };
            if model.remove(&e) {
                remove(&mut index, &e);
            } else {
                model.insert(e);
                if !index.insert_alone(e.block, e.size) {
                    index.insert_among(e.block, e.size, key_of);
                }
            }
            // An entry is taken from the front now and then, so that lists shrink and bins become empty.
            if step % 3 == 0
                && let Some(first) = model.pop_first()
            {
                remove(&mut index, &first);
            }
            let probe = random.below(310_000) * QUANTUM + QUANTUM;
            let block_of = |entry: Option<&Entry>| entry.map(|entry| entry.block);
            assert_eq!(
                index.best_fit(probe, |block| key_of(block).size),
                block_of(model.range(Entry { size: probe, rank: 0, block: BlockId(0) }..).next())
            );
            if model.contains(&e) {
                assert_eq!(index.next_after(key_of(e.block)), block_of(model.range(e..).find(|o| **o != e)));
            }
        }
        index.check(|block| Key { size: made[block.0 as usize].size, rank: made[block.0 as usize].rank });
        assert!(index.iter().eq(model.iter().map(|entry| entry.block)));
    }
}
