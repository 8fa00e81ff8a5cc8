//! A shard: the segments, blocks and counters of one stream in one pool, or of all streams of a pool under `paged`.
//!
//! The hot path ([`Shard::allocate`] that hits, [`Shard::free`]) uses nothing outside its shard. What a shard cannot do
//! alone it reports: a miss, uses on other streams that have to be waited for, or room for a peak that ran out. The
//! [`Coordinator`](crate::Coordinator) continues from there.

mod closed;
mod free;
mod grow;
mod put_off;
mod snug;
mod spots;
mod take;
mod view;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use closed::Closed;
use millpond_backend::{Point, StreamId, Tick};
use put_off::Swap;
use snug::Snug;

use crate::block::{Block, LastUse, State};
use crate::books::Points;
use crate::ids::{BlockId, PoolId, SegmentId, ShardId, Side, Slot};
use crate::memory::{BEHIND_MAX, Memory, Panes, Requester, Rules};
use crate::meter::{Counter, Meter, ROWS, Row};
use crate::plant::Plant;
use crate::settings::{Scrub, Settings};

pub use free::{Freed, Retired, Uses};
pub use grow::Grown;
pub(crate) use grow::Longer;
pub(crate) use spots::{AtSpot, Mark, Spot, Standing};
pub(crate) use take::NewUser;
pub use view::{BlockState, BlockView, PageView, SegmentView};

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

/// Where a block lies, or a part of one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// The slot of its segment.
    pub slot: Slot,
    /// Where it begins in the segment.
    pub offset: u64,
    /// Its length.
    pub bytes: u64,
}

/// The state of one stream in one pool. Under `paged` the streams of a pool have one shard together: their *home*.
///
/// Invariants, verified by [`check`](Shard::check): the blocks of each segment tile it; no two neighbours are both free
/// or both unmapped; the indexes hold exactly the free and the unmapped blocks; the counters equal the sums over the
/// blocks.
#[derive(Clone)]
pub struct Shard {
    pool: PoolId,
    pub(crate) memory: Memory,
    /// The windows in use.
    pub(crate) panes: Panes,
    pub(crate) meter: Meter,
    /// What counts towards the slack, where there is one.
    snug: Option<Snug>,
    /// Freed blocks whose home stream has not come far enough (`AfterSubmit`, `AfterDone`), in order of their ticks.
    settling: VecDeque<(Tick, BlockId)>,
    /// The block freed last, if its free was put off: see the module of that name.
    put_off: BlockId,
    /// What is known about the last operation, if that handed out again exactly the block that the one before had
    /// freed.
    swap: Swap,
    /// The uses of blocks beyond the home stream. There are few at any time.
    uses: BTreeMap<BlockId, Box<Uses>>,
    /// The blocks that became free after a wait, where they are listed.
    retired: Option<Vec<Retired>>,
    /// What is kept until the shard is opened, if its group is not running.
    closed: Option<Box<Closed>>,
}

impl Shard {
    pub(crate) fn new(id: ShardId, stream: StreamId, pool: PoolId, rules: Rules) -> Self {
        Self {
            pool,
            memory: Memory::new(id, stream, rules),
            panes: Panes::default(),
            meter: Meter::new(),
            snug: rules.slack.map(Snug::new),
            settling: VecDeque::new(),
            put_off: BlockId::NONE,
            swap: Swap::NONE,
            uses: BTreeMap::new(),
            retired: None,
            closed: None,
        }
    }

    /// Returns the shard's id.
    pub fn id(&self) -> ShardId {
        self.memory.id
    }

    /// Returns the id of the segment at a slot.
    ///
    /// # Panics
    ///
    /// Panics if there is no segment at the slot.
    pub fn segment_id(&self, slot: Slot) -> SegmentId {
        self.memory.segments[slot].id
    }

    /// Returns the id of the segment at a slot, if there is one.
    pub fn segment_at(&self, slot: Slot) -> Option<SegmentId> {
        self.memory.segments.get(slot).map(|segment| segment.id)
    }

    /// Returns the bytes of each segment that is not a range.
    pub(crate) fn plain_segments(&self) -> impl Iterator<Item = u64> {
        let plain = self.memory.segments.iter().filter(|(_, segment)| !segment.is_expandable());
        plain.map(|(_, segment)| segment.bytes)
    }

    /// Takes over the limits of new settings, by which blocks in use count as oversize. Returns whether room for a peak
    /// ran out.
    pub(crate) fn change_limits(&mut self, settings: &Settings) -> bool {
        let before = self.memory.rules.max_split;
        self.memory.rules.set_limits(settings);
        let after = self.memory.rules.max_split;
        if before == after {
            return false;
        }
        let (mut begun, mut ceased) = ([0; 2], [0; 2]);
        for (_, block) in self.memory.blocks.iter().filter(|(_, block)| block.state == State::Live) {
            match (block.size >= before, block.size >= after) {
                (false, true) => begun[block.side.index()] += 1,
                (true, false) => ceased[block.side.index()] += 1,
                _ => {}
            }
        }
        let mut recount = |side: Side| self.meter.recount_oversize(side, begun[side.index()], ceased[side.index()]);
        Side::BOTH.map(&mut recount).contains(&true)
    }

    /// Returns the stream that the shard was opened for. Under `paged` other streams of the pool have blocks there,
    /// too.
    pub fn stream(&self) -> StreamId {
        self.memory.stream
    }

    /// Returns the pool that the shard's blocks belong to.
    pub fn pool(&self) -> PoolId {
        self.pool
    }

    /// Returns whether the shard has no memory, and nothing that waits for any: its pool could be another one.
    pub(crate) fn is_vacant(&self) -> bool {
        let is_bare = self.memory.blocks.iter().all(|(_, block)| block.state == State::Unmapped);
        is_bare && self.put_off == BlockId::NONE && self.closed.is_none()
    }

    /// Gives the shard to another pool.
    ///
    /// # Panics
    ///
    /// If it has memory.
    pub(crate) fn move_to(&mut self, pool: PoolId) {
        assert!(self.is_vacant(), "the shard of {} in {} has memory and goes to {pool}", self.memory.stream, self.pool);
        self.pool = pool;
    }

    /// Returns the number of blocks that the program holds.
    pub fn live_blocks(&mut self) -> u64 {
        self.tidied();
        let count = |side| self.meter.current(side, Counter::Allocation);
        (count(Side::Small) + count(Side::Large)) as u64
    }

    /// Returns whether a freed block still waits for a point. One that was freed while its group was paused waits for
    /// its group.
    pub fn has_pending(&self) -> bool {
        let pending = self.memory.blocks.iter().filter(|(_, block)| block.state == State::Pending).count();
        pending > self.freed_meanwhile()
    }

    /// Returns up to which points the shard's memory was used, of each stream the newest one.
    pub fn last_uses(&self) -> Points {
        let used = self.memory.blocks.iter().map(|(id, _)| self.memory.blocks[id].last_point());
        used.chain(self.memory.guards.points()).filter(|point| point.tick > Tick::ZERO).collect()
    }

    /// Returns whether the shard is a home, in which blocks can have addresses to grow into.
    pub fn is_home(&self) -> bool {
        self.memory.rules.moves_pages
    }

    /// Returns the bytes that the program has asked for of a block that is handed out.
    pub fn requested_of(&self, block: BlockId) -> u64 {
        self.memory.blocks[block].requested
    }

    /// Returns the stream that a block was handed out for.
    pub fn user_of(&self, block: BlockId) -> StreamId {
        self.memory.blocks[block].user
    }

    /// Returns the streams that use a block which is handed out until its free: the one that it was handed out for
    /// first.
    pub fn streams_of(&self, block: BlockId) -> Vec<StreamId> {
        let others = self.uses.get(&block).into_iter().flat_map(|uses| uses.streams.iter().copied());
        [self.user_of(block)].into_iter().chain(others).collect()
    }

    /// Returns where a block lies.
    pub fn extent(&self, block: BlockId) -> Extent {
        let Block { slot, offset, size, .. } = self.memory.blocks[block];
        Extent { slot, offset, bytes: size }
    }

    /// Returns what [`extent`](Self::extent) does if the block is handed out, and `None` if it is not, or if the shard
    /// has no such block.
    pub fn live_extent(&self, block: BlockId) -> Option<Extent> {
        self.memory.blocks.get(block).filter(|entry| entry.state == State::Live).map(|_| self.extent(block))
    }

    /// Returns the length of a block in bytes.
    #[inline]
    pub fn size_of(&self, block: BlockId) -> u64 {
        self.memory.blocks[block].size
    }

    /// Notes that the block is used on another stream until it is freed. Naming the stream that it was handed out for
    /// has no effect.
    pub fn record_stream(&mut self, block: BlockId, stream: StreamId) {
        if stream != self.memory.blocks[block].user && !self.memory.rules.planted.is(Plant::EarlyReuse) {
            let uses = self.uses_of(block);
            if !uses.streams.contains(&stream) {
                uses.streams.push(stream);
            }
        }
    }

    /// Notes that the block is used up to a point. A point of the stream that it was handed out for has no effect,
    /// because the free comes after it.
    pub fn used_until(&mut self, block: BlockId, point: Point) {
        if point.stream != self.memory.blocks[block].user && !self.memory.rules.planted.is(Plant::EarlyReuse) {
            self.uses_of(block).points.max(point);
        }
    }

    fn uses_of(&mut self, block: BlockId) -> &mut Uses {
        let entry = &mut self.memory.blocks[block];
        assert!(entry.state == State::Live, "block {} is used after it was freed", block.0);
        entry.used_elsewhere = true;
        self.uses.entry(block).or_default()
    }

    /// Returns the parts of a block granted for a stream that must be overwritten before the program gets it.
    pub fn to_scrub(&self, block: Extent, stream: StreamId) -> Vec<Extent> {
        let Extent { slot, offset, bytes } = block;
        match (self.memory.rules.scrub, &self.memory.owners) {
            (Scrub::OtherStreams, Some(owners)) => {
                let foreign = owners.foreign_to(slot, offset..offset + bytes, stream).into_iter();
                foreign.map(|part| Extent { slot, offset: part.start, bytes: part.end - part.start }).collect()
            }
            (Scrub::Off, _) => Vec::new(),
            _ => [block].into(),
        }
    }

    /// Notes that the foreign parts of a block were overwritten for the stream that it was granted for, which may now
    /// read all of it.
    pub fn scrubbed(&mut self, block: Extent, stream: StreamId) {
        if let Some(owners) = &mut self.memory.owners {
            owners.give(block.slot, block.offset..block.offset + block.bytes, stream);
        }
    }

    /// The number of unfinished streams after which a request stops polling: a driver's query takes a microsecond. A
    /// stream that is done is not polled again until it frees more memory, so it costs little.
    pub const BEHIND_MAX: usize = BEHIND_MAX;

    /// Returns the streams that a plan polls first, if the shard is a home: see
    /// [`Coordinator::answer`](crate::Coordinator::answer). They are polled in this order until
    /// [`BEHIND_MAX`](Self::BEHIND_MAX) of them are found unfinished. Costs a look at each.
    pub fn first_question(&mut self) -> Option<Vec<StreamId>> {
        self.memory.rules.moves_pages.then(|| self.tidied().memory.guards.seen.streams_to_ask())
    }

    /// Returns the first point that freed blocks wait for on the home stream, where that does not reuse in order.
    pub(crate) fn settling_from(&self) -> Option<Point> {
        self.settling.front().map(|&(tick, _)| Point { stream: self.memory.stream, tick })
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

    /// Lets the running peaks begin anew with what is there now, which it returns.
    pub(crate) fn restart_peaks(&mut self) -> [Row; ROWS] {
        self.meter.reset_room();
        self.meter.current_rows()
    }

    /// Returns the bytes of blocks that the program holds, after rounding. A free that was put off counts only once the
    /// shard is [tidied](Self::tidied).
    pub fn live_bytes(&self) -> u64 {
        let of = |side| self.meter.current(side, Counter::AllocatedBytes) as u64;
        of(Side::Small) + of(Side::Large)
    }

    /// Returns a number that changes with nearly everything that may turn a miss into a hit: frees, and progress of
    /// streams. It does not change when a plan releases its claims, or when a block that was freed before becomes free.
    pub fn changes(&self) -> u64 {
        self.frees() + self.memory.guards.seen.news
    }

    /// Returns the number of blocks that were freed so far.
    pub(crate) fn frees(&self) -> u64 {
        Side::BOTH.map(|side| self.meter.flow(side, Counter::Allocation).went).iter().sum()
    }
}
