//! Memory of a shard that may hold data of another user: of another stream, or of whoever had it from the driver
//! before.
//!
//! It is recorded only where such memory is overwritten before it is granted ([`Scrub::OtherStreams`]). Memory becomes
//! foreign when it comes from the driver, when a block is lent, and when another stream has used it through a window.
//! What a window shows is as foreign as the memory behind it, or all of it where that is another shard's. The record
//! goes by place, independent of the blocks there, and lasts until the memory was overwritten. None of this is on the
//! path of a hit or a free.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::ids::{Place, ShardId, Slot};
use crate::settings::Scrub;
use crate::shard::{Grant, Piece, Shard};

/// The foreign parts of a shard's segments: the slot and the offset of each, with its end.
///
/// Invariant: the parts of a slot are not empty and do not touch.
#[derive(Default)]
pub(crate) struct Foreign(BTreeMap<(Slot, u64), u64>);

impl Foreign {
    /// Returns the record to keep under a setting, if that needs one.
    pub(crate) fn under(scrub: Scrub) -> Option<Foreign> {
        (scrub == Scrub::OtherStreams).then(Foreign::default)
    }

    fn add(&mut self, slot: Slot, begin: u64, end: u64) {
        let (mut begin, mut end) = (begin, end);
        // The part is joined with all that it touches, so that parts stay few.
        while let Some((&(_, start), &stop)) = self.0.range((slot, 0)..=(slot, end)).next_back() {
            if stop < begin {
                break;
            }
            self.0.remove(&(slot, start));
            (begin, end) = (begin.min(start), end.max(stop));
        }
        self.0.insert((slot, begin), end);
    }

    fn remove(&mut self, slot: Slot, begin: u64, end: u64) {
        for (start, stop) in self.overlapping(slot, begin, end) {
            self.0.remove(&(slot, start));
            if start < begin {
                self.0.insert((slot, start), begin);
            }
            if stop > end {
                self.0.insert((slot, end), stop);
            }
        }
    }

    /// Returns the parts that share a byte with the range, as begin and end, the last one first.
    fn overlapping(&self, slot: Slot, begin: u64, end: u64) -> Vec<(u64, u64)> {
        let below = self.0.range((slot, 0)..(slot, end)).rev().map(|(&(_, start), &stop)| (start, stop));
        below.take_while(|&(_, stop)| stop > begin).collect()
    }
}

impl Shard {
    /// Notes that another user had these bytes.
    pub(crate) fn note_foreign(&mut self, slot: Slot, offset: u64, bytes: u64) {
        if let Some(foreign) = &mut self.foreign {
            foreign.add(slot, offset, offset + bytes);
        }
    }

    /// Notes whether another user had these bytes last.
    pub(super) fn set_foreign(&mut self, slot: Slot, (offset, bytes): (u64, u64), is_foreign: bool) {
        if let Some(foreign) = &mut self.foreign {
            if is_foreign {
                foreign.add(slot, offset, offset + bytes);
            } else {
                foreign.remove(slot, offset, offset + bytes);
            }
        }
    }

    /// Returns whether another user may have had some of these bytes last, where that matters.
    pub(super) fn is_foreign(&self, slot: Slot, offset: u64, bytes: u64) -> bool {
        self.foreign.as_ref().is_some_and(|foreign| !foreign.overlapping(slot, offset, offset + bytes).is_empty())
    }

    /// Notes that a segment is gone. Another segment may get its slot.
    pub(crate) fn forget_foreign(&mut self, slot: Slot) {
        if let Some(foreign) = &mut self.foreign {
            foreign.remove(slot, 0, u64::MAX);
        }
    }

    /// Returns the parts of a granted block that must be overwritten before the program gets it, each as an offset in
    /// the segment and a length in bytes.
    pub fn to_scrub(&self, slot: Slot, offset: u64, bytes: u64) -> Vec<(u64, u64)> {
        match (self.rules.scrub, &self.foreign) {
            (Scrub::OtherStreams, Some(foreign)) => {
                let end = offset + bytes;
                let parts = foreign.overlapping(slot, offset, end).into_iter();
                parts.map(|(start, stop)| (start.max(offset), stop.min(end) - start.max(offset))).collect()
            }
            (Scrub::Off, _) => Vec::new(),
            _ => [(offset, bytes)].into(),
        }
    }

    /// Notes that all of a granted block was overwritten: its new owner may read what it holds from now on. `borrower`
    /// is the shard of the request. If that is another shard, the block is lent, and its memory stays foreign here.
    pub fn scrubbed(&mut self, slot: Slot, offset: u64, bytes: u64, borrower: ShardId) {
        if let Some(foreign) = &mut self.foreign
            && borrower == self.id
        {
            foreign.remove(slot, offset, offset + bytes);
        }
    }

    /// Notes that a block is lent to another stream, which leaves its data there.
    pub(crate) fn note_lent(&mut self, grant: &Grant) {
        self.note_foreign(grant.slot, grant.offset, grant.size);
    }

    /// Notes that a window begins to show this memory: of its own, what is foreign at home; of other shards,
    /// everything.
    pub(super) fn note_window(&mut self, slot: Slot, offset: u64, bytes: u64, pieces: &[Piece]) {
        let Some(foreign) = &mut self.foreign else { return };
        if pieces.iter().any(|piece| piece.shard != self.id) {
            foreign.add(slot, offset, offset + bytes);
            return;
        }
        foreign.remove(slot, offset, offset + bytes);
        let mut at = offset;
        for piece in pieces {
            let home = &self.blocks[piece.block];
            for (begin, end) in foreign.overlapping(home.slot, home.offset, home.end()) {
                let place = |byte: u64| at + byte.clamp(home.offset, home.end()) - home.offset;
                foreign.add(slot, place(begin), place(end));
            }
            at += home.size;
        }
    }

    /// Notes that a page is mapped here, whichever stream used it last.
    pub(crate) fn note_page(&mut self, at: Place, bytes: u64) {
        self.note_foreign(at.slot, at.offset, bytes);
    }
}

#[cfg(test)]
mod tests {
    use millpond_trace::Random;

    use super::*;

    const SLOT: Slot = Slot(3);

    fn parts(foreign: &Foreign) -> Vec<(u64, u64)> {
        foreign.0.iter().filter(|((slot, _), _)| *slot == SLOT).map(|(&(_, start), &stop)| (start, stop)).collect()
    }

    #[test]
    fn parts_join_where_they_touch_and_split_where_something_goes() {
        let mut foreign = Foreign::default();
        foreign.add(Slot(2), 0, 100);
        foreign.add(Slot(4), 0, 100);
        foreign.add(SLOT, 20, 30);
        foreign.add(SLOT, 40, 50);
        foreign.add(SLOT, 30, 35);
        assert_eq!(parts(&foreign), [(20, 35), (40, 50)]);
        foreign.add(SLOT, 10, 60);
        assert_eq!(parts(&foreign), [(10, 60)]);
        foreign.remove(SLOT, 15, 20);
        foreign.remove(SLOT, 50, 70);
        assert_eq!(parts(&foreign), [(10, 15), (20, 50)]);
        assert_eq!(foreign.overlapping(SLOT, 15, 20), []);
        assert_eq!(foreign.overlapping(SLOT, 14, 21), [(20, 50), (10, 15)]);
        foreign.remove(SLOT, 0, u64::MAX);
        assert_eq!((parts(&foreign), foreign.0.len()), (Vec::new(), 2), "other slots keep theirs");
    }

    /// The record agrees with a table of one flag for each byte.
    #[test]
    fn random_ranges_are_as_in_a_plain_table() {
        let (mut foreign, mut plain, mut random) = (Foreign::default(), [false; 64], Random::new(1));
        for _ in 0..4000 {
            let (a, b, adds) = (random.below(65), random.below(65), random.one_in(2));
            let (begin, end) = (a.min(b), a.max(b) + u64::from(a == b));
            if end > 64 {
                continue;
            }
            if adds {
                foreign.add(SLOT, begin, end)
            } else {
                foreign.remove(SLOT, begin, end)
            }
            plain[begin as usize..end as usize].fill(adds);
            let mut seen = [false; 64];
            parts(&foreign).iter().for_each(|&(start, stop)| seen[start as usize..stop as usize].fill(true));
            assert_eq!(seen, plain);
            let touching = parts(&foreign).windows(2).any(|pair| pair[0].1 >= pair[1].0);
            assert!(!touching, "{:?}", parts(&foreign));
        }
    }
}
