//! What other streams did through windows, and may not be done with: a window stays mapped until then.
//!
//! The memory behind a part of a window goes home as soon as the part is freed, guarded by the points of these streams.
//! Whoever gets it there waits for them on the device, and may be done before the host knows that they are reached.

use alloc::vec::Vec;

use millpond_backend::Point;

use super::Shard;
use crate::books::Points;
use crate::ids::{BlockId, Slot};

/// A part of a window that other streams have used.
#[derive(Debug)]
struct Use {
    slot: Slot,
    begin: u64,
    end: u64,
    points: Points,
}

/// The parts of a shard's windows that other streams have used up to points that are not known to be reached.
#[derive(Default)]
pub(super) struct Abroad(Vec<Use>);

impl Abroad {
    /// Notes that the bytes between two offsets were used up to these points.
    pub(super) fn note(&mut self, slot: Slot, (begin, end): (u64, u64), points: Points) {
        if !points.is_empty() {
            self.0.push(Use { slot, begin, end, points });
        }
    }

    /// Forgets what is over.
    pub(super) fn prune(&mut self, is_reached: impl Fn(Point) -> bool) {
        self.0.retain(|part| !part.points.iter().all(&is_reached));
    }

    fn over(&self, slot: Slot, (begin, end): (u64, u64)) -> impl Iterator<Item = Point> {
        let inside = self.0.iter().filter(move |part| part.slot == slot && part.begin < end && begin < part.end);
        inside.flat_map(|part| part.points.iter())
    }
}

impl Shard {
    /// Returns the points up to which some bytes of the window that begins with `head` were used there, by its own
    /// stream and by others. All of the bytes are in one block.
    pub(crate) fn window_points(&self, head: BlockId, slot: Slot, range: (u64, u64)) -> Points {
        core::iter::once(self.window_point(head, range.0)).chain(self.abroad.over(slot, range)).collect()
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::vec::Vec;

    use millpond_backend::{StreamId, Tick};

    use super::*;

    #[test]
    fn a_use_is_known_for_its_bytes_until_it_is_over() {
        let at = |stream, tick| Point { stream: StreamId(stream), tick: Tick(tick) };
        let mut abroad = Abroad::default();
        abroad.note(Slot(1), (10, 20), [at(1, 5), at(2, 7)].into_iter().collect());
        abroad.note(Slot(1), (20, 30), Points::default());
        abroad.note(Slot(2), (10, 20), [at(3, 1)].into_iter().collect());
        let over = |abroad: &Abroad, range| abroad.over(Slot(1), range).collect::<Vec<_>>();
        assert_eq!(over(&abroad, (19, 25)), [at(1, 5), at(2, 7)]);
        assert_eq!((over(&abroad, (0, 10)), over(&abroad, (20, 40))), ([].into(), [].into()));
        abroad.prune(|point| point.stream != StreamId(2));
        assert_eq!((over(&abroad, (0, 40)), abroad.0.len()), ([at(1, 5), at(2, 7)].into(), 1));
        abroad.prune(|_| true);
        assert_eq!(over(&abroad, (0, 40)), []);
    }
}
