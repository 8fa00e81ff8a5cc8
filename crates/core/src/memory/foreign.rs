//! Whose data the memory of a shard may hold.
//!
//! It is recorded only where memory that another stream had is overwritten before it is granted
//! ([`Scrub::OtherStreams`]). A stream *has* the memory that was overwritten for it, until that is overwritten for
//! another one. To all others that is foreign, and what comes from the driver is foreign to every stream. Whoever has
//! the memory behind a window has what the window shows. The record goes by place, independent of the blocks there.
//! None of this is on the path of a hit or a free.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;

use millpond_backend::StreamId;

use super::Memory;
use crate::block::Block;
use crate::ids::{BlockId, Slot};
use crate::settings::Scrub;

/// The parts of a shard's segments that a stream has: the slot and the offset of each, with its end and that stream.
///
/// Invariant: the parts of a slot are not empty and do not overlap, and those of one stream do not touch.
#[derive(Clone, Default)]
pub(crate) struct Owners(BTreeMap<(Slot, u64), (u64, StreamId)>);

impl Owners {
    /// Returns the record to keep under a setting, if that needs one.
    pub(crate) fn under(scrub: Scrub) -> Option<Owners> {
        (scrub == Scrub::OtherStreams).then(Owners::default)
    }

    /// Notes that a stream has the range.
    pub(crate) fn give(&mut self, slot: Slot, range: Range<u64>, stream: StreamId) {
        self.take(slot, range.clone());
        let Range { start: mut begin, mut end } = range;
        // The part is joined with those that it touches, so that parts stay few.
        let before = self.0.range((slot, 0)..(slot, begin)).next_back().map(|(&(_, start), &part)| (start, part));
        if let Some((start, part)) = before
            && part == (begin, stream)
        {
            self.0.remove(&(slot, start));
            begin = start;
        }
        if let Some(&(stop, owner)) = self.0.get(&(slot, end))
            && owner == stream
        {
            self.0.remove(&(slot, end));
            end = stop;
        }
        self.0.insert((slot, begin), (end, stream));
    }

    /// Notes that no stream has the range.
    fn take(&mut self, slot: Slot, Range { start: begin, end }: Range<u64>) {
        for (Range { start, end: stop }, owner) in self.parts(slot, begin..end) {
            self.0.remove(&(slot, start));
            if start < begin {
                self.0.insert((slot, start), (begin, owner));
            }
            if stop > end {
                self.0.insert((slot, end), (stop, owner));
            }
        }
    }

    /// Returns the parts that share a byte with the range, each with its stream, the last one first.
    fn parts(&self, slot: Slot, range: Range<u64>) -> Vec<(Range<u64>, StreamId)> {
        let below = self.0.range((slot, 0)..(slot, range.end)).rev();
        let parts = below.map(|(&(_, start), &(stop, owner))| (start..stop, owner));
        parts.take_while(|(part, _)| part.end > range.start).collect()
    }

    /// Returns the parts of the range that a stream does not have, the last one first.
    pub(crate) fn foreign_to(&self, slot: Slot, range: Range<u64>, stream: StreamId) -> Vec<Range<u64>> {
        let (mut foreign, mut until) = (Vec::new(), range.end);
        for (own, _) in self.parts(slot, range.clone()).into_iter().filter(|&(_, owner)| owner == stream) {
            if own.end < until {
                foreign.push(own.end..until);
            }
            until = own.start;
        }
        if range.start < until {
            foreign.push(range.start..until);
        }
        foreign
    }

    /// Notes that whoever has bytes at one place has those that begin at another.
    fn copy(&mut self, slot: Slot, range: Range<u64>, to: Slot, at: u64) {
        self.take(to, at..at + range.end - range.start);
        for (part, owner) in self.parts(slot, range.clone()) {
            let place = |byte: u64| at + byte.clamp(range.start, range.end) - range.start;
            self.give(to, place(part.start)..place(part.end), owner);
        }
    }
}

impl Memory {
    /// Notes that memory has come from the driver, whoever had it there.
    pub(crate) fn note_foreign(&mut self, slot: Slot, offset: u64, bytes: u64) {
        if let Some(owners) = &mut self.owners {
            owners.take(slot, offset..offset + bytes);
        }
    }

    /// Notes that a block was handed out for its user as it is: no other stream has it from now on.
    pub(crate) fn was_not_scrubbed(&mut self, id: BlockId) {
        let block = &self.blocks[id];
        if let Some(owners) = &mut self.owners {
            for foreign in owners.foreign_to(block.slot, block.range(), block.user) {
                owners.take(block.slot, foreign);
            }
        }
    }

    /// Notes that a block in a window shows this memory.
    pub(crate) fn note_window(&mut self, id: BlockId, pieces: &[BlockId]) {
        self.each_piece(id, pieces, |owners, piece, slot, at| owners.copy(piece.slot, piece.range(), slot, at));
    }

    /// Notes that the memory behind a block in a window goes home as the window has left it.
    pub(crate) fn note_window_shut(&mut self, id: BlockId, pieces: &[BlockId]) {
        self.each_piece(id, pieces, |owners, piece, slot, at| {
            owners.copy(slot, at..at + piece.size, piece.slot, piece.offset);
        });
    }

    /// Calls `note` with each piece of the memory behind a block in a window, and where the window shows it.
    fn each_piece(&mut self, id: BlockId, pieces: &[BlockId], note: impl Fn(&mut Owners, &Block, Slot, u64)) {
        let Some(owners) = &mut self.owners else { return };
        let Block { slot, offset: mut at, .. } = self.blocks[id];
        for piece in pieces.iter().map(|piece| &self.blocks[*piece]) {
            note(owners, piece, slot, at);
            at += piece.size;
        }
    }
}

#[cfg(test)]
mod tests {
    use millpond_trace::Random;

    use super::*;

    const SLOT: Slot = Slot(3);
    const STREAM: StreamId = StreamId(7);
    const OTHER: StreamId = StreamId(8);

    fn parts(owners: &Owners) -> Vec<(u64, u64, u32)> {
        let in_slot = owners.0.iter().filter(|((slot, _), _)| *slot == SLOT);
        in_slot.map(|(&(_, start), &(stop, owner))| (start, stop, owner.0)).collect()
    }

    #[test]
    fn parts_of_a_stream_join_where_they_touch_and_split_where_something_goes() {
        let mut owners = Owners::default();
        owners.give(Slot(2), 0..100, STREAM);
        owners.give(Slot(4), 0..100, STREAM);
        owners.give(SLOT, 20..30, STREAM);
        owners.give(SLOT, 40..50, STREAM);
        owners.give(SLOT, 30..35, STREAM);
        assert_eq!(parts(&owners), [(20, 35, 7), (40, 50, 7)]);
        owners.give(SLOT, 35..40, STREAM);
        assert_eq!(parts(&owners), [(20, 50, 7)]);
        owners.give(SLOT, 50..60, OTHER);
        owners.give(SLOT, 25..30, OTHER);
        assert_eq!(parts(&owners), [(20, 25, 7), (25, 30, 8), (30, 50, 7), (50, 60, 8)]);
        assert_eq!(owners.foreign_to(SLOT, 22..55, STREAM), [50..55, 25..30]);
        assert_eq!(owners.foreign_to(SLOT, 10..25, STREAM), [Range { start: 10, end: 20 }]);
        owners.take(SLOT, 24..52);
        assert_eq!(parts(&owners), [(20, 24, 7), (52, 60, 8)]);
        assert_eq!(owners.foreign_to(SLOT, 20..24, STREAM), []);
        owners.take(SLOT, 0..u64::MAX);
        assert_eq!((parts(&owners), owners.0.len()), (Vec::new(), 2), "other slots keep theirs");
    }

    /// The record agrees with a table of one stream for each byte.
    #[test]
    fn random_ranges_are_as_in_a_plain_table() {
        let (mut owners, mut plain, mut random) = (Owners::default(), [None; 64], Random::new(1));
        for _ in 0..4000 {
            let (a, b) = (random.below(65), random.below(65));
            let (begin, end) = (a.min(b), a.max(b) + u64::from(a == b));
            if end > 64 {
                continue;
            }
            let mine = begin as usize..end as usize;
            match random.below(4) {
                0 => {
                    owners.take(SLOT, begin..end);
                    plain[mine].fill(None);
                }
                1 => {
                    let at = random.below(65 - (end - begin));
                    let bytes: Vec<_> = plain[mine].to_vec();
                    owners.copy(SLOT, begin..end, Slot(2), at);
                    owners.copy(Slot(2), at..at + end - begin, SLOT, at);
                    plain[at as usize..][..bytes.len()].copy_from_slice(&bytes);
                }
                owner => {
                    owners.give(SLOT, begin..end, StreamId(owner as u32));
                    plain[mine].fill(Some(owner as u32));
                }
            }
            let mut seen = [None; 64];
            parts(&owners)
                .iter()
                .for_each(|&(start, stop, owner)| seen[start as usize..stop as usize].fill(Some(owner)));
            assert_eq!(seen, plain);
            let touches =
                |pair: &[(u64, u64, u32)]| pair[0].1 > pair[1].0 || (pair[0].1, pair[0].2) == (pair[1].0, pair[1].2);
            assert!(!parts(&owners).windows(2).any(touches), "{:?}", parts(&owners));
            let mut foreign = [false; 64];
            let of = owners.foreign_to(SLOT, begin..end, StreamId(2));
            of.iter().for_each(|of| foreign[of.start as usize..of.end as usize].fill(true));
            (begin..end).for_each(|at| assert_eq!(foreign[at as usize], plain[at as usize] != Some(2)));
        }
    }
}
