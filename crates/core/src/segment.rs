//! A segment as its shard sees it, and the table of a shard's segments.

use alloc::vec::Vec;

use crate::ids::{BlockId, PageId, Place, SegmentId, Side, Slot};
use crate::mapped::Mappings;

/// One driver allocation, or one reserved address range (`page_bytes` is then not 0).
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    pub(crate) id: SegmentId,
    /// The device address, or 0 on devices without addresses.
    pub(crate) base: u64,
    /// The rank of its first quantum, which orders its blocks among others of equal size. Where ties are decided by
    /// birth, every segment of a shard gets the ranks behind those of the segments before it. Where they are decided by
    /// address, the rank is the address in quanta.
    pub(crate) rank: u64,
    pub(crate) bytes: u64,
    pub(crate) side: Side,
    /// The block at offset 0.
    pub(crate) first: BlockId,
    /// The page size of an expandable segment in bytes, or 0 for a plain one.
    pub(crate) page_bytes: u64,
    /// Whether blocks may be cut from it: always, unless there is a slack.
    pub(crate) shared: bool,
    /// Whether it is a range for windows. Otherwise pages have their homes there, if it is a range.
    pub(crate) has_windows: bool,
    /// The pages that are mapped in it.
    pub(crate) mappings: Mappings,
}

/// A page mapped somewhere in a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Mapping {
    pub(crate) page: PageId,
    /// The birth number of the page.
    pub(crate) birth: u64,
    pub(crate) bytes: u64,
    pub(crate) role: Role,
}

/// The relation of a mapping to its page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    /// The one place where the page is mapped from its creation to its release.
    Home,
    /// A place in a window. Parts of the page are used through it while a block has the window.
    Window,
    /// A place in a window that the driver is unmapping.
    Leaving,
}

impl Segment {
    pub(crate) fn is_expandable(&self) -> bool {
        self.page_bytes != 0
    }

    /// Notes that the mapping of a page in a window is being unmapped.
    ///
    /// # Panics
    ///
    /// If there is no such mapping.
    pub(crate) fn page_leaves(&mut self, at: Place) {
        match self.mappings.get_mut(at.offset) {
            Some(mapping) if mapping.role == Role::Window => mapping.role = Role::Leaving,
            other => panic!("no page of a window to unmap at {at:?}: {other:?}"),
        }
    }

    /// Returns the births of the pages that are mapped in a part of it, in order. Those that are being unmapped do not
    /// count.
    pub(crate) fn births(&self, begin: u64, end: u64) -> Vec<u64> {
        let mapped = self.mappings.over(begin, end).filter(|(_, mapping)| mapping.role != Role::Leaving);
        mapped.map(|(_, mapping)| mapping.birth).collect()
    }
}

/// The content of an entry in the table.
#[derive(Clone, Debug)]
pub(crate) enum Seat {
    /// Nothing.
    Vacant,
    /// A reservation for a plan whose driver call is under way.
    Promised,
    /// A segment.
    Taken(Segment),
}

/// The segments of a shard. Invariant: `vacant` holds the number of each seat that is [`Seat::Vacant`], once.
#[derive(Default)]
pub(crate) struct Segments {
    table: Vec<Seat>,
    /// The vacant seats. The one vacated last is the next to be taken.
    vacant: Vec<Slot>,
}

impl Segments {
    pub(crate) fn promise(&mut self) -> Slot {
        if let Some(slot) = self.vacant.pop() {
            self.table[slot.0 as usize] = Seat::Promised;
            return slot;
        }
        self.table.push(Seat::Promised);
        Slot((self.table.len() - 1) as u32)
    }

    pub(crate) fn fulfil(&mut self, slot: Slot, segment: Segment) {
        let seat = &mut self.table[slot.0 as usize];
        assert!(matches!(seat, Seat::Promised), "slot {} was not promised: {seat:?}", slot.0);
        *seat = Seat::Taken(segment);
    }

    /// Removes a segment whose slot is not free yet.
    pub(crate) fn withdraw(&mut self, slot: Slot) {
        self.table[slot.0 as usize] = Seat::Promised;
    }

    pub(crate) fn vacate(&mut self, slot: Slot) {
        let seat = &mut self.table[slot.0 as usize];
        assert!(matches!(seat, Seat::Promised), "slot {} was not promised: {seat:?}", slot.0);
        *seat = Seat::Vacant;
        self.vacant.push(slot);
    }

    /// Returns the segment at a slot, if there is one.
    pub(crate) fn get(&self, slot: Slot) -> Option<&Segment> {
        match self.table.get(slot.0 as usize) {
            Some(Seat::Taken(segment)) => Some(segment),
            _ => None,
        }
    }

    /// Returns the slots of the segments, with whether each is a range.
    pub(crate) fn slots(&self) -> impl Iterator<Item = (Slot, bool)> {
        self.iter().map(|(slot, segment)| (slot, segment.is_expandable()))
    }

    /// Returns the number of bytes of addresses in the shard's ranges.
    pub(crate) fn range_bytes(&self) -> u64 {
        let ranges = self.iter().map(|(_, segment)| segment).filter(|segment| segment.is_expandable());
        ranges.map(|range| range.bytes).sum()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Slot, &Segment)> {
        self.table.iter().enumerate().filter_map(|(at, seat)| match seat {
            Seat::Taken(segment) => Some((Slot(at as u32), segment)),
            _ => None,
        })
    }
}

impl core::ops::Index<Slot> for Segments {
    type Output = Segment;

    #[inline]
    fn index(&self, slot: Slot) -> &Segment {
        match &self.table[slot.0 as usize] {
            Seat::Taken(segment) => segment,
            other => panic!("slot {} holds no segment but {other:?}", slot.0),
        }
    }
}

impl core::ops::IndexMut<Slot> for Segments {
    #[inline]
    fn index_mut(&mut self, slot: Slot) -> &mut Segment {
        match &mut self.table[slot.0 as usize] {
            Seat::Taken(segment) => segment,
            other => panic!("slot {} holds no segment but {other:?}", slot.0),
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn seats_are_taken_again_before_new_ones_are_made() {
        let mut segments = Segments::default();
        let slots: Vec<_> = (0..4).map(|_| segments.promise()).collect();
        assert_eq!(slots, [Slot(0), Slot(1), Slot(2), Slot(3)]);
        segments.vacate(Slot(0));
        segments.vacate(Slot(2));
        assert_eq!([segments.promise(), segments.promise(), segments.promise()], [Slot(2), Slot(0), Slot(4)]);
    }

    #[test]
    #[should_panic(expected = "slot 1 was not promised: Vacant")]
    fn a_seat_is_vacated_once() {
        let mut segments = Segments::default();
        let slots = [segments.promise(), segments.promise()];
        segments.vacate(slots[1]);
        segments.vacate(slots[1]);
    }

    /// The policy `direct` needs this, because there every live block is a segment. With a look at each seat this would
    /// take 20 s.
    #[test]
    fn a_promise_looks_at_no_other_seat() {
        let mut segments = Segments::default();
        let start = Instant::now();
        for count in 0..200_000 {
            assert_eq!(segments.promise(), Slot(count));
        }
        assert!(start.elapsed() < Duration::from_secs(1), "200,000 promises took {:?}", start.elapsed());
    }
}
