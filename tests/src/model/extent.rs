//! Extents and their blocks.

use std::collections::BTreeMap;

use super::Moment;

/// The state of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// In use by the program.
    Live,
    /// Freed, with events still to come.
    Waiting {
        /// The number of events to come.
        events: usize,
    },
    /// Free.
    Free,
    /// Addresses without memory.
    Unmapped,
}

/// A range of an extent.
#[derive(Clone, Debug)]
pub struct Block {
    /// Its number.
    pub number: u64,
    /// The offset of its start in its extent, in bytes.
    pub offset: u64,
    /// Its size in bytes.
    pub size: u64,
    /// The bytes that the program requested. The value has no meaning while the block is not in use.
    pub requested: u64,
    /// Its state.
    pub state: State,
    /// The other streams that use it until its free.
    pub(super) uses: Vec<usize>,
    /// The points of other streams until which it is used, by stream.
    pub(super) until: BTreeMap<usize, Moment>,
    /// The number of searches of its pool up to when it last became free.
    pub(super) free_since: u64,
}

impl Block {
    pub(super) fn new(number: u64, offset: u64, size: u64, state: State) -> Block {
        let (uses, until) = (Vec::new(), BTreeMap::new());
        Block { number, offset, size, requested: 0, state, uses, until, free_since: 0 }
    }
}

/// A segment, or a reserved range.
#[derive(Clone, Debug)]
pub struct Extent {
    /// The number of extents that were created before it.
    pub birth: u64,
    /// The stream that its blocks belong to.
    pub stream: usize,
    /// Whether it belongs to the small pool.
    pub small: bool,
    /// Whether it grows by pages.
    pub expandable: bool,
    /// Its size in bytes, mapped or not.
    pub bytes: u64,
    /// The blocks that tile it.
    pub blocks: Vec<Block>,
    /// The pages that are mapped, as their offsets and ends, if it grows by pages.
    pub pages: Vec<(u64, u64)>,
}

impl Extent {
    /// Notes that pages of `page` bytes are mapped, of which the last one may be shorter.
    pub(super) fn map(&mut self, begin: u64, end: u64, page: u64) {
        let pages = (begin..end).step_by(page as usize).map(|at| (at, end.min(at + page)));
        self.pages.extend(pages);
    }

    /// Returns where the whole pages between two offsets begin and end, if there are any.
    pub(super) fn pages_within(&self, begin: u64, end: u64) -> Option<(u64, u64)> {
        let within = self.pages.iter().filter(|page| begin <= page.0 && page.1 <= end);
        within.copied().reduce(|all, page| (all.0.min(page.0), all.1.max(page.1)))
    }

    /// Returns whether it has more than one block, so that it cannot be released.
    pub(super) fn is_split(&self) -> bool {
        self.blocks.len() > 1
    }

    /// Joins the block at `at` with its neighbours in the same state; the block keeps its number. Returns its new place
    /// and the size of each neighbour that was joined.
    pub(super) fn merge(&mut self, at: usize) -> (usize, Vec<u64>) {
        let state = self.blocks[at].state;
        let (mut at, mut gone) = (at, Vec::new());
        if at > 0 && self.blocks[at - 1].state == state {
            let before = self.blocks.remove(at - 1);
            at -= 1;
            self.blocks[at].offset = before.offset;
            self.blocks[at].size += before.size;
            gone.push(before.size);
        }
        if self.blocks.get(at + 1).is_some_and(|after| after.state == state) {
            let after = self.blocks.remove(at + 1);
            self.blocks[at].size += after.size;
            gone.push(after.size);
        }
        (at, gone)
    }
}
