//! What former tenants left on a segment: for each byte, the points after which nobody touches it any more.

use std::collections::BTreeMap;

use millpond_backend::Point;

use super::Place;

/// A freed range that has had no tenant since.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Footprint {
    /// Where it ends in the segment, in bytes. It begins at its key.
    pub(super) end: u64,
    /// Everything that its home stream had recorded when it was freed.
    pub(super) home: Point,
    /// The same of other streams that used it, and the points that it was used up to.
    pub(super) others: Vec<Point>,
    /// In the account by page: where the page began while it was used.
    pub(super) at: Option<Place>,
}

impl Footprint {
    /// Every point that counts.
    pub(super) fn points(&self) -> impl Iterator<Item = Point> + '_ {
        std::iter::once(self.home).chain(self.others.iter().copied())
    }
}

/// The footprints of one segment by their beginning. They do not overlap.
#[derive(Default)]
pub(super) struct Ground(BTreeMap<u64, Footprint>);

impl Ground {
    /// A tenant leaves. Its bytes hold no footprint, as its grant has cut them out.
    pub(super) fn put(&mut self, begin: u64, footprint: Footprint) {
        let before = self.0.range(..footprint.end).next_back();
        assert!(
            before.is_none_or(|(_, other)| other.end <= begin),
            "bytes {begin}..{} were freed twice: {before:?}",
            footprint.end
        );
        self.0.insert(begin, footprint);
    }

    /// Takes out what lies in a span and answers it; what reaches beyond stays.
    pub(super) fn cut(&mut self, begin: u64, end: u64) -> Vec<Footprint> {
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
            out.push(footprint);
        }
        out
    }

    /// Takes out what lies outside of some spans (sorted, apart) and answers it with where it begins.
    pub(super) fn keep_only(&mut self, spans: &[(u64, u64)]) -> Vec<(u64, Footprint)> {
        let mut gone = Vec::new();
        let mut begin = 0;
        for &(start, stop) in spans.iter().chain(&[(u64::MAX, u64::MAX)]) {
            if begin < start && self.0.range(..start).next_back().is_some_and(|(_, last)| last.end > begin) {
                gone.extend(self.cut(begin, start).into_iter().map(|footprint| (begin, footprint)));
            }
            begin = stop;
        }
        gone
    }
}
