//! Freed blocks that wait for points, by the stream of the point; and how far each stream is known to have come.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use millpond_backend::{Point, StreamId, Tick};

use crate::ids::{BlockId, ShardBlock, ShardId};

/// How far a stream is that was asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Polled {
    /// The stream.
    pub stream: StreamId,
    /// The newest tick that is reached.
    pub reached: Tick,
    /// The last tick on which there was any work or freed memory when the stream was asked.
    pub asked: Tick,
    /// The tick that is open until the application submits: no other stream can wait for it on the device. `None` where
    /// the device closes ticks.
    pub open: Option<Tick>,
    /// The tick that was closed by being asked: all work that was queued before is done once it is reached.
    pub closed: Option<Tick>,
}

/// A block that waits for a tick of the stream in whose queue it stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Waiter {
    pub(crate) tick: Tick,
    pub(crate) shard: ShardId,
    pub(crate) block: BlockId,
}

/// The waits of freed blocks, and the newest tick of each stream that is known to be reached.
#[derive(Clone, Default)]
pub(crate) struct Pending {
    /// By stream, in order of ticks.
    queues: Vec<VecDeque<Waiter>>,
    pub(crate) waiters: usize,
    /// By stream.
    reached: Vec<Tick>,
    /// The streams that have come further, in order: the newest times, as many as there are streams.
    news: VecDeque<StreamId>,
    /// The number of times before those.
    old_news: u64,
    /// By stream, the last tick that was there when the stream was asked how far it is.
    asked: Vec<Tick>,
    /// By stream, the tick that only a submit closes; no entry where the driver closes ticks.
    open: BTreeMap<StreamId, Tick>,
    /// The streams that are being captured, with the tick that was open when that began.
    captured: BTreeMap<StreamId, Tick>,
}

impl Pending {
    /// Makes room for a stream.
    pub(crate) fn know_stream(&mut self, stream: StreamId) {
        let needed = stream.0 as usize + 1;
        if self.queues.len() < needed {
            self.queues.resize_with(needed, VecDeque::new);
            self.reached.resize(needed, Tick::ZERO);
            self.asked.resize(needed, Tick::ZERO);
        }
    }

    /// Notes that a freed block waits for a point.
    pub(crate) fn pend(&mut self, shard: ShardId, block: BlockId, point: Point) {
        self.know_stream(point.stream);
        let queue = &mut self.queues[point.stream.0 as usize];
        // Marks rise, so a new waiter nearly always goes last; a point given by the user may be older.
        let at = match queue.back() {
            Some(last) if last.tick > point.tick => queue.partition_point(|waiter| waiter.tick <= point.tick),
            _ => queue.len(),
        };
        queue.insert(at, Waiter { tick: point.tick, shard, block });
        self.waiters += 1;
    }
    /// Returns the streams that blocks wait for. Costs a look at each stream if there are any.
    pub(crate) fn waited_for(&self) -> Vec<StreamId> {
        if self.waiters == 0 {
            return Vec::new();
        }
        let waited = self.queues.iter().enumerate().filter(|(_, queue)| !queue.is_empty());
        waited.map(|(stream, _)| StreamId(stream as u32)).collect()
    }

    /// Notes that the capture of a stream begins, whose open tick this is. What it covers is not reached before the
    /// capture has ended: work that is captured does not run, and its graph may use the memory later.
    pub(crate) fn begin_capture(&mut self, stream: StreamId, open: Tick) {
        self.know_stream(stream);
        self.captured.insert(stream, open);
    }

    /// Notes that the capture of a stream has ended.
    pub(crate) fn end_capture(&mut self, stream: StreamId) {
        self.captured.remove(&stream);
    }

    /// Returns whether a stream is being captured: it is neither asked nor waited for.
    pub(crate) fn is_captured(&self, stream: StreamId) -> bool {
        self.captured.contains_key(&stream)
    }

    /// Returns a stream that is being captured, if there is one.
    pub(crate) fn first_captured(&self) -> Option<StreamId> {
        self.captured.keys().next().copied()
    }

    /// Returns whether some stream is being captured.
    pub(crate) fn has_captures(&self) -> bool {
        !self.captured.is_empty()
    }

    /// Notes that a stream has reached a tick. Ticks known to be reached never fall.
    pub(crate) fn note_reached(&mut self, stream: StreamId, tick: Tick) {
        self.know_stream(stream);
        let most = self.captured.get(&stream).map_or(u64::MAX, |open| open.0.saturating_sub(1));
        let tick = tick.min(Tick(most));
        let known = &mut self.reached[stream.0 as usize];
        if tick > *known {
            *known = tick;
            self.news.push_back(stream);
            if self.news.len() > self.reached.len() {
                self.news.pop_front();
                self.old_news += 1;
            }
        }
    }

    /// Returns the streams that have come further since a reader saw the first `seen` [changes](Self::changes), each
    /// with its newest tick.
    pub(crate) fn news(&self, seen: u64) -> impl Iterator<Item = Point> {
        let (all, first) = match seen.checked_sub(self.old_news) {
            Some(first) => (0, first as usize),
            None => (self.reached.len() as u32, self.news.len()),
        };
        let streams = (0..all).map(StreamId).chain(self.news.range(first..).copied());
        streams.map(|stream| Point { stream, tick: self.reached(stream) })
    }

    /// Returns how often a stream has come further so far.
    pub(crate) fn changes(&self) -> u64 {
        self.old_news + self.news.len() as u64
    }

    /// Takes in how far a stream is that was asked.
    pub(crate) fn note_polled(&mut self, polled: &Polled) {
        let Polled { stream, reached, asked, open, .. } = *polled;
        self.note_reached(stream, reached);
        let known = &mut self.asked[stream.0 as usize];
        *known = asked.max(*known);
        if let Some(tick) = open {
            let known = self.open.entry(stream).or_default();
            *known = tick.max(*known);
        }
    }

    /// Returns whether the device was seen to be behind a point: it is not known to be reached, although its stream was
    /// asked since. Of what other threads have done after that nothing is known.
    pub(crate) fn is_behind(&self, point: Point) -> bool {
        let at = point.stream.0 as usize;
        self.reached[at] < point.tick && point.tick <= self.asked[at]
    }

    /// Returns whether another stream can wait for a point on the device: whether its tick is known to be closed, or
    /// the driver closes it, and its stream is not being captured. Where submits close ticks, a stream that was not
    /// asked yet may have submitted nothing. Streams are asked before a plan looks for memory to wait for.
    pub(crate) fn can_be_waited_for(&self, Point { stream, tick }: Point) -> bool {
        !self.is_captured(stream) && self.open.get(&stream).map_or(self.open.is_empty(), |&open| tick < open)
    }

    /// Returns the newest tick of a stream that is known to be reached.
    pub(crate) fn reached(&self, stream: StreamId) -> Tick {
        self.reached[stream.0 as usize]
    }

    /// Returns whether a point is known to be reached.
    pub(crate) fn is_reached(&self, point: Point) -> bool {
        self.reached(point.stream) >= point.tick
    }

    /// Takes the first waiter of a stream out of its queue if its tick is at most `usable`.
    pub(crate) fn take_ready(&mut self, stream: StreamId, usable: Tick) -> Option<Waiter> {
        let queue = &mut self.queues[stream.0 as usize];
        if queue.front()?.tick > usable {
            return None;
        }
        self.waiters -= 1;
        queue.pop_front()
    }

    /// Returns whether the first waiter of a stream waits for a tick that is known to be reached. Costs a look at each
    /// stream if there are any waiters.
    pub(crate) fn has_ready(&self) -> bool {
        let mut firsts =
            self.queues.iter().zip(&self.reached).filter_map(|(queue, reached)| Some((queue.front()?, reached)));
        self.waiters > 0 && firsts.any(|(first, &reached)| first.tick <= reached)
    }

    /// Returns the points that each block waits for.
    pub(crate) fn blocks(&self) -> BTreeMap<ShardBlock, Vec<Point>> {
        let mut blocks: BTreeMap<_, Vec<Point>> = BTreeMap::new();
        for (stream, queue) in self.queues.iter().enumerate() {
            for &Waiter { tick, shard, block } in queue {
                blocks
                    .entry(ShardBlock { shard, block })
                    .or_default()
                    .push(Point { stream: StreamId(stream as u32), tick });
            }
        }
        blocks
    }

    /// Returns the last point of each stream that blocks wait for.
    pub(crate) fn last(&self) -> Points {
        self.ends(VecDeque::back)
    }

    /// Returns the first point of each stream that blocks wait for.
    pub(crate) fn first(&self) -> Points {
        self.ends(VecDeque::front)
    }

    fn ends(&self, end: fn(&VecDeque<Waiter>) -> Option<&Waiter>) -> Points {
        let ends = self.queues.iter().enumerate().filter_map(|(stream, queue)| Some((stream, end(queue)?.tick)));
        ends.map(|(stream, tick)| Point { stream: StreamId(stream as u32), tick }).collect()
    }

    /// Verifies that every queue is in order and that the count is right.
    ///
    /// # Panics
    ///
    /// If one is not.
    pub(crate) fn check(&self) {
        assert_eq!(self.queues.iter().map(VecDeque::len).sum::<usize>(), self.waiters, "waiters listed and counted");
        for (stream, queue) in self.queues.iter().enumerate() {
            let in_order = queue.iter().is_sorted_by_key(|waiter| waiter.tick);
            assert!(in_order, "the queue of stream {stream} is out of order");
        }
    }
}

/// A set of points with at most one for each stream, in the order in which the streams were added.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Points(Vec<Point>);

impl Points {
    /// Adds a point, and keeps the later of two of one stream.
    pub fn max(&mut self, point: Point) {
        self.add(point, Tick::max);
    }

    /// Adds a point, and keeps the earlier of two of one stream.
    pub fn min(&mut self, point: Point) {
        self.add(point, Tick::min);
    }

    /// Adds the points of another set: of two of one stream the later one stays.
    pub(crate) fn merge(&mut self, other: Points) {
        match self.is_empty() {
            true => *self = other,
            false => other.iter().for_each(|point| self.max(point)),
        }
    }

    fn add(&mut self, point: Point, choose: fn(Tick, Tick) -> Tick) {
        match self.0.iter_mut().find(|known| known.stream == point.stream) {
            Some(known) => known.tick = choose(known.tick, point.tick),
            None => self.0.push(point),
        }
    }

    /// Returns the tick of a stream's point, if there is one.
    pub fn tick(&self, stream: StreamId) -> Option<Tick> {
        self.0.iter().find(|known| known.stream == stream).map(|known| known.tick)
    }

    /// Returns the point, if there is just one.
    pub(crate) fn only(&self) -> Option<Point> {
        if let [point] = self.0[..] { Some(point) } else { None }
    }

    /// Returns the number of points.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the points.
    pub fn iter(&self) -> impl Iterator<Item = Point> {
        self.0.iter().copied()
    }

    /// Returns the points as a list.
    pub fn into_vec(self) -> Vec<Point> {
        self.0
    }
}

impl FromIterator<Point> for Points {
    /// Collects the latest point of each stream.
    fn from_iter<I: IntoIterator<Item = Point>>(points: I) -> Self {
        let mut all = Self::default();
        points.into_iter().for_each(|point| all.max(point));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pend(book: &mut Pending, block: u32, stream: u32, tick: u64) {
        book.pend(ShardId(0), BlockId(block), Point { stream: StreamId(stream), tick: Tick(tick) });
        book.check();
    }

    #[test]
    fn waiters_leave_in_order_of_their_ticks() {
        let mut book = Pending::default();
        for (block, tick) in [(0, 5), (1, 3), (2, 5), (3, 9)] {
            pend(&mut book, block, 1, tick);
        }
        let mut left = || book.take_ready(StreamId(1), Tick(5)).map(|waiter| waiter.block.0);
        assert_eq!([left(), left(), left(), left()], [Some(1), Some(0), Some(2), None]);
        let mut ready = |tick| {
            book.note_reached(StreamId(1), Tick(tick));
            book.has_ready()
        };
        assert_eq!([ready(8), ready(9)], [false, true]);
        assert_eq!((book.waiters, book.waited_for()), (1, [StreamId(1)].to_vec()));
    }

    #[test]
    fn the_ends_of_all_queues_are_told() {
        let mut book = Pending::default();
        for (stream, tick) in [(0, 4), (2, 7), (0, 6)] {
            pend(&mut book, 0, stream, tick);
        }
        let ticks = |points: Points| points.iter().map(|point| (point.stream.0, point.tick.0)).collect::<Vec<_>>();
        assert_eq!(ticks(book.first()), [(0, 4), (2, 7)]);
        assert_eq!(ticks(book.last()), [(0, 6), (2, 7)]);
    }

    /// Whoever was told lately looks at what has changed since, and whoever was not at each stream once.
    #[test]
    fn news_are_told_to_each_who_has_not_seen_them() {
        let mut book = Pending::default();
        book.know_stream(StreamId(2));
        let told = |book: &Pending, seen| {
            let news = book.news(seen).map(|point| (point.stream.0, point.tick.0));
            (news.collect::<Vec<_>>(), book.changes())
        };
        assert_eq!(told(&book, 0), ([].to_vec(), 0));
        for (stream, tick) in [(1, 4), (0, 2), (0, 2), (1, 6)] {
            book.note_reached(StreamId(stream), Tick(tick));
        }
        assert_eq!(told(&book, 0), ([(1, 6), (0, 2), (1, 6)].to_vec(), 3), "what is known already is no news");
        assert_eq!(told(&book, 2), ([(1, 6)].to_vec(), 3));
        assert_eq!(told(&book, 3), ([].to_vec(), 3));
        book.note_reached(StreamId(2), Tick(1));
        assert_eq!(told(&book, 1), ([(0, 2), (1, 6), (2, 1)].to_vec(), 4));
        assert_eq!(told(&book, 0), ([(0, 2), (1, 6), (2, 1)].to_vec(), 4), "the first are forgotten: each stream once");
    }

    #[test]
    fn what_is_captured_is_not_reached_before_the_capture_has_ended() {
        let mut book = Pending::default();
        let (stream, at) = (StreamId(1), |tick| Point { stream: StreamId(1), tick: Tick(tick) });
        book.begin_capture(stream, Tick(5));
        book.note_reached(stream, Tick(9));
        assert!(book.is_reached(at(4)) && !book.is_reached(at(5)) && !book.can_be_waited_for(at(4)));
        book.end_capture(stream);
        assert!(!book.is_reached(at(5)) && book.can_be_waited_for(at(5)), "it is asked anew");
        book.note_reached(stream, Tick(5));
        assert!(book.is_reached(at(5)));
    }

    #[test]
    fn where_submits_close_ticks_a_stream_that_was_not_asked_is_not_waited_for() {
        let mut book = Pending::default();
        let at = |stream, tick| Point { stream: StreamId(stream), tick: Tick(tick) };
        assert!(book.can_be_waited_for(at(1, 4)), "the driver closes ticks");
        let (stream, reached, asked, open) = (StreamId(0), Tick(1), Tick(5), Some(Tick(5)));
        book.note_polled(&Polled { stream, reached, asked, open, closed: None });
        assert_eq!([at(0, 4), at(0, 5), at(1, 4)].map(|at| book.can_be_waited_for(at)), [true, false, false]);
    }

    #[test]
    fn a_stream_is_behind_with_what_it_was_asked_for_and_has_not_reached() {
        let mut book = Pending::default();
        let at = |tick| Point { stream: StreamId(1), tick: Tick(tick) };
        let polled =
            |asked| Polled { stream: StreamId(1), reached: Tick(4), asked: Tick(asked), open: None, closed: None };
        book.note_polled(&polled(4));
        assert!(!book.is_behind(at(5)), "it was not asked");
        book.note_polled(&polled(6));
        book.note_polled(&polled(5));
        assert_eq!([4, 5, 6, 7].map(|tick| book.is_behind(at(tick))), [false, true, true, false]);
    }

    #[test]
    fn what_is_reached_stays_reached() {
        let mut book = Pending::default();
        book.note_reached(StreamId(3), Tick(8));
        book.note_reached(StreamId(3), Tick(6));
        assert_eq!(book.reached(StreamId(3)), Tick(8));
        assert!(book.is_reached(Point { stream: StreamId(0), tick: Tick::ZERO }), "tick 0 always is");
    }

    fn at(stream: u32, tick: u64) -> Point {
        Point { stream: StreamId(stream), tick: Tick(tick) }
    }

    #[test]
    fn one_point_of_each_stream_stays() {
        let points = Points::from_iter([at(1, 5), at(0, 2), at(1, 3), at(1, 9)]);
        assert_eq!(points.into_vec(), [at(1, 9), at(0, 2)]);
        let mut points = Points::default();
        [at(1, 5), at(0, 2), at(1, 3), at(1, 9)].into_iter().for_each(|point| points.min(point));
        assert_eq!(points.into_vec(), [at(1, 3), at(0, 2)]);
    }
}
