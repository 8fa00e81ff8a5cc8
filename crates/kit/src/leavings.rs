//! What dropped allocators have left with a device, until its streams are done with it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use millpond_backend::{Left, StreamId, Tick};
use parking_lot::Mutex;

/// What dropped allocators have left. Each part waits for one stream at a time, so progress of a stream costs a look at
/// the parts that wait for it, and nothing if none does.
pub struct Leavings<Segment, Page> {
    /// The number of parts.
    count: AtomicUsize,
    /// The parts by the stream that each waits for: the first of its points that is not reached.
    waiting: Mutex<BTreeMap<StreamId, Vec<Left<Segment, Page>>>>,
}

impl<Segment, Page> Default for Leavings<Segment, Page> {
    fn default() -> Leavings<Segment, Page> {
        Leavings { count: AtomicUsize::new(0), waiting: Mutex::default() }
    }
}

impl<Segment, Page> Leavings<Segment, Page> {
    /// Returns whether nothing is kept. Costs one read.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// Keeps a part until its points are reached. Returns it if they are.
    pub fn keep(&self, left: Left<Segment, Page>, reached: impl Fn(StreamId) -> Tick) -> Option<Left<Segment, Page>> {
        // Counted before the look, so that news which come meanwhile find that something is kept. What were missed all
        // the same would be made up for by later ones.
        self.count.fetch_add(1, Ordering::AcqRel);
        self.put(&mut self.waiting.lock(), left, &reached)
    }

    /// Returns the parts whose points are reached after progress of a stream.
    pub fn due(&self, stream: StreamId, reached: impl Fn(StreamId) -> Tick) -> Vec<Left<Segment, Page>> {
        if self.is_empty() {
            return Vec::new();
        }
        let mut waiting = self.waiting.lock();
        let parts = waiting.remove(&stream).unwrap_or_default();
        parts.into_iter().filter_map(|left| self.put(&mut waiting, left, &reached)).collect()
    }

    /// Returns the streams that parts wait for.
    pub fn streams(&self) -> Vec<StreamId> {
        if self.is_empty() { Vec::new() } else { self.waiting.lock().keys().copied().collect() }
    }

    /// Returns all parts whose points are reached. Looks at every part.
    pub fn all_due(&self, reached: impl Fn(StreamId) -> Tick) -> Vec<Left<Segment, Page>> {
        if self.is_empty() {
            return Vec::new();
        }
        let mut waiting = self.waiting.lock();
        let parts = std::mem::take(&mut *waiting).into_values().flatten();
        parts.filter_map(|left| self.put(&mut waiting, left, &reached)).collect()
    }

    /// Puts a part where it waits, or returns it if it waits for nothing.
    fn put(
        &self,
        waiting: &mut BTreeMap<StreamId, Vec<Left<Segment, Page>>>,
        mut left: Left<Segment, Page>,
        reached: impl Fn(StreamId) -> Tick,
    ) -> Option<Left<Segment, Page>> {
        left.points.retain(|point| reached(point.stream) < point.tick);
        match left.points.first() {
            Some(point) => waiting.entry(point.stream).or_default().push(left),
            None => {
                self.count.fetch_sub(1, Ordering::AcqRel);
                return Some(left);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use millpond_backend::Point;

    use super::*;

    fn left(number: u32, points: &[(u32, u64)]) -> Left<u32, ()> {
        let points = points.iter().map(|&(stream, tick)| Point { stream: StreamId(stream), tick: Tick(tick) });
        let mut left = Left::new(points.collect());
        left.segments.push(number);
        left
    }

    fn numbers(due: Vec<Left<u32, ()>>) -> Vec<u32> {
        due.into_iter().flat_map(|left| left.segments).collect()
    }

    #[test]
    fn a_part_is_due_when_every_stream_is_there() {
        let leavings = Leavings::default();
        let at = |ticks: [u64; 2]| move |stream: StreamId| Tick(ticks[stream.0 as usize]);
        assert!(leavings.keep(left(1, &[(0, 5), (1, 7)]), at([5, 7])).is_some(), "nothing to wait for");
        assert!(leavings.is_empty());
        assert!(leavings.keep(left(2, &[(0, 5), (1, 7)]), at([4, 6])).is_none());
        assert!(leavings.keep(left(3, &[(1, 7)]), at([4, 6])).is_none());
        assert_eq!(numbers(leavings.due(StreamId(1), at([4, 6]))), [0; 0]);
        assert_eq!(numbers(leavings.due(StreamId(0), at([5, 6]))), [0; 0], "it waits for the other stream from now on");
        assert_eq!(numbers(leavings.due(StreamId(1), at([5, 7]))), [3, 2]);
        assert!(leavings.is_empty());
    }

    #[test]
    fn all_are_looked_at_where_the_stream_is_not_known() {
        let leavings = Leavings::default();
        let at = |ticks: [u64; 2]| move |stream: StreamId| Tick(ticks[stream.0 as usize]);
        assert!(leavings.keep(left(1, &[(0, 5)]), at([4, 6])).is_none());
        assert!(leavings.keep(left(2, &[(1, 7)]), at([4, 6])).is_none());
        assert_eq!(numbers(leavings.all_due(at([4, 7]))), [2]);
        assert!(!leavings.is_empty());
        assert_eq!(leavings.streams(), [StreamId(0)]);
        assert_eq!(numbers(leavings.all_due(at([5, 7]))), [1]);
        assert!(leavings.is_empty() && leavings.streams().is_empty());
    }
}
