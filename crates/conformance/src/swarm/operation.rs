//! A swarm's program as data: what was done, with every number in it, so that it can be done again, or in part.

use std::fmt;

use millpond_backend::Fault;

/// When a use on another stream is noted, and how.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Noted {
    /// `record_stream` before the work is queued. Until the free it makes no difference which comes first.
    Before,
    /// `record_stream` after the work is queued.
    After,
    /// `used_until` a point that is taken after the work is queued.
    Until,
}

/// One operation. Blocks have the number that their allocation gives them; an operation on a block that is not there,
/// because its allocation was refused or left out, does nothing. So every part of a program is a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the fields say what they are: numbers of blocks and of streams, and bytes")]
pub enum Operation {
    /// Allocates a block and writes to all of it.
    Allocate { block: u32, bytes: u64, stream: usize },
    /// Looks at a block on its home stream and frees it.
    Free { block: u32 },
    /// Writes to a block anew, on its home stream.
    Write { block: u32 },
    /// Work of another stream looks at a block, after what was written at home. Then the block is freed; or if it is
    /// to be kept, its home stream waits for that work.
    Use { block: u32, stream: usize, noted: Noted, keep: bool },
    /// Later work of one stream comes after the earlier work of another.
    Order { later: usize, earlier: usize },
    /// Submits a stream's work.
    Submit { stream: usize },
    /// The oldest work of a stream completes, where a test decides that.
    Advance { stream: usize },
    /// The host waits for a stream, as far as its work was submitted.
    HostWait { stream: usize },
    /// Asks the device how far it is.
    Poll,
    /// Gives cached memory back until at most so much is reserved.
    Trim { bytes: u64 },
    /// Gives all cached memory back.
    EmptyCache,
    /// Sets the limit on reserved bytes.
    Limit { bytes: u64 },
    /// Frees every block of a stream, newest first.
    Retreat { stream: usize },
    /// A driver call to come fails.
    Fault { nth: u64, fault: Fault },
}

impl Operation {
    /// The operation with its numbers of streams led through a function.
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

    /// The operation with its number of a block led through a function.
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

/// A program: what a seed drew, or what is left of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Program {
    /// How many streams there are.
    pub streams: u32,
    /// The limit on reserved bytes from the beginning.
    pub limit: u64,
    /// Everything is verified after so many operations; not 0. Grants are judged each time.
    pub check_every: usize,
    /// What is done, in order.
    pub operations: Vec<Operation>,
}

impl Program {
    /// The same program, whose blocks are numbered from 0 in the order of their allocations. Operations on blocks that
    /// are never allocated are left out.
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

/// Rust code that makes the program, for a test to replay.
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
