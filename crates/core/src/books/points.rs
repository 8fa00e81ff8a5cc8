//! Points of several streams: at most one of each.

use alloc::vec::Vec;

use millpond_backend::{Point, StreamId, Tick};

/// A set of points with at most one of each stream, in the order in which the streams came.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Points(Vec<Point>);

impl Points {
    /// Adds a point: of two of one stream the later one stays.
    pub fn max(&mut self, point: Point) {
        self.add(point, Tick::max);
    }

    /// Adds a point: of two of one stream the earlier one stays.
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
