//! The uses of blocks beyond their home stream.

use alloc::boxed::Box;
use alloc::vec::Vec;

use millpond_backend::StreamId;

use crate::books::Points;
use crate::ids::BlockId;

/// The uses of a block beyond its home stream.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Uses {
    /// The streams on which it is used until the free.
    pub streams: Vec<StreamId>,
    /// The points up to which it is used.
    pub points: Points,
    /// Whether it is lent, and the home stream has not used it meanwhile.
    pub(super) is_lent: bool,
}

impl Uses {
    /// Returns the number of points that the block waits for once it is freed.
    pub(super) fn waits(&self) -> u32 {
        u32::try_from(self.streams.len() + self.points.len()).unwrap_or(u32::MAX)
    }
}

/// The uses of each block, by the number of the block. There are few at any time, but each loan adds one and takes it
/// out again: a tree would take a good part of the time of a loan.
#[derive(Default)]
pub(super) struct UsesByBlock(Vec<Option<Box<Uses>>>);

impl UsesByBlock {
    pub(super) fn get(&self, block: BlockId) -> Option<&Uses> {
        self.0.get(block.0 as usize)?.as_deref()
    }

    pub(super) fn get_mut(&mut self, block: BlockId) -> Option<&mut Uses> {
        self.0.get_mut(block.0 as usize)?.as_deref_mut()
    }

    /// Returns the uses of a block, which are none at first.
    pub(super) fn entry(&mut self, block: BlockId) -> &mut Uses {
        let number = block.0 as usize;
        if number >= self.0.len() {
            self.0.resize_with(number + 1, || None);
        }
        self.0[number].get_or_insert_default()
    }

    pub(super) fn remove(&mut self, block: BlockId) -> Option<Box<Uses>> {
        self.0.get_mut(block.0 as usize)?.take()
    }

    /// Returns the blocks that have uses, with those.
    pub(super) fn iter(&self) -> impl Iterator<Item = (BlockId, &Uses)> {
        (0..).map(BlockId).zip(&self.0).filter_map(|(block, uses)| Some((block, uses.as_deref()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uses_are_those_of_the_block() {
        let mut all = UsesByBlock::default();
        assert!(all.get(BlockId(3)).is_none() && all.remove(BlockId(3)).is_none());
        all.entry(BlockId(3)).streams.push(StreamId(1));
        all.entry(BlockId(3)).is_lent = true;
        all.entry(BlockId(1)).streams.push(StreamId(2));
        assert!(
            all.iter().map(|(block, uses)| (block.0, uses.waits(), uses.is_lent)).eq([(1, 1, false), (3, 1, true)])
        );
        assert!(all.get(BlockId(2)).is_none() && all.get_mut(BlockId(7)).is_none());
        assert_eq!(all.remove(BlockId(3)).map(|uses| uses.streams.len()), Some(1));
        assert_eq!((all.get(BlockId(3)), all.iter().count()), (None, 1));
    }
}
