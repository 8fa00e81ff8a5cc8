//! A shard whose group is not running: nothing of it is granted, and nothing of it is given back.
//!
//! Its free blocks are claimed, so no request finds one. Its live blocks are marked as used elsewhere, so their frees
//! do not take the short way, and wait here until the shard is opened again. So a hit and a free look for nothing that
//! they do not look for anyway.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use millpond_backend::StreamId;

use super::{Extent, Shard};
use crate::block::{Block, State};
use crate::books::Points;
use crate::ids::{BlockId, Slot};

/// What a closed shard keeps until it is opened.
#[derive(Clone, Default)]
pub(super) struct Closed {
    /// The blocks that were free when it was closed.
    claimed: Vec<BlockId>,
    /// What was freed since, in order.
    freed: Vec<FreedMeanwhile>,
    /// Whether its pages are with the driver.
    pub(super) paused: bool,
}

#[derive(Clone)]
struct FreedMeanwhile {
    block: BlockId,
    points: Points,
    clock: u64,
}

impl Shard {
    /// Closes the shard. Costs a visit to each block.
    ///
    /// # Panics
    ///
    /// If it is closed already.
    pub(crate) fn close(&mut self) {
        assert!(self.closed.is_none(), "shard {} is closed twice", self.memory.id.0);
        let claimed: Vec<_> = self.memory.all_free().map(|(id, _)| id).collect();
        claimed.iter().for_each(|&id| self.memory.claim(id));
        for id in self.blocks_in_state(State::Live) {
            self.memory.blocks[id].used_elsewhere = true;
        }
        self.closed = Some(Box::new(Closed { claimed, ..Closed::default() }));
    }

    /// Opens a closed shard: what was free is free again, and so is what was freed meanwhile. Does nothing if it was
    /// opened after its group was closed. Costs a visit to each block. Returns whether room for a peak ran out.
    pub(crate) fn open(&mut self, clocks: [u64; 2]) -> bool {
        let Some(closed) = self.closed.take() else { return false };
        assert!(!closed.paused, "shard {} is opened without its pages", self.memory.id.0);
        for id in self.blocks_in_state(State::Live) {
            self.mark_used_elsewhere(id);
        }
        closed.claimed.into_iter().for_each(|id| self.memory.unclaim(id, clocks));
        let freed = closed.freed.into_iter();
        freed.fold(false, |unsettled, FreedMeanwhile { block, points, clock }| {
            self.guard(block, points, clock) | unsettled
        })
    }

    /// Returns whether the shard is closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.is_some()
    }

    /// Notes whether the pages of a closed shard are with the driver.
    pub(crate) fn set_paused(&mut self, paused: bool) {
        if let Some(closed) = &mut self.closed {
            closed.paused = paused;
        }
    }

    /// Returns whether the pages of the shard are with the driver.
    pub(crate) fn is_paused(&self) -> bool {
        self.closed.as_ref().is_some_and(|closed| closed.paused)
    }

    /// Returns the bytes of a home that small blocks have. None are reserved while its pages are with the driver.
    pub(crate) fn small_bytes(&self) -> u64 {
        if self.is_paused() { 0 } else { self.memory.small_bytes }
    }

    /// Keeps a freed block, with the points that its memory waits for, until the shard is opened. Returns the points if
    /// the shard is not closed.
    pub(super) fn keep_freed(&mut self, block: BlockId, points: Points, clock: u64) -> Option<Points> {
        match &mut self.closed {
            Some(closed) => {
                closed.freed.push(FreedMeanwhile { block, points, clock });
                None
            }
            None => Some(points),
        }
    }

    /// Returns the number of blocks that were freed since the shard was closed.
    pub(super) fn freed_meanwhile(&self) -> usize {
        self.closed.as_ref().map_or(0, |closed| closed.freed.len())
    }

    /// Returns the freed blocks whose points only the thread that frees them knows as yet, or the coordinator.
    pub(crate) fn freed_elsewhere(&self) -> Vec<BlockId> {
        let kept: BTreeSet<_> = self.closed.iter().flat_map(|closed| &closed.freed).map(|freed| freed.block).collect();
        let waits = |id: &BlockId| self.memory.blocks[*id].waits > 0 && !kept.contains(id);
        self.blocks_in_state(State::Pending).into_iter().filter(waits).collect()
    }

    /// Returns the streams that use live blocks: those that they were handed out for, and those named since. Those that
    /// blocks wait for which were freed since the shard was closed, too.
    pub(crate) fn users(&self) -> BTreeSet<StreamId> {
        let of_blocks = self.memory.blocks.iter().filter(|(_, block)| block.is_held()).map(|(_, block)| block.user);
        let uses = self.uses.values();
        let named = uses.flat_map(|uses| {
            uses.streams.iter().copied().chain(uses.points.iter().map(|point| point.stream)).collect::<Vec<_>>()
        });
        let meanwhile = self.closed.iter().flat_map(|closed| &closed.freed).flat_map(|freed| freed.points.iter());
        of_blocks.chain(named).chain(meanwhile.map(|point| point.stream)).collect()
    }

    /// Returns up to where the memory of blocks that are not handed out was used.
    pub(crate) fn points_of_freed(&self) -> Points {
        let freed = |block: &&Block| matches!(block.state, State::Free | State::Claimed);
        let blocks = self.memory.blocks.iter().map(|(_, block)| block).filter(freed);
        let points = |block: &Block| {
            block.plain_point().into_iter().chain(self.memory.guards.points_of(block).iter()).collect::<Vec<_>>()
        };
        blocks.flat_map(points).collect()
    }

    /// Returns the memory at home that live blocks have, or all that has pages if `whole`, as few ranges.
    pub(crate) fn contents(&self, whole: bool) -> Vec<Extent> {
        let has_contents = |block: &Block| match block.state {
            State::Live | State::Away => true,
            State::Unmapped | State::Reserved => false,
            _ => whole,
        };
        let homes = self.memory.segments.iter().filter(|(_, segment)| !segment.has_windows).map(|(slot, _)| slot);
        homes.flat_map(|slot| self.contents_in(slot, &has_contents)).collect()
    }

    fn contents_in(&self, slot: Slot, has_contents: &impl Fn(&Block) -> bool) -> Vec<Extent> {
        let mut found: Vec<Extent> = Vec::new();
        for id in self.memory.blocks_in(slot) {
            let block = &self.memory.blocks[id];
            if !has_contents(block) {
                continue;
            }
            match found.last_mut() {
                Some(last) if last.offset + last.bytes == block.offset => last.bytes += block.size,
                _ => found.push(Extent { slot, offset: block.offset, bytes: block.size }),
            }
        }
        found
    }

    fn blocks_in_state(&self, state: State) -> Vec<BlockId> {
        self.memory.blocks.iter().filter(|(_, block)| block.state == state).map(|(id, _)| id).collect()
    }
}
