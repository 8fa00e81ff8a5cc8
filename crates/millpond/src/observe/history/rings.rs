//! Reading the rings: copied while all streams stand still, and put in order afterwards.

use millpond_backend::{Backend, Point, StreamId, Tick};
use millpond_core::PoolId;

use super::entry::{Action, Entry, History};
use crate::notes::ring::{Kind, Mark, Marks, Raw, Ring};
use crate::raw::clock::Clock;
use crate::raw::latched::Guard;
use crate::state::{LaneState, State};
use crate::tag::{Names, TagId};

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
    let none = StreamId(0);
    let (action, size, stream) = match mark {
        Mark::EmptyCache => (Action::EmptyCache, 0, none),
        Mark::Trim(bytes) => (Action::Trim, bytes, none),
        Mark::Snapshot => (Action::Snapshot, 0, none),
        Mark::Annotate(text) => (Action::Annotate(text), 0, none),
        Mark::Point(Point { stream, tick }) => (Action::Point(tick), 0, stream),
        Mark::Submit(Point { stream, tick }) => (Action::Submit(tick), 0, stream),
        Mark::StreamWait(stream, point) => (Action::StreamWait(point), 0, stream),
        Mark::HostWait(Point { stream, tick }) => (Action::HostWait(tick), 0, stream),
        Mark::Reached(Point { stream, tick }) => (Action::Reached(tick), 0, stream),
        Mark::Look(nanos) => (Action::Look(nanos), 0, none),
    };
    Entry {
        action,
        time_ns: nanos(ticks),
        stream,
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

impl<B: Backend> State<B> {
    /// Returns a copy of the history, if there is one.
    pub(crate) fn copy_rings(&self) -> Option<Rings> {
        let coordinator = self.coordinator.lock();
        let lanes = self.hold_lanes(&coordinator);
        self.copy_rings_of(&lanes)
    }

    /// Returns a copy of the history, for a caller that holds all lanes.
    pub(crate) fn copy_rings_of(&self, lanes: &[Guard<'_, LaneState<B>>]) -> Option<Rings> {
        let switches = self.sinks.noting.inner.lock();
        let rings = lanes.iter().filter_map(|lane| lane.notes.as_ref()?.ring());
        switches.marks.as_ref().map(|marks| Rings::copy(marks, rings))
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
}
