//! Entries as they are kept: in a ring for each stream, and in one for what concerns no stream.

use std::collections::VecDeque;
use std::panic::Location;
use std::sync::Arc;

use millpond_backend::{StreamId, Tick};
use millpond_core::{PoolId, SegmentId};

use super::{Action, Entry, History};
use crate::raw::clock::Clock;
use crate::tag::{self, Names, TagId};

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
    entries: Vec<Raw>,
    /// The most entries that are kept.
    bound: usize,
    /// Where the next entry goes once the ring is full: the place of the oldest one.
    next: usize,
    /// How many entries there were in all.
    total: u64,
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
    fn in_order(&self) -> impl Iterator<Item = &Raw> {
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
}

/// The newest of them.
pub(crate) struct Marks {
    clock: Clock,
    entries: VecDeque<(u64, TagId, Mark)>,
    bound: usize,
    total: u64,
}

impl Marks {
    pub(crate) fn new(clock: Clock, bound: usize) -> Self {
        Self { clock, entries: VecDeque::new(), bound, total: 0 }
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

/// A copy of all rings, made while no stream went on.
pub(crate) struct Rings {
    clock: Clock,
    bound: usize,
    total: u64,
    entries: Vec<Raw>,
    marks: Vec<(u64, TagId, Mark)>,
}

impl Rings {
    pub(crate) fn copy<'a>(marks: &Marks, rings: impl Iterator<Item = &'a Ring>) -> Self {
        let mut all = Self {
            clock: marks.clock,
            bound: marks.bound,
            total: marks.total,
            entries: Vec::new(),
            marks: marks.entries.iter().cloned().collect(),
        };
        for ring in rings {
            all.total += ring.total;
            all.entries.reserve(ring.entries.len());
            all.entries.extend(ring.in_order());
        }
        all
    }

    /// Puts the entries in order, and keeps the newest ones. Entries of one time stay in the order of their rings.
    pub(crate) fn into_history(mut self) -> History {
        self.entries.sort_by_key(|entry| entry.ticks);
        let (nanos, names) = (self.clock.nanos(), Names::now());
        let extra = (self.entries.len() + self.marks.len()).saturating_sub(self.bound);
        let mut entries = Vec::with_capacity((self.entries.len() + self.marks.len()).min(self.bound));
        let mut marks = self.marks.into_iter().peekable();
        let mut at = 0;
        let mut keep = |entry: Entry| {
            at += 1;
            if at > extra {
                entries.push(entry);
            }
        };
        for raw in &self.entries {
            while let Some(mark) = marks.next_if(|&(ticks, ..)| ticks <= raw.ticks) {
                keep(entry_of_mark(mark, &nanos, &names));
            }
            keep(entry_of(raw, &nanos, &names));
        }
        marks.for_each(|mark| keep(entry_of_mark(mark, &nanos, &names)));
        let lost = self.total - entries.len() as u64;
        History { entries, lost, began: self.clock.wall() }
    }
}

fn entry_of(raw: &Raw, nanos: &impl Fn(u64) -> u64, names: &Names) -> Entry {
    let mut entry = Entry {
        action: Action::Alloc,
        time_ns: nanos(raw.ticks),
        stream: raw.stream,
        pool: raw.pool,
        segment: raw.segment,
        offset: raw.offset,
        address: (raw.base != 0).then_some(raw.base.wrapping_add(raw.offset)),
        size: raw.size,
        requested: raw.requested,
        tag: names.of(raw.tag),
        site: raw.site,
    };
    entry.action = match raw.kind {
        Kind::Alloc => Action::Alloc,
        Kind::FreeRequested => Action::FreeRequested,
        Kind::FreeCompleted => Action::FreeCompleted,
        Kind::Use => Action::Use,
        Kind::Until => {
            entry.size = 0;
            Action::Until(Tick(raw.size))
        }
        Kind::SegmentAlloc => Action::SegmentAlloc,
        Kind::SegmentFree => Action::SegmentFree,
        Kind::RangeAlloc => Action::RangeAlloc,
        Kind::RangeFree => Action::RangeFree,
        Kind::PageCreate => Action::PageCreate,
        Kind::PageRelease => Action::PageRelease,
        Kind::SegmentMap => Action::SegmentMap,
        Kind::SegmentUnmap => Action::SegmentUnmap,
        Kind::Gather => Action::Gather,
        Kind::Ungather => Action::Ungather,
        Kind::OutOfMemory => {
            entry.offset = 0;
            Action::OutOfMemory { free_bytes: raw.offset }
        }
    };
    entry
}

fn entry_of_mark((ticks, tag, mark): (u64, TagId, Mark), nanos: &impl Fn(u64) -> u64, names: &Names) -> Entry {
    let (action, size) = match mark {
        Mark::EmptyCache => (Action::EmptyCache, 0),
        Mark::Trim(bytes) => (Action::Trim, bytes),
        Mark::Snapshot => (Action::Snapshot, 0),
        Mark::Annotate(text) => (Action::Annotate(text), 0),
    };
    Entry {
        action,
        time_ns: nanos(ticks),
        stream: StreamId(0),
        pool: PoolId::DEFAULT,
        segment: None,
        offset: 0,
        address: None,
        size,
        requested: 0,
        tag: names.of(tag),
        site: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(size: u64, ticks: u64) -> Raw {
        Raw {
            kind: Kind::Alloc,
            ticks,
            stream: StreamId(0),
            pool: PoolId::DEFAULT,
            segment: None,
            offset: 0,
            base: 0,
            size,
            requested: size,
            tag: TagId::NONE,
            site: None,
        }
    }

    fn sizes(history: &History) -> Vec<u64> {
        history.entries.iter().map(|entry| entry.size).collect()
    }

    /// Makes rings of entries with the given sizes and times, and of annotations at the given times.
    fn history(bound: usize, rings: &[&[(u64, u64)]], marks: &[u64]) -> History {
        let clock = Clock::start();
        let ring = |entries: &&[(u64, u64)]| {
            let mut ring = Ring::new(clock, bound);
            entries.iter().for_each(|&(size, ticks)| ring.push(raw(size, ticks)));
            ring
        };
        let rings: Vec<_> = rings.iter().map(ring).collect();
        let mut all = Marks::new(clock, bound);
        for &ticks in marks {
            all.push(Mark::Trim(1000 + ticks));
            if let Some(last) = all.entries.back_mut() {
                last.0 = ticks;
            }
        }
        Rings::copy(&all, rings.iter()).into_history()
    }

    #[test]
    fn a_ring_forgets_the_oldest_and_counts_what_is_lost() {
        for pushed in 0..12 {
            let entries: Vec<_> = (0..pushed).map(|at| (at, at)).collect();
            let history = history(5, &[&entries], &[]);
            assert_eq!(sizes(&history), (pushed.saturating_sub(5)..pushed).collect::<Vec<_>>());
            assert_eq!(history.lost, pushed.saturating_sub(5));
        }
        assert_eq!(history(0, &[&[(1, 1)]], &[2]).lost, 2);
    }

    /// The clock's steps are longer than an allocation, so that entries have the same time: they stay in their order.
    #[test]
    fn entries_of_one_time_are_told_in_their_order() {
        let entries: Vec<_> = (0..7).map(|at| (at, 5)).collect();
        assert_eq!(sizes(&history(5, &[&entries], &[])), [2, 3, 4, 5, 6]);
    }

    #[test]
    fn rings_are_put_together_by_time_and_the_newest_of_all_are_kept() {
        let [one, two]: [&[(u64, u64)]; 2] = [&[(1, 10), (3, 30), (5, 50)], &[(2, 20), (4, 40), (6, 60)]];
        let all = history(10, &[one, two], &[25, 70]);
        assert_eq!(sizes(&all), [1, 2, 1025, 3, 4, 5, 6, 1070]);
        let newest = history(3, &[one, two], &[25, 70]);
        assert_eq!((sizes(&newest), newest.lost), (vec![5, 6, 1070], 5));
    }

    #[test]
    fn times_of_a_ring_do_not_fall() {
        let mut ring = Ring::new(Clock::start(), 2);
        ring.last = u64::MAX - 1;
        assert_eq!(ring.now(), u64::MAX - 1, "another core's counter may be behind");
    }
}
