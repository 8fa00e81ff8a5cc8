//! How often the suite opens a device to have each of its driver calls fail.

use std::sync::atomic::{AtomicU64, Ordering};

use millpond_backend::{Closing, Fault, Reuse, StreamId};
use millpond_conformance::suite::run_group;
use millpond_conformance::{DeviceUnderTest, Need, Outcome, ScenarioResult, SimDevice, Unavailable};
use millpond_sim::{Completion, Sim};

const INNER: SimDevice = SimDevice::new(Closing::Backend, Reuse::InOrder, Completion::Manual);

/// A simulated device that counts how often it was opened.
#[derive(Default)]
struct Opened {
    times: AtomicU64,
    /// Whether the first run on a device makes a call that no later one makes.
    calls_once: bool,
    /// Whether there is another handle of a device.
    has_twin: bool,
}

impl DeviceUnderTest for Opened {
    type Backend = Sim;

    fn name(&self) -> String {
        "counts how often it was opened".to_owned()
    }

    fn open(&self, need: &Need) -> Result<Sim, Unavailable> {
        self.times.fetch_add(1, Ordering::Relaxed);
        INNER.open(need)
    }

    fn twin(&self, backend: &Sim) -> Option<Sim> {
        if self.has_twin { INNER.twin(backend) } else { None }
    }

    fn hold(&self, backend: &Sim, stream: StreamId) -> bool {
        INNER.hold(backend, stream)
    }

    fn unhold(&self, backend: &Sim, stream: StreamId) {
        INNER.unhold(backend, stream);
    }

    fn fail_nth(&self, backend: &Sim, nth: u64, fault: Fault) -> bool {
        // The call that is made once is the first one, and nothing comes of its failure.
        let nth = nth - u64::from(self.calls_once);
        nth == 0 || INNER.fail_nth(backend, nth, fault)
    }

    fn fallible_calls(&self, backend: &Sim) -> Option<u64> {
        let calls = INNER.fallible_calls(backend)?;
        // The two calls that open streams come before the first run.
        Some(calls + u64::from(self.calls_once && calls > 2))
    }
}

/// Returns how often the device was opened, once all of the group have passed.
fn opened(device: &Opened) -> u64 {
    let results = run_group(device, "faults", &[]);
    let passed = |result: &ScenarioResult| result.outcome == Outcome::Passed;
    assert!(results.len() > 4 && results.iter().all(passed), "{results:?}");
    device.times.load(Ordering::Relaxed)
}

/// Opening takes long on some devices. One that the suite can have another handle of stays open, unless it makes calls
/// once in its life: these would fail in no run.
#[test]
fn a_device_stays_open_while_its_calls_fail() {
    let open = opened(&Opened { has_twin: true, ..Opened::default() });
    let calls_once = opened(&Opened { has_twin: true, calls_once: true, ..Opened::default() });
    let no_twin = opened(&Opened::default());
    // Of three runs for each call only the one that loses the device opens it.
    assert!(no_twin > 2 * open && no_twin < 4 * open, "{no_twin} and {open} times");
    assert!(calls_once > no_twin, "{calls_once} and {no_twin} times");
}
