//! Where an expandable segment can be made longer, and the addresses for it.

use millpond_backend::StreamId;

use super::Shard;
use crate::block::{Block, State};
use crate::ids::{BlockId, Place};
use crate::last_use::LastUse;
use crate::size::Want;

/// The next thing to do for an expandable segment that is to serve a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Extend {
    /// The claimed block is long enough: it is handed out.
    Serve(BlockId),
    /// Memory is to be mapped `at` the `bytes` of `gap`, now claimed, behind the plan's claimed block if there is one.
    /// `is_least` says that it is no more than what is missing, in the unit of new memory.
    Map { gap: BlockId, at: Place, bytes: u64, page_bytes: u64, before: Option<BlockId>, is_least: bool },
    /// Another plan took the block behind the claimed one meanwhile, or what may be mapped: the attempt begins anew.
    Restart(BlockId),
    /// What is missing is more than may be mapped.
    NoRoom,
    /// No range has room: one is to be reserved.
    NewRange,
}

/// What new memory of an expandable segment keeps to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Growing {
    /// The unit in which memory is mapped where whole pages have no room, in bytes: that of the device, or a whole page
    /// where there are no shorter ones.
    pub(crate) unit: u64,
    /// How much may be mapped, in bytes.
    pub(crate) room: u64,
    /// Whether the driver has refused whole pages to the plan, which makes do with as little as it can.
    pub(crate) is_short: bool,
}

impl Shard {
    /// Decides how to go on with an expandable segment that is to serve a request, PyTorch's
    /// `try_allocate_expandable_block`, and claims what that needs. `claimed` is the plan's own claimed block, if it
    /// has one already.
    pub(crate) fn extend(&mut self, claimed: Option<BlockId>, want: &Want, growing: Growing) -> Extend {
        let claimed = match claimed {
            Some(block) => block,
            None => match self.run_for(want, growing) {
                Ok(start) if self.blocks[start].state == State::Unmapped => {
                    return self.map_part(start, None, want.rounded, growing);
                }
                Ok(start) => {
                    self.claim(start);
                    start
                }
                Err(otherwise) => return otherwise,
            },
        };
        let block = &self.blocks[claimed];
        if block.size >= want.rounded {
            return Extend::Serve(claimed);
        }
        let missing = want.rounded - block.size;
        match block.next.some().filter(|&next| self.blocks[next].state == State::Unmapped) {
            Some(next) => self.map_part(next, Some(claimed), missing, growing),
            None => Extend::Restart(claimed),
        }
    }

    /// Returns where the request is served: the first run that has room, or, where the driver is short of memory, the
    /// one that takes the least.
    fn run_for(&self, want: &Want, growing: Growing) -> Result<BlockId, Extend> {
        let mut runs = self.runs(want, growing.unit).peekable();
        if runs.peek().is_none() {
            return Err(Extend::NewRange);
        }
        let mut fitting = runs.filter(|&(_, bytes)| bytes <= growing.room);
        let found = if growing.is_short { fitting.min_by_key(|&(_, bytes)| bytes) } else { fitting.next() };
        found.map(|(start, _)| start).ok_or(Extend::NoRoom)
    }

    /// Claims the beginning of an unmapped block for the bytes that are missing: in whole pages, or where those have no
    /// room in as little as that takes.
    fn map_part(&mut self, gap: BlockId, before: Option<BlockId>, missing: u64, growing: Growing) -> Extend {
        let Block { size, slot, offset, .. } = self.blocks[gap];
        let page_bytes = self.segments[slot].page_bytes;
        let in_units = |unit: u64| missing.div_ceil(unit).saturating_mul(unit).min(size);
        let (whole, least) = (in_units(page_bytes), in_units(growing.unit));
        let bytes = if growing.is_short || whole > growing.room { least } else { whole };
        if bytes > growing.room {
            return before.map_or(Extend::NoRoom, Extend::Restart);
        }
        self.claim_addresses(gap, bytes);
        let at = Place { shard: self.id, slot, offset };
        Extend::Map { gap, at, bytes, page_bytes, before, is_least: bytes == least }
    }

    /// Returns where expandable segments can serve the request by mapping more, each with the least bytes to map:
    /// PyTorch's `find_expandable_block`. Over the unmapped ranges in order, beginning with the free block just before
    /// if there is one, each run of free and unmapped neighbours that is long enough. A step visits the blocks of one
    /// run.
    fn runs(&self, want: &Want, unit: u64) -> impl Iterator<Item = (BlockId, u64)> {
        let wanted = want.rounded;
        let usable = |id: &BlockId| matches!(self.blocks[*id].state, State::Free | State::Unmapped);
        self.pools[want.side.index()].unmapped.iter().filter_map(move |&(_, unmapped)| {
            let before = self.blocks[unmapped].prev.some().filter(usable);
            let start = before.unwrap_or(unmapped);
            let run = core::iter::successors(Some(start), |&id| self.blocks[id].next.some().filter(usable));
            let (mut bytes, mut mapped) = (0, 0);
            for id in run {
                let Block { size, state, .. } = self.blocks[id];
                if state == State::Unmapped {
                    mapped += (wanted - bytes).div_ceil(unit).saturating_mul(unit).min(size);
                }
                bytes += size;
                if bytes >= wanted {
                    return Some((start, mapped));
                }
            }
            None
        })
    }

    /// Returns the least bytes that have to be mapped in expandable segments for a request that nothing free serves.
    pub(crate) fn least_to_map(&self, want: &Want, unit: u64) -> u64 {
        let anew = want.rounded.div_ceil(unit).saturating_mul(unit);
        self.runs(want, unit).map(|(_, bytes)| bytes).min().unwrap_or(anew)
    }

    /// Hands out a block that the plan has claimed, whole or in part, to a stream, with the last use that counts there.
    /// What was freed after it meanwhile joins what is left of it.
    pub(crate) fn serve(&mut self, id: BlockId, want: &Want, clock: u64, to: (StreamId, LastUse)) -> super::Grant {
        if !self.rules.moves_pages {
            self.absorb_behind(id);
            return self.hand_out(id, want, clock);
        }
        let grant = self.hand_out(id, want, clock);
        let is_free = |id: &BlockId| self.is_free_on(*id, want.side);
        if let Some(rest) = self.blocks[id].next.some().filter(is_free)
            && self.blocks[rest].next.some().is_some_and(|behind| is_free(&behind))
        {
            self.unlist(rest);
            self.join(rest, clock);
        }
        self.granted(grant, to)
    }
}
