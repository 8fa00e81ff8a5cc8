//! The conformance suite, with virtual memory and without. Every violation that the simulator recorded is a breach.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use millpond_backend::{Fault, StreamId, Tick};
use millpond_conformance::{CudaDevice, DeviceUnderTest, Need, Unavailable};
use millpond_cuda::testing::Cuda;
use millpond_cuda::{Alloc, CudaError};

use crate::machine::control;

/// The device, and the turn of the test that has it: some scenarios take all of its memory for a moment, which others
/// would be refused then.
struct Simulated(CudaDevice, #[expect(dead_code, reason = "it is there to be dropped")] MutexGuard<'static, ()>);

impl Simulated {
    /// Waits until no other test of the suite uses the device.
    fn take(device: CudaDevice) -> Simulated {
        static TURN: Mutex<()> = Mutex::new(());
        control();
        Simulated(device, TURN.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn device(pages: bool) -> Simulated {
    Simulated::take(CudaDevice::new(0).pages(pages))
}

/// Returns the device with segments from the driver's pool.
fn asynchronous() -> Simulated {
    Simulated::take(CudaDevice::new(0).pages(false).alloc(Alloc::Async))
}

impl DeviceUnderTest for Simulated {
    type Backend = Cuda;

    fn name(&self) -> String {
        self.0.name()
    }

    fn open(&self, need: &Need) -> Result<Cuda, Unavailable> {
        let cuda = self.0.open(need)?;
        // What is not held is done at once here. Under each fault several waits of the script end by that alone.
        cuda.set_patience(Duration::from_millis(50));
        Ok(cuda)
    }

    fn requirement(&self) -> Option<&'static str> {
        // The simulator is built with the tests, so nothing may be skipped because it is missing.
        None
    }

    fn twin(&self, backend: &Cuda) -> Option<Cuda> {
        self.0.twin(backend)
    }

    fn hold(&self, backend: &Cuda, stream: StreamId) -> bool {
        self.0.hold(backend, stream)
    }

    fn unhold(&self, backend: &Cuda, stream: StreamId) {
        self.0.unhold(backend, stream);
    }

    fn fail_nth(&self, backend: &Cuda, nth: u64, fault: Fault) -> bool {
        self.0.fail_nth(backend, nth, fault)
    }

    fn forget_faults(&self, backend: &Cuda) {
        self.0.forget_faults(backend);
    }

    fn fallible_calls(&self, backend: &Cuda) -> Option<u64> {
        self.0.fallible_calls(backend)
    }

    fn held_bytes(&self, backend: &Cuda) -> Option<u64> {
        self.0.held_bytes(backend)
    }

    fn budget_follows(&self, backend: &Cuda) -> bool {
        self.0.budget_follows(backend)
    }

    fn reached(backend: &Cuda, stream: StreamId) -> Result<Tick, CudaError> {
        CudaDevice::reached(backend, stream)
    }

    fn violations(&self, _backend: &Cuda) -> Vec<String> {
        control().violations().iter().map(|violation| format!("{violation:?}")).collect()
    }
}

mod with_pages {
    millpond_conformance::conformance_tests!(super::device(true), differences: []);
}

mod without_pages {
    millpond_conformance::conformance_tests!(super::device(false), differences: []);
}

mod asynchronous {
    millpond_conformance::conformance_tests!(super::asynchronous(), differences: []);
}

/// A group is running or paused after each failure of a driver call, with its contents.
#[test]
fn groups_are_paused_and_resumed() {
    let skipped = millpond_conformance::sleep::pause_and_resume(&device(true)).unwrap_or_else(|text| panic!("{text}"));
    assert_eq!(skipped, None);
}
