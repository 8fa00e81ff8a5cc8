//! Who may still use free memory of a home, and who may have it at once.
//!
//! All streams of a pool have one home, and a block is free as soon as the program frees it. Who gets it next comes
//! after its *users*: the stream that it was handed out for, up to the tick of its free, and all streams that it was
//! used on besides. A free block that one stream alone has used says so itself ([`Block::user`], [`Block::last_use`]).
//! Where several have, it is marked ([`Block::used_elsewhere`]), and the record here has each part by place.
//!
//! A stream is ordered after its own work. For that of others it waits, on the device, unless the home has seen that it
//! is over.

use alloc::collections::BTreeMap;
use core::ops::Range;

use millpond_backend::{Point, Reuse, StreamId, Tick};

use super::Rules;
use super::seen::Seen;
use crate::block::{Block, Blocks, LastUse, State};
use crate::books::Points;
use crate::ids::{BlockId, Side, Slot};
use crate::looks;

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

/// Who may still use free memory: the guarded parts of a shard's homes, by slot and offset, and what was seen of the
/// streams.
///
/// Invariant: the parts do not overlap, and none is empty.
#[derive(Clone)]
pub(crate) struct Guards {
    parts: BTreeMap<(Slot, u64), Part>,
    pub(crate) seen: Seen,
    rules: Rules,
}

impl Guards {
    pub(crate) fn new(rules: Rules) -> Self {
        Self { parts: BTreeMap::new(), seen: Seen::default(), rules }
    }

    fn add(&mut self, slot: Slot, part: Part) {
        debug_assert!(
            self.over(slot, part.begin..part.end).is_empty(),
            "{}..{} is guarded already",
            part.begin,
            part.end
        );
        self.parts.insert((slot, part.begin), part);
    }

    /// Forgets the parts whose points are all known to be reached. Costs a look at each part.
    fn prune(&mut self) {
        let Self { parts, seen, .. } = self;
        looks::note(parts.len());
        parts.retain(|_, part| !part.points.iter().all(|point| seen.is_over(point)));
    }

    /// Returns the parts that share a byte with the range, the last one first.
    fn parts(&self, slot: Slot, range: Range<u64>) -> impl Iterator<Item = &Part> {
        // With a lower bound the tree would be searched twice.
        let below = self.parts.range(..(slot, range.end)).rev();
        below.take_while(move |((of, _), part)| *of == slot && part.end > range.start).map(|(_, part)| part)
    }

    /// Returns the parts that share a byte with the range, the first one first.
    fn forward(&self, slot: Slot, Range { start: begin, end }: Range<u64>) -> impl Iterator<Item = &Part> {
        let before = self.parts.range((slot, 0)..(slot, begin)).next_back().map(|(_, part)| part);
        let inside = self.parts.range((slot, begin)..(slot, end)).map(|(_, part)| part);
        before.filter(move |part| part.end > begin).into_iter().chain(inside)
    }

    /// Returns the points of the parts that share a byte with the range.
    fn over(&self, slot: Slot, range: Range<u64>) -> Points {
        self.parts(slot, range).flat_map(|part| part.points.iter()).collect()
    }

    /// Removes the range from the record. Returns its points.
    fn cut_out(&mut self, slot: Slot, Range { start: begin, end }: Range<u64>) -> Points {
        let mut all = Points::default();
        let last = |of: &Self| of.parts(slot, begin..end).next().map(|part| part.begin);
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

    /// Notes that the memory of a block that is in no index was used by its user, at other addresses or not, and by
    /// others up to these points.
    pub(crate) fn used_by_others(&mut self, block: &mut Block, mut points: Points, is_elsewhere: bool) {
        let loses_order = is_elsewhere && self.rules.alias_reuse != self.rules.reuse;
        if loses_order || !points.is_empty() {
            points.max(block.last_point());
            self.put(block, points);
        }
    }

    /// Prepares blocks that are in no index for being joined. Where that would hide who has used a part of them, or
    /// that nobody uses a part any more, the record has each part by place from now on.
    pub(crate) fn part_users(&mut self, blocks: &mut Blocks, joined: [Option<BlockId>; 3]) {
        if let Some(point) = joined[1].and_then(|id| blocks[id].plain_point()) {
            self.seen.note_free(point);
        }
        let common = self.common_user(blocks, joined);
        for id in joined.into_iter().flatten() {
            match common {
                Some(user) => blocks[id].user = user,
                None => self.record_user(&mut blocks[id]),
            }
        }
    }

    /// Returns the stream whose memory the whole of some blocks is, if one stream has used them alone and nothing is
    /// lost by saying so of all of them together: a stream's own work is in order, but another stream can have at once
    /// what nobody uses any more.
    pub(crate) fn common_user(&self, blocks: &Blocks, joined: [Option<BlockId>; 3]) -> Option<StreamId> {
        let in_order = self.rules.reuse == Reuse::InOrder;
        let (mut common, mut is_idle) = (None, None);
        for id in joined.into_iter().flatten() {
            let block = &blocks[id];
            if block.used_elsewhere {
                return None;
            }
            let point = block.plain_point();
            let idle = point.is_none_or(|point| self.seen.is_over(point));
            let serves_others = self.seen.users > 1 && block.side == Side::Large;
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
    pub(crate) fn record_user(&mut self, block: &mut Block) {
        if let Some(point) = block.plain_point() {
            block.last_use = LastUse::OVER;
            if !self.seen.is_over(point) {
                self.put(block, Points::from_iter([point]));
            }
        }
    }

    /// Returns whether a stream may have memory at once that was used up to a point: it is ordered after that, or that
    /// is known to be over.
    fn is_ready(&self, point: Point, by: Requester) -> bool {
        (point.stream == by.stream && point.tick <= by.usable) || self.seen.is_over(point)
    }

    /// Returns the last use of some bytes of a free block as it counts for a stream, if that may have them at once.
    pub(crate) fn ready_use(&self, block: &Block, range: Range<u64>, by: Requester) -> Option<LastUse> {
        if !block.used_elsewhere {
            let point = block.last_point();
            let is_ready = block.last_use <= LastUse::OVER || self.is_ready(point, by);
            let is_own = point.stream == by.stream;
            return is_ready.then(|| if is_own { block.last_use } else { block.last_use.min(LastUse::OVER) });
        }
        // What is recorded by place may have been used at other addresses.
        let keeps_order = self.rules.alias_reuse == self.rules.reuse;
        let mut last_use = block.last_use;
        for point in self.parts(block.slot, range).flat_map(|part| part.points.iter()) {
            if !(keeps_order && self.is_ready(point, by) || self.seen.is_over(point)) {
                return None;
            }
            last_use = last_use.max(if point.stream == by.stream { LastUse::at(point.tick) } else { LastUse::OVER });
        }
        Some(last_use)
    }

    /// Returns the points that guard a block, without that of its user where the block says that itself.
    pub(crate) fn points_of(&self, block: &Block) -> Points {
        if block.used_elsewhere { self.points_over(block).collect() } else { Points::default() }
    }

    /// Returns the points that guard the parts of a marked block, of one stream possibly several.
    pub(crate) fn points_over(&self, block: &Block) -> impl Iterator<Item = Point> {
        self.parts(block.slot, block.range()).flat_map(|part| part.points.iter())
    }

    /// Returns the number of bytes of a block that several streams may still use.
    pub(crate) fn guarded_bytes(&self, block: &Block) -> u64 {
        if !block.used_elsewhere {
            return 0;
        }
        let Range { start: begin, end } = block.range();
        let has_several = |part: &&Part| part.points.iter().filter(|point| !self.seen.is_over(*point)).nth(1).is_some();
        let parts = self.parts(block.slot, begin..end).filter(has_several);
        parts.map(|part| part.end.min(end) - part.begin.max(begin)).sum()
    }

    /// Returns the guarded parts of a range, by place, each with where it begins and ends there.
    pub(crate) fn parts_in(&self, slot: Slot, range: Range<u64>) -> impl Iterator<Item = (&Part, Range<u64>)> {
        let parts = self.forward(slot, range.clone());
        parts.map(move |part| (part, part.begin.max(range.start)..part.end.min(range.end)))
    }

    /// Takes the guards off a claimed block, whose plan waits for them. Returns the points up to which it was used.
    pub(crate) fn take(&mut self, block: &mut Block) -> Points {
        let plain = block.plain_point();
        if !core::mem::take(&mut block.used_elsewhere) {
            if self.rules.moves_pages {
                block.last_use = block.last_use.min(LastUse::OVER);
                return plain.into_iter().collect();
            }
            return Points::default();
        }
        self.cut_out(block.slot, block.range())
    }

    /// Puts guards on a block that is in no index.
    pub(crate) fn put(&mut self, block: &mut Block, points: Points) {
        if points.is_empty() {
            return;
        }
        points.iter().for_each(|point| self.seen.note_free(point));
        block.used_elsewhere = true;
        block.last_use = LastUse::OVER;
        let part = Part { begin: block.offset, end: block.end(), points };
        self.add(block.slot, part);
    }

    /// Marks the parts into which a marked block was cut: the front was handed out, and the rest may be guarded.
    #[cold]
    #[inline(never)]
    pub(crate) fn mark_rest(&mut self, blocks: &mut Blocks, front: BlockId) {
        let block = &mut blocks[front];
        block.used_elsewhere = false;
        let (slot, range, rest) = (block.slot, block.range(), block.next);
        self.cut_out(slot, range);
        if let Some(rest) = rest.some().filter(|&rest| blocks[rest].used_elsewhere)
            && blocks[rest].state == State::Free
        {
            let block = &blocks[rest];
            let is_guarded = self.parts(block.slot, block.range()).next().is_some();
            blocks[rest].used_elsewhere = is_guarded;
        }
    }

    /// Takes in up to which points streams are known to be done, with the number of news that there are then, and
    /// forgets the guards that are over by that. Costs a look at each guard if a stream has come further.
    pub(crate) fn see_reached(&mut self, reached: impl Iterator<Item = Point>, news: u64) {
        if self.seen.see_reached(reached, news) {
            self.prune();
        }
    }

    /// Returns the points of all guards.
    pub(crate) fn points(&self) -> impl Iterator<Item = Point> {
        self.parts.values().flat_map(|part| part.points.iter())
    }

    /// Verifies that no part is empty, and that each is where it begins.
    pub(super) fn check(&self) {
        for (&(_, at), part) in &self.parts {
            assert!(at == part.begin && at < part.end && !part.points.is_empty(), "at {at}: {part:?}");
        }
    }

    /// Returns the guarded parts, each with its slot.
    pub(crate) fn all(&self) -> impl Iterator<Item = (Slot, &Part)> {
        self.parts.iter().map(|(&(slot, _), part)| (slot, part))
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::vec;
    use std::vec::Vec;

    use millpond_backend::{StreamId, Tick};

    use super::*;
    use crate::settings::Settings;

    fn empty() -> Guards {
        Guards::new(Rules::new(&Settings::default(), Reuse::InOrder, None, u64::MAX))
    }

    const SLOT: Slot = Slot(1);

    fn at(stream: u32, tick: u64) -> Points {
        Points::from_iter([Point { stream: StreamId(stream), tick: Tick(tick) }])
    }

    fn parts(guards: &Guards) -> Vec<(u64, u64)> {
        guards.parts.values().map(|part| (part.begin, part.end)).collect()
    }

    fn part(Range { start: begin, end }: Range<u64>, points: Points) -> Part {
        Part { begin, end, points }
    }

    #[test]
    fn what_is_taken_is_cut_out_of_the_record() {
        let mut guards = empty();
        guards.add(SLOT, part(0..10, at(1, 5)));
        guards.add(SLOT, part(10..20, at(2, 7)));
        guards.add(Slot(2), part(0..100, at(3, 1)));
        assert_eq!(guards.over(SLOT, 10..11), at(2, 7));
        let taken = guards.cut_out(SLOT, 8..12).into_vec();
        assert_eq!(taken.len(), 2, "{taken:?}");
        assert_eq!(parts(&guards), vec![(0, 8), (12, 20), (0, 100)]);
        assert!(guards.over(SLOT, 8..12).is_empty());
        assert_eq!(guards.cut_out(SLOT, 0..100).len(), 2);
        assert_eq!(parts(&guards), vec![(0, 100)], "another slot");
    }
}
