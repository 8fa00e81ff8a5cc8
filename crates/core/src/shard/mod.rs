//! A shard: the segments, blocks and counters of one stream in one pool, or of all streams of a pool under `paged`.
//!
//! The hot path ([`Shard::allocate`] that hits, [`Shard::free`]) uses nothing outside its shard. What a shard cannot do
//! alone it reports: a miss, uses on other streams that have to be waited for, or room for a peak that ran out. The
//! [`Coordinator`](crate::Coordinator) continues from there.

mod adopt;
mod by_place;
mod check;
mod claim;
mod foreign;
mod free;
mod guards;
mod home;
mod put_off;
mod slabs;
mod snug;
mod spots;
mod take;
mod tiles;
mod view;
mod windows;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use millpond_backend::{PageCaps, Point, Reuse, StreamId, Tick};

use crate::block::LastUse;
use crate::block::{Block, Blocks, State};
use crate::books::Points;
use crate::ids::{BlockId, PoolId, SegmentId, ShardId, Side, Slot};
use crate::index::{FreeIndex, Key};
use crate::meter::{Counter, Meter, ROWS, Row};
use crate::plant::{Plant, Planted};
use crate::policy::Source;
use crate::segment::Segments;
use crate::settings::{PoolFlags, Scrub, Settings, Ties};
use crate::units::{QUANTUM, SMALL_SEGMENT_BYTES};

pub(crate) use adopt::Arrival;
pub(crate) use by_place::Ends;
pub(crate) use claim::{Extend, Growing};
use foreign::Owners;
pub use free::{Freed, Retired, Uses};
pub use guards::Requester;
use guards::{Guards, Seen};
pub(crate) use home::{Ground, Growth};
use put_off::Swap;
use snug::Snug;
pub(crate) use spots::{Mark, Spot};
pub(crate) use tiles::{Claimed, Tile};
pub use view::{BlockState, BlockView, PageView, SegmentView};
use windows::Panes;

/// A block that was handed out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grant {
    /// The handle by which the block is freed.
    pub block: BlockId,
    /// The slot of its segment in the shard's table.
    pub slot: Slot,
    /// The offset in the segment at which it starts, in bytes.
    pub offset: u64,
    /// Its length in bytes, at least the requested size.
    pub size: u64,
    /// The segment's device address, or 0 on devices without addresses.
    pub base: u64,
    /// The last use of this memory: a tick of the stream that it is granted for. The tick is 0 where that use is over
    /// and another stream's, or one at other addresses.
    pub last_use: LastUse,
    /// Whether room for a peak ran out, or the shard has room that it does not hold: the coordinator must then settle
    /// before anything else happens.
    pub unsettled: bool,
}

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
    pub(crate) fn new(settings: &Settings, reuse: Reuse) -> Self {
        let source = settings.policy.traits().source;
        Self {
            max_split: settings.max_split(),
            non_split_rounding: settings.max_non_split_rounding(),
            expandable: source == Source::Ranges,
            moves_pages: source == Source::Pages,
            caches: settings.policy.caches(),
            splits: settings.policy.caches(),
            slack: settings.policy.slack_of_segments(),
            reuse,
            alias_reuse: reuse,
            slab: u64::MAX,
            ties: settings.ties,
            scrub: settings.scrub,
            planted: settings.planted(),
        }
    }

    /// Returns the rules on a device with these pages. A home's memory may have been used at other addresses.
    pub(crate) fn on(mut self, pages: Option<PageCaps>) -> Self {
        if let Some(pages) = pages.filter(|_| self.moves_pages) {
            self.alias_reuse = self.reuse.max(pages.alias_reuse);
            self.slab = SMALL_SEGMENT_BYTES.next_multiple_of(pages.granularity);
        }
        self
    }
}

/// The free and the unmapped blocks of one side.
struct Pool {
    free: FreeIndex,
    /// Addresses without memory, in the order in which growth tries them.
    unmapped: BTreeSet<(u64, BlockId)>,
}

/// The state of one stream in one pool. Under `paged` the streams of a pool have one shard together: their *home*.
///
/// Invariants, verified by [`check`](Shard::check): the blocks of each segment tile it; no two neighbours are both free
/// or both unmapped; the indexes hold exactly the free and the unmapped blocks; the counters equal the sums over the
/// blocks.
pub struct Shard {
    id: ShardId,
    stream: StreamId,
    pool: PoolId,
    rules: Rules,
    blocks: Blocks,
    pools: [Pool; 2],
    /// The free small blocks of a home.
    slabs: slabs::Slabs,
    segments: Segments,
    /// The rank that the next segment begins at, where ties go by birth.
    next_rank: u64,
    pub(crate) meter: Meter,
    /// What counts towards the slack, where there is one.
    snug: Option<Snug>,
    /// Freed blocks whose home stream has not come far enough ([`Reuse::AfterSubmit`], [`Reuse::AfterDone`]), in order
    /// of their ticks.
    settling: VecDeque<(Tick, BlockId)>,
    /// The block freed last, if its free was put off: see the module of that name.
    put_off: BlockId,
    /// What is known about the last operation, if that handed out again exactly the block that the one before had
    /// freed.
    swap: Swap,
    /// The uses of blocks beyond the home stream. There are few at any time.
    uses: BTreeMap<BlockId, Box<Uses>>,
    /// Which stream has which memory, where the settings make that matter.
    owners: Option<Owners>,
    /// The bytes of homes that belong to the small side.
    small_bytes: u64,
    /// The length from which a free block of the small side may have to go back to the large side: that of a slab, or 0
    /// since a restored block has left a part of one to either side.
    gives_from: u64,
    /// The free blocks of the large side by place, as they were when they were looked at last.
    by_place: by_place::ByPlace,
    /// Addresses for windows, where nothing is mapped.
    vacant: BTreeSet<(u64, BlockId)>,
    /// The windows in use.
    panes: Panes,
    /// Who may still use free memory that several streams have used.
    guards: Guards,
    /// What a home has seen of the streams.
    seen: Seen,
    /// The blocks that became free after a wait, where they are listed.
    retired: Option<Vec<Retired>>,
}

impl Shard {
    pub(crate) fn new(id: ShardId, stream: StreamId, pool: PoolId, rules: Rules) -> Self {
        let pool_of = || Pool { free: FreeIndex::new(), unmapped: BTreeSet::new() };
        Self {
            id,
            stream,
            pool,
            rules,
            blocks: Blocks::new(),
            pools: [pool_of(), pool_of()],
            slabs: slabs::Slabs::default(),
            segments: Segments::default(),
            next_rank: 0,
            meter: Meter::new(),
            snug: rules.slack.map(Snug::new),
            settling: VecDeque::new(),
            put_off: BlockId::NONE,
            swap: Swap::NONE,
            uses: BTreeMap::new(),
            owners: Owners::under(rules.scrub),
            small_bytes: 0,
            gives_from: rules.slab,
            by_place: by_place::ByPlace::default(),
            vacant: BTreeSet::new(),
            panes: Panes::default(),
            guards: Guards::default(),
            seen: Seen::default(),
            retired: None,
        }
    }

    /// Returns the shard's id.
    pub fn id(&self) -> ShardId {
        self.id
    }

    /// Returns the id of the segment at a slot.
    ///
    /// # Panics
    ///
    /// Panics if there is no segment at the slot.
    pub fn segment_id(&self, slot: Slot) -> SegmentId {
        self.segments[slot].id
    }

    /// Returns the id of the segment at a slot, if there is one.
    pub fn segment_at(&self, slot: Slot) -> Option<SegmentId> {
        self.segments.get(slot).map(|segment| segment.id)
    }

    /// Returns the stream that the shard was opened for. Under `paged` other streams of the pool have blocks there,
    /// too.
    pub fn stream(&self) -> StreamId {
        self.stream
    }

    /// Returns the pool that the shard's blocks belong to.
    pub fn pool(&self) -> PoolId {
        self.pool
    }

    /// Returns whether the shard has no memory, and nothing that waits for any: its pool could be another one.
    pub(crate) fn is_vacant(&self) -> bool {
        self.blocks.iter().all(|(_, block)| block.state == State::Unmapped) && self.put_off == BlockId::NONE
    }

    /// Takes in what is special about the shard's pool.
    pub(crate) fn set_flags(&mut self, flags: PoolFlags) {
        self.rules.splits = self.rules.caches && (self.rules.moves_pages || !flags.no_split);
    }

    /// Gives the shard to another pool.
    ///
    /// # Panics
    ///
    /// If it has memory.
    pub(crate) fn move_to(&mut self, pool: PoolId) {
        assert!(self.is_vacant(), "the shard of {} in {} has memory and goes to {pool}", self.stream, self.pool);
        self.pool = pool;
    }

    /// Returns the number of blocks that the program holds.
    pub fn live_blocks(&mut self) -> u64 {
        self.tidied();
        let count = |side| self.meter.current(side, Counter::Allocation);
        (count(Side::Small) + count(Side::Large)) as u64
    }

    /// Returns whether a freed block still waits for a point.
    pub fn has_pending(&self) -> bool {
        self.blocks.iter().any(|(_, block)| block.state == State::Pending)
    }

    /// Returns up to which points the shard's memory was used, of each stream the newest one.
    pub fn last_uses(&self) -> Points {
        let used = self.blocks.iter().map(|(id, _)| self.last_point(id));
        used.chain(self.guard_points()).filter(|point| point.tick > Tick::ZERO).collect()
    }

    /// Returns the stream that a block was handed out for.
    pub fn user_of(&self, block: BlockId) -> StreamId {
        self.blocks[block].user
    }

    /// Returns the slot of the segment in which a block lies, its offset there and its length, both in bytes.
    pub fn extent(&self, block: BlockId) -> (Slot, u64, u64) {
        let block = &self.blocks[block];
        (block.slot, block.offset, block.size)
    }

    /// Returns what [`extent`](Self::extent) does if the block is handed out, and `None` if it is not.
    pub fn live_extent(&self, block: BlockId) -> Option<(Slot, u64, u64)> {
        (self.blocks[block].state == State::Live).then(|| self.extent(block))
    }

    /// Returns the length of a block in bytes.
    #[inline]
    pub fn size_of(&self, block: BlockId) -> u64 {
        self.blocks[block].size
    }

    /// Returns the last use of a block's memory on the home stream.
    pub(crate) fn last_use_of(&self, block: BlockId) -> LastUse {
        self.blocks[block].last_use
    }

    /// Returns the point up to which a block's user used its memory.
    pub(crate) fn last_point(&self, block: BlockId) -> Point {
        let block = &self.blocks[block];
        Point { stream: block.user, tick: block.last_use.tick() }
    }

    /// Notes that the block is used on another stream until it is freed. The stream that it was handed out for is no
    /// news.
    pub fn record_stream(&mut self, block: BlockId, stream: StreamId) {
        if stream != self.blocks[block].user && !self.rules.planted.is(Plant::EarlyReuse) {
            let uses = self.uses_of(block);
            if !uses.streams.contains(&stream) {
                uses.streams.push(stream);
            }
        }
    }

    /// Notes that the block is used up to a point. A point of the stream that it was handed out for has no effect,
    /// because the free comes after it.
    pub fn used_until(&mut self, block: BlockId, point: Point) {
        if point.stream != self.blocks[block].user && !self.rules.planted.is(Plant::EarlyReuse) {
            self.uses_of(block).points.max(point);
        }
    }

    fn uses_of(&mut self, block: BlockId) -> &mut Uses {
        let entry = &mut self.blocks[block];
        assert_eq!(entry.state, State::Live, "block {} is used after it was freed", block.0);
        entry.used_elsewhere = true;
        self.uses.entry(block).or_default()
    }

    fn entry(&self, id: BlockId) -> Key {
        key_of(&self.blocks, &self.segments, id)
    }

    /// Puts a free block into the index.
    #[inline(always)]
    fn list(&mut self, id: BlockId, size: u64, side: Side) {
        if self.is_in_slabs(side) {
            return self.list_in_slab(id, size);
        }
        if !self.pools[side.index()].free.insert_alone(id, size) {
            self.list_among(id, size, side);
        }
    }

    #[inline(never)]
    fn list_among(&mut self, id: BlockId, size: u64, side: Side) {
        let Self { blocks, segments, pools, .. } = self;
        pools[side.index()].free.insert_among(id, size, |id| key_of(blocks, segments, id));
    }

    /// Takes a block out of the index.
    fn unlist(&mut self, id: BlockId) {
        let Block { size, side, .. } = self.blocks[id];
        if self.is_in_slabs(side) {
            return self.unlist_in_slab(id);
        }
        self.pools[side.index()].free.remove(id, size);
    }

    fn unmapped_key(&self, id: BlockId) -> (u64, BlockId) {
        (self.entry(id).rank, id)
    }

    /// The blocks of a segment in order of their offsets.
    fn tiles(&self, slot: Slot) -> impl Iterator<Item = BlockId> {
        let first = Some(self.segments[slot].first);
        core::iter::successors(first, |&id| self.blocks[id].next.some())
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

    /// Returns the first point that freed blocks wait for on the home stream, where that does not reuse in order.
    pub(crate) fn settling_from(&self) -> Option<Point> {
        self.settling.front().map(|&(tick, _)| Point { stream: self.stream, tick })
    }

    /// Returns whether no room is below zero, and none is there that the shard does not hold.
    pub(crate) fn is_settled(&self) -> bool {
        self.meter.is_settled()
    }

    /// Has the shard hold room from now on, and returns whether it did not before. If so the coordinator has to know,
    /// see [`Shards::add_holders`](crate::Shards::add_holders).
    pub fn hold_room(&mut self) -> bool {
        self.meter.hold_room()
    }

    /// Has the next operations find no shortage of room, up to some blocks: what is missing is settled later. A peak
    /// misses what rises and falls again until then.
    ///
    /// # Panics
    ///
    /// If the shard does not hold room.
    pub fn overdraw(&mut self) {
        self.meter.overdraw();
    }

    /// Lets the peaks begin anew with what is there now, which it returns.
    pub(crate) fn reset_peaks(&mut self) -> [Row; ROWS] {
        self.meter.reset_room();
        self.snug_reset();
        self.meter.current_rows()
    }

    /// Returns the bytes of blocks that the program holds, after rounding. A free that was put off counts only once the
    /// shard is [tidied](Self::tidied).
    pub fn live_bytes(&self) -> u64 {
        let of = |side| self.meter.current(side, Counter::AllocatedBytes) as u64;
        of(Side::Small) + of(Side::Large)
    }

    /// Returns a number that changes with nearly all that may let a request hit that has missed: frees, and news of
    /// streams. It does not change where a plan gives back what it has claimed, or where a block that was freed before
    /// becomes free.
    pub fn changes(&self) -> u64 {
        self.frees() + self.news_seen()
    }

    /// Returns the number of blocks that were freed so far.
    pub(crate) fn frees(&self) -> u64 {
        Side::BOTH.map(|side| self.meter.totals(side, Counter::Allocation).1).iter().sum()
    }
}

/// Returns the place of a block in the order of free blocks.
fn key_of(blocks: &Blocks, segments: &Segments, id: BlockId) -> Key {
    let block = &blocks[id];
    let segment = &segments[block.slot];
    Key { size: block.size, rank: segment.rank + block.offset / QUANTUM }
}
