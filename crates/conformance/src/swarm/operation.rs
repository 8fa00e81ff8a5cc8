//! A swarm's program as data: all operations with their numbers, so that the program or a part of it can be run again.

use std::fmt;

use millpond_backend::Fault;

/// The way in which a use on another stream is recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Noted {
    /// With `record_stream` before the work is queued. Until the free it makes no difference which comes first.
    Before,
    /// With `record_stream` after the work is queued.
    After,
    /// With `used_until` and a point that is taken after the work is queued.
    Until,
}

/// An operation. A block is identified by the number that its allocation gives it. An operation on a block that does
/// not exist, because its allocation was refused or left out, does nothing. So every part of a program is a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the fields say what they are: numbers of blocks and of streams, and bytes")]
pub enum Operation {
    /// Allocates a block and writes to all of it.
    Allocate { block: u32, bytes: u64, stream: usize },
    /// Reads a block on its home stream and frees it.
    Free { block: u32 },
    /// Writes to a block again, on its home stream.
    Write { block: u32 },
    /// Reads a block on another stream, ordered after what was written on the home stream. Then the block is freed, or,
    /// if it is to be kept, its home stream waits for that work.
    Use { block: u32, stream: usize, noted: Noted, keep: bool },
    /// Makes later work of one stream come after the earlier work of another.
    Order { later: usize, earlier: usize },
    /// Submits a stream's work.
    Submit { stream: usize },
    /// Lets the oldest work of a stream complete, where a test controls that.
    Advance { stream: usize },
    /// Waits on the host for a stream, as far as its work was submitted.
    HostWait { stream: usize },
    /// Asks the device for its progress.
    Poll,
    /// Releases cached memory until at most `bytes` are reserved.
    Trim { bytes: u64 },
    /// Releases all cached memory.
    EmptyCache,
    /// Sets the limit on reserved bytes.
    Limit { bytes: u64 },
    /// Frees every block of a stream, newest first.
    Retreat { stream: usize },
    /// Makes a later driver call fail.
    Fault { nth: u64, fault: Fault },
}

impl Operation {
    /// Returns the operation with a function applied to its stream numbers.
    #[must_use]
    pub(super) fn on_streams(self, to: impl Fn(usize) -> usize) -> Self {
        match self {
            Self::Allocate { block, bytes, stream } => Self::Allocate { block, bytes, stream: to(stream) },
            Self::Use { block, stream, noted, keep } => Self::Use { block, stream: to(stream), noted, keep },
            Self::Order { later, earlier } => Self::Order { later: to(later), earlier: to(earlier) },
            Self::Submit { stream } => Self::Submit { stream: to(stream) },
            Self::Advance { stream } => Self::Advance { stream: to(stream) },
            Self::HostWait { stream } => Self::HostWait { stream: to(stream) },
            Self::Retreat { stream } => Self::Retreat { stream: to(stream) },
            other => other,
        }
    }

    /// Returns the operation with a function applied to its block number.
    #[must_use]
    fn on_blocks(self, to: impl Fn(u32) -> u32) -> Self {
        match self {
            Self::Allocate { block, bytes, stream } => Self::Allocate { block: to(block), bytes, stream },
            Self::Free { block } => Self::Free { block: to(block) },
            Self::Write { block } => Self::Write { block: to(block) },
            Self::Use { block, stream, noted, keep } => Self::Use { block: to(block), stream, noted, keep },
            other => other,
        }
    }

    fn allocates(&self) -> Option<u32> {
        match *self {
            Self::Allocate { block, .. } => Some(block),
            _ => None,
        }
    }
}

/// A program: the operations that a seed drew, or those that remain of them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Program {
    /// The number of streams.
    pub streams: u32,
    /// The limit on reserved bytes at the beginning.
    pub limit: u64,
    /// The number of operations after which everything is checked, not 0. Every grant is judged in any case.
    pub check_every: usize,
    /// The operations in order.
    pub operations: Vec<Operation>,
}

impl Program {
    /// Returns the same program with its blocks numbered from 0 in the order of their allocations. Operations on blocks
    /// that are never allocated are left out.
    #[must_use]
    pub(super) fn renumbered(&self) -> Self {
        let order: Vec<u32> = self.operations.iter().filter_map(Operation::allocates).collect();
        let place = |block: u32| order.iter().position(|&known| known == block);
        let number = |block: u32| place(block).map_or(u32::MAX, |at| at as u32);
        let lost = |operation: &Operation| match *operation {
            Operation::Free { block } | Operation::Write { block } | Operation::Use { block, .. } => {
                place(block).is_none()
            }
            _ => false,
        };
        let kept = self.operations.iter().filter(|operation| !lost(operation));
        Self { operations: kept.map(|operation| operation.on_blocks(number)).collect(), ..*self }
    }
}

/// Prints Rust code that creates the program, for a test that replays it.
impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { streams, limit, check_every, operations } = self;
        writeln!(f, "Program {{")?;
        writeln!(f, "    streams: {streams},")?;
        writeln!(f, "    limit: {limit},")?;
        writeln!(f, "    check_every: {check_every},")?;
        writeln!(f, "    operations: vec![")?;
        for operation in operations {
            let code = format!("{operation:?}").replace("noted: ", "noted: Noted::");
            writeln!(f, "        Operation::{},", code.replace("fault: ", "fault: Fault::"))?;
        }
        write!(f, "    ],\n}}")
    }
}
