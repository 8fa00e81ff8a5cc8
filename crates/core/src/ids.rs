//! The names of things inside one allocator.

use core::fmt;

/// A segment or an address range. Numbered in order of birth and never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SegmentId(pub u64);

impl fmt::Display for SegmentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "segment {}", self.0)
    }
}

/// The place of a segment in its shard's table. It is reused once the segment is gone.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Slot(pub u32);

/// A block of a shard: the handle by which a buffer is freed without any lookup. It is reused once the block is gone.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct BlockId(pub u32);

impl BlockId {
    pub(crate) const NONE: BlockId = BlockId(u32::MAX);

    pub(crate) fn some(self) -> Option<BlockId> {
        (self != Self::NONE).then_some(self)
    }
}

/// One shard of an allocator: the blocks of one stream in one private pool.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ShardId(pub u32);

/// A block of a shard.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ShardBlock {
    /// The shard.
    pub shard: ShardId,
    /// The number of the block there.
    pub block: BlockId,
}

/// A handle of physical memory. It is reused once the page is released.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PageId(pub u32);

/// The addresses at which a page is, or can be, mapped: an offset in a range of a shard.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Place {
    /// The shard that the range belongs to.
    pub shard: ShardId,
    /// The slot of the range.
    pub slot: Slot,
    /// The offset in the range, in bytes.
    pub offset: u64,
}

/// A pool of memory that never serves requests of another one. 0 is the default pool; all others are private pools, as
/// CUDA graphs and PyTorch's `MemPool` use them. Numbers of pools are never given out twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct PoolId(pub u64);

impl PoolId {
    /// The default pool.
    pub const DEFAULT: PoolId = PoolId(0);
}

impl fmt::Display for PoolId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::DEFAULT => f.write_str("the default pool"),
            Self(number) => write!(f, "private pool {number}"),
        }
    }
}

/// Private pools that are paused and resumed together. Numbers of groups are never given out twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct GroupId(pub u64);

/// A part of a program whose peaks are kept apart. Numbers of scopes are never given out twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ScopeId(pub u64);

/// The two sides of a pool, which are separate so that small blocks do not cut up large segments.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Side {
    /// Rounded sizes up to 1 MiB.
    Small,
    /// All larger sizes.
    Large,
}

impl Side {
    pub(crate) const BOTH: [Side; 2] = [Side::Small, Side::Large];

    pub(crate) const fn index(self) -> usize {
        self as usize
    }
}

/// A window, by the number of its entry. Numbers of windows that are gone are used again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct WindowId(pub(crate) u32);
