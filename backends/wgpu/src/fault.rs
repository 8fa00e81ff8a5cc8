//! Planned faults: a testing aid that makes driver calls fail that would not.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use millpond_backend::Fault;
use parking_lot::Mutex;

use crate::device::Shared;
use crate::{Wgpu, WgpuError};

/// The planned failures, and how many fallible driver calls there were.
#[derive(Default)]
pub(crate) struct FaultPlan {
    calls: AtomicU64,
    /// Whether `planned` holds anything; lets the common case skip the lock.
    armed: AtomicBool,
    /// For each failure the calls still to come, the failing one included.
    planned: Mutex<Vec<(u64, Fault)>>,
}

impl FaultPlan {
    fn strike(&self) -> Option<Fault> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        if !self.armed.load(Ordering::Acquire) {
            return None;
        }
        let mut planned = self.planned.lock();
        let mut struck = None;
        planned.retain_mut(|(left, fault)| {
            *left -= 1;
            if *left == 0 {
                struck = struck.or(Some(*fault));
            }
            *left > 0
        });
        self.armed.store(!planned.is_empty(), Ordering::Release);
        struck
    }
}

impl Shared {
    /// Before each fallible call: fails if the device is lost, or if a test planned it.
    pub(crate) fn enter(&self, call: &'static str) -> Result<(), WgpuError> {
        self.alive()?;
        let Some(fault) = self.faults.strike() else { return Ok(()) };
        if fault == Fault::Lost {
            self.loss.note("a planned fault took it");
        }
        Err(WgpuError::Planned { call, fault })
    }
}

/// Aids for testing what stands on this backend.
impl Wgpu {
    /// Plans that the `nth` fallible driver call, counted from 1 and from now, fails with that fault and does nothing.
    /// [`Fault::Lost`] loses the device for good, as far as this backend is concerned. Calls that cannot fail are not
    /// counted, nor are submits, nor questions that are answered from memory.
    ///
    /// # Panics
    ///
    /// If `nth` is 0.
    pub fn fail_nth(&self, nth: u64, fault: Fault) {
        assert!(nth > 0, "calls are counted from 1: call 0 cannot fail");
        let plan = &self.shared.faults;
        let mut planned = plan.planned.lock();
        planned.push((nth, fault));
        plan.armed.store(true, Ordering::Release);
    }

    /// Forgets all failures that were planned and have not struck. How many calls a program makes depends on how fast
    /// the device is, so a plan may outlive the program it was made for.
    pub fn forget_faults(&self) {
        let plan = &self.shared.faults;
        let mut planned = plan.planned.lock();
        planned.clear();
        plan.armed.store(false, Ordering::Release);
    }

    /// How many fallible driver calls were made so far, as [`fail_nth`](Wgpu::fail_nth) counts them.
    pub fn fallible_calls(&self) -> u64 {
        self.shared.faults.calls.load(Ordering::Relaxed)
    }
}
