//! Several free blocks of one bin, in order.
//!
//! A few stand in a vector, the first one last, as that is the one most often taken. Many go into a tree: a vector of
//! thousands (the remainders of a size that nobody asks for) would be moved about on every insertion.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use crate::ids::BlockId;

/// From this many entries on a tree is faster than moving half of them for each insertion.
const MANY: usize = 96;
/// Below this many a vector is faster again; well apart from [`MANY`], so that a bucket does not swing.
const FEW: usize = 24;

/// A free block as the index knows it. Ordered as the fields stand.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Entry {
    /// Bytes.
    pub(crate) size: u64,
    /// Where it stands among blocks of its size: by birth of the segment or by address, then by offset.
    pub(crate) rank: u64,
    /// Whose entry it is; never decides, as no two blocks have one rank.
    pub(crate) block: BlockId,
}

impl Entry {
    /// A key at or below every entry of that size.
    pub(crate) const fn floor(size: u64) -> Self {
        Entry { size, rank: 0, block: BlockId(0) }
    }
}

/// An ordered set of entries.
#[derive(Debug)]
pub(crate) enum Bucket {
    /// Sorted from last to first.
    Few(Vec<Entry>),
    Many(BTreeSet<Entry>),
}

impl Bucket {
    pub(crate) const fn new() -> Self {
        Bucket::Few(Vec::new())
    }

    pub(crate) fn insert(&mut self, entry: Entry) {
        match self {
            Bucket::Many(tree) => drop(tree.insert(entry)),
            Bucket::Few(entries) if entries.len() < MANY => {
                let at = entries.partition_point(|e| *e > entry);
                entries.insert(at, entry);
            }
            Bucket::Few(entries) => {
                let mut tree: BTreeSet<_> = entries.drain(..).collect();
                tree.insert(entry);
                *self = Bucket::Many(tree);
            }
        }
    }

    /// Answers whether the entry was there.
    pub(crate) fn remove(&mut self, entry: &Entry) -> bool {
        match self {
            Bucket::Few(entries) => match entries.binary_search_by(|e| entry.cmp(e)) {
                Ok(at) => {
                    entries.remove(at);
                    true
                }
                Err(_) => false,
            },
            Bucket::Many(tree) => {
                let was_there = tree.remove(entry);
                if tree.len() < FEW {
                    *self = Bucket::Few(tree.iter().rev().copied().collect());
                }
                was_there
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        match self {
            Bucket::Few(entries) => entries.is_empty(),
            Bucket::Many(tree) => tree.is_empty(),
        }
    }

    pub(crate) fn first(&self) -> Option<&Entry> {
        match self {
            Bucket::Few(entries) => entries.last(),
            Bucket::Many(tree) => tree.first(),
        }
    }

    /// The first entry at or behind a key.
    pub(crate) fn at_or_behind(&self, key: &Entry) -> Option<&Entry> {
        match self {
            Bucket::Few(entries) => entries[..entries.partition_point(|e| e >= key)].last(),
            Bucket::Many(tree) => tree.range(key..).next(),
        }
    }

    /// All entries in order.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &Entry> {
        let (few, many) = match self {
            Bucket::Few(entries) => (Some(entries.iter().rev()), None),
            Bucket::Many(tree) => (None, Some(tree.iter())),
        };
        few.into_iter().flatten().chain(many.into_iter().flatten())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_a_set_while_it_grows_and_shrinks() {
        let mut bucket = Bucket::new();
        let mut model = BTreeSet::new();
        let mut kinds = [false; 2];
        for step in 0..4000_u64 {
            // Grows to some two hundred entries and shrinks again, over and over.
            let spread = if step % 1000 < 600 { 400 } else { 8 };
            let rank = step.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
            let entry = Entry { size: 512, rank: rank % spread, block: BlockId((rank % spread) as u32) };
            if !model.insert(entry) {
                model.remove(&entry);
                assert!(bucket.remove(&entry));
            } else {
                bucket.insert(entry);
            }
            if spread == 8
                && let Some(first) = model.pop_first()
            {
                assert!(bucket.remove(&first));
                assert!(!bucket.remove(&first), "an entry is removed once");
            }
            kinds[usize::from(matches!(bucket, Bucket::Many(_)))] = true;
            assert_eq!((bucket.first(), bucket.is_empty()), (model.first(), model.is_empty()));
            assert_eq!(bucket.at_or_behind(&entry), model.range(entry..).next());
            assert!(bucket.iter().eq(model.iter()) && bucket.iter().rev().eq(model.iter().rev()));
        }
        assert_eq!(kinds, [true; 2], "both kinds were met");
    }
}
