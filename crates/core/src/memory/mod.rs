//! The memory of a shard: its segments, the blocks that tile them, and the indexes of what is free.
//!
//! This is the mechanism of the allocator. It cuts, joins, lists and claims blocks, and knows who may still use them.
//! It counts nothing and decides nothing: the [`Shard`](crate::Shard) serves the hot path with it, and policies serve
//! requests that missed.

mod by_place;
mod check;
mod claim;
mod extend;
mod foreign;
mod guards;
pub(crate) mod home;
mod join;
mod longer;
mod seen;
mod windows;

use alloc::collections::BTreeSet;

use millpond_backend::{PageCaps, Point, Reuse, StreamId};

use crate::block::{Block, Blocks, State};
use crate::ids::{BlockId, ShardId, Side, Slot};
use crate::index::{FreeIndex, Key};
use crate::plant::Planted;
use crate::segment::Segments;
use crate::settings::{Backing, PoolFlags, Scrub, Settings, Ties};
use crate::units::QUANTUM;

pub(crate) use by_place::{Edges, Ends};
pub(crate) use claim::{Arrival, Claimed, Garbage, Oversize, Tile};
pub(crate) use extend::{Extend, Growing, least_to_map};
pub(crate) use foreign::Owners;
pub(crate) use guards::Guards;
pub use guards::Requester;
pub(crate) use home::{Ground, Growth};
pub use longer::NoRoom;
pub(crate) use longer::Room;
pub(crate) use seen::BEHIND_MAX;
pub(crate) use windows::{Panes, TakenOut, Vacant};

/// The settings that the hot path needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    pub(crate) max_split: u64,
    pub(crate) non_split_rounding: u64,
    pub(crate) expandable: bool,
    pub(crate) moves_pages: bool,
    pub(crate) caches: bool,
    /// Whether blocks are cut.
    pub(crate) splits: bool,
    pub(crate) slack: Option<f64>,
    pub(crate) reuse: Reuse,
    /// When a stream may have memory again that it used at other addresses.
    pub(crate) alias_reuse: Reuse,
    /// The bytes that small blocks get from a home at a time.
    pub(crate) slab: u64,
    pub(crate) ties: Ties,
    pub(crate) scrub: Scrub,
    pub(crate) planted: Planted,
}

impl Rules {
    /// Returns the rules that settings lead to. `pages` are those of the device, of which the smallest that are created
    /// have `page_unit` bytes.
    pub(crate) fn new(settings: &Settings, reuse: Reuse, pages: Option<PageCaps>, page_unit: u64) -> Self {
        let source = settings.policy.backing();
        // Only a home's memory may have been used at other addresses, and only a home has slabs.
        let pages = pages.filter(|_| source == Backing::Pages);
        Self {
            max_split: settings.max_split(),
            non_split_rounding: settings.max_non_split_rounding(),
            expandable: source == Backing::Ranges,
            moves_pages: source == Backing::Pages,
            caches: settings.policy.caches(),
            splits: settings.policy.caches(),
            slack: settings.policy.slack_of_segments(),
            reuse,
            alias_reuse: pages.map_or(reuse, |pages| reuse.max(pages.alias_reuse)),
            slab: pages.map_or(u64::MAX, |_| page_unit),
            ties: settings.ties,
            scrub: settings.scrub,
            planted: settings.planted(),
        }
    }

    /// Takes over the limits that settings set to blocks that are not cut.
    pub(crate) fn set_limits(&mut self, settings: &Settings) {
        (self.max_split, self.non_split_rounding) = (settings.max_split(), settings.max_non_split_rounding());
    }

    /// Takes in what is special about the shard's pool.
    pub(crate) fn set_flags(&mut self, flags: PoolFlags) {
        self.splits = self.caches && (self.moves_pages || !flags.no_split);
    }
}

/// The free and the unmapped blocks of one side.
#[derive(Clone)]
pub(crate) struct Pool {
    pub(crate) free: FreeIndex,
    /// Addresses without memory, in the order in which growth tries them.
    pub(crate) unmapped: BTreeSet<(u64, BlockId)>,
}

/// The segments and blocks of a shard.
///
/// Invariants, verified by [`Shard::check`](crate::Shard::check): the blocks of each segment tile it; no two neighbours
/// are both free or both unmapped; the indexes hold exactly the free and the unmapped blocks.
#[derive(Clone)]
pub(crate) struct Memory {
    pub(crate) id: ShardId,
    pub(crate) stream: StreamId,
    pub(crate) rules: Rules,
    pub(crate) blocks: Blocks,
    pub(crate) pools: [Pool; 2],
    /// The free small blocks of a home.
    pub(crate) slabs: home::Slabs,
    pub(crate) segments: Segments,
    /// The rank that the next segment begins at, where ties go by birth.
    pub(crate) next_rank: u64,
    /// Which stream has which memory, where the settings make that matter.
    pub(crate) owners: Option<Owners>,
    /// The bytes of homes that belong to the small side.
    pub(crate) small_bytes: u64,
    /// The length from which a free block of the small side may have to go back to the large side: that of a slab, or 0
    /// since a restored block has left a part of one to either side.
    pub(crate) gives_from: u64,
    /// The free blocks of the large side by place, as they were when they were looked at last.
    pub(crate) by_place: by_place::ByPlace,
    /// Addresses for windows, where nothing is mapped.
    pub(crate) vacant: BTreeSet<(u64, BlockId)>,
    /// Who may still use free memory.
    pub(crate) guards: Guards,
}

impl Memory {
    pub(crate) fn new(id: ShardId, stream: StreamId, rules: Rules) -> Self {
        let pool_of = || Pool { free: FreeIndex::new(), unmapped: BTreeSet::new() };
        Self {
            id,
            stream,
            rules,
            blocks: Blocks::new(),
            pools: [pool_of(), pool_of()],
            slabs: home::Slabs::default(),
            segments: Segments::default(),
            next_rank: 0,
            owners: Owners::under(rules.scrub),
            small_bytes: 0,
            gives_from: rules.slab,
            by_place: by_place::ByPlace::default(),
            vacant: BTreeSet::new(),
            guards: Guards::new(rules),
        }
    }

    pub(crate) fn entry(&self, id: BlockId) -> Key {
        key_of(&self.blocks, &self.segments, id)
    }

    /// Puts a free block into the index.
    #[inline(always)]
    pub(crate) fn list(&mut self, id: BlockId, size: u64, side: Side) {
        if self.is_in_slabs(side) {
            return self.list_in_slab(id, size);
        }
        if !self.pools[side.index()].free.insert_alone(id, size) {
            self.list_among(id, size, side);
        }
    }

    #[inline(never)]
    pub(crate) fn list_among(&mut self, id: BlockId, size: u64, side: Side) {
        let Self { blocks, segments, pools, .. } = self;
        pools[side.index()].free.insert_among(id, size, |id| key_of(blocks, segments, id));
    }

    /// Takes a block out of the index.
    pub(crate) fn unlist(&mut self, id: BlockId) {
        let Block { size, side, .. } = self.blocks[id];
        if self.is_in_slabs(side) {
            return self.unlist_in_slab(id);
        }
        self.pools[side.index()].free.remove(id, size);
    }

    pub(crate) fn unmapped_key(&self, id: BlockId) -> (u64, BlockId) {
        (self.entry(id).rank, id)
    }

    /// The blocks of a segment in order of their offsets.
    pub(crate) fn blocks_in(&self, slot: Slot) -> impl Iterator<Item = BlockId> {
        let first = Some(self.segments[slot].first);
        core::iter::successors(first, |&id| self.blocks[id].next.some())
    }

    /// Returns up to which points a block was used.
    pub(crate) fn last_points(&self, id: BlockId) -> impl Iterator<Item = Point> {
        let block = &self.blocks[id];
        self.guards.points_of(block).into_vec().into_iter().chain([block.last_point()])
    }

    /// Returns up to which points the free memory of the large side was used.
    pub(crate) fn free_points(&self) -> impl Iterator<Item = Point> {
        let plain = self.free_blocks(Side::Large).map(|(id, _)| self.blocks[id].last_point());
        self.guards.points().chain(plain)
    }

    /// Returns the block that has the byte at an offset. The search begins with `from`, which lies in front of it.
    pub(crate) fn block_at(&self, slot: Slot, offset: u64, from: Option<BlockId>) -> BlockId {
        let first = Some(from.unwrap_or(self.segments[slot].first));
        let mut blocks = core::iter::successors(first, |&id| self.blocks[id].next.some());
        let found = blocks.find(|&id| self.blocks[id].end() > offset);
        found.unwrap_or_else(|| panic!("no block has the byte at {offset} of slot {}", slot.0))
    }

    /// Returns the last point that freed blocks wait for on the home stream, where that does not reuse in order. Blocks
    /// that wait for other streams first count as well: they wait for the home stream afterwards.
    pub(crate) fn settling_until(&self) -> Option<Point> {
        if self.rules.reuse == Reuse::InOrder || self.rules.moves_pages {
            return None;
        }
        let pending = self.blocks.iter().filter(|(_, block)| block.state == State::Pending);
        pending.map(|(_, block)| block.last_use.tick()).max().map(|tick| Point { stream: self.stream, tick })
    }
}

/// Returns the place of a block in the order of free blocks.
pub(crate) fn key_of(blocks: &Blocks, segments: &Segments, id: BlockId) -> Key {
    let block = &blocks[id];
    let segment = &segments[block.slot];
    Key { size: block.size, rank: segment.rank + block.offset / QUANTUM }
}

/// The number of free blocks that a small request looks at where the best fit is not ready for its stream.
const LOOKS_MAX: usize = 16;

impl Memory {
    /// Returns the best fit in expandable segments, where a block counts with the size that it could grow to. The
    /// search goes on from `found` as long as that size shrinks.
    #[inline(never)]
    pub(crate) fn least_reach(&self, mut found: BlockId, side: Side) -> BlockId {
        let index = &self.pools[side.index()].free;
        while let Some(next) = index.next_after(self.entry(found)) {
            if self.reach(next) >= self.reach(found) {
                break;
            }
            found = next;
        }
        found
    }

    pub(crate) fn reach(&self, id: BlockId) -> u64 {
        self.blocks[id].size + self.unmapped_behind(id)
    }

    /// Returns the number of bytes of addresses without memory directly behind a block.
    pub(crate) fn unmapped_behind(&self, id: BlockId) -> u64 {
        let behind = self.blocks[id].next.some().map(|next| &self.blocks[next]);
        behind.filter(|next| next.state == State::Unmapped).map_or(0, |next| next.size)
    }

    /// Returns the free blocks that serve requests of a stream, if there are any.
    pub(crate) fn index_for(&self, side: Side, stream: StreamId) -> Option<&FreeIndex> {
        if self.is_in_slabs(side) { self.slabs.of(stream) } else { Some(&self.pools[side.index()].free) }
    }

    /// Returns the first few blocks of an index that have at least `bytes` bytes, in order.
    pub(crate) fn fitting(&self, index: &FreeIndex, bytes: u64) -> impl Iterator<Item = BlockId> {
        let first = index.best_fit(bytes, |id| self.blocks[id].size);
        core::iter::successors(first, move |&id| index.next_after(self.entry(id))).take(LOOKS_MAX)
    }
    /// Cuts a block behind its first `size` bytes. The rest becomes a free block.
    #[inline(always)]
    pub(crate) fn split(&mut self, id: BlockId, size: u64, clock: u64) {
        let rest = self.blocks.vacancy();
        let table = self.blocks.table();
        let front = &mut table[id.0 as usize];
        let (offset, bytes, next, side) = (front.offset + size, front.size - size, front.next, front.side);
        let state = State::Free;
        let behind = Block { offset, size: bytes, requested: 0, age: clock, prev: id, waits: 0, state, ..*front };
        front.size = size;
        front.next = rest;
        table[rest.0 as usize] = behind;
        if let Some(behind) = table.get_mut(next.0 as usize) {
            behind.prev = rest;
        }
        self.list(rest, bytes, side);
    }
}
