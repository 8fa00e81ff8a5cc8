//! The release of spare pages.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::Sweep;
use crate::coordinator::calls::{Batch, Purpose};
use crate::coordinator::phase::{Phase, Turned};
use crate::coordinator::plan::Plan;
use crate::coordinator::step::PageCall;
use crate::coordinator::{Coordinator, Shards};

impl Coordinator {
    /// Releases the spare pages that may go, as many as are to go.
    pub(super) fn release_spare(&mut self, sweep: Sweep, then: Box<Phase>, shards: &mut dyn Shards) -> Turned {
        let (mut calls, mut left) = (Vec::new(), sweep.excess(self.reserved_bytes()));
        for page in self.pages.take_spare() {
            if left == 0 {
                self.pages.put_aside(page);
                continue;
            }
            left = left.saturating_sub(self.pages[page].bytes);
            calls.append(&mut self.calls_to_release(page, shards));
        }
        if calls.is_empty() {
            return Phase::Sweep(sweep, then).turn();
        }
        Phase::call(Batch::new(calls, Purpose::GiveUpSpare { sweep, then }))
    }

    /// Notes that spare pages are released.
    pub(in crate::coordinator) fn spare_released(
        &mut self,
        calls: &[PageCall],
        plan: &mut Plan,
        shards: &mut dyn Shards,
    ) {
        for call in calls {
            if let PageCall::Release { page } = *call {
                let (bytes, side) = (self.pages[page].bytes, self.pages[page].side);
                self.headroom.lose(side, bytes);
            }
        }
        self.pages_released(calls, shards);
        self.note_progress(plan);
    }
}
