//! Who may still use free memory of a home, and who may have it at once.
//!
//! All streams of a pool have one home, and a block is free as soon as the program frees it. Who gets it next comes
//! after its *users*: the stream that it was handed out for, up to the tick of its free, and all streams that it was
//! used on besides. A free block that one stream alone has used says so itself ([`Block::user`], [`Block::last_use`]).
//! Where several have, it is marked ([`Block::used_elsewhere`]), and the record here has each part by place.
//!
//! A stream is ordered after its own work. For that of others it waits, on the device, unless the home has seen that it
//! is over.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use millpond_backend::{Point, Reuse, StreamId, Tick};

use super::Memory;
use crate::block::LastUse;
use crate::block::State;
use crate::books::Points;
use crate::ids::{BlockId, Side, Slot};
use crate::looks;

/// The number of streams that are found to be behind before a request asks no more of them: a driver's query takes a
/// microsecond. A stream that is done is not asked again before it frees memory once more, so it costs little.
pub(crate) const BEHIND_MAX: usize = 8;

/// A guarded part of a home.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Part {
    pub(crate) begin: u64,
    pub(crate) end: u64,
    /// The points that come before the next use.
    pub(crate) points: Points,
}

/// A stream that requests memory of a home.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Requester {
    /// The stream.
    pub stream: StreamId,
    /// The tick up to which memory that the stream itself freed may be handed out to it again.
    pub usable: Tick,
}

impl Requester {
    /// Returns a stream whose later work is ordered after all of its earlier work.
    pub const fn in_order(stream: StreamId) -> Self {
        Self { stream, usable: Tick(u64::MAX) }
    }
}

/// What a home has seen of the streams, by the number of the stream.
#[derive(Default)]
pub(crate) struct Seen {
    /// The ticks that are known to be reached, and how many of the coordinator's news of that were seen.
    reached: Vec<Tick>,
    news: u64,
    /// The latest tick up to which a stream has used memory that was free by then.
    latest: Vec<Tick>,
    /// The streams that are not known to have reached that tick, and the one to be asked next how far it is.
    behind: BTreeSet<StreamId>,
    ask_next: StreamId,
    /// The number of blocks that were handed out, and how many of them were told.
    grants: Vec<u64>,
    told: Vec<u64>,
    /// The number of streams that they went to.
    pub(crate) users: usize,
}

impl Seen {
    /// Returns whether a point is known to be reached.
    fn is_over(&self, point: Point) -> bool {
        point.tick == Tick::ZERO || self.reached.get(point.stream.0 as usize).is_some_and(|tick| *tick >= point.tick)
    }

    /// Notes that memory is free that was used up to a point.
    pub(crate) fn note_free(&mut self, point: Point) {
        let known = entry(&mut self.latest, point.stream, Tick::ZERO);
        *known = point.tick.max(*known);
        if !self.is_over(point) {
            self.behind.insert(point.stream);
        }
    }

    /// Takes in up to which points streams are known to be done. Returns whether one has come further.
    fn see_reached(&mut self, reached: impl Iterator<Item = Point>) -> bool {
        let mut is_news = false;
        for Point { stream, tick } in reached {
            looks::note(1);
            let known = entry(&mut self.reached, stream, Tick::ZERO);
            if tick > *known {
                (*known, is_news) = (tick, true);
                if self.latest.get(stream.0 as usize).is_some_and(|latest| *latest <= tick) {
                    self.behind.remove(&stream);
                }
            }
        }
        is_news
    }

    pub(crate) fn note_grant(&mut self, stream: StreamId) {
        let granted = entry(&mut self.grants, stream, 0);
        *granted += 1;
        self.users += usize::from(*granted == 1);
    }

    /// Returns the points up to which free memory was used that are not known to be reached, of each stream the latest.
    fn latest(&self) -> impl Iterator<Item = Point> {
        self.behind.iter().map(|&stream| Point { stream, tick: self.latest[stream.0 as usize] })
    }
}

/// Returns what a table has of a stream.
fn entry<T: Copy>(table: &mut Vec<T>, stream: StreamId, none: T) -> &mut T {
    let at = stream.0 as usize;
    if table.len() <= at {
        table.resize(at + 1, none);
    }
    &mut table[at]
}

/// The guarded parts of a shard's homes, by slot and offset.
///
/// Invariant: the parts do not overlap, and none is empty.
#[derive(Default)]
pub(crate) struct Guards {
    parts: BTreeMap<(Slot, u64), Part>,
}

impl Guards {
    fn add(&mut self, slot: Slot, part: Part) {
        let range = (part.begin, part.end);
        debug_assert!(self.over(slot, range).is_empty(), "{}..{} is guarded already", part.begin, part.end);
        self.parts.insert((slot, part.begin), part);
    }

    /// Forgets the parts whose points are all reached. Costs a look at each part.
    fn prune(&mut self, is_reached: impl Fn(Point) -> bool) {
        looks::note(self.parts.len());
        self.parts.retain(|_, part| !part.points.iter().all(&is_reached));
    }

    /// Returns the parts that share a byte with the range, the last one first.
    fn parts(&self, slot: Slot, (begin, end): (u64, u64)) -> impl Iterator<Item = &Part> {
        // With a lower bound the tree would be searched twice.
        let below = self.parts.range(..(slot, end)).rev();
        below.take_while(move |((of, _), part)| *of == slot && part.end > begin).map(|(_, part)| part)
    }

    /// Returns the parts that share a byte with the range, the first one first.
    fn forward(&self, slot: Slot, (begin, end): (u64, u64)) -> impl Iterator<Item = &Part> {
        let before = self.parts.range((slot, 0)..(slot, begin)).next_back().map(|(_, part)| part);
        let inside = self.parts.range((slot, begin)..(slot, end)).map(|(_, part)| part);
        before.filter(move |part| part.end > begin).into_iter().chain(inside)
    }

    /// Returns the points of the parts that share a byte with the range.
    fn over(&self, slot: Slot, range: (u64, u64)) -> Points {
        self.parts(slot, range).flat_map(|part| part.points.iter()).collect()
    }

    /// Removes the range from the record. Returns its points.
    fn take(&mut self, slot: Slot, (begin, end): (u64, u64)) -> Points {
        let mut all = Points::default();
        let last = |of: &Self| of.parts(slot, (begin, end)).next().map(|part| part.begin);
        while let Some(part) = last(self).and_then(|at| self.parts.remove(&(slot, at))) {
            if part.begin < begin {
                self.parts.insert((slot, part.begin), Part { end: begin, ..part.clone() });
            }
            if part.end > end {
                self.parts.insert((slot, end), Part { begin: end, ..part.clone() });
            }
            all.merge(part.points);
        }
        all
    }
}

impl Memory {
    /// Notes that the memory of a block that is in no index was used by its user, at other addresses or not, and by
    /// others up to these points.
    pub(crate) fn used_by_others(&mut self, id: BlockId, mut points: Points, is_elsewhere: bool) {
        let loses_order = is_elsewhere && self.rules.alias_reuse != self.rules.reuse;
        if loses_order || !points.is_empty() {
            points.max(self.last_point(id));
            self.put_guards(id, points);
        }
    }

    /// Prepares blocks that are in no index for being joined. Where that would hide who has used a part of them, or
    /// that nobody uses a part any more, the record has each part by place from now on.
    pub(crate) fn part_users(&mut self, joined: [Option<BlockId>; 3]) {
        if let Some(point) = joined[1].and_then(|id| self.plain_point(id)) {
            self.seen.note_free(point);
        }
        let common = self.common_user(joined);
        for id in joined.into_iter().flatten() {
            match common {
                Some(user) => self.blocks[id].user = user,
                None => self.record_user(id),
            }
        }
    }

    /// Returns the stream whose memory the whole of some blocks is, if one stream has used them alone and nothing is
    /// lost by saying so of all of them together: a stream's own work is in order, but another stream can have at once
    /// what nobody uses any more.
    pub(crate) fn common_user(&self, joined: [Option<BlockId>; 3]) -> Option<StreamId> {
        let in_order = self.rules.reuse == Reuse::InOrder;
        let (mut common, mut is_idle) = (None, None);
        for id in joined.into_iter().flatten() {
            if self.blocks[id].used_elsewhere {
                return None;
            }
            let point = self.plain_point(id);
            let idle = point.is_none_or(|point| self.seen.is_over(point));
            let serves_others = self.seen.users > 1 && self.blocks[id].side == Side::Large;
            if *is_idle.get_or_insert(idle) != idle && (serves_others || !in_order) {
                return None;
            }
            if let Some(point) = point {
                let known = common.get_or_insert(point);
                if known.stream != point.stream || !(idle || in_order || known.tick == point.tick) {
                    return None;
                }
            }
        }
        common.map(|point: Point| point.stream)
    }

    /// Has the record say who has used a block, and no longer the block.
    pub(crate) fn record_user(&mut self, id: BlockId) {
        if let Some(point) = self.plain_point(id) {
            self.blocks[id].last_use = OVER;
            if !self.seen.is_over(point) {
                self.put_guards(id, Points::from_iter([point]));
            }
        }
    }

    /// Returns the point up to which a block was used, if it says so itself.
    fn plain_point(&self, id: BlockId) -> Option<Point> {
        let block = &self.blocks[id];
        (!block.used_elsewhere && block.last_use > OVER).then(|| self.last_point(id))
    }

    /// Returns whether a stream may have memory at once that was used up to a point: it is ordered after that, or that
    /// is known to be over.
    fn is_ready(&self, point: Point, by: Requester) -> bool {
        (point.stream == by.stream && point.tick <= by.usable) || self.seen.is_over(point)
    }

    /// Returns the last use of some bytes of a free block as it counts for a stream, if that may have them at once.
    pub(crate) fn ready_use(&self, id: BlockId, range: (u64, u64), by: Requester) -> Option<LastUse> {
        let block = &self.blocks[id];
        if !block.used_elsewhere {
            let point = self.last_point(id);
            let is_ready = block.last_use <= OVER || self.is_ready(point, by);
            let is_own = point.stream == by.stream;
            return is_ready.then(|| if is_own { block.last_use } else { block.last_use.min(OVER) });
        }
        // What is recorded by place may have been used at other addresses.
        let keeps_order = self.rules.alias_reuse == self.rules.reuse;
        let mut last_use = block.last_use;
        for point in self.guards.parts(block.slot, range).flat_map(|part| part.points.iter()) {
            if !(keeps_order && self.is_ready(point, by) || self.seen.is_over(point)) {
                return None;
            }
            last_use = last_use.max(if point.stream == by.stream { LastUse::at(point.tick) } else { OVER });
        }
        Some(last_use)
    }

    /// Returns the points that guard a block, without that of its user where the block says that itself.
    pub(crate) fn guards_of(&self, id: BlockId) -> Points {
        if self.blocks[id].used_elsewhere { self.guards_over(id).collect() } else { Points::default() }
    }

    /// Returns the points that guard the parts of a marked block, of one stream possibly several.
    pub(crate) fn guards_over(&self, id: BlockId) -> impl Iterator<Item = Point> {
        let block = &self.blocks[id];
        self.guards.parts(block.slot, (block.offset, block.end())).flat_map(|part| part.points.iter())
    }

    /// Returns the number of bytes of a block that several streams may still use.
    pub(crate) fn guarded_bytes(&self, id: BlockId) -> u64 {
        let block = &self.blocks[id];
        if !block.used_elsewhere {
            return 0;
        }
        let (begin, end) = (block.offset, block.end());
        let has_several = |part: &&Part| part.points.iter().filter(|point| !self.seen.is_over(*point)).nth(1).is_some();
        let parts = self.guards.parts(block.slot, (begin, end)).filter(has_several);
        parts.map(|part| part.end.min(end) - part.begin.max(begin)).sum()
    }

    /// Returns the guarded parts of a range, by place, each with where it begins and ends there.
    pub(crate) fn guarded_parts_of(
        &self,
        slot: Slot,
        (begin, end): (u64, u64),
    ) -> impl Iterator<Item = (&Part, (u64, u64))> {
        let parts = self.guards.forward(slot, (begin, end));
        parts.map(move |part| (part, (part.begin.max(begin), part.end.min(end))))
    }

    /// Takes the guards off a claimed block, whose plan waits for them. Returns the points up to which it was used.
    pub(crate) fn take_guards(&mut self, id: BlockId) -> Points {
        let plain = self.plain_point(id);
        let block = &mut self.blocks[id];
        if !core::mem::take(&mut block.used_elsewhere) {
            if self.rules.moves_pages {
                block.last_use = block.last_use.min(OVER);
                return plain.into_iter().collect();
            }
            return Points::default();
        }
        self.guards.take(block.slot, (block.offset, block.end()))
    }

    /// Puts guards on a block that is in no index.
    pub(crate) fn put_guards(&mut self, id: BlockId, points: Points) {
        if points.is_empty() {
            return;
        }
        points.iter().for_each(|point| self.seen.note_free(point));
        let block = &mut self.blocks[id];
        block.used_elsewhere = true;
        block.last_use = OVER;
        let part = Part { begin: block.offset, end: block.end(), points };
        self.guards.add(block.slot, part);
    }

    /// Marks the parts into which a marked block was cut: the front was handed out, and the rest may be guarded.
    #[cold]
    #[inline(never)]
    pub(crate) fn mark_rest(&mut self, front: BlockId) {
        let block = &mut self.blocks[front];
        block.used_elsewhere = false;
        let (slot, range, rest) = (block.slot, (block.offset, block.end()), block.next);
        self.guards.take(slot, range);
        if let Some(rest) = rest.some().filter(|&rest| self.blocks[rest].used_elsewhere)
            && self.blocks[rest].state == State::Free
        {
            let block = &self.blocks[rest];
            let is_guarded = self.guards.parts(block.slot, (block.offset, block.end())).next().is_some();
            self.blocks[rest].used_elsewhere = is_guarded;
        }
    }

    /// Takes in up to which points streams are known to be done, with the number of news that there are then, and
    /// forgets the guards that are over by that. Costs a look at each guard if a stream has come further.
    pub(crate) fn see_reached(&mut self, reached: impl Iterator<Item = Point>, news: u64) {
        self.seen.news = news;
        if self.seen.see_reached(reached) {
            let Self { seen, guards, .. } = self;
            guards.prune(|point| seen.is_over(point));
        }
    }

    /// Returns how many of the coordinator's news of streams the home has seen.
    pub(crate) fn news_seen(&self) -> u64 {
        self.seen.news
    }

    /// Returns the streams that free memory may have to wait for, a bounded number, in the order of their turns.
    pub(crate) fn streams_to_ask(&mut self) -> Vec<StreamId> {
        let Seen { behind, ask_next, .. } = &mut self.seen;
        let by_turns = behind.range(*ask_next..).chain(behind.iter());
        let asked: Vec<_> = by_turns.take(behind.len().min(32 * BEHIND_MAX)).copied().collect();
        *ask_next = asked.get(BEHIND_MAX).copied().unwrap_or_default();
        asked
    }

    /// Returns up to which points free memory may still be used, of each stream the latest one.
    pub(crate) fn latest_points(&self) -> impl Iterator<Item = Point> {
        self.seen.latest()
    }

    /// Returns up to which points the free memory of the large side was used.
    pub(crate) fn free_points(&self) -> impl Iterator<Item = Point> {
        let plain = self.free_blocks(Side::Large).map(|(id, _)| self.last_point(id));
        self.guard_points().chain(plain)
    }

    /// Returns the number of blocks that were handed out for a stream since the last call.
    pub(crate) fn new_grants_to(&mut self, stream: StreamId) -> u64 {
        let granted = self.seen.grants.get(stream.0 as usize).copied().unwrap_or(0);
        granted - core::mem::replace(entry(&mut self.seen.told, stream, 0), granted)
    }

    /// Returns the points of all guards.
    pub(crate) fn guard_points(&self) -> impl Iterator<Item = Point> {
        self.guards.parts.values().flat_map(|part| part.points.iter())
    }

    /// Returns the guarded parts.
    pub(crate) fn guarded_parts(&self) -> impl Iterator<Item = &Part> {
        self.guards.parts.values()
    }

    /// Verifies that guarded parts lie in marked free or claimed blocks.
    pub(crate) fn check_guards(&self) {
        for (&(slot, at), part) in &self.guards.parts {
            assert!(at == part.begin && at < part.end && !part.points.is_empty(), "at {at}: {part:?}");
            for id in self.tiles(slot) {
                let block = &self.blocks[id];
                if block.offset < part.end && block.end() > part.begin {
                    let is_marked = block.state == State::Free && block.used_elsewhere;
                    assert!(is_marked || block.state == State::Claimed, "{part:?} is guarded in {block:?}");
                }
            }
        }
        for (_, block) in self.blocks.iter().filter(|(_, block)| block.state == State::Free && block.used_elsewhere) {
            assert!(block.last_use <= OVER, "the record has what {block:?} says");
        }
    }
}

/// The last use of memory that was used, where the record has by whom, or that is over.
pub(crate) const OVER: LastUse = LastUse::at(Tick::ZERO);

#[cfg(test)]
mod tests {
    extern crate std;

    use std::vec;

    use millpond_backend::{StreamId, Tick};

    use super::*;
    use crate::shard::Shard;

    const SLOT: Slot = Slot(1);

    fn at(stream: u32, tick: u64) -> Points {
        Points::from_iter([Point { stream: StreamId(stream), tick: Tick(tick) }])
    }

    fn parts(guards: &Guards) -> Vec<(u64, u64)> {
        guards.parts.values().map(|part| (part.begin, part.end)).collect()
    }

    fn part((begin, end): (u64, u64), points: Points) -> Part {
        Part { begin, end, points }
    }

    /// Where many streams are behind, each question begins with others, as a few that are behind end it.
    #[test]
    fn many_streams_are_asked_by_turns() {
        let (mut shard, _) = crate::memory::home::tests::bare();
        let note = |shard: &mut Shard, streams: core::ops::Range<u32>| {
            streams.for_each(|stream| shard.memory.seen.note_free(Point { stream: StreamId(stream), tick: Tick(1) }));
        };
        let asked = |shard: &mut Shard| shard.memory.streams_to_ask().iter().map(|stream| stream.0).collect::<Vec<_>>();
        note(&mut shard, 3..6);
        assert_eq!([asked(&mut shard), asked(&mut shard)], [vec![3, 4, 5], vec![3, 4, 5]], "all of a few");
        note(&mut shard, 6..23);
        let from = |first| (first..23).chain(3..first).collect::<Vec<_>>();
        assert_eq!([asked(&mut shard), asked(&mut shard), asked(&mut shard)], [from(3), from(11), from(19)]);
        note(&mut shard, 23..1000);
        assert_eq!(asked(&mut shard).len(), 256);
    }

    #[test]
    fn what_is_taken_is_cut_out_of_the_record() {
        let mut guards = Guards::default();
        guards.add(SLOT, part((0, 10), at(1, 5)));
        guards.add(SLOT, part((10, 20), at(2, 7)));
        guards.add(Slot(2), part((0, 100), at(3, 1)));
        assert_eq!(guards.over(SLOT, (10, 11)), at(2, 7));
        let taken = guards.take(SLOT, (8, 12)).into_vec();
        assert_eq!(taken.len(), 2, "{taken:?}");
        assert_eq!(parts(&guards), vec![(0, 8), (12, 20), (0, 100)]);
        assert!(guards.over(SLOT, (8, 12)).is_empty());
        assert_eq!(guards.take(SLOT, (0, 100)).len(), 2);
        assert_eq!(parts(&guards), vec![(0, 100)], "another slot");
    }
}
