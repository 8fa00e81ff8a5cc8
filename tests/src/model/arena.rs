//! Arenas and their blocks.

use std::collections::BTreeMap;

use super::Moment;

/// What a block is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// The program has it.
    Live,
    /// Freed, with so many events to come.
    Waiting {
        /// How many.
        events: usize,
    },
    /// Free.
    Free,
    /// Addresses without memory.
    Unmapped,
}

/// A range of an arena.
#[derive(Clone, Debug)]
pub struct Block {
    /// Its number.
    pub number: u64,
    /// Where it starts in its arena, in bytes.
    pub offset: u64,
    /// Its bytes.
    pub size: u64,
    /// What the program asked for; left over where the program does not have it.
    pub requested: u64,
    /// What it is doing.
    pub state: State,
    /// Other streams that use it until its free.
    pub(super) uses: Vec<usize>,
    /// Points of other streams that it is used until, by stream.
    pub(super) until: BTreeMap<usize, Moment>,
    /// How many searches its pool had seen when it last became free.
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
pub struct Arena {
    /// How many arenas there were before it.
    pub birth: u64,
    /// The stream that its blocks belong to.
    pub stream: usize,
    /// It belongs to the small pool.
    pub small: bool,
    /// It grows by pages.
    pub expandable: bool,
    /// Its bytes, mapped or not.
    pub bytes: u64,
    /// What tiles it.
    pub blocks: Vec<Block>,
}

impl Arena {
    /// More than one block: the blocks cannot be released.
    pub(super) fn is_split(&self) -> bool {
        self.blocks.len() > 1
    }

    /// Joins the block at `at` with its neighbours in the same state; the block keeps its number. Answers where it is
    /// now and the bytes of each neighbour that went.
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
