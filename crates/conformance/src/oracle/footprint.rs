//! The earlier uses of a segment's memory: for each byte, the points after which no work touches it any more.

use std::collections::BTreeMap;

use millpond_backend::Point;

use super::Place;

/// A freed range that has had no tenant since then.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Footprint {
    /// The end in the segment, in bytes. The beginning is its key in the map.
    pub(super) end: u64,
    /// The point that covers everything that its home stream had recorded when it was freed.
    pub(super) home: Point,
    /// The points of other streams: those of recorded streams at the free, and those that the block was used up to.
    pub(super) others: Vec<Point>,
    /// The place where the page began while it was used. Only the account by page has it.
    pub(super) at: Option<Place>,
}

impl Footprint {
    /// Returns all points of the footprint.
    pub(super) fn points(&self) -> impl Iterator<Item = Point> + '_ {
        std::iter::once(self.home).chain(self.others.iter().copied())
    }
}

/// The footprints of one segment by their beginning. They do not overlap.
#[derive(Default)]
pub(super) struct Ground(BTreeMap<u64, Footprint>);

impl Ground {
    /// Adds the footprint of a tenant that leaves. Its bytes hold no other footprint, because its grant has removed
    /// them.
    pub(super) fn put(&mut self, begin: u64, footprint: Footprint) {
        let before = self.0.range(..footprint.end).next_back();
        assert!(
            before.is_none_or(|(_, other)| other.end <= begin),
            "bytes {begin}..{} were freed twice: {before:?}",
            footprint.end
        );
        self.0.insert(begin, footprint);
    }

    /// Removes what lies in a span and returns it, each part with its beginning. Parts outside of the span stay.
    pub(super) fn cut(&mut self, begin: u64, end: u64) -> Vec<(u64, Footprint)> {
        let touches = |(&start, other): (&u64, &Footprint)| (other.end > begin).then_some(start);
        let mut keys: Vec<u64> = self.0.range(begin..end).map(|(&start, _)| start).collect();
        keys.extend(self.0.range(..begin).next_back().and_then(touches));
        let mut out = Vec::with_capacity(keys.len());
        for start in keys {
            let Some(footprint) = self.0.remove(&start) else { continue };
            if start < begin {
                self.0.insert(start, Footprint { end: begin, ..footprint.clone() });
            }
            if footprint.end > end {
                self.0.insert(end, footprint.clone());
            }
            out.push((start.max(begin), Footprint { end: footprint.end.min(end), ..footprint }));
        }
        out
    }

    /// Removes what lies outside of some spans (sorted and apart) and returns it, each part with its beginning.
    pub(super) fn keep_only(&mut self, spans: &[(u64, u64)]) -> Vec<(u64, Footprint)> {
        let mut gone = Vec::new();
        let mut begin = 0;
        for &(start, stop) in spans.iter().chain(&[(u64::MAX, u64::MAX)]) {
            if begin < start && self.0.range(..start).next_back().is_some_and(|(_, last)| last.end > begin) {
                gone.extend(self.cut(begin, start));
            }
            begin = stop;
        }
        gone
    }
}
