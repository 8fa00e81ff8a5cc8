//! The simulated device as a device under test: the one that can do everything the suite knows how to ask for.

use millpond_backend::{BackendError, Budget, ClassId, Closing, Fault, Reuse, StreamId};
use millpond_sim::{CallKind, Completion, CostModel, Sim};

use crate::device::{DeviceUnderTest, Need, Unavailable};

/// Bytes of the simulated devices of the suite.
const TOTAL_BYTES: u64 = 1 << 30;

/// A simulated device of 1 GiB, of one kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SimDevice {
    closing: Closing,
    reuse: Reuse,
    completion: Completion,
}

impl SimDevice {
    /// A device that closes ticks, promises reuse and completes work in these ways.
    pub const fn new(closing: Closing, reuse: Reuse, completion: Completion) -> Self {
        Self { closing, reuse, completion }
    }

    /// Every kind of device: both ways of closing ticks, all three of reuse, all three of completing work.
    pub fn all() -> Vec<SimDevice> {
        let mut all = Vec::new();
        for closing in [Closing::Backend, Closing::Submit] {
            for reuse in [Reuse::InOrder, Reuse::AfterSubmit, Reuse::AfterDone] {
                for completion in [Completion::Immediate, Completion::Manual, Completion::Seeded(1)] {
                    all.push(Self::new(closing, reuse, completion));
                }
            }
        }
        all
    }
}

impl DeviceUnderTest for SimDevice {
    type Backend = Sim;

    fn name(&self) -> String {
        format!("simulated, closing by {:?}, reuse {:?}, completion {:?}", self.closing, self.reuse, self.completion)
    }

    fn open(&self, need: &Need) -> Result<Sim, Unavailable> {
        let sim = Sim::builder()
            .total_bytes(TOTAL_BYTES)
            .cost(CostModel::free())
            .bytes(need.bytes)
            .closing(self.closing)
            .reuse(self.reuse)
            .completion(self.completion)
            .build();
        Ok(sim)
    }

    fn twin(&self, backend: &Sim) -> Option<Sim> {
        Some(backend.clone())
    }

    fn submit(&self, backend: &Sim, stream: StreamId) {
        if self.closing == Closing::Submit {
            backend.submit(stream);
        }
    }

    fn hold(&self, backend: &Sim, stream: StreamId) -> bool {
        backend.busy(stream);
        true
    }

    fn unhold(&self, backend: &Sim, stream: StreamId) {
        self.submit(backend, stream);
        backend.complete(stream);
    }

    fn advance(&self, backend: &Sim, stream: StreamId) {
        backend.complete_one(stream);
    }

    fn fail_nth(&self, backend: &Sim, nth: u64, fault: Fault) -> bool {
        backend.fail_any(nth, fault);
        true
    }

    fn fallible_calls(&self, backend: &Sim) -> Option<u64> {
        let calls = backend.calls();
        Some(CallKind::ALL.iter().filter(|kind| kind.fallible()).map(|&kind| calls.of(kind)).sum())
    }

    fn held_bytes(&self, backend: &Sim) -> Option<u64> {
        // A fault planned for the allocator may be left over: it strikes once.
        let ask = || Budget::budget(backend, ClassId::DEVICE);
        let info = ask().or_else(|error| if error.fault() == Fault::Lost { Err(error) } else { ask() }).ok()?;
        Some(info.total_bytes - info.free_bytes - info.others_bytes.unwrap_or(0))
    }

    fn violations(&self, backend: &Sim) -> Vec<String> {
        backend.violations().iter().map(ToString::to_string).collect()
    }
}
