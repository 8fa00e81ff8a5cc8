//! The simulated device.

use millpond_any::options::SimOptions;
use millpond_backend::{Backend as _, Closing, Point, StreamId, Tick};
use millpond_conformance::{SimDevice, Tested, suite};
use millpond_replay::Hold;
use millpond_sim::Sim;

use super::{Choice, Device, Found, Opened, Peer, Recorded, Work};
use crate::failure::Failure;

impl Choice for SimOptions {
    const HELP: &'static str = "\
The simulated device, sim, takes options (defaults in parentheses):
  bytes=SIZE: its memory (an H200's 139.80 GiB)
  reuse=in-order|after-done: when freed memory serves its stream again (in-order)
  pages=SIZE|none: granularity of its virtual memory (2MiB)
  cost=h200|h200-vulkan|free: what driver calls cost on its clock (h200)
  completion=at-once|random:SEED: when queued work is done (at-once)
  contents=kept|none: whether written bytes are kept (kept)";

    fn find() -> Found {
        Found::Devices(vec![Ok(Device::of("sim", &Self::default().open()))])
    }

    fn index(&self) -> Option<usize> {
        None
    }

    fn driver(&self) -> Option<String> {
        None
    }

    fn opened(&self, recorded: &Recorded<'_>) -> Result<Opened, Failure> {
        let mut builder = self.builder();
        if recorded.has_submits {
            builder = builder.closing(Closing::Submit);
        }
        if let (Some(address_bytes), Some(pages)) = (recorded.address_bytes, self.open().caps().pages) {
            builder = builder.pages(Some(pages.with_address_bytes(address_bytes)));
        }
        let sim = builder.build();
        sim.expect_segments(recorded.segments);
        Ok(Opened { work: Some(Work::Held(Box::new(Held(sim.clone())))), ..Opened::new(sim) })
    }

    fn peers(&self) -> Result<Vec<Peer>, Failure> {
        Ok(Vec::new())
    }

    /// The device has the memory that was chosen, and is otherwise the suite's own.
    fn tested(&self) -> Result<Tested, Failure> {
        Ok(Tested::Sim(SimDevice::immediate(self.open().caps().classes[0].total_bytes)))
    }

    fn each_kind(&self) -> Result<Vec<Tested>, Failure> {
        if *self != Self::default() {
            return Err(Failure::Input(
                "the suite makes simulated devices of every kind itself; give `--device sim` without options".into(),
            ));
        }
        Ok(suite::sim_devices().into_iter().map(Tested::Sim).collect())
    }
}

/// A device that holds busy kernels.
struct Held(Sim);

impl Hold for Held {
    fn begin(&self, stream: StreamId) -> Tick {
        self.0.busy(stream);
        // What is queued next is covered by a later tick.
        self.0.mark(stream)
    }

    fn close_late(&self) {
        self.0.close_late();
    }

    fn close(&self, point: Point) {
        self.0.close(point);
    }

    fn queue(&self, stream: StreamId) {
        self.0.busy(stream);
    }

    fn force(&self, point: Point) -> Vec<Point> {
        self.0.force(point)
    }

    fn driver_clock(&self) -> u64 {
        self.0.driver_clock().unwrap_or_default()
    }

    fn set_time(&self, nanos: u64) {
        self.0.set_time(nanos);
    }

    fn finish(&self, point: Point) -> bool {
        loop {
            // A lost device completes nothing more; the allocator's next call reports it.
            match self.0.reached(point.stream) {
                Ok(reached) if reached < point.tick => {}
                _ => return true,
            }
            if !self.0.complete_one(point.stream) {
                return false;
            }
        }
    }
}
