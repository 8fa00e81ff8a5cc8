//! The free blocks of one side of one shard, ordered by (size, birth or address): exact best fit without a tree.
//!
//! Sizes are multiples of 512, so a size has a number of units. Up to 2 MiB each number of units has a *bin* of its
//! own; above, every octave is cut into 64 bins. Two levels of bitmaps find the next bin that is not empty; inside a
//! bin the entries stand sorted, nearly always one or two of them. Pages of 64 bins come into being when first used,
//! so an idle stream costs a few kilobytes.

use alloc::boxed::Box;
use alloc::vec::Vec;

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
const BINS: usize = (EXACT_UNITS + OCTAVES * CUTS) as usize;
const WORDS: usize = BINS.div_ceil(64);
const SUMMARIES: usize = WORDS.div_ceil(64);

/// A free block as the index knows it. Ordered as the fields stand.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Entry {
    /// Bytes.
    pub(crate) size: u64,
    /// The segment's birth, or 0 where ties go by address.
    pub(crate) major: u64,
    /// The offset in the segment, or the address.
    pub(crate) minor: u64,
    /// Whose entry it is; never decides, as (major, minor) is unique.
    pub(crate) block: BlockId,
}

impl Entry {
    /// A key at or below every entry of that size.
    const fn floor(size: u64) -> Self {
        Entry { size, major: 0, minor: 0, block: BlockId(0) }
    }
}

type Page = [Vec<Entry>; 64];

/// The ordered set of free blocks.
///
/// Invariant: bit `b` of `words` is set exactly when bin `b` is not empty; bit `w` of `summary` exactly when word `w`
/// is not 0; each bin is sorted; `len` is the number of entries in all bins.
pub(crate) struct FreeIndex {
    summary: [u64; SUMMARIES],
    words: [u64; WORDS],
    pages: [Option<Box<Page>>; WORDS],
    len: usize,
}

const fn bin_of(size: u64) -> usize {
    let units = size / QUANTUM;
    if units < EXACT_UNITS {
        return units as usize;
    }
    let log = units.ilog2();
    let cut = (units >> (log - CUTS_LOG)) & (CUTS - 1);
    (EXACT_UNITS + ((log - EXACT_LOG) as u64) * CUTS + cut) as usize
}

impl FreeIndex {
    pub(crate) fn new() -> Self {
        Self { summary: [0; SUMMARIES], words: [0; WORDS], pages: [const { None }; WORDS], len: 0 }
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline]
    pub(crate) fn insert(&mut self, entry: Entry) {
        let bin = bin_of(entry.size);
        let word = bin / 64;
        let page = self.pages[word].get_or_insert_with(|| Box::new([const { Vec::new() }; 64]));
        let entries = &mut page[bin % 64];
        // Most bins hold one entry, and most new entries sort last: look there before searching.
        let at = match entries.last() {
            Some(last) if *last > entry => entries.partition_point(|e| *e < entry),
            _ => entries.len(),
        };
        entries.insert(at, entry);
        self.words[word] |= 1 << (bin % 64);
        self.summary[word / 64] |= 1 << (word % 64);
        self.len += 1;
    }

    /// Takes the entry out.
    ///
    /// # Panics
    ///
    /// If it is not there: the caller's picture of the free blocks has parted from the index.
    #[inline]
    pub(crate) fn remove(&mut self, entry: &Entry) {
        let bin = bin_of(entry.size);
        let word = bin / 64;
        let entries = match &mut self.pages[word] {
            Some(page) => &mut page[bin % 64],
            None => panic!("{entry:?} is not in the index: its bin {bin} was never used"),
        };
        let at = match entries.as_slice() {
            [only] if only == entry => 0,
            many => match many.binary_search(entry) {
                Ok(at) => at,
                Err(_) => panic!("{entry:?} is not among the {} entries of bin {bin}", many.len()),
            },
        };
        entries.remove(at);
        if entries.is_empty() {
            self.words[word] &= !(1 << (bin % 64));
            if self.words[word] == 0 {
                self.summary[word / 64] &= !(1 << (word % 64));
            }
        }
        self.len -= 1;
    }

    /// The smallest entry of at least `size` bytes; the oldest or lowest of equals.
    #[inline]
    pub(crate) fn best_fit(&self, size: u64) -> Option<Entry> {
        self.at_or_after(&Entry::floor(size))
    }

    /// The entry that follows in order.
    pub(crate) fn next_after(&self, entry: &Entry) -> Option<Entry> {
        self.at_or_after(&Entry { minor: entry.minor + 1, block: BlockId(0), ..*entry })
    }

    #[inline]
    fn at_or_after(&self, key: &Entry) -> Option<Entry> {
        let bin = bin_of(key.size);
        if self.words[bin / 64] & (1 << (bin % 64)) != 0 {
            let entries = self.bin(bin);
            let first = entries[0];
            if first >= *key {
                return Some(first);
            }
            if let Some(entry) = entries.get(entries.partition_point(|e| e < key)) {
                return Some(*entry);
            }
        }
        self.bin_after(bin).map(|bin| self.bin(bin)[0])
    }

    /// The entry that comes before the first one of at least `size` bytes, or the last of all.
    pub(crate) fn last_below(&self, size: u64) -> Option<Entry> {
        self.before(&Entry::floor(size))
    }

    /// The entry that comes before in order.
    pub(crate) fn before(&self, key: &Entry) -> Option<Entry> {
        let bin = bin_of(key.size);
        if self.words[bin / 64] & (1 << (bin % 64)) != 0 {
            let entries = self.bin(bin);
            let at = entries.partition_point(|e| e < key);
            if at > 0 {
                return Some(entries[at - 1]);
            }
        }
        let bin = (0..bin).rev().find(|&b| self.words[b / 64] & (1 << (b % 64)) != 0)?;
        self.bin(bin).last().copied()
    }

    /// All entries in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Entry> {
        let used = (0..WORDS).filter(|&word| self.words[word] != 0);
        used.flat_map(|word| self.pages[word].iter().flat_map(|page| page.iter()).flatten())
    }

    fn bin(&self, bin: usize) -> &[Entry] {
        match &self.pages[bin / 64] {
            Some(page) => &page[bin % 64],
            None => panic!("bin {bin} is marked as used and has no page"),
        }
    }

    /// The next bin behind `bin` that is not empty.
    #[inline]
    fn bin_after(&self, bin: usize) -> Option<usize> {
        let word = bin / 64;
        let rest = self.words[word] & above(bin % 64);
        if rest != 0 {
            return Some(word * 64 + rest.trailing_zeros() as usize);
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
        let word = group * 64 + words.trailing_zeros() as usize;
        Some(word * 64 + self.words[word].trailing_zeros() as usize)
    }

    /// Panics if the structure contradicts itself.
    pub(crate) fn check(&self) {
        let mut len = 0;
        for bin in 0..BINS {
            let entries: &[Entry] = self.pages[bin / 64].as_ref().map_or(&[], |page| &page[bin % 64]);
            let marked = self.words[bin / 64] & (1 << (bin % 64)) != 0;
            assert_eq!(marked, !entries.is_empty(), "bin {bin}: its bit against its {} entries", entries.len());
            assert!(entries.is_sorted_by(|a, b| a < b), "bin {bin} is not strictly sorted: {entries:?}");
            for entry in entries {
                assert_eq!(bin_of(entry.size), bin, "{entry:?} is in the wrong bin");
            }
            len += entries.len();
        }
        for (word, bits) in self.words.iter().enumerate() {
            let marked = self.summary[word / 64] & (1 << (word % 64)) != 0;
            assert_eq!(marked, *bits != 0, "word {word}: its summary bit against {bits:#x}");
        }
        assert_eq!(len, self.len, "entries counted against entries kept");
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

    fn entry(size: u64, major: u64, minor: u64) -> Entry {
        Entry { size, major, minor, block: BlockId((major * 1000 + minor / 512) as u32) }
    }

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

    #[test]
    fn agrees_with_an_ordered_set() {
        let mut index = FreeIndex::new();
        let mut model = BTreeSet::new();
        let mut random = 0x9e37_79b9_7f4a_7c15_u64;
        let mut next = move || {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random
        };
        for _ in 0..20_000 {
            let units = match next() % 3 {
                0 => next() % 8 + 1,
                1 => next() % 5000 + 1,
                _ => next() % 300_000 + 4000,
            };
            let e = entry(units * QUANTUM, next() % 4, next() % 64 * QUANTUM);
            if model.remove(&e) {
                index.remove(&e);
            } else {
                model.insert(e);
                index.insert(e);
            }
            let probe = next() % 310_000 * QUANTUM + QUANTUM;
            assert_eq!(index.best_fit(probe), model.range(Entry::floor(probe)..).next().copied());
            assert_eq!(index.last_below(probe), model.range(..Entry::floor(probe)).next_back().copied());
            assert_eq!(index.before(&e), model.range(..e).next_back().copied());
            assert_eq!(index.next_after(&e), model.range(e..).find(|o| **o != e).copied());
        }
        index.check();
        assert_eq!(index.len(), model.len());
        assert!(index.iter().eq(model.iter()));
    }
}
