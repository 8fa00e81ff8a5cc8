//! What a home has seen of the streams: how far they are, up to when they may use free memory, and how many blocks they
//! got.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use millpond_backend::{Point, StreamId, Tick};

use crate::looks;

/// The number of streams that are found to be behind before a request asks no more of them: a driver's query takes a
/// microsecond. A stream that is done is not asked again before it frees memory once more, so it costs little.
pub(crate) const BEHIND_MAX: usize = 8;

/// What a home has seen of the streams, by the number of the stream.
#[derive(Clone, Default)]
pub(crate) struct Seen {
    /// The ticks that are known to be reached, and how many of the coordinator's news of that were seen.
    reached: Vec<Tick>,
    pub(crate) news: u64,
    /// The latest tick up to which a stream has used memory that was free by then.
    latest: Vec<Tick>,
    /// The streams that are not known to have reached that tick, and the one to be asked next how far it is.
    behind: BTreeSet<StreamId>,
    ask_next: StreamId,
    /// The number of blocks that were handed out, and how many of them were told.
    grants: Vec<u64>,
    told: Vec<u64>,
    /// The number of streams that they went to.
    pub(crate) users: usize,
}

impl Seen {
    /// Returns whether a point is known to be reached.
    pub(super) fn is_over(&self, point: Point) -> bool {
        point.tick == Tick::ZERO || self.reached.get(point.stream.0 as usize).is_some_and(|tick| *tick >= point.tick)
    }

    /// Notes that memory is free that was used up to a point.
    pub(crate) fn note_free(&mut self, point: Point) {
        let known = entry(&mut self.latest, point.stream, Tick::ZERO);
        *known = point.tick.max(*known);
        if !self.is_over(point) {
            self.behind.insert(point.stream);
        }
    }

    /// Takes in up to which points streams are known to be done, with the number of news that there are then. Returns
    /// whether one has come further.
    pub(super) fn see_reached(&mut self, reached: impl Iterator<Item = Point>, news: u64) -> bool {
        self.news = news;
        let mut is_news = false;
        for Point { stream, tick } in reached {
            looks::note(1);
            let known = entry(&mut self.reached, stream, Tick::ZERO);
            if tick > *known {
                (*known, is_news) = (tick, true);
                if self.latest.get(stream.0 as usize).is_some_and(|latest| *latest <= tick) {
                    self.behind.remove(&stream);
                }
            }
        }
        is_news
    }

    pub(crate) fn note_grant(&mut self, stream: StreamId) {
        let granted = entry(&mut self.grants, stream, 0);
        *granted += 1;
        self.users += usize::from(*granted == 1);
    }

    /// Returns up to which points free memory may still be used, of each stream the latest one.
    pub(crate) fn latest_points(&self) -> impl Iterator<Item = Point> {
        self.behind.iter().map(|&stream| Point { stream, tick: self.latest[stream.0 as usize] })
    }

    /// Returns the streams that free memory may have to wait for, a bounded number, in the order of their turns.
    pub(crate) fn next_to_ask(&self) -> Vec<StreamId> {
        let by_turns = self.behind.range(self.ask_next..).chain(self.behind.iter());
        by_turns.take(self.behind.len().min(32 * BEHIND_MAX)).copied().collect()
    }

    /// Does what [`next_to_ask`](Self::next_to_ask) does, and has it be the turn of others the next time.
    pub(crate) fn streams_to_ask(&mut self) -> Vec<StreamId> {
        let asked = self.next_to_ask();
        self.ask_next = asked.get(BEHIND_MAX).copied().unwrap_or_default();
        asked
    }

    /// Returns the number of blocks that were handed out for a stream since the last call.
    pub(crate) fn new_grants_to(&mut self, stream: StreamId) -> u64 {
        let granted = self.grants.get(stream.0 as usize).copied().unwrap_or(0);
        granted - core::mem::replace(entry(&mut self.told, stream, 0), granted)
    }
}

/// Returns what a table has of a stream.
fn entry<T: Copy>(table: &mut Vec<T>, stream: StreamId, none: T) -> &mut T {
    let at = stream.0 as usize;
    if table.len() <= at {
        table.resize(at + 1, none);
    }
    &mut table[at]
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::vec;

    use super::*;

    /// Where many streams are behind, each question begins with others, as a few that are behind end it.
    #[test]
    fn many_streams_are_asked_by_turns() {
        let mut seen = Seen::default();
        let note = |seen: &mut Seen, streams: core::ops::Range<u32>| {
            streams.for_each(|stream| seen.note_free(Point { stream: StreamId(stream), tick: Tick(1) }));
        };
        let asked = |seen: &mut Seen| seen.streams_to_ask().iter().map(|stream| stream.0).collect::<Vec<_>>();
        note(&mut seen, 3..6);
        assert_eq!([asked(&mut seen), asked(&mut seen)], [vec![3, 4, 5], vec![3, 4, 5]], "all of a few");
        note(&mut seen, 6..23);
        let from = |first| (first..23).chain(3..first).collect::<Vec<_>>();
        assert_eq!([asked(&mut seen), asked(&mut seen), asked(&mut seen)], [from(3), from(11), from(19)]);
        note(&mut seen, 23..1000);
        assert_eq!(asked(&mut seen).len(), 256);
    }
}
