//! A block, which is a range of a segment, handed out or free; its last use; and the table that holds a shard's blocks.

use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;

use millpond_backend::{Point, StreamId, Tick};

use crate::ids::{BlockId, Side, Slot};
use crate::index::BLOCK_IDS;

/// The state of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    /// Handed out.
    Live,
    /// Freed by the program and still waiting for a point: it can be neither reused nor joined.
    Pending,
    /// In the free index.
    Free,
    /// Freed last, and not yet joined with its neighbours and put into the index.
    PutOff,
    /// Addresses without memory (expandable segments only).
    Unmapped,
    /// Memory of a range that is in use at other addresses, through a window.
    Away,
    /// Addresses of a window that nothing uses now. Pages are mapped there, and their memory is at home.
    Kept,
    /// Addresses without memory into which the block in front of them grows: no other request is served there.
    Reserved,
    /// Claimed by one plan while the driver works on it: in no index.
    Claimed,
    /// Not a block: an entry of the table that can be used again.
    Vacant,
}

/// One range. The blocks of a segment tile it: `prev` and `next` are its neighbours by address.
///
/// Each takes one cache line, so that blocks of different streams never share one.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub(crate) struct Block {
    /// The offset in its segment at which it starts, in bytes.
    pub(crate) offset: u64,
    /// Its length in bytes.
    pub(crate) size: u64,
    /// The bytes that the program asked for. Valid while the block is live or pending.
    pub(crate) requested: u64,
    /// The last use of its memory, a tick of its user.
    pub(crate) last_use: LastUse,
    /// The count of searches when it last entered the free index: the clock of garbage collection.
    pub(crate) age: u64,
    pub(crate) prev: BlockId,
    pub(crate) next: BlockId,
    pub(crate) slot: Slot,
    /// The stream that it was handed out for last. In a shard of one stream it is that stream.
    pub(crate) user: StreamId,
    /// The number of points that it still waits for.
    pub(crate) waits: u32,
    pub(crate) state: State,
    pub(crate) side: Side,
    /// Whether its segment is an address range that grows by pages.
    pub(crate) expandable: bool,
    /// Whether it was used on other streams, or up to given points: the shard's table of uses has the list. Of a free
    /// block, whether a part of it may be guarded.
    pub(crate) used_elsewhere: bool,
}

impl Block {
    /// Returns the point up to which its user used its memory.
    pub(crate) fn last_point(&self) -> Point {
        Point { stream: self.user, tick: self.last_use.tick() }
    }

    /// Returns the point up to which it was used, if it says so itself.
    pub(crate) fn plain_point(&self) -> Option<Point> {
        (!self.used_elsewhere && self.last_use > LastUse::OVER).then(|| self.last_point())
    }

    pub(crate) const VACANT: Block = Block {
        offset: 0,
        size: 0,
        requested: 0,
        last_use: LastUse::NEVER,
        age: 0,
        prev: BlockId::NONE,
        next: BlockId::NONE,
        slot: Slot(0),
        user: StreamId(0),
        waits: 0,
        state: State::Vacant,
        side: Side::Small,
        expandable: false,
        used_elsewhere: false,
    };

    /// Returns whether the program holds the block, or the block waits for the device after that.
    pub(crate) fn is_held(&self) -> bool {
        matches!(self.state, State::Live | State::Pending)
    }

    /// Returns whether the block has a neighbour, so that its segment is in pieces.
    pub(crate) fn is_split(&self) -> bool {
        self.prev != BlockId::NONE || self.next != BlockId::NONE
    }

    /// Returns the offset of the first byte behind the block.
    pub(crate) fn end(&self) -> u64 {
        self.offset + self.size
    }

    /// Returns its bytes in the segment.
    pub(crate) fn range(&self) -> Range<u64> {
        self.offset..self.end()
    }
}

/// All blocks of a shard. Vacant entries are chained by `next`, and the one vacated last is used first, which keeps the
/// entries in frequent use in the cache.
#[derive(Clone)]
pub(crate) struct Blocks {
    table: Vec<Block>,
    vacant: BlockId,
}

impl Blocks {
    pub(crate) fn new() -> Self {
        Self { table: Vec::new(), vacant: BlockId::NONE }
    }

    #[inline(always)]
    pub(crate) fn get_mut(&mut self, id: BlockId) -> Option<&mut Block> {
        self.table.get_mut(id.0 as usize)
    }

    #[inline]
    pub(crate) fn insert(&mut self, block: Block) -> BlockId {
        let id = self.vacancy();
        self[id] = block;
        id
    }

    /// Takes an entry out of the chain of vacant ones, to be filled in place.
    #[inline(always)]
    pub(crate) fn vacancy(&mut self) -> BlockId {
        let id = self.vacant;
        match self.table.get(id.0 as usize) {
            Some(entry) => {
                self.vacant = entry.next;
                id
            }
            None => self.push(),
        }
    }

    /// Returns all entries by id, for callers that use several. The compiler then keeps the address and the length of
    /// the slice, instead of reading them for each entry.
    #[inline(always)]
    pub(crate) fn table(&mut self) -> &mut [Block] {
        &mut self.table
    }

    #[cold]
    #[inline(never)]
    fn push(&mut self) -> BlockId {
        let id = self.table.len();
        assert!(id < BLOCK_IDS as usize, "a shard holds {id} blocks already");
        self.table.push(Block::VACANT);
        BlockId(id as u32)
    }

    #[inline(always)]
    pub(crate) fn remove(&mut self, id: BlockId) {
        let vacant = self.vacant;
        let entry = &mut self[id];
        debug_assert_ne!(entry.state, State::Vacant, "block {} is removed twice", id.0);
        entry.state = State::Vacant;
        entry.next = vacant;
        self.vacant = id;
    }

    /// Returns the entry of an id that may be none of this table's.
    pub(crate) fn get(&self, id: BlockId) -> Option<&Block> {
        self.table.get(id.0 as usize)
    }

    /// Returns a number that all ids are below.
    pub(crate) fn ids(&self) -> usize {
        self.table.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (BlockId, &Block)> {
        let numbered = self.table.iter().enumerate().map(|(at, block)| (BlockId(at as u32), block));
        numbered.filter(|(_, block)| block.state != State::Vacant)
    }

    pub(crate) fn check(&self) {
        let vacant = self.table.iter().filter(|block| block.state == State::Vacant).count();
        let chained = core::iter::successors(self.vacant.some(), |&id| self[id].next.some());
        // One more than there can be is enough to detect a cycle.
        let chained = chained.take(vacant + 1).filter(|&id| self[id].state == State::Vacant).count();
        assert_eq!(vacant, chained, "vacant entries in the table against those chained");
    }
}

impl core::ops::Index<BlockId> for Blocks {
    type Output = Block;

    #[inline]
    fn index(&self, id: BlockId) -> &Block {
        &self.table[id.0 as usize]
    }
}

impl core::ops::IndexMut<BlockId> for Blocks {
    #[inline]
    fn index_mut(&mut self, id: BlockId) -> &mut Block {
        &mut self.table[id.0 as usize]
    }
}

/// The last use of some memory on the stream that has it: the tick that covers it, or that the memory was never used.
///
/// Memory may have been used at no tick of that stream, because another stream used it and that use is over. It counts
/// as used at the tick 0, which every stream has reached. Of two last uses the greater one covers both, and never used
/// is less than every use. So what is joined from several parts counts as unused only if each of them is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LastUse(u64);

impl LastUse {
    /// No use: the memory is as the driver gave it.
    pub const NEVER: LastUse = LastUse(0);

    /// The last use of memory that was used, where the record has by whom, or that is over.
    pub(crate) const OVER: LastUse = LastUse::at(Tick::ZERO);

    /// Creates the last use of memory that was used, covered by this tick.
    #[inline(always)]
    pub const fn at(tick: Tick) -> Self {
        Self(tick.0.saturating_add(1))
    }

    /// Returns the tick that covers the last use, or 0, which is always reached, if there was none.
    #[inline(always)]
    pub const fn tick(self) -> Tick {
        Tick(self.0.saturating_sub(1))
    }

    /// Returns whether the memory was never used since it came from the driver.
    #[inline(always)]
    pub const fn is_never(self) -> bool {
        self.0 == 0
    }
}

impl fmt::Debug for LastUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_never() { f.write_str("never") } else { write!(f, "tick {}", self.tick().0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_used_at_no_tick_of_its_stream_was_used_all_the_same() {
        assert!(LastUse::NEVER.is_never() && !LastUse::at(Tick::ZERO).is_never());
        assert_eq!((LastUse::NEVER.tick(), LastUse::at(Tick::ZERO).tick()), (Tick::ZERO, Tick::ZERO));
        assert_eq!(LastUse::at(Tick(7)).tick(), Tick(7));
    }

    #[test]
    fn the_greater_of_two_covers_both() {
        let (never, long_ago, later) = (LastUse::NEVER, LastUse::at(Tick::ZERO), LastUse::at(Tick(3)));
        assert_eq!((never.max(long_ago), long_ago.max(later), never.max(later)), (long_ago, later, later));
    }
}
