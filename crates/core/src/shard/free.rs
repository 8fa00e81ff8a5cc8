//! Frees: blocks are taken back at once, or when their points are reached.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::mem;

use millpond_backend::{Reuse, StreamId, Tick};

use super::Shard;
use crate::block::{Block, LastUse, State};
use crate::books::Points;
use crate::ids::{BlockId, Slot};

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

/// The state of a block after its free.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Freed {
    /// The block is free.
    Done {
        /// Whether the coordinator must settle: room for a peak ran out, or the shard has room that it does not hold.
        unsettled: bool,
    },
    /// The block waits for its home stream, within the shard.
    Settling {
        /// Whether the coordinator must settle, as above.
        unsettled: bool,
    },
    /// The block waits for the current tick of each of these streams and for these points. The caller marks the streams
    /// and passes the points to the coordinator.
    Pending(Box<Uses>),
}

/// A block that has become free after its free had to wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Retired {
    /// The handle under which it was handed out.
    pub block: BlockId,
    /// The slot of its segment.
    pub slot: Slot,
    /// The offset in the segment at which it started, in bytes.
    pub offset: u64,
    /// Its length in bytes.
    pub size: u64,
    /// The bytes that the program had asked for.
    pub requested: u64,
}

impl Shard {
    /// Turns listing of the blocks that become free after a wait on or off, for [`take_retired`](Self::take_retired).
    /// Drops what is already listed. It changes no decision.
    pub fn list_retired(&mut self, on: bool) {
        self.retired = on.then(Vec::new);
    }

    /// Returns the blocks that have become free after a wait since the last call, in order; none unless they are
    /// [listed](Self::list_retired).
    pub fn take_retired(&mut self) -> Vec<Retired> {
        self.retired.as_mut().map(mem::take).unwrap_or_default()
    }

    /// Lists a block that is about to become free.
    pub(super) fn note_retired(&mut self, id: BlockId) {
        if let Some(list) = &mut self.retired {
            let Block { slot, offset, size, requested, .. } = self.memory.blocks[id];
            list.push(Retired { block: id, slot, offset, size, requested });
        }
    }

    /// Takes back a block that the program no longer needs. `tick` covers everything recorded so far on the stream that
    /// the block was handed out for.
    ///
    /// # Panics
    ///
    /// Panics if the block is not handed out, which is a double free.
    #[inline(always)]
    pub fn free(&mut self, id: BlockId, tick: Tick, clock: u64) -> Freed {
        if self.swaps_out(id, tick, clock) { Freed::Done { unsettled: false } } else { self.free_anew(id, tick, clock) }
    }

    #[inline(never)]
    fn free_anew(&mut self, id: BlockId, tick: Tick, clock: u64) -> Freed {
        if self.put_off != BlockId::NONE {
            self.tidy();
        }
        self.swap.end();
        let block = &self.memory.blocks[id];
        assert!(block.state == State::Live, "block {} was freed before and is freed again", id.0);
        if block.used_elsewhere || self.memory.rules.reuse != Reuse::InOrder {
            return self.free_later(id, tick, clock);
        }
        if self.snug.is_none() && self.puts_off(id, tick, clock) {
            return Freed::Done { unsettled: false };
        }
        self.free_now(id, tick, clock)
    }

    #[inline(never)]
    fn free_now(&mut self, id: BlockId, tick: Tick, clock: u64) -> Freed {
        let block = &mut self.memory.blocks[id];
        block.last_use = LastUse::at(tick);
        let (side, size, requested) = (block.side, block.size, block.requested);
        let oversize = size >= self.memory.rules.max_split;
        self.snug_gives(size, requested);
        let change = self.memory.join(id, clock);
        let unsettled = self.meter.free_and_retire(side, size, requested, oversize, change);
        Freed::Done { unsettled }
    }

    #[cold]
    fn free_later(&mut self, id: BlockId, tick: Tick, clock: u64) -> Freed {
        let block = &mut self.memory.blocks[id];
        block.state = State::Pending;
        let oversize = block.size >= self.memory.rules.max_split;
        let unsettled = self.meter.free(block.side, block.size, oversize);
        let uses = mem::take(&mut block.used_elsewhere).then(|| self.uses.remove(&id).unwrap_or_default());
        // Growable blocks are marked.
        let was_growable = uses.is_some() && self.memory.unreserve(id);
        let is_marked =
            |uses: &Uses| was_growable || self.is_closed() || self.panes.has(id) || *uses != Uses::default();
        let is_told = uses.as_ref().is_none_or(|uses| is_marked(uses));
        assert!(is_told, "block {} was used elsewhere and nothing says where", id.0);
        let block = &mut self.memory.blocks[id];
        block.last_use = LastUse::at(tick);
        match uses.filter(|uses| uses.waits() > 0) {
            Some(uses) => {
                block.waits = uses.waits();
                Freed::Pending(uses)
            }
            None if self.memory.rules.moves_pages => {
                Freed::Done { unsettled: self.guard(id, Points::default(), clock) }
            }
            None if self.memory.rules.reuse == Reuse::InOrder => Freed::Done { unsettled: self.retire(id, clock) },
            None => {
                self.put_in_line(tick, id);
                Freed::Settling { unsettled }
            }
        }
    }

    /// Makes a freed block free at once, for whoever comes after its user and these points of others. Returns whether
    /// room for a peak ran out.
    pub(crate) fn guard(&mut self, id: BlockId, points: Points, clock: u64) -> bool {
        let Block { side, size, requested, state, .. } = self.memory.blocks[id];
        assert_eq!(state, State::Pending, "block {} is guarded", id.0);
        let Some(points) = self.keep_freed(id, points, clock) else { return false };
        self.note_retired(id);
        self.memory.blocks[id].waits = 0;
        if self.panes.has(id) {
            self.panes.close(&mut self.memory, id, &points, clock);
            return self.meter.retire(side, size, requested, Default::default());
        }
        self.memory.guards.used_by_others(&mut self.memory.blocks[id], points, false);
        let change = self.memory.join(id, clock);
        self.meter.retire(side, size, requested, change)
    }

    /// Notes that one of the points of a pending block is reached. Returns whether room for a peak ran out.
    ///
    /// # Panics
    ///
    /// If the block waits for nothing.
    pub(crate) fn point_reached(&mut self, id: BlockId, clocks: [u64; 2]) -> bool {
        let block = &mut self.memory.blocks[id];
        let clock = clocks[block.side.index()];
        assert!(block.state == State::Pending && block.waits > 0, "block {} waits for no point: {block:?}", id.0);
        block.waits -= 1;
        if block.waits > 0 {
            return false;
        }
        if self.memory.rules.moves_pages {
            // At home its own stream's use is kept with the free memory.
            return self.guard(id, Points::default(), clock);
        }
        if self.memory.rules.reuse == Reuse::InOrder {
            return self.retire(id, clock);
        }
        let tick = block.last_use.tick();
        self.put_in_line(tick, id);
        false
    }

    /// Adds a block to those that wait for the home stream, behind those of its tick. Ticks rise, but this block may
    /// have waited for another stream first, or a thread with a later mark may have added its block first.
    fn put_in_line(&mut self, tick: Tick, id: BlockId) {
        let at = match self.settling.back() {
            Some(&(last, _)) if last > tick => self.settling.partition_point(|&(other, _)| other <= tick),
            _ => self.settling.len(),
        };
        self.settling.insert(at, (tick, id));
    }

    /// Retires the blocks whose own stream has advanced far enough. Returns whether room for a peak ran out.
    #[cold]
    pub(crate) fn retire_own(&mut self, usable: Tick, clock: u64) -> bool {
        let mut unsettled = false;
        while let Some(&(tick, id)) = self.settling.front() {
            if tick > usable {
                break;
            }
            self.settling.pop_front();
            unsettled |= self.retire(id, clock);
        }
        unsettled
    }

    /// Makes a pending block free. Returns whether room for a peak ran out.
    fn retire(&mut self, id: BlockId, clock: u64) -> bool {
        self.note_retired(id);
        let block = &self.memory.blocks[id];
        let (side, size, requested) = (block.side, block.size, block.requested);
        self.snug_gives(size, requested);
        let change = self.memory.join(id, clock);
        self.meter.retire(side, size, requested, change)
    }
}
