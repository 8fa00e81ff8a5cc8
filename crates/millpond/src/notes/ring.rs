//! Entries of the history as they are kept: in a ring for each stream, and in one for what concerns no stream.

use std::collections::VecDeque;
use std::mem::Discriminant;
use std::panic::Location;
use std::sync::Arc;

use millpond_backend::{Point, StreamId, Tick};
use millpond_core::{PoolId, SegmentId};

use crate::raw::clock::Clock;
use crate::tag::{self, TagId};

/// The kind of an entry of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Alloc,
    FreeRequested,
    FreeCompleted,
    Use,
    /// The tick is in `size`.
    Until,
    SegmentAlloc,
    SegmentFree,
    RangeAlloc,
    RangeFree,
    PageCreate,
    PageRelease,
    SegmentMap,
    SegmentUnmap,
    Gather,
    Ungather,
    /// The free bytes are in `offset`.
    OutOfMemory,
}

/// An entry of a stream, without what is only needed to read it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Raw {
    pub(crate) kind: Kind,
    /// The clock's reading, which [`Ring::push`] sets.
    pub(crate) ticks: u64,
    pub(crate) stream: StreamId,
    pub(crate) pool: PoolId,
    pub(crate) segment: Option<SegmentId>,
    pub(crate) offset: u64,
    /// The address of the segment, 0 where there is none.
    pub(crate) base: u64,
    pub(crate) size: u64,
    pub(crate) requested: u64,
    pub(crate) tag: TagId,
    pub(crate) site: Option<&'static Location<'static>>,
}

/// The newest entries of one stream.
pub(crate) struct Ring {
    clock: Clock,
    pub(crate) entries: Vec<Raw>,
    /// The most entries that are kept.
    bound: usize,
    /// Where the next entry goes once the ring is full: the place of the oldest one.
    next: usize,
    /// How many entries there were in all.
    pub(crate) total: u64,
    /// The reading of the newest entry.
    last: u64,
}

impl Ring {
    pub(crate) fn new(clock: Clock, bound: usize) -> Self {
        Self { clock, entries: Vec::new(), bound, next: 0, total: 0, last: 0 }
    }

    /// Returns the time for an entry. Times do not fall from entry to entry, whatever core a thread is on.
    #[inline]
    pub(crate) fn now(&mut self) -> u64 {
        self.last = self.clock.ticks().max(self.last);
        self.last
    }

    /// Adds an entry, in the place of the oldest one if there is no room.
    #[inline]
    pub(crate) fn push(&mut self, entry: Raw) {
        self.total += 1;
        if self.entries.len() < self.bound {
            self.entries.push(entry);
        } else if let Some(oldest) = self.entries.get_mut(self.next) {
            *oldest = entry;
            self.next += 1;
            if self.next == self.bound {
                self.next = 0;
            }
        }
    }

    /// Returns the entries, oldest first.
    pub(crate) fn in_order(&self) -> impl Iterator<Item = &Raw> {
        let (newer, older) = self.entries.split_at(self.next);
        older.iter().chain(newer)
    }
}

/// What happened to an allocator, and to no stream of it.
#[derive(Clone, Debug)]
pub(crate) enum Mark {
    EmptyCache,
    Trim(u64),
    Snapshot,
    Annotate(Arc<str>),
    Point(Point),
    Submit(Point),
    StreamWait(StreamId, Point),
    HostWait(Point),
    Reached(Point),
    Look(u64),
}

/// The newest of them.
pub(crate) struct Marks {
    pub(crate) clock: Clock,
    pub(crate) entries: VecDeque<(u64, TagId, Mark)>,
    pub(crate) bound: usize,
    pub(crate) total: u64,
    /// The newest points that were noted, of each kind and stream: a look at a stream that brings nothing new is not
    /// noted again.
    newest: Vec<(Discriminant<Mark>, Point)>,
}

impl Marks {
    pub(crate) fn new(clock: Clock, bound: usize) -> Self {
        Self { clock, entries: VecDeque::new(), bound, total: 0, newest: Vec::new() }
    }

    /// Adds a mark about a point, unless there was one of its kind about this point or a later one of the stream. A
    /// point that is taken once more covers more than it did.
    pub(crate) fn push_newer(&mut self, mark: Mark, point: Point) {
        let kind = std::mem::discriminant(&mark);
        let is_old = |newest: Tick| newest > point.tick || newest == point.tick && !matches!(mark, Mark::Point(_));
        match self.newest.iter_mut().find(|(of, newest)| *of == kind && newest.stream == point.stream) {
            Some((_, newest)) if is_old(newest.tick) => return,
            Some((_, newest)) => *newest = point,
            None => self.newest.push((kind, point)),
        }
        self.push(mark);
    }

    pub(crate) fn push(&mut self, mark: Mark) {
        self.total += 1;
        if self.entries.len() == self.bound {
            self.entries.pop_front();
        }
        if self.bound > 0 {
            self.entries.push_back((self.clock.ticks(), tag::current(), mark));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_a_ring_do_not_fall() {
        let mut ring = Ring::new(Clock::start(), 2);
        ring.last = u64::MAX - 1;
        assert_eq!(ring.now(), u64::MAX - 1, "another core's counter may be behind");
    }
}
