//! The operations.

use millpond_backend::Fault;

/// How a use on another stream is recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Noted {
    /// With `record_stream` before the work is queued. Until the free it makes no difference which comes first.
    Before,
    /// With `record_stream` after the work is queued.
    After,
    /// With `used_until` and a point that is taken after the work is queued.
    Until,
}

/// An operation. A block is identified by the number that its allocation gives it, and a point likewise. An operation
/// on a block or a point that does not exist, because its allocation was refused or left out, does nothing. So every
/// part of a program is a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the fields say what they are: numbers of blocks, points and streams, and bytes")]
pub enum Operation {
    /// Allocates a block and writes to all of it.
    Allocate { block: u32, bytes: u64, stream: usize },
    /// Allocates a block with addresses for a capacity, and writes to all of it. Does nothing where there are none.
    AllocateGrowable { block: u32, bytes: u64, capacity: u64, stream: usize },
    /// Allocates a block that begins at a multiple of an alignment, and writes to all of it.
    AllocateAligned { block: u32, bytes: u64, alignment: u64, stream: usize },
    /// Makes a block longer at its place, and writes to what was added. Does nothing where something is in the way.
    Grow { block: u32, bytes: u64 },
    /// Reads a block on its home stream and frees it.
    Free { block: u32 },
    /// Writes to a block again, on its home stream.
    Write { block: u32 },
    /// Reads a block on another stream, ordered after what was written on the home stream. Then the block is freed, or,
    /// if it is to be kept, its home stream waits for that work.
    Use { block: u32, stream: usize, noted: Noted, keep: bool },
    /// Takes a point of a stream.
    Point { point: u32, stream: usize },
    /// Records that a block is used until a point that was taken before.
    Until { block: u32, point: u32 },
    /// Makes later work of one stream come after the earlier work of another.
    Order { later: usize, earlier: usize },
    /// Submits a stream's work.
    Submit { stream: usize },
    /// Queues work on a stream that runs until a test ends it.
    Hold { stream: usize },
    /// Ends the work of a stream, where a test controls that.
    Unhold { stream: usize },
    /// Lets the oldest work of a stream complete, where a test controls that.
    Advance { stream: usize },
    /// Waits on the host for a stream, as far as its work was submitted.
    HostWait { stream: usize },
    /// Submits everything and waits for it.
    Sync,
    /// Asks the device for its progress.
    Poll,
    /// Releases cached memory until at most `bytes` are reserved.
    Trim { bytes: u64 },
    /// Releases all cached memory.
    EmptyCache,
    /// Sets the limit on reserved bytes.
    Limit { bytes: u64 },
    /// Resets the peaks of the statistics.
    ResetPeaks,
    /// Resets the totals of the statistics.
    ResetTotals,
    /// Frees every block of a stream, newest first.
    Retreat { stream: usize },
    /// Makes later requests go to a new private pool, or to the default pool if they go to a private one.
    SwitchPool,
    /// Notes what the private pool has handed out.
    Checkpoint,
    /// Frees the blocks of the private pool, or only those from before its checkpoint, and hands out those again that
    /// there were then.
    Restore { all: bool },
    /// Makes a later driver call fail.
    Fault { nth: u64, fault: Fault },
}

impl Operation {
    /// Returns the operation with a function applied to its stream numbers.
    #[must_use]
    pub(super) fn on_streams(mut self, to: impl Fn(usize) -> usize) -> Self {
        match &mut self {
            Self::Allocate { stream, .. }
            | Self::AllocateGrowable { stream, .. }
            | Self::AllocateAligned { stream, .. }
            | Self::Use { stream, .. }
            | Self::Point { stream, .. }
            | Self::Submit { stream }
            | Self::Hold { stream }
            | Self::Unhold { stream }
            | Self::Advance { stream }
            | Self::HostWait { stream }
            | Self::Retreat { stream } => *stream = to(*stream),
            Self::Order { later, earlier } => (*later, *earlier) = (to(*later), to(*earlier)),
            _ => {}
        }
        self
    }

    /// Returns the operation with a function applied to its block number.
    #[must_use]
    fn on_blocks(mut self, to: impl Fn(u32) -> u32) -> Self {
        match &mut self {
            Self::Allocate { block, .. }
            | Self::AllocateGrowable { block, .. }
            | Self::AllocateAligned { block, .. }
            | Self::Grow { block, .. }
            | Self::Free { block }
            | Self::Write { block }
            | Self::Use { block, .. }
            | Self::Until { block, .. } => *block = to(*block),
            _ => {}
        }
        self
    }

    fn allocates(&self) -> Option<u32> {
        match *self {
            Self::Allocate { block, .. }
            | Self::AllocateGrowable { block, .. }
            | Self::AllocateAligned { block, .. } => Some(block),
            _ => None,
        }
    }
}

/// Returns the operations with their blocks numbered from 0 in the order of their allocations. Operations on blocks
/// that are never allocated are left out.
pub(super) fn renumbered(operations: &[Operation]) -> Vec<Operation> {
    let order: Vec<u32> = operations.iter().filter_map(Operation::allocates).collect();
    let place = |block: u32| order.iter().position(|&known| known == block);
    let number = |block: u32| place(block).map_or(u32::MAX, |at| at as u32);
    let lost = |operation: &Operation| match *operation {
        Operation::Free { block }
        | Operation::Grow { block, .. }
        | Operation::Write { block }
        | Operation::Use { block, .. }
        | Operation::Until { block, .. } => place(block).is_none(),
        _ => false,
    };
    operations.iter().filter(|operation| !lost(operation)).map(|operation| operation.on_blocks(number)).collect()
}
