//! The free blocks of one side of one shard, ordered by (size, birth or address): exact best fit without a tree.
//!
//! Sizes are multiples of 512, so a size has a number of units. Up to 2 MiB each number of units has a *bin* of its
//! own; above, every octave is cut into 256 bins. Two levels of bitmaps find the next bin that is not empty. A bin is
//! one word: empty, the one block in it (nearly always), or the root of a heap of several. The index knows blocks by
//! their ids and asks for a block's [`Key`] only where several must be put in order. An index has 64 KiB of bins,
//! which the index of a stream that allocates nothing never uses.
//!
//! The free blocks of one bin, with the first in order on top: pairing heaps whose links are in one table, by block.
//!
//! Nearly always the first block in a bin is handed out, yet any block may be taken out when a neighbour is freed. A
//! pairing heap suits this: an insertion and the removal of a block without children change a few neighbours, whatever
//! the number of blocks; to take the first costs the logarithm of that number, on average over many operations. Where a
//! bin holds several sizes and the first is too small, all blocks that are too small are visited.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::mem;

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
#[derive(Clone)]
pub(crate) struct FreeIndex {
    summary: [u64; SUMMARIES],
    words: Box<[u64; WORDS]>,
    bins: Box<[Bin; BINS]>,
    heaps: Heaps,
    /// Whether a block came or went since [`take_changed`](Self::take_changed) was called last.
    pub(crate) has_changed: bool,
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

/// A block that fits, and the bin that it is in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fit {
    pub(crate) block: BlockId,
    pub(crate) bin: usize,
}

impl FreeIndex {
    pub(crate) fn new() -> Self {
        Self { summary: [0; SUMMARIES], words: zeroed(), bins: zeroed(), heaps: Heaps::default(), has_changed: false }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.summary == [0; SUMMARIES]
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
        self.best_fit_in(size, size_of).map(|fit| fit.block)
    }

    /// Does the search of [`best_fit`](Self::best_fit), and returns also the bin that the block is in.
    #[inline(always)]
    pub(crate) fn best_fit_in(&self, size: u64, size_of: impl Fn(BlockId) -> u64) -> Option<Fit> {
        let bin = bin_of(size);
        let held = self.bins[bin];
        if held != EMPTY {
            let first = first_in(held);
            // Below this number all blocks of a bin have the same size.
            if bin < EXACT_UNITS as usize || size_of(first) >= size {
                return Some(Fit { block: first, bin });
            }
            // This bin has blocks of several sizes, and the first is too small.
            if held & SEVERAL != 0
                && let Some(found) = self.at_or_behind(held, Key::floor(size))
            {
                return Some(Fit { block: found, bin });
            }
        }
        self.bin_after(bin).map(|bin| Fit { block: first_in(self.bins[bin]), bin })
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

/// The place of a free block among others. Keys are ordered by their fields, in order of declaration, and no two blocks
/// have the same key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Key {
    /// The size in bytes.
    pub(crate) size: u64,
    /// The rank: by birth of the segment or by address, then by offset.
    pub(crate) rank: u64,
}

impl Key {
    /// Returns a key at or before every block of that size.
    pub(crate) const fn floor(size: u64) -> Self {
        Key { size, rank: 0 }
    }
}

/// The links of a block in its heap. `before` is the sibling to the left or, for the first child, the parent.
#[derive(Clone, Copy, Debug)]
struct Link {
    key: Key,
    child: BlockId,
    next: BlockId,
    before: BlockId,
}

const LOOSE: Link = Link { key: Key::floor(0), child: BlockId::NONE, next: BlockId::NONE, before: BlockId::NONE };

/// The links of all heaps of one index. A heap is identified by its root.
///
/// Invariant: no block comes before its parent.
#[derive(Clone, Default)]
pub(crate) struct Heaps {
    links: Vec<Link>,
}

impl Heaps {
    /// Makes a heap of one block.
    pub(crate) fn plant(&mut self, block: BlockId, key: Key) {
        let needed = block.0 as usize + 1;
        if self.links.len() < needed {
            self.links.resize(needed, LOOSE);
        }
        *self.at(block) = Link { key, ..LOOSE };
    }

    /// Puts a block into a heap. Returns the new root.
    #[inline]
    pub(crate) fn insert(&mut self, root: BlockId, block: BlockId, key: Key) -> BlockId {
        self.plant(block, key);
        self.meld(root, block)
    }

    /// Takes a block out of a heap. Returns the new root, if a block is left.
    ///
    /// # Panics
    ///
    /// Panics if the block is in no heap.
    // One caller is on the way of each operation: the call would be 1 % of what it executes.
    #[inline]
    pub(crate) fn remove(&mut self, root: BlockId, block: BlockId) -> Option<BlockId> {
        let Link { child, next, before, .. } = *self.at(block);
        let rest = child.some().map(|first| self.gather(first));
        if block == root {
            return rest;
        }
        let link = self.at(before);
        if link.child == block {
            link.child = next;
        } else {
            assert_eq!(link.next, block, "block {} is in no heap", block.0);
            link.next = next;
        }
        if next != BlockId::NONE {
            self.at(next).before = before;
        }
        match rest {
            None => Some(root),
            Some(rest) => Some(self.meld(root, rest)),
        }
    }

    /// Returns whether there is no other block in the heap.
    pub(crate) fn is_alone(&self, root: BlockId) -> bool {
        self.link(root).child == BlockId::NONE
    }

    /// Returns the first block of a heap at or behind a key. Visits all blocks before the key and their children.
    pub(crate) fn at_or_behind(&self, root: BlockId, key: Key) -> Option<BlockId> {
        let mut best: Option<(Key, BlockId)> = None;
        let mut at = root;
        loop {
            let link = self.link(at);
            if link.key < key {
                if link.child != BlockId::NONE {
                    at = link.child;
                    continue;
                }
            } else if best.is_none_or(|(first, _)| link.key < first) {
                best = Some((link.key, at));
            }
            match self.next_beside_or_above(at, root) {
                Some(next) => at = next,
                None => return best.map(|(_, id)| id),
            }
        }
    }

    /// Returns the sibling to the right, or the nearest one of a parent.
    fn next_beside_or_above(&self, mut at: BlockId, root: BlockId) -> Option<BlockId> {
        while at != root {
            let next = self.link(at).next;
            if next != BlockId::NONE {
                return Some(next);
            }
            at = self.parent(at);
        }
        None
    }

    fn parent(&self, mut at: BlockId) -> BlockId {
        loop {
            let before = self.link(at).before;
            if self.link(before).child == at {
                return before;
            }
            at = before;
        }
    }

    /// Returns all blocks of a heap in order.
    pub(crate) fn sorted(&self, root: BlockId) -> Vec<BlockId> {
        let mut all: Vec<BlockId> = Vec::new();
        self.visit(root, &mut Vec::new(), &mut |id| all.push(id));
        all.sort_unstable_by_key(|id| self.link(*id).key);
        all
    }

    /// Calls `see` with each block of a heap, in no certain order. `ahead` is empty, and empty again afterwards.
    pub(crate) fn visit(&self, root: BlockId, ahead: &mut Vec<BlockId>, see: &mut impl FnMut(BlockId)) {
        ahead.push(root);
        while let Some(top) = ahead.pop() {
            for id in self.row(top) {
                see(id);
                ahead.extend(self.link(id).child.some());
            }
        }
    }

    /// Panics if the heap contradicts itself or `key_of`.
    pub(crate) fn check(&self, root: BlockId, key_of: impl Fn(BlockId) -> Key) {
        for id in self.sorted(root) {
            let link = self.link(id);
            assert_eq!(link.key, key_of(id), "the key of block {} in its heap against its own", id.0);
            let mut before = id;
            for child in link.child.some().into_iter().flat_map(|first| self.row(first)) {
                let below = self.link(child);
                assert!(below.key > link.key, "block {} hangs below {}: {below:?}, {link:?}", child.0, id.0);
                assert_eq!(below.before, before, "what is before block {} in its heap", child.0);
                before = child;
            }
        }
    }

    /// Returns a block and the siblings behind it.
    fn row(&self, first: BlockId) -> impl Iterator<Item = BlockId> {
        core::iter::successors(Some(first), |id| self.link(*id).next.some())
    }

    #[inline(always)]
    fn link(&self, block: BlockId) -> &Link {
        &self.links[block.0 as usize]
    }

    #[inline(always)]
    fn at(&mut self, block: BlockId) -> &mut Link {
        &mut self.links[block.0 as usize]
    }

    /// Joins two heaps. The root of one becomes the first child of the other root.
    #[inline(always)]
    fn meld(&mut self, one: BlockId, other: BlockId) -> BlockId {
        let (top, low) = if self.link(one).key < self.link(other).key { (one, other) } else { (other, one) };
        let child = mem::replace(&mut self.at(top).child, low);
        let link = self.at(low);
        link.next = child;
        link.before = top;
        if child != BlockId::NONE {
            self.at(child).before = low;
        }
        top
    }

    /// Joins a row of siblings: pair by pair from the left, then the pairs from the right.
    fn gather(&mut self, first: BlockId) -> BlockId {
        let (mut ahead, mut pairs) = (first, BlockId::NONE);
        while ahead != BlockId::NONE {
            let one = ahead;
            let other = self.at(one).next;
            let pair = if other == BlockId::NONE {
                ahead = BlockId::NONE;
                one
            } else {
                ahead = self.at(other).next;
                self.meld(one, other)
            };
            self.at(pair).next = mem::replace(&mut pairs, pair);
        }
        let mut whole = pairs;
        let mut rest = self.at(whole).next;
        while rest != BlockId::NONE {
            let next = self.at(rest).next;
            whole = self.meld(whole, rest);
            rest = next;
        }
        let root = self.at(whole);
        root.next = BlockId::NONE;
        root.before = BlockId::NONE;
        whole
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::{BTreeMap, BTreeSet};

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

    /// Returns a key. There are few sizes and many ranks, all different.
    fn key(block: BlockId) -> Key {
        let drawn = u64::from(block.0) * 7919 % 1009;
        Key { size: drawn % 5 * 512, rank: drawn }
    }

    #[test]
    fn agrees_with_an_ordered_map() {
        let mut heaps = Heaps::default();
        let mut model: BTreeMap<Key, BlockId> = BTreeMap::new();
        let mut root = None;
        for step in 0..6000_u64 {
            let drawn = step.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
            // The heap grows to some hundred blocks and shrinks again, over and over.
            let block = BlockId((drawn % 300) as u32);
            let key_drawn = key(block);
            let takes_first = step % 1000 > 600 && drawn.is_multiple_of(3);
            if takes_first && let Some((_, first)) = model.pop_first() {
                assert_eq!(root, Some(first));
                root = heaps.remove(first, first);
            } else if model.remove(&key_drawn).is_some() {
                root = root.and_then(|root| heaps.remove(root, block));
            } else if step % 1000 <= 600 {
                model.insert(key_drawn, block);
                root = Some(match root {
                    Some(root) => heaps.insert(root, block, key_drawn),
                    None => {
                        heaps.plant(block, key_drawn);
                        block
                    }
                });
            }
            assert_eq!(root, model.values().next().copied());
            if let Some(root) = root {
                heaps.check(root, key);
                assert!(heaps.sorted(root).iter().eq(model.values()));
                let behind = model.range(key_drawn..).next().map(|(_, &id)| id);
                assert_eq!(heaps.at_or_behind(root, key_drawn), behind);
                assert_eq!(heaps.is_alone(root), model.len() == 1);
            }
        }
    }

    #[test]
    #[should_panic(expected = "in no heap")]
    fn a_block_is_taken_out_once() {
        let mut heaps = Heaps::default();
        let blocks = [BlockId(0), BlockId(1), BlockId(2)];
        let at = |rank| Key { size: 512, rank };
        heaps.plant(blocks[0], at(1));
        heaps.insert(blocks[0], blocks[1], at(2));
        heaps.insert(blocks[0], blocks[2], at(3));
        assert_eq!(heaps.remove(blocks[0], blocks[1]), Some(blocks[0]));
        let _ = heaps.remove(blocks[0], blocks[1]);
    }
}
