//! The simulated device.

use millpond_any::options::SimOptions;
use millpond_backend::{Backend as _, Closing};
use millpond_conformance::{SimDevice, Tested, suite};

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
        Ok(Opened { work: Some(Work::Held(Box::new(sim.clone()))), ..Opened::new(sim) })
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
