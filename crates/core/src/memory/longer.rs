//! How a block that is handed out becomes longer at its place, and the addresses that are kept for that.
//!
//! A *growable* block has reserved addresses after it ([`State::Reserved`]). Nothing is mapped there, and no other
//! request is served there. New pages are mapped at their front. When the block is freed, its memory is free at home
//! like any other, and the addresses that are left are again ones in which the home grows.

use core::fmt;

use super::{Growth, Memory, Tile};
use crate::block::State;
use crate::ids::{BlockId, Side};

/// Why a block cannot become longer at its place. Sizes are in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum NoRoom {
    /// The block has no memory: its size is 0.
    Empty,
    /// The next block is in use, or the device may still use it.
    Taken {
        /// The length of that block.
        bytes: u64,
    },
    /// The memory after it is free, but there is not enough of it.
    TooLittle {
        /// The length of that free memory.
        bytes: u64,
    },
    /// Its segment ends with it.
    Ends,
    /// It is followed by addresses without memory in which no page can be mapped for it, or too few of them.
    Addresses {
        /// The number of these addresses.
        bytes: u64,
    },
    /// It lies in a window of free pages.
    Window,
    /// Another thread is about to use or to release the memory after it.
    Busy,
    /// Its capacity is used up, but for this many bytes.
    Capacity {
        /// What is left of the capacity.
        bytes: u64,
    },
}

impl fmt::Display for NoRoom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoRoom::Empty => f.write_str("a buffer of 0 bytes has no place"),
            NoRoom::Taken { bytes } => write!(f, "the next {bytes} bytes are in use"),
            NoRoom::TooLittle { bytes } => write!(f, "only {bytes} bytes after it are free"),
            NoRoom::Ends => f.write_str("its segment ends with it"),
            NoRoom::Addresses { bytes } => write!(f, "no page can be mapped at the next {bytes} bytes of addresses"),
            NoRoom::Window => f.write_str("it lies in a window of free pages"),
            NoRoom::Busy => f.write_str("another thread works on the memory after it"),
            NoRoom::Capacity { bytes } => write!(f, "{bytes} bytes of its capacity are left"),
        }
    }
}

/// Where a block can become longer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Room {
    /// In free memory, of which this is the part that it gets.
    Free(Tile),
    /// In new pages, after a free block if there is one.
    Pages(Growth),
}

impl Memory {
    /// Returns the addresses that are reserved for a block.
    fn reserved_for(&self, id: BlockId) -> Option<BlockId> {
        self.blocks[id].next.some().filter(|&next| self.blocks[next].state == State::Reserved)
    }

    /// Returns by how much a block has to become longer to have `bytes` bytes: a growable one by whole pages.
    pub(crate) fn missing_for(&self, id: BlockId, bytes: u64) -> u64 {
        let missing = bytes.saturating_sub(self.blocks[id].size);
        if self.reserved_for(id).is_some() { missing.next_multiple_of(self.rules.slab) } else { missing }
    }

    /// Returns where a block that is handed out can become longer by `bytes`. Costs a look at the next two blocks.
    pub(crate) fn room_after(&self, id: BlockId, bytes: u64) -> Result<Room, NoRoom> {
        if self.is_for_windows(id) {
            return Err(NoRoom::Window);
        }
        let block = &self.blocks[id];
        let Some(next) = block.next.some() else { return Err(NoRoom::Ends) };
        let after = &self.blocks[next];
        let is_of_large_side = self.rules.moves_pages && block.side == Side::Large;
        match after.state {
            State::Reserved if after.size < bytes => Err(NoRoom::Capacity { bytes: after.size }),
            State::Reserved => Ok(Room::Pages(self.growth_in(next, None, bytes))),
            State::Unmapped if is_of_large_side && self.has_room_for(next, bytes) => {
                Ok(Room::Pages(self.growth_in(next, None, bytes)))
            }
            State::Unmapped => Err(NoRoom::Addresses { bytes: after.size }),
            State::Free if self.is_free_on(next, block.side) && self.is_within_slab(next) => {
                let tile = self.tile(next);
                if after.size >= bytes {
                    return Ok(Room::Free(Tile { end: tile.begin + bytes, ..tile }));
                }
                let hole = after.next.some().filter(|&hole| self.blocks[hole].state == State::Unmapped);
                let hole = hole.filter(|&hole| is_of_large_side && self.has_room_for(hole, bytes - after.size));
                let growth = hole.map(|hole| self.growth_in(hole, Some(tile), bytes - after.size));
                growth.map(Room::Pages).ok_or(NoRoom::TooLittle { bytes: after.size })
            }
            State::Claimed => Err(NoRoom::Busy),
            State::Free | State::Live | State::Pending | State::PutOff | State::Away | State::Kept | State::Vacant => {
                Err(NoRoom::Taken { bytes: after.size })
            }
        }
    }

    /// Returns whether addresses without memory have room for new pages of this many bytes.
    fn has_room_for(&self, hole: BlockId, bytes: u64) -> bool {
        bytes.next_multiple_of(self.rules.slab) <= self.blocks[hole].size
    }

    /// Returns new pages for `missing` bytes at the front of addresses without memory.
    fn growth_in(&self, hole: BlockId, before: Option<Tile>, missing: u64) -> Growth {
        let block = &self.blocks[hole];
        let (slot, begin, limit, from) = (block.slot, block.offset, block.end(), block.state);
        Growth { before, hole, slot, begin, missing, limit, from, keeps: None }
    }

    /// Returns where a home has addresses for a growable block of `bytes` bytes: at the end of the first hole that is
    /// long enough for its capacity, because the home grows from the front. Both are whole pages.
    pub(crate) fn growth_with_capacity(&self, bytes: u64, capacity: u64) -> Option<Growth> {
        let unit = self.rules.slab;
        self.pools[Side::Large.index()].unmapped.iter().find_map(|&(_, hole)| {
            let block = &self.blocks[hole];
            let begin = block.end().checked_sub(capacity)? / unit * unit;
            let keeps = Some(capacity - bytes);
            (begin >= block.offset).then(|| Growth { begin, keeps, ..self.growth_in(hole, None, bytes) })
        })
    }

    /// Claims the first `bytes` of reserved addresses. The rest stays reserved.
    pub(crate) fn claim_reserved(&mut self, id: BlockId, bytes: u64) -> BlockId {
        assert_eq!(self.blocks[id].state, State::Reserved, "block {} is claimed for its growth", id.0);
        if bytes < self.blocks[id].size {
            self.cut(id, bytes);
        }
        self.blocks[id].state = State::Claimed;
        id
    }

    /// Cuts claimed addresses after their first `bytes`. The rest, if there is one, is reserved for the block there.
    pub(crate) fn reserve_after(&mut self, id: BlockId, bytes: u64) {
        if bytes < self.blocks[id].size {
            let rest = self.cut(id, bytes);
            self.blocks[rest].state = State::Reserved;
        }
    }

    /// Gives claimed addresses back to the block in front of them, for which they were reserved.
    pub(crate) fn reserve_again(&mut self, id: BlockId) {
        self.blocks[id].state = State::Reserved;
        if let Some(rest) = self.reserved_for(id) {
            self.absorb(id, rest);
        }
    }

    /// Has a home grow again at the addresses that are reserved for a block. Returns whether there are some.
    pub(crate) fn unreserve(&mut self, id: BlockId) -> bool {
        let reserved = self.reserved_for(id);
        if let Some(reserved) = reserved {
            self.unmapped(reserved);
        }
        reserved.is_some()
    }

    /// Returns whether addresses are reserved for a block.
    pub(crate) fn is_growable(&self, id: BlockId) -> bool {
        self.reserved_for(id).is_some()
    }

    /// Verifies that reserved addresses follow the block that they are for, whose free takes the way on which they
    /// become ordinary ones, or what a plan maps for that block.
    pub(super) fn check_reserved(&self, id: BlockId) {
        let block = &self.blocks[id];
        let Some(front) = block.prev.some().map(|id| &self.blocks[id]) else { panic!("{block:?} is for no block") };
        let is_its = front.state == State::Claimed || (front.state == State::Live && front.used_elsewhere);
        assert!(is_its && block.offset.is_multiple_of(self.rules.slab), "{block:?} is reserved for {front:?}");
    }
}
