//! The free blocks of one bin, with the first in order on top: pairing heaps whose links are in one table, by block.
//!
//! Nearly always the first block in a bin is handed out, yet any block may be taken out when a neighbour is freed. A
//! pairing heap suits this: an insertion and the removal of a block without children change a few neighbours, whatever
//! the number of blocks; to take the first costs the logarithm of that number, on average over many operations. Where a
//! bin holds several sizes and the first is too small, all blocks that are too small are visited.

use alloc::vec::Vec;
use core::mem;

use crate::ids::BlockId;

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
#[derive(Default)]
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
    use alloc::collections::BTreeMap;

    use super::*;

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
