//! Where an expandable segment can be made longer, and the addresses for it.

use super::Shard;
use crate::block::{Block, State};
use crate::ids::{BlockId, Side, Slot};
use crate::size::Want;

/// The next thing to do for an expandable segment that is to serve a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Extend {
    /// The claimed block is long enough: it is handed out.
    Serve(BlockId),
    /// Memory is to be mapped at `gap`, now claimed, behind the plan's claimed block if there is one.
    Map { gap: BlockId, before: Option<BlockId> },
    /// Another plan took the block behind the claimed one meanwhile: the attempt begins anew.
    Restart(BlockId),
    /// No range has room: one is to be reserved.
    NewRange,
}

/// Addresses that a plan has claimed in order to map memory there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Addresses {
    pub(crate) slot: Slot,
    pub(crate) side: Side,
    pub(crate) begin: u64,
    pub(crate) bytes: u64,
    pub(crate) page_bytes: u64,
}

impl Shard {
    /// Decides how to go on with an expandable segment that is to serve a request, PyTorch's
    /// `try_allocate_expandable_block`, and claims what that needs. `growing` is the plan's own claimed block, if it
    /// has one already.
    pub(crate) fn extend(&mut self, growing: Option<BlockId>, want: &Want) -> Extend {
        let growing = match growing {
            Some(block) => block,
            None => match self.room_to_grow(want) {
                None => return Extend::NewRange,
                Some(start) if self.blocks[start].state == State::Free => {
                    self.claim(start);
                    start
                }
                Some(start) => {
                    let bytes = want.rounded.min(self.blocks[start].size);
                    self.claim_addresses(start, bytes);
                    return Extend::Map { gap: start, before: None };
                }
            },
        };
        let block = &self.blocks[growing];
        if block.size >= want.rounded {
            return Extend::Serve(growing);
        }
        let missing = want.rounded - block.size;
        match block.next.some().filter(|&next| self.blocks[next].state == State::Unmapped) {
            Some(next) => {
                let bytes = missing.min(self.blocks[next].size);
                self.claim_addresses(next, bytes);
                Extend::Map { gap: next, before: Some(growing) }
            }
            None => Extend::Restart(growing),
        }
    }

    /// Returns where an expandable segment can serve the request by mapping more: PyTorch's `find_expandable_block`.
    /// Over the unmapped ranges in order, beginning with the free block just before if there is one, the first run of
    /// free and unmapped neighbours that is long enough.
    fn room_to_grow(&self, want: &Want) -> Option<BlockId> {
        let usable = |id: &BlockId| matches!(self.blocks[*id].state, State::Free | State::Unmapped);
        for &(_, unmapped) in &self.pools[want.side.index()].unmapped {
            let before = self.blocks[unmapped].prev.some().filter(usable);
            let start = before.unwrap_or(unmapped);
            let run = core::iter::successors(Some(start), |&id| self.blocks[id].next.some().filter(usable));
            let mut bytes = 0;
            if run.into_iter().any(|id| {
                bytes += self.blocks[id].size;
                bytes >= want.rounded
            }) {
                return Some(start);
            }
        }
        None
    }

    /// Returns the addresses of a claimed block.
    pub(crate) fn addresses_of(&self, id: BlockId) -> Addresses {
        let Block { slot, side, offset, size, .. } = self.blocks[id];
        Addresses { slot, side, begin: offset, bytes: size, page_bytes: self.segments[slot].page_bytes }
    }

    /// Hands out a block that the plan has claimed, whole or in part, with what was freed behind it meanwhile.
    pub(crate) fn serve(&mut self, id: BlockId, want: &Want, clock: u64) -> super::Grant {
        self.absorb_behind(id);
        self.hand_out(id, want, clock)
    }
}
