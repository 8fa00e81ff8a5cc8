//! The uses of blocks beyond the stream that they were handed out for.

use alloc::boxed::Box;
use alloc::vec::Vec;

use millpond_backend::StreamId;

use crate::books::Points;
use crate::ids::BlockId;

/// The uses of a block beyond the stream that it was handed out for.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Uses {
    /// The streams on which it is used until the free.
    pub streams: Vec<StreamId>,
    /// The points up to which it is used.
    pub points: Points,
}

impl Uses {
    /// Returns the number of points that the block waits for once it is freed.
    pub(super) fn waits(&self) -> u32 {
        u32::try_from(self.streams.len() + self.points.len()).unwrap_or(u32::MAX)
    }
}

/// The uses of blocks. There are few at any time.
#[derive(Default)]
pub(super) struct UsesByBlock {
    all: Vec<(BlockId, Box<Uses>)>,
    /// Where those of a block are, by the number of the block: their number in `all` and 1, or 0 where it has none.
    places: Vec<u32>,
}

impl UsesByBlock {
    fn number(&self, block: BlockId) -> Option<usize> {
        self.places.get(block.0 as usize)?.checked_sub(1).map(|number| number as usize)
    }

    pub(super) fn get(&self, block: BlockId) -> Option<&Uses> {
        self.number(block).map(|number| &*self.all[number].1)
    }

    /// Returns the uses of a block, which are none at first.
    pub(super) fn entry(&mut self, block: BlockId) -> &mut Uses {
        let number = self.number(block).unwrap_or_else(|| self.add(block));
        &mut self.all[number].1
    }

    fn add(&mut self, block: BlockId) -> usize {
        let place = block.0 as usize;
        if place >= self.places.len() {
            self.places.resize(place + 1, 0);
        }
        self.all.push((block, Box::default()));
        self.places[place] = self.all.len() as u32;
        self.all.len() - 1
    }

    pub(super) fn remove(&mut self, block: BlockId) -> Option<Box<Uses>> {
        let number = self.number(block)?;
        self.places[block.0 as usize] = 0;
        let (_, uses) = self.all.swap_remove(number);
        if let Some((moved, _)) = self.all.get(number) {
            self.places[moved.0 as usize] = number as u32 + 1;
        }
        Some(uses)
    }

    /// Returns the blocks that have uses, with those, in no certain order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (BlockId, &Uses)> {
        self.all.iter().map(|(block, uses)| (*block, &**uses))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uses_are_those_of_the_block() {
        let mut all = UsesByBlock::default();
        assert!(all.get(BlockId(3)).is_none() && all.remove(BlockId(3)).is_none());
        for (block, streams) in [(3, 1), (1, 2), (5, 3), (3, 4)] {
            (0..streams).for_each(|stream| all.entry(BlockId(block)).streams.push(StreamId(stream)));
        }
        let streams = |all: &UsesByBlock, block| all.get(BlockId(block)).map(Uses::waits);
        assert_eq!([3, 1, 5, 2, 7].map(|block| streams(&all, block)), [Some(5), Some(2), Some(3), None, None]);
        assert_eq!(all.remove(BlockId(3)).map(|uses| uses.waits()), Some(5));
        assert_eq!([3, 1, 5].map(|block| streams(&all, block)), [None, Some(2), Some(3)], "those of others stay");
        assert_eq!(all.remove(BlockId(5)).map(|uses| uses.waits()), Some(3));
        all.entry(BlockId(3));
        assert!(all.iter().map(|(block, uses)| (block.0, uses.waits())).eq([(1, 2), (3, 0)]));
        assert!(all.get(BlockId(5)).is_none());
    }
}
