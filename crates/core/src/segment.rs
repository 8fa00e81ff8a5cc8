//! A segment as its shard sees it, the pages that are mapped in it, and the table of a shard's segments.

use alloc::vec::Vec;

use crate::ids::{BlockId, PageId, Place, SegmentId, Side, Slot};

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
#[derive(Clone, Default)]
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

/// The most mappings in a list: few enough for a search to stay within some cache lines, and to be moved where one of
/// them is added or taken out.
const LENGTH: usize = 128;

type Entry = (u64, Mapping);

/// The mappings of a range in order of their offsets, which never overlap: short lists, one behind the other. A request
/// that gathers memory looks up the pages of each free block, for which a tree takes longer; one long list would be
/// moved for each page of a range that has tens of thousands.
///
/// Invariant: no list is empty.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mappings(Vec<Vec<Entry>>);

impl Mappings {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns all mappings with their offsets, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &Mapping)> {
        self.0.iter().flatten().map(|(at, mapping)| (*at, mapping))
    }

    /// Adds a mapping. Returns the one that was at that offset before, if there was one.
    pub(crate) fn insert(&mut self, at: u64, mapping: Mapping) -> Option<Mapping> {
        let number = self.list_of(at);
        let is_last = number + 1 == self.0.len();
        let Some(list) = self.0.get_mut(number) else {
            self.0.push(alloc::vec![(at, mapping)]);
            return None;
        };
        match list.binary_search_by_key(&at, |entry| entry.0) {
            Ok(place) => return Some(core::mem::replace(&mut list[place].1, mapping)),
            // Ranges are mostly filled from the front: their lists stay full then.
            Err(LENGTH) if is_last => self.0.push(alloc::vec![(at, mapping)]),
            Err(place) => {
                list.insert(place, (at, mapping));
                if list.len() > LENGTH {
                    let behind = list.split_off(LENGTH / 2);
                    self.0.insert(number + 1, behind);
                }
            }
        }
        None
    }

    /// Takes out the mapping at an offset, if there is one.
    pub(crate) fn remove(&mut self, at: u64) -> Option<Mapping> {
        let (number, place) = self.place_of(at)?;
        let (_, mapping) = self.0[number].remove(place);
        if self.0[number].is_empty() {
            self.0.remove(number);
        }
        Some(mapping)
    }

    pub(crate) fn get_mut(&mut self, at: u64) -> Option<&mut Mapping> {
        let (number, place) = self.place_of(at)?;
        Some(&mut self.0[number][place].1)
    }

    /// Returns the mappings that share a byte with a part of the range, in order.
    pub(crate) fn over(&self, begin: u64, end: u64) -> impl Iterator<Item = (u64, Mapping)> {
        let (number, place) = self.first_from(begin);
        // The one in front of them may reach into the part.
        let before = match place.checked_sub(1) {
            Some(before) => Some((number, before)),
            None => number.checked_sub(1).map(|number| (number, self.0[number].len() - 1)),
        };
        let reaches = |(number, place): &(usize, usize)| {
            let (at, mapping) = self.0[*number][*place];
            at + mapping.bytes > begin
        };
        let first = before.filter(reaches).unwrap_or((number, place));
        self.from(first).take_while(move |(at, _)| *at < end)
    }

    /// Returns the mappings that lie wholly in a part of the range, in order.
    pub(crate) fn within(&self, begin: u64, end: u64) -> impl Iterator<Item = (u64, Mapping)> {
        self.from(self.first_from(begin)).take_while(move |(at, mapping)| *at + mapping.bytes <= end)
    }

    fn place_of(&self, at: u64) -> Option<(usize, usize)> {
        let number = self.list_of(at);
        Some((number, self.0.get(number)?.binary_search_by_key(&at, |entry| entry.0).ok()?))
    }

    /// Returns the number of the list that has an offset, or would have it: the last one that does not begin behind
    /// that.
    fn list_of(&self, at: u64) -> usize {
        self.0.partition_point(|list| list[0].0 <= at).saturating_sub(1)
    }

    /// Returns the place of the first mapping at an offset or behind it: the number of its list and its number there.
    fn first_from(&self, at: u64) -> (usize, usize) {
        let number = self.list_of(at);
        let place = self.0.get(number).map_or(0, |list| list.partition_point(|entry| entry.0 < at));
        (number, place)
    }

    /// Returns the mappings from a place on.
    fn from(&self, (number, place): (usize, usize)) -> impl Iterator<Item = (u64, Mapping)> {
        let mut lists = self.0.get(number..).unwrap_or_default().iter();
        let first = lists.next().and_then(|list| list.get(place..)).unwrap_or_default();
        first.iter().chain(lists.flatten()).copied()
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::collections::BTreeMap;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::ids::PageId;
    use crate::segment::Role;

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

    fn mapping(page: u32, bytes: u64) -> Mapping {
        Mapping { page: PageId(page), birth: 0, bytes, role: Role::Home }
    }

    fn offsets(mappings: impl Iterator<Item = (u64, Mapping)>) -> Vec<u64> {
        mappings.map(|(at, _)| at).collect()
    }

    /// Pages come and go at random places, as many as make several lists, and what is told of any part of the range is
    /// what a tree shows.
    #[test]
    fn a_tree_says_the_same() {
        let mut random = millpond_trace::Random::new(3);
        let (mut mappings, mut tree) = (Mappings::default(), BTreeMap::new());
        for step in 0..20_000 {
            // It grows at first, and shrinks to nothing at the end.
            let at = 10 * random.below(1_000);
            let grows = random.below(20_000) > step;
            let page = mapping(step as u32, 1 + random.below(10));
            if grows {
                assert_eq!(mappings.insert(at, page), tree.insert(at, page));
            } else {
                assert_eq!(mappings.remove(at), tree.remove(&at));
            }
            let (begin, length) = (random.below(10_000), random.below(300));
            let end = begin + length;
            let over = tree.iter().filter(|(at, page)| **at < end && **at + page.bytes > begin);
            let over: Vec<_> = over.map(|(at, page)| (*at, *page)).collect();
            assert_eq!(mappings.over(begin, end).collect::<Vec<_>>(), over, "over {begin} to {end}");
            let within: Vec<_> = over.into_iter().filter(|(at, page)| *at >= begin && at + page.bytes <= end).collect();
            assert_eq!(mappings.within(begin, end).collect::<Vec<_>>(), within, "within {begin} to {end}");
            assert_eq!(mappings.get_mut(at).copied(), tree.get(&at).copied());
            assert!(mappings.0.iter().all(|list| (1..=LENGTH).contains(&list.len())), "after {step} steps");
            assert_eq!(mappings.is_empty(), tree.is_empty());
        }
        assert!(mappings.iter().eq(tree.iter().map(|(at, page)| (*at, page))));
    }

    #[test]
    fn a_range_that_is_filled_from_the_front_has_full_lists() {
        let mut mappings = Mappings::default();
        (0..3 * LENGTH as u64).for_each(|at| assert_eq!(mappings.insert(10 * at, mapping(0, 10)), None));
        assert_eq!(mappings.0.iter().map(Vec::len).collect::<Vec<_>>(), [LENGTH; 3]);
        assert_eq!(offsets(mappings.over(1_275, 1_285)), [1_270, 1_280], "in two lists");
        assert_eq!(mappings.over(5_000, 6_000).count(), 0);
    }
}
