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

/// The guarded parts of a shard's homes: the slot and the offset of each, with its end and its points.
///
/// Invariant: the parts do not overlap, and none is empty.
#[derive(Default)]
pub(super) struct Guards(BTreeMap<(Slot, u64), (u64, Points)>);

impl Guards {
    fn add(&mut self, slot: Slot, (begin, end): (u64, u64), points: Points) {
        debug_assert!(self.over(slot, (begin, end)).is_empty(), "{begin}..{end} is guarded already");
        self.0.insert((slot, begin), (end, points));
    }

    /// Returns the parts that share a byte with the range, as begin, end and points.
    fn parts(&self, slot: Slot, (begin, end): (u64, u64)) -> impl Iterator<Item = (u64, u64, &Points)> {
        let below = self.0.range((slot, 0)..(slot, end)).rev();
        let parts = below.map(|(&(_, start), (stop, points))| (start, *stop, points));
        parts.take_while(move |&(_, stop, _)| stop > begin)
    }

    /// Returns the points of the parts that share a byte with the range.
    fn over(&self, slot: Slot, range: (u64, u64)) -> Points {
        self.parts(slot, range).flat_map(|(_, _, points)| points.iter()).collect()
    }

    /// Removes the range from the record and returns its points.
    fn take(&mut self, slot: Slot, (begin, end): (u64, u64)) -> Points {
        let found: Vec<_> =
            self.parts(slot, (begin, end)).map(|(start, stop, points)| (start, stop, points.clone())).collect();
        let mut all = Points::default();
        for (start, stop, points) in found {
            self.0.remove(&(slot, start));
            points.iter().for_each(|point| all.max(point));
            if start < begin {
                self.0.insert((slot, start), (begin, points.clone()));
            }
            if stop > end {
                self.0.insert((slot, end), (stop, points));
            }
        }
        all
    }
}

impl Shard {
    /// Makes a freed block free at once, for whoever comes after these points of other streams. Returns whether room
    /// for a peak ran out.
    pub(crate) fn guard(&mut self, id: BlockId, points: Points, clock: u64) -> bool {
        let Block { side, size, requested, slot, offset, state, .. } = self.blocks[id];
        assert_eq!(state, State::Pending, "block {} is guarded", id.0);
        self.blocks[id].waits = 0;
        if self.is_opened(id) {
            self.close_guarded(id, &points, clock);
            return self.meter.retire(side, size, requested, Default::default());
        }
        if !points.is_empty() {
            self.guards.add(slot, (offset, offset + size), points);
            self.blocks[id].used_elsewhere = true;
        }
        let change = self.join(id, clock);
        self.meter.retire(side, size, requested, change)
    }

    /// Closes a window that was freed. Its memory goes home with the points that must come before its next use, at
    /// other homes also that of this stream.
    fn close_guarded(&mut self, id: BlockId, points: &Points, clock: u64) {
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
        if !points.is_empty() {
            let Block { slot, offset, size, .. } = self.blocks[id];
            self.guards.add(slot, (offset, offset + size), points);
            self.blocks[id].used_elsewhere = true;
        }
        self.comes_home(id, last_use, is_foreign, clock);
    }

    /// Returns whether the front of a marked block is guarded.
    #[cold]
    #[inline(never)]
    pub(super) fn is_guarded(&self, id: BlockId, bytes: u64) -> bool {
        let Block { slot, offset, .. } = self.blocks[id];
        self.guards.parts(slot, (offset, offset + bytes)).next().is_some()
    }

    /// Returns the points that guard a block.
    pub(crate) fn guards_of(&self, id: BlockId) -> Points {
        let block = &self.blocks[id];
        if block.used_elsewhere { self.guards.over(block.slot, (block.offset, block.end())) } else { Points::default() }
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
        let parts = self.guards.parts(block.slot, (begin, end)).filter(|(_, _, points)| points.iter().any(&counts));
        parts.map(|(start, stop, _)| stop.min(end) - start.max(begin)).sum()
    }

    /// Takes the guards off a claimed block, whose plan waits for them. Returns their points.
    pub(crate) fn take_guards(&mut self, id: BlockId) -> Points {
        let block = &mut self.blocks[id];
        if !core::mem::take(&mut block.used_elsewhere) {
            return Points::default();
        }
        let (slot, range) = (block.slot, (block.offset, block.end()));
        self.guards.take(slot, range)
    }

    /// Puts guards back on a claimed block.
    pub(crate) fn put_guards(&mut self, id: BlockId, points: Points) {
        if points.is_empty() {
            return;
        }
        let block = &mut self.blocks[id];
        block.used_elsewhere = true;
        let (slot, range) = (block.slot, (block.offset, block.end()));
        self.guards.add(slot, range, points);
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

    /// Forgets the guards whose points are all reached.
    pub(crate) fn prune_guards(&mut self, is_reached: impl Fn(Point) -> bool) {
        self.guards.0.retain(|_, (_, points)| !points.iter().all(&is_reached));
    }

    /// Returns the points of all guards.
    pub(crate) fn guard_points(&self) -> impl Iterator<Item = Point> {
        self.guards.0.values().flat_map(|(_, points)| points.iter())
    }

    /// Returns the guarded parts: the length of each in bytes, and its points.
    pub(crate) fn guarded_parts(&self) -> impl Iterator<Item = (u64, &Points)> {
        self.guards.0.iter().map(|(&(_, begin), (end, points))| (end - begin, points))
    }

    /// Verifies that guarded parts lie in marked free or claimed blocks.
    pub(super) fn check_guards(&self) {
        for (&(slot, begin), &(end, ref points)) in &self.guards.0 {
            assert!(begin < end && !points.is_empty(), "guards {points:?} of {begin}..{end}");
            for id in self.tiles(slot) {
                let block = &self.blocks[id];
                if block.offset < end && block.end() > begin {
                    let is_marked = block.state == State::Free && block.used_elsewhere;
                    assert!(is_marked || block.state == State::Claimed, "{begin}..{end} is guarded in {block:?}");
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
        guards.0.iter().map(|(&(_, begin), &(end, _))| (begin, end)).collect()
    }

    #[test]
    fn what_is_taken_is_cut_out_of_the_record() {
        let mut guards = Guards::default();
        guards.add(SLOT, (0, 10), at(1, 5));
        guards.add(SLOT, (10, 20), at(2, 7));
        guards.add(Slot(2), (0, 100), at(3, 1));
        assert_eq!(guards.over(SLOT, (10, 11)), at(2, 7));
        let taken = guards.take(SLOT, (8, 12)).into_vec();
        assert_eq!(taken.len(), 2, "{taken:?}");
        assert_eq!(parts(&guards), vec![(0, 8), (12, 20), (0, 100)]);
        assert!(guards.over(SLOT, (8, 12)).is_empty());
        assert_eq!(guards.take(SLOT, (0, 100)).len(), 2);
        assert_eq!(parts(&guards), vec![(0, 100)], "another slot");
    }
}
