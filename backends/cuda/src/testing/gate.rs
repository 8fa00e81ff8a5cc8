//! The gate that keeps a stream's work in flight.

use std::ffi::c_void;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// The longest time that a gate stays closed. After it, everything that waits for a held stream continues, including a
/// driver call that cannot be interrupted.
pub(super) const HOLD_MAX: Duration = Duration::from_secs(30);

/// The place where a host function that is queued on a stream waits.
#[derive(Default)]
pub(super) struct Gate {
    passage: Mutex<Passage>,
    opened: Condvar,
}

#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Passage {
    #[default]
    Closed,
    Open,
    /// The gate expired: it was not opened in time.
    Expired,
}

impl Gate {
    /// Waits until the gate is open, at most for this time.
    fn pass(&self, most: Duration) {
        let deadline = Instant::now() + most;
        let mut passage = self.passage.lock();
        while *passage == Passage::Closed {
            if self.opened.wait_until(&mut passage, deadline).timed_out() && *passage == Passage::Closed {
                *passage = Passage::Expired;
            }
        }
    }

    /// Opens the gate. Returns whether it had expired before.
    pub(super) fn open(&self) -> bool {
        let before = std::mem::replace(&mut *self.passage.lock(), Passage::Open);
        self.opened.notify_all();
        before == Passage::Expired
    }
}

/// The function that the driver calls when the stream reaches a gate.
pub(super) unsafe extern "C" fn pass(gate: *mut c_void) {
    // SAFETY: the pointer is the one that `hold` gave up, and the driver calls this function once.
    let gate = unsafe { Arc::from_raw(gate.cast_const().cast::<Gate>()) };
    gate.pass(HOLD_MAX);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gate_that_nobody_opens_opens_by_itself_and_says_so() {
        let gate = Gate::default();
        gate.pass(Duration::from_millis(5));
        assert!(gate.open(), "it has opened by itself");
        gate.pass(Duration::from_secs(60));
        assert!(!gate.open(), "it was open");
    }
}
