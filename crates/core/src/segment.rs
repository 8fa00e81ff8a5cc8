//! A segment as its shard knows it, and the table that gives it a place.

use alloc::vec::Vec;

use crate::ids::{BlockId, SegmentId, Side, Slot};

/// One driver allocation, or one reserved address range (`page_bytes` is then not 0).
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    pub(crate) id: SegmentId,
    /// The device address, 0 on devices without addresses.
    pub(crate) base: u64,
    /// The rank of its first quantum: how its blocks compare with others of equal size. By birth, every segment of a
    /// shard gets the ranks behind those of the segments before it; by address, rank is address.
    pub(crate) rank: u64,
    pub(crate) bytes: u64,
    pub(crate) side: Side,
    /// The block at offset 0.
    pub(crate) first: BlockId,
    /// The page size of an expandable segment in bytes, 0 for a plain one.
    pub(crate) page_bytes: u64,
}

impl Segment {
    pub(crate) fn is_expandable(&self) -> bool {
        self.page_bytes != 0
    }
}

/// What a place in the table holds.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    /// Nothing.
    Vacant,
    /// Promised to a plan whose driver call is under way.
    Promised,
    /// A segment.
    Taken(Segment),
}

/// The segments of a shard.
pub(crate) struct Segments {
    table: Vec<Place>,
}

impl Segments {
    pub(crate) fn new() -> Self {
        Self { table: Vec::new() }
    }

    pub(crate) fn promise(&mut self) -> Slot {
        let vacant = self.table.iter().position(|place| matches!(place, Place::Vacant));
        let at = vacant.unwrap_or_else(|| {
            self.table.push(Place::Vacant);
            self.table.len() - 1
        });
        self.table[at] = Place::Promised;
        Slot(at as u32)
    }

    pub(crate) fn fulfil(&mut self, slot: Slot, segment: Segment) {
        let place = &mut self.table[slot.0 as usize];
        assert!(matches!(place, Place::Promised), "slot {} was not promised: {place:?}", slot.0);
        *place = Place::Taken(segment);
    }

    /// The segment is gone, its place is not free yet.
    pub(crate) fn withdraw(&mut self, slot: Slot) {
        self.table[slot.0 as usize] = Place::Promised;
    }

    pub(crate) fn vacate(&mut self, slot: Slot) {
        self.table[slot.0 as usize] = Place::Vacant;
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Slot, &Segment)> {
        self.table.iter().enumerate().filter_map(|(at, place)| match place {
            Place::Taken(segment) => Some((Slot(at as u32), segment)),
            _ => None,
        })
    }
}

impl core::ops::Index<Slot> for Segments {
    type Output = Segment;

    #[inline]
    fn index(&self, slot: Slot) -> &Segment {
        match &self.table[slot.0 as usize] {
            Place::Taken(segment) => segment,
            other => panic!("slot {} holds no segment but {other:?}", slot.0),
        }
    }
}

impl core::ops::IndexMut<Slot> for Segments {
    #[inline]
    fn index_mut(&mut self, slot: Slot) -> &mut Segment {
        match &mut self.table[slot.0 as usize] {
            Place::Taken(segment) => segment,
            other => panic!("slot {} holds no segment but {other:?}", slot.0),
        }
    }
}
