//! Free memory that other streams may still use: which points must come first.
//!
//! A block that was used on other streams is free at once for whoever waits for them, so that places are chosen by what
//! is free alone. The record goes by place, independent of the blocks there. A free block with such a part is marked
//! ([`Block::used_elsewhere`](crate::block::Block)): it is not handed out on the short way without a look at the
//! record.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use millpond_backend::Point;

use super::Shard;
use super::windows::Piece;
use crate::block::{Block, State};
use crate::books::Points;
use crate::ids::{BlockId, Slot};
use crate::last_use::LastUse;

/// A guarded part of a home.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Part {
    pub(crate) begin: u64,
    pub(crate) end: u64,
    /// The points of other streams that come before the next use.
    pub(crate) points: Points,
    /// The last use by the home's own stream, which also comes before. That of the free block around it may be later,
    /// as it is the latest of all that was joined.
    pub(crate) last_use: LastUse,
}

/// The guarded parts of a shard's homes, by slot and offset.
///
/// Invariant: the parts do not overlap, and none is empty. The runs are the parts with neighbours joined.
#[derive(Default)]
pub(super) struct Guards {
    parts: BTreeMap<(Slot, u64), Part>,
    /// Where each unbroken row of guarded bytes ends, by where it begins: a search for bytes that nothing guards goes
    /// from row to row.
    runs: BTreeMap<(Slot, u64), u64>,
}

impl Guards {
    fn add(&mut self, slot: Slot, part: Part) {
        let range = (part.begin, part.end);
        debug_assert!(self.over(slot, range).is_empty(), "{}..{} is guarded already", part.begin, part.end);
        self.add_run(slot, range);
        self.parts.insert((slot, part.begin), part);
    }

    /// Adds a range to the runs. It overlaps none of them, and may touch one on either side.
    fn add_run(&mut self, slot: Slot, (mut begin, mut end): (u64, u64)) {
        if let Some(after) = self.runs.remove(&(slot, end)) {
            end = after;
        }
        if let Some((&(_, before), &to)) = self.runs.range((slot, 0)..(slot, begin)).next_back()
            && to == begin
        {
            begin = before;
        }
        self.runs.insert((slot, begin), end);
    }

    /// Takes a range out of the runs.
    fn cut_runs(&mut self, slot: Slot, (begin, end): (u64, u64)) {
        while let Some((&(_, from), &to)) = self.runs.range((slot, 0)..(slot, end)).next_back()
            && to > begin
        {
            self.runs.remove(&(slot, from));
            if to > end {
                self.runs.insert((slot, end), to);
            }
            if from < begin {
                self.runs.insert((slot, from), begin);
            }
        }
    }

    /// Returns the parts joined with their neighbours.
    fn joined(&self) -> BTreeMap<(Slot, u64), u64> {
        let mut runs: Vec<((Slot, u64), u64)> = Vec::new();
        for (&(slot, begin), part) in &self.parts {
            match runs.last_mut() {
                Some(((last, _), end)) if (*last, *end) == (slot, begin) => *end = part.end,
                _ => runs.push(((slot, begin), part.end)),
            }
        }
        runs.into_iter().collect()
    }

    /// Forgets the parts whose points are all reached. Costs a look at each part.
    fn prune(&mut self, is_reached: impl Fn(Point) -> bool) {
        let before = self.parts.len();
        self.parts.retain(|_, part| !part.points.iter().all(&is_reached));
        if self.parts.len() < before {
            self.runs = self.joined();
        }
    }

    /// Returns the parts that share a byte with the range, the last one first.
    fn parts(&self, slot: Slot, (begin, end): (u64, u64)) -> impl Iterator<Item = &Part> {
        let below = self.parts.range((slot, 0)..(slot, end)).rev();
        below.map(|(_, part)| part).take_while(move |part| part.end > begin)
    }

    /// Returns the parts that share a byte with the range, the first one first.
    fn forward(&self, slot: Slot, (begin, end): (u64, u64)) -> impl Iterator<Item = &Part> {
        let before = self.parts.range((slot, 0)..(slot, begin)).next_back().map(|(_, part)| part);
        let inside = self.parts.range((slot, begin)..(slot, end)).map(|(_, part)| part);
        before.filter(move |part| part.end > begin).into_iter().chain(inside)
    }

    /// Returns the first of the places that `place` returns for the gaps between the guarded runs of a range. Costs a
    /// look at each run before it.
    fn first_gap(&self, slot: Slot, (begin, end): (u64, u64), place: impl Fn(u64, u64) -> Option<u64>) -> Option<u64> {
        let before = self.runs.range((slot, 0)..(slot, begin)).next_back();
        let mut at = before.map_or(begin, |(_, &to)| to.clamp(begin, end));
        for (&(_, from), &to) in self.runs.range((slot, at)..(slot, end)) {
            if let Some(found) = place(at, from) {
                return Some(found);
            }
            at = to;
        }
        place(at.min(end), end)
    }

    /// Returns the points of the parts that share a byte with the range.
    fn over(&self, slot: Slot, range: (u64, u64)) -> Points {
        self.parts(slot, range).flat_map(|part| part.points.iter()).collect()
    }

    /// Removes the range from the record. Returns its points and, if every byte of it is guarded, the last use by the
    /// home's own stream.
    fn take(&mut self, slot: Slot, (begin, end): (u64, u64)) -> (Points, Option<LastUse>) {
        let mut all = Points::default();
        let (mut covered, mut latest) = (0, LastUse::NEVER);
        self.cut_runs(slot, (begin, end));
        let last = |of: &Self| of.parts(slot, (begin, end)).next().map(|part| part.begin);
        while let Some(part) = last(self).and_then(|at| self.parts.remove(&(slot, at))) {
            covered += part.end.min(end) - part.begin.max(begin);
            latest = latest.max(part.last_use);
            if part.begin < begin {
                self.parts.insert((slot, part.begin), Part { end: begin, ..part.clone() });
            }
            if part.end > end {
                self.parts.insert((slot, end), Part { begin: end, ..part.clone() });
            }
            all.merge(part.points);
        }
        (all, (covered == end - begin).then_some(latest))
    }
}

impl Shard {
    /// Makes a freed block free at once, for whoever comes after these points of other streams. Returns whether room
    /// for a peak ran out.
    pub(crate) fn guard(&mut self, id: BlockId, points: Points, clock: u64) -> bool {
        let Block { side, size, requested, state, .. } = self.blocks[id];
        assert_eq!(state, State::Pending, "block {} is guarded", id.0);
        self.note_retired(id);
        self.blocks[id].waits = 0;
        if self.is_opened(id) {
            self.close_guarded(id, &points, clock);
            return self.meter.retire(side, size, requested, Default::default());
        }
        self.put_guards(id, points);
        let change = self.join(id, clock);
        self.meter.retire(side, size, requested, change)
    }

    /// Closes a window that was freed. Its memory goes home with the points that must come before its next use, at
    /// other homes also that of this stream.
    fn close_guarded(&mut self, id: BlockId, points: &Points, clock: u64) {
        let Block { slot, offset, .. } = self.blocks[id];
        self.abroad.note(slot, (offset, self.blocks[id].end()), points.clone());
        let (last_use, is_foreign, pieces) = self.shut_window(id);
        let mut abroad = points.clone();
        abroad.max(Point { stream: self.stream, tick: last_use.tick() });
        for piece in pieces {
            if piece.shard == self.id {
                self.comes_home_guarded(piece.block, (last_use, is_foreign), points.clone(), clock);
            } else {
                self.returns.push((piece, abroad.clone()));
            }
        }
    }

    /// Notes that memory is no longer used through a window: it is free for whoever comes after these points.
    pub(crate) fn comes_home_guarded(
        &mut self,
        id: BlockId,
        (last_use, is_foreign): (LastUse, bool),
        points: Points,
        clock: u64,
    ) {
        // What was used on this stream comes first anyway.
        let last_use = points.tick(self.stream).map_or(last_use, |tick| last_use.max(LastUse::at(tick)));
        let points: Points = points.iter().filter(|point| point.stream != self.stream).collect();
        let block = &mut self.blocks[id];
        block.last_use = block.last_use.max(last_use);
        self.put_guards(id, points);
        self.comes_home(id, last_use, is_foreign, clock);
    }

    /// Returns whether the front of a marked block is guarded.
    #[cold]
    #[inline(never)]
    pub(super) fn is_guarded(&self, id: BlockId, bytes: u64) -> bool {
        let offset = self.blocks[id].offset;
        self.is_guarded_at(id, (offset, offset + bytes))
    }

    /// Returns whether some of these bytes of a block are guarded.
    pub(super) fn is_guarded_at(&self, id: BlockId, range: (u64, u64)) -> bool {
        let block = &self.blocks[id];
        block.used_elsewhere && self.guards.parts(block.slot, range).next().is_some()
    }

    /// Returns where the first of some bytes lie in a free block that nothing guards. `place` returns where they could
    /// begin in a gap between two guarded parts.
    pub(super) fn unguarded_place(&self, id: BlockId, place: impl Fn(u64, u64) -> Option<u64>) -> Option<u64> {
        let block = &self.blocks[id];
        let range = (block.offset, block.end());
        if block.used_elsewhere { self.guards.first_gap(block.slot, range, place) } else { place(range.0, range.1) }
    }

    /// Returns the points that guard a block.
    pub(crate) fn guards_of(&self, id: BlockId) -> Points {
        if self.blocks[id].used_elsewhere { self.guards_over(id).collect() } else { Points::default() }
    }

    /// Returns the points that guard the parts of a marked block, of one stream possibly several.
    pub(crate) fn guards_over(&self, id: BlockId) -> impl Iterator<Item = Point> {
        let block = &self.blocks[id];
        self.guards.parts(block.slot, (block.offset, block.end())).flat_map(|part| part.points.iter())
    }

    /// Returns the number of bytes of a block that are guarded.
    pub(super) fn guarded_bytes(&self, id: BlockId) -> u64 {
        self.bytes_behind(id, |_| true)
    }

    /// Returns the number of bytes of a block that are guarded by points of which one `counts`.
    pub(super) fn bytes_behind(&self, id: BlockId, counts: impl Fn(Point) -> bool) -> u64 {
        let block = &self.blocks[id];
        if !block.used_elsewhere {
            return 0;
        }
        let (begin, end) = (block.offset, block.end());
        let parts = self.guards.parts(block.slot, (begin, end)).filter(|part| part.points.iter().any(&counts));
        parts.map(|part| part.end.min(end) - part.begin.max(begin)).sum()
    }

    /// Returns the guarded parts of a range, of which the first and the last may reach beyond it, in any order.
    pub(crate) fn guarded_parts_in(&self, slot: Slot, range: (u64, u64)) -> impl Iterator<Item = &Part> {
        self.guards.parts(slot, range)
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

    /// Takes the guards off a claimed block, whose plan waits for them. Returns their points. If every byte of it is
    /// guarded, its last use is from now on that of its own bytes.
    pub(crate) fn take_guards(&mut self, id: BlockId) -> Points {
        let block = &mut self.blocks[id];
        if !core::mem::take(&mut block.used_elsewhere) {
            return Points::default();
        }
        let (points, last_use) = self.guards.take(block.slot, (block.offset, block.end()));
        block.last_use = last_use.unwrap_or(block.last_use);
        points
    }

    /// Puts guards on a block that is in no index.
    pub(crate) fn put_guards(&mut self, id: BlockId, points: Points) {
        if points.is_empty() {
            return;
        }
        let block = &mut self.blocks[id];
        block.used_elsewhere = true;
        let part = Part { begin: block.offset, end: block.end(), points, last_use: block.last_use };
        self.guards.add(block.slot, part);
    }

    /// Marks the parts into which a marked block was cut: the front was handed out, and the rest may be guarded.
    #[cold]
    #[inline(never)]
    pub(super) fn mark_rest(&mut self, front: BlockId) {
        self.blocks[front].used_elsewhere = false;
        let rest = self.blocks[front].next.some().filter(|&rest| self.blocks[rest].used_elsewhere);
        if let Some(rest) = rest
            && self.blocks[rest].state == State::Free
        {
            let block = &self.blocks[rest];
            let is_guarded = self.guards.parts(block.slot, (block.offset, block.end())).next().is_some();
            self.blocks[rest].used_elsewhere = is_guarded;
        }
    }

    /// Forgets the guards whose points are all reached, and what other streams did through windows up to such points.
    pub(crate) fn prune_guards(&mut self, is_reached: impl Fn(Point) -> bool) {
        self.abroad.prune(&is_reached);
        self.guards.prune(is_reached);
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
    pub(super) fn check_guards(&self) {
        assert_eq!(self.guards.runs, self.guards.joined(), "guarded runs, as they are kept and by their parts");
        for (&(slot, at), part) in &self.guards.parts {
            assert!(at == part.begin && at < part.end && !part.points.is_empty(), "at {at}: {part:?}");
            for id in self.tiles(slot) {
                let block = &self.blocks[id];
                if block.offset < part.end && block.end() > part.begin {
                    let is_marked = block.state == State::Free && block.used_elsewhere;
                    assert!(is_marked || block.state == State::Claimed, "{part:?} is guarded in {block:?}");
                    let covers = block.last_use >= part.last_use || block.state == State::Claimed;
                    assert!(covers, "{part:?} was used later than {block:?}");
                }
            }
        }
    }
}

/// Memory that came back with a window, and the points that must come before its next use.
pub(crate) type Return = (Piece, Points);

#[cfg(test)]
mod tests {
    extern crate std;

    use std::vec;

    use millpond_backend::{StreamId, Tick};

    use super::*;

    const SLOT: Slot = Slot(1);

    fn at(stream: u32, tick: u64) -> Points {
        Points::from_iter([Point { stream: StreamId(stream), tick: Tick(tick) }])
    }

    fn parts(guards: &Guards) -> Vec<(u64, u64)> {
        guards.parts.values().map(|part| (part.begin, part.end)).collect()
    }

    fn part((begin, end): (u64, u64), points: Points, tick: u64) -> Part {
        Part { begin, end, points, last_use: LastUse::at(Tick(tick)) }
    }

    #[test]
    fn what_is_taken_is_cut_out_of_the_record() {
        let mut guards = Guards::default();
        guards.add(SLOT, part((0, 10), at(1, 5), 3));
        guards.add(SLOT, part((10, 20), at(2, 7), 4));
        guards.add(Slot(2), part((0, 100), at(3, 1), 9));
        assert_eq!(guards.over(SLOT, (10, 11)), at(2, 7));
        let taken = guards.take(SLOT, (8, 12)).0.into_vec();
        assert_eq!(taken.len(), 2, "{taken:?}");
        assert_eq!(parts(&guards), vec![(0, 8), (12, 20), (0, 100)]);
        assert!(guards.over(SLOT, (8, 12)).is_empty());
        assert_eq!(guards.take(SLOT, (0, 100)).0.len(), 2);
        assert_eq!(parts(&guards), vec![(0, 100)], "another slot");
    }

    /// A search for some bytes that nothing guards, in any part of the memory, finds the first ones there are.
    #[test]
    fn the_first_gap_lies_between_guarded_runs() {
        let gap = |guards: &Guards, range: (u64, u64), bytes: u64| {
            guards.first_gap(SLOT, range, |begin, end| (begin + bytes <= end).then_some(begin))
        };
        let mut guards = Guards::default();
        assert_eq!(gap(&guards, (0, 10), 10), Some(0));
        // Out of order, so that runs grow on both sides: 0..20, 30..40, 44..50.
        for (begin, end) in [(10, 20), (0, 5), (5, 10), (30, 40), (44, 50)] {
            guards.add(SLOT, part((begin, end), at(1, begin + 1), 0));
        }
        guards.add(Slot(2), part((0, 100), at(1, 50), 0));
        assert_eq!(guards.runs, guards.joined());
        let found = [1, 4, 5, 11].map(|bytes| gap(&guards, (0, 60), bytes));
        assert_eq!(found, [Some(20), Some(20), Some(20), None]);
        assert_eq!((gap(&guards, (32, 60), 4), gap(&guards, (32, 60), 5)), (Some(40), Some(50)), "it begins in a run");
        assert_eq!((gap(&guards, (0, 18), 1), gap(&guards, (0, 48), 10)), (None, Some(20)), "it ends in a run");
        assert_eq!(gap(&guards, (8, 18), 1), None, "it is within a run");
        guards.take(SLOT, (3, 12));
        assert_eq!((gap(&guards, (0, 60), 9), &guards.runs), (Some(3), &guards.joined()));
        guards.prune(|point| point.tick < Tick(40));
        assert_eq!((gap(&guards, (0, 60), 44), &guards.runs), (Some(0), &guards.joined()));
    }

    #[test]
    fn guarded_bytes_have_a_last_use_of_their_own() {
        let tick = |range| {
            let mut guards = Guards::default();
            guards.add(SLOT, part((0, 10), at(1, 5), 3));
            guards.add(SLOT, part((10, 20), at(2, 7), 4));
            guards.take(SLOT, range).1.map(LastUse::tick)
        };
        assert_eq!((tick((2, 8)), tick((9, 11)), tick((0, 20))), (Some(Tick(3)), Some(Tick(4)), Some(Tick(4))));
        assert_eq!((tick((9, 21)), tick((30, 31))), (None, None), "not all of it is guarded");
    }
}
