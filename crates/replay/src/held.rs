//! The simulated device, on which work stays in flight until it is told to be done.

use millpond_backend::{Backend, Point, StreamId, Tick};
use millpond_sim::Sim;

use crate::flight::Hold;

/// Work is a busy kernel.
impl Hold for Sim {
    fn begin(&self, stream: StreamId) -> Tick {
        self.busy(stream);
        // What is queued next is covered by a later tick.
        self.mark(stream)
    }

    fn close_late(&self) {
        Sim::close_late(self);
    }

    fn close(&self, point: Point) {
        Sim::close(self, point);
    }

    fn queue(&self, stream: StreamId) {
        self.busy(stream);
    }

    fn force(&self, point: Point) -> Vec<Point> {
        Sim::force(self, point)
    }

    /// A device without a clock stands at 0.
    fn driver_clock(&self) -> u64 {
        Backend::driver_clock(self).unwrap_or_default()
    }

    fn set_time(&self, nanos: u64) {
        Sim::set_time(self, nanos);
    }

    fn finish(&self, point: Point) -> bool {
        // A lost device completes nothing more. The allocator's next call reports it.
        while self.reached(point.stream).is_ok_and(|reached| reached < point.tick) {
            if !self.complete_one(point.stream) {
                return false;
            }
        }
        true
    }
}
