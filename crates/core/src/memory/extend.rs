//! How an expandable segment is made longer, so that it serves a request.

use super::Memory;
use crate::block::{Block, State};
use crate::ids::{BlockId, Place};
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

impl Growing {
    /// Decides how to go on with an expandable segment that is to serve a request, PyTorch's
    /// `try_allocate_expandable_block`, and claims what that needs. `claimed` is the plan's own claimed block, if it
    /// has one already.
    pub(crate) fn extend(self, memory: &mut Memory, claimed: Option<BlockId>, want: &Want) -> Extend {
        let claimed = match claimed {
            Some(block) => block,
            None => match self.run_for(memory, want) {
                Ok(start) if memory.blocks[start].state == State::Unmapped => {
                    return self.map_part(memory, start, None, want.rounded);
                }
                Ok(start) => {
                    memory.claim(start);
                    start
                }
                Err(otherwise) => return otherwise,
            },
        };
        let block = &memory.blocks[claimed];
        if block.size >= want.rounded {
            return Extend::Serve(claimed);
        }
        let missing = want.rounded - block.size;
        match block.next.some().filter(|&next| memory.blocks[next].state == State::Unmapped) {
            Some(next) => self.map_part(memory, next, Some(claimed), missing),
            None => Extend::Restart(claimed),
        }
    }

    /// Returns where the request is served: the first run that has room, or, where the driver is short of memory, the
    /// one that takes the least.
    fn run_for(self, memory: &Memory, want: &Want) -> Result<BlockId, Extend> {
        let mut runs = runs(memory, want, self.unit).peekable();
        if runs.peek().is_none() {
            return Err(Extend::NewRange);
        }
        let mut fitting = runs.filter(|&(_, bytes)| bytes <= self.room);
        let found = if self.is_short { fitting.min_by_key(|&(_, bytes)| bytes) } else { fitting.next() };
        found.map(|(start, _)| start).ok_or(Extend::NoRoom)
    }

    /// Claims the beginning of an unmapped block for the bytes that are missing: in whole pages, or where those have no
    /// room in as little as that takes.
    fn map_part(self, memory: &mut Memory, gap: BlockId, before: Option<BlockId>, missing: u64) -> Extend {
        let Block { size, slot, offset, .. } = memory.blocks[gap];
        let page_bytes = memory.segments[slot].page_bytes;
        let in_units = |unit: u64| missing.div_ceil(unit).saturating_mul(unit).min(size);
        let (whole, least) = (in_units(page_bytes), in_units(self.unit));
        let bytes = if self.is_short || whole > self.room { least } else { whole };
        if bytes > self.room {
            return before.map_or(Extend::NoRoom, Extend::Restart);
        }
        memory.claim_addresses(gap, bytes);
        let at = Place { shard: memory.id, slot, offset };
        Extend::Map { gap, at, bytes, page_bytes, before, is_least: bytes == least }
    }
}

/// Returns the least bytes that have to be mapped in expandable segments for a request that nothing free serves.
pub(crate) fn least_to_map(memory: &Memory, want: &Want, unit: u64) -> u64 {
    let anew = want.rounded.div_ceil(unit).saturating_mul(unit);
    runs(memory, want, unit).map(|(_, bytes)| bytes).min().unwrap_or(anew)
}

/// Returns where expandable segments can serve the request by mapping more, each with the least bytes to map:
/// PyTorch's `find_expandable_block`. Over the unmapped ranges in order, beginning with the free block just before
/// if there is one, each run of free and unmapped neighbours that is long enough. A step visits the blocks of one
/// run.
fn runs(memory: &Memory, want: &Want, unit: u64) -> impl Iterator<Item = (BlockId, u64)> {
    let wanted = want.rounded;
    let usable = |id: &BlockId| matches!(memory.blocks[*id].state, State::Free | State::Unmapped);
    memory.pools[want.side.index()].unmapped.iter().filter_map(move |&(_, unmapped)| {
        let before = memory.blocks[unmapped].prev.some().filter(usable);
        let start = before.unwrap_or(unmapped);
        let run = core::iter::successors(Some(start), |&id| memory.blocks[id].next.some().filter(usable));
        let (mut bytes, mut mapped) = (0, 0);
        for id in run {
            let Block { size, state, .. } = memory.blocks[id];
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
