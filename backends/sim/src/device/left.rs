//! What dropped allocators leave, until no work may touch it.

use millpond_backend::{Backend, Left, StreamId, Tick, VirtualMemory};

use super::Sim;
use crate::space::segment::{Page, Segment};

impl Sim {
    /// Implements `leave`. All work is recorded through the device, so what none of it touches goes back at once.
    pub(super) fn take_left(&self, mut left: Left<Segment, Page>) {
        let is_used = {
            let _state = self.device.state();
            let space = self.device.memory.space();
            let pages = left.pages.iter().map(|page| page.page.physical);
            let mut all = left.segments.iter().filter_map(|segment| segment.physical).chain(pages);
            all.any(|physical| !space.users(physical).is_empty())
        };
        if !is_used {
            left.points.clear();
        }
        if let Some(due) = self.device.leavings.keep(left, |stream| self.known(stream)) {
            self.give_back(due);
        }
    }

    /// Gives back what a stream's progress has made due.
    pub(super) fn give_back_of(&self, stream: StreamId) {
        let due = self.device.leavings.due(stream, |stream| self.known(stream));
        due.into_iter().for_each(|left| self.give_back(left));
    }

    /// Gives back everything that is due.
    pub(super) fn give_back_due(&self) {
        let due = self.device.leavings.all_due(|stream| self.known(stream));
        due.into_iter().for_each(|left| self.give_back(left));
    }

    fn known(&self, stream: StreamId) -> Tick {
        self.device.lane(stream).clock.reached()
    }

    /// Gives memory back that no work touches any more.
    fn give_back(&self, left: Left<Segment, Page>) {
        let Left { segments, ranges, pages, .. } = left;
        for page in pages {
            for at in page.mapped {
                // SAFETY: whoever left it has said that it is mapped there, and no work touches it.
                unsafe { self.unmap(&ranges[at.range], at.offset, &page.page, at.stream) };
            }
            // SAFETY: it is mapped nowhere now.
            unsafe { self.release_page(page.page) };
        }
        for range in ranges {
            // SAFETY: nothing is mapped in it now.
            unsafe { self.release_range(range) };
        }
        for segment in segments {
            // SAFETY: no work touches it.
            unsafe { self.release(segment) };
        }
    }
}
