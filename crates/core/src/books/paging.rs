//! What `paged` remembers about the whole device.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use millpond_backend::{Point, StreamId, Tick};

use super::Windows;
use crate::governor::{Governor, Pace};
use crate::ids::ShardBlock;
use crate::stats::PageStats;

/// What `paged` remembers about the whole device.
#[derive(Clone)]
pub(crate) struct Paging {
    pub(crate) governor: Governor,
    /// How streams share the device.
    pub(crate) pace: Pace,
    pub(crate) windows: Windows,
    pub(crate) waited: Waited,
    /// Addresses that windows have lost, whose pages are being unmapped.
    pub(crate) ending: Vec<ShardBlock>,
    pub(crate) stats: PageStats,
}

impl Paging {
    /// Returns what is remembered at the beginning.
    pub(crate) fn new(governor: Governor) -> Self {
        Self {
            governor,
            pace: Pace::default(),
            windows: Windows::default(),
            waited: Waited::default(),
            ending: Vec::new(),
            stats: PageStats::default(),
        }
    }
}

/// The points that streams have waited for on the device, as no stream waits twice for the same: for each pair of
/// streams the last point of the second that the first has waited for, and the tick of the first that covers that wait.
#[derive(Clone, Debug, Default)]
pub(crate) struct Waited(BTreeMap<(StreamId, StreamId), (Tick, Tick)>);

impl Waited {
    /// Notes that a stream waits for a point. `covered` is a tick of the stream that covers the wait.
    pub(crate) fn note(&mut self, stream: StreamId, point: Point, covered: Tick) {
        let known = self.0.entry((stream, point.stream)).or_default();
        if point.tick >= known.0 {
            *known = (point.tick, covered);
        }
    }

    /// Returns a tick of the stream that covers a wait for the point, if it has waited for it.
    pub(crate) fn covering(&self, stream: StreamId, point: Point) -> Option<Tick> {
        self.0.get(&(stream, point.stream)).filter(|(tick, _)| *tick >= point.tick).map(|&(_, covered)| covered)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_covers_what_came_before_on_the_same_stream() {
        let at = |stream, tick| Point { stream: StreamId(stream), tick: Tick(tick) };
        let mut waited = Waited::default();
        waited.note(StreamId(0), at(1, 5), Tick(9));
        waited.note(StreamId(0), at(1, 3), Tick(11));
        assert_eq!(waited.covering(StreamId(0), at(1, 5)), Some(Tick(9)));
        assert_eq!(waited.covering(StreamId(0), at(1, 6)), None);
        assert_eq!(waited.covering(StreamId(1), at(1, 5)), None);
        assert_eq!(waited.covering(StreamId(0), at(2, 1)), None);
    }
}
