//! Which events of a trace the ticks of its streams cover.
//!
//! A recording is told ticks, and a trace has points: what was queued on a stream up to a place in the program. This
//! finds the places. It knows no block and no device.

use std::collections::{BTreeMap, HashMap};

use millpond_backend::{Point, StreamId, Tick};
use millpond_trace::Event;

/// A stream, as far as it was recorded.
struct Lane {
    /// How many events there were when something was queued there last.
    end: usize,
    /// The open tick, and the end when it was last seen to be open: it covers what was queued by then.
    open: Tick,
    covers: usize,
}

impl Default for Lane {
    fn default() -> Self {
        Self { end: 0, open: Tick(1), covers: 0 }
    }
}

/// The ticks of all streams, and the events about them that belong between others.
#[derive(Default)]
pub(crate) struct Ticks {
    lanes: HashMap<StreamId, Lane>,
    /// How many events there were at the end of what a closed tick covers.
    closed: BTreeMap<(StreamId, Tick), usize>,
    /// The numbers of the points that events name, by how many events there are before them.
    numbers: BTreeMap<(StreamId, usize), u32>,
    /// Submits of which it is known only later that they were made, by how many events there are before them.
    submits: Vec<(usize, StreamId)>,
}

impl Ticks {
    fn lane(&mut self, stream: StreamId) -> &mut Lane {
        self.lanes.entry(stream).or_default()
    }

    /// Notes that something was queued on a stream, after this many events.
    pub(crate) fn queued(&mut self, stream: StreamId, events: usize) {
        self.lane(stream).end = events;
    }

    /// Notes that the open tick of a stream is the same as it was, and so covers what was queued so far.
    pub(crate) fn sees(&mut self, stream: StreamId) {
        let lane = self.lane(stream);
        lane.covers = lane.end;
    }

    /// Notes which tick of a stream is open. What was queued since the last one was seen belongs to this one.
    pub(crate) fn opens(&mut self, Point { stream, tick }: Point) {
        let lane = self.lanes.entry(stream).or_default();
        if tick > lane.open {
            self.closed.insert((stream, lane.open), lane.covers);
        }
        if tick >= lane.open {
            (lane.open, lane.covers) = (tick, lane.end);
        }
    }

    /// Notes that a stream was submitted up to a point. Returns whether that is the submit which has closed the tick
    /// that was open. If others have come after that one, it comes before what was queued after the tick was seen.
    pub(crate) fn submits(&mut self, Point { stream, tick }: Point) -> bool {
        let lane = self.lane(stream);
        let is_next = tick <= lane.open;
        if is_next {
            lane.covers = lane.end;
        }
        let covers = lane.covers;
        self.opens(Point { stream, tick: Tick(tick.0 + 1) });
        if !is_next {
            self.submits.push((covers, stream));
        }
        is_next
    }

    /// Returns the number of a point that an event names. A point that was taken before the trace began covers all so
    /// far, so that a replay never reuses the memory too early.
    pub(crate) fn number(&mut self, Point { stream, tick }: Point) -> u32 {
        let lane = self.lanes.entry(stream).or_default();
        let closed = self.closed.get(&(stream, tick)).copied();
        let covers = if tick == lane.open { lane.covers } else { closed.unwrap_or(lane.end) };
        self.numbered(stream, covers)
    }

    /// Returns the number of the newest tick that is known up to a point, if it covers anything.
    pub(crate) fn newest(&mut self, Point { stream, tick }: Point) -> Option<u32> {
        let open = self.lanes.get(&stream).filter(|lane| lane.open <= tick).map(|lane| lane.covers);
        let closed = || self.closed.range((stream, Tick::ZERO)..=(stream, tick)).next_back().map(|(_, covers)| *covers);
        let covers = open.or_else(closed).filter(|covers| *covers > 0)?;
        Some(self.numbered(stream, covers))
    }

    fn numbered(&mut self, stream: StreamId, covers: usize) -> u32 {
        let next = self.numbers.len() as u32;
        *self.numbers.entry((stream, covers)).or_insert(next)
    }

    /// Returns one more than the highest number of a stream that an event names.
    pub(crate) fn streams(&self) -> u32 {
        let named = self.numbers.keys().map(|(stream, _)| *stream);
        named.chain(self.submits.iter().map(|(_, stream)| *stream)).map(|stream| stream.0 + 1).max().unwrap_or(0)
    }

    /// Puts the points, and the submits that were learned of later, between the events. Returns all events, and the
    /// places of those that are new among the others, in order.
    pub(crate) fn put_into(mut self, events: Vec<Event>) -> (Vec<Event>, Vec<usize>) {
        let closed: Vec<_> = self.closed.iter().map(|(&(stream, _), &covers)| (stream, covers)).collect();
        closed
            .into_iter()
            .filter(|(_, covers)| *covers > 0)
            .for_each(|(stream, covers)| _ = self.numbered(stream, covers));
        let points = self.numbers.iter().map(|(&(stream, place), &number)| (place, false, stream, number));
        let submits = self.submits.iter().map(|&(place, stream)| (place, true, stream, 0));
        let mut new: Vec<_> = points.chain(submits).collect();
        if new.is_empty() {
            return (events, Vec::new());
        }
        new.sort_unstable();
        let mut numbers = vec![0; self.numbers.len()];
        let (mut next, mut defined) = (new.iter().peekable(), 0);
        let mut all = Vec::with_capacity(events.len() + new.len());
        for at in 0..=events.len() {
            while let Some(&(_, is_submit, StreamId(stream), number)) = next.next_if(|(place, ..)| *place == at) {
                if is_submit {
                    all.push(Event::Submit { stream });
                } else {
                    numbers[number as usize] = defined;
                    all.push(Event::Mark { point: defined, stream });
                    defined += 1;
                }
            }
            all.extend(events.get(at).map(|event| renumbered(*event, &numbers)));
        }
        (all, new.into_iter().map(|(place, ..)| place).collect())
    }
}

/// Returns an event with the numbers that points have in the order of their places.
fn renumbered(event: Event, numbers: &[u32]) -> Event {
    let number = |point: u32| numbers[point as usize];
    match event {
        Event::Until { id, point } => Event::Until { id, point: number(point) },
        Event::StreamWait { stream, point } => Event::StreamWait { stream, point: number(point) },
        Event::HostWait { point } => Event::HostWait { point: number(point) },
        Event::Reached { point } => Event::Reached { point: number(point) },
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FREE: Event = Event::Free { id: 0 };

    fn at(tick: u64) -> Point {
        Point { stream: StreamId(0), tick: Tick(tick) }
    }

    /// A free, and a request whose work is submitted in several parts: the first part closes the tick of the free.
    #[test]
    fn a_submit_that_others_have_followed_comes_before_what_was_queued_after_it() {
        let mut ticks = Ticks::default();
        ticks.queued(StreamId(0), 1);
        ticks.sees(StreamId(0));
        let events = vec![FREE, Event::Allocate { id: 1, bytes: 1, stream: 0 }];
        ticks.queued(StreamId(0), 2);
        assert!(!ticks.submits(at(3)));
        let reached = [3, 1].map(|tick| ticks.newest(at(tick)).expect("a point"));
        assert_eq!(reached[0], reached[1], "the ticks after the first cover nothing that was freed");
        let (all, places) = ticks.put_into(events.clone());
        let mark = Event::Mark { point: 0, stream: 0 };
        assert_eq!(all, [FREE, mark, Event::Submit { stream: 0 }, events[1]]);
        assert_eq!(places, [1, 1]);
    }

    /// A tick covers what was queued as long as it was seen to be open, and a point that is named has a number.
    #[test]
    fn points_are_numbered_in_the_order_of_their_places() {
        let mut ticks = Ticks::default();
        ticks.queued(StreamId(0), 1);
        ticks.opens(at(1));
        ticks.queued(StreamId(0), 2);
        ticks.opens(at(2));
        let late = ticks.number(at(2));
        let events = vec![FREE, FREE, Event::HostWait { point: late }];
        let (all, _) = ticks.put_into(events);
        let mark = |point| Event::Mark { point, stream: 0 };
        assert_eq!(all, [FREE, mark(0), FREE, mark(1), Event::HostWait { point: 1 }]);
    }
}
