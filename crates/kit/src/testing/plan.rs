//! Planned failures: the coming driver calls that are to fail, for tests of what is built on a backend.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use millpond_backend::Fault;
use thiserror::Error;

/// The error of a call that failed because a test planned it. Backends embed it in their own error.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("planned fault in {call}: {fault:?}")]
pub struct Planned {
    /// The call that failed.
    pub call: &'static str,
    /// The kind of failure that was planned.
    pub fault: Fault,
}

/// One failure that is still to come.
struct Coming<K> {
    /// The kind of call that is to fail, or `None` for any.
    kind: Option<K>,
    /// The number of calls until the failing one, which is included. Never 0.
    left: u64,
    fault: Fault,
}

/// The failures that a test has planned, and the number of fallible driver calls so far. A backend asks it before each
/// of them, which costs two atomic operations while nothing is planned. `K` distinguishes calls where a backend needs
/// that.
pub struct FaultPlan<K = ()> {
    calls: AtomicU64,
    /// Whether `planned` holds anything, so that the common case can skip the lock.
    armed: AtomicBool,
    planned: Mutex<Vec<Coming<K>>>,
}

impl<K> Default for FaultPlan<K> {
    fn default() -> Self {
        Self { calls: AtomicU64::new(0), armed: AtomicBool::new(false), planned: Mutex::new(Vec::new()) }
    }
}

impl<K: PartialEq> FaultPlan<K> {
    /// Plans that the `nth` call of the kind, or of any kind, counted from 1 and from now, fails with that fault.
    ///
    /// # Panics
    ///
    /// Panics if `nth` is 0.
    pub fn add(&self, kind: Option<K>, nth: u64, fault: Fault) {
        assert!(nth > 0, "calls are counted from 1: call 0 cannot fail");
        let mut planned = self.planned();
        planned.push(Coming { kind, left: nth, fault });
        self.armed.store(true, Ordering::Release);
    }

    /// Removes the failures that have not happened yet. The number of calls that a program makes depends on how fast
    /// the device is, so a plan may outlive the program that it was made for.
    pub fn forget(&self) {
        let mut planned = self.planned();
        planned.clear();
        self.armed.store(false, Ordering::Release);
    }

    /// Counts one fallible call, and returns the fault if one was planned for it. If two were planned for the same
    /// call, it fails once, with the fault that was planned first.
    pub fn strike(&self, kind: &K) -> Option<Fault> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        if !self.armed.load(Ordering::Acquire) {
            return None;
        }
        let mut struck = None;
        let mut planned = self.planned();
        planned.retain_mut(|plan| {
            if plan.kind.as_ref().is_some_and(|only| only != kind) {
                return true;
            }
            plan.left -= 1;
            if plan.left == 0 {
                struck = struck.or(Some(plan.fault));
            }
            plan.left > 0
        });
        self.armed.store(!planned.is_empty(), Ordering::Release);
        struck
    }

    /// Returns the number of fallible driver calls so far.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Locks the list. A test that panicked with the lock has left the list complete.
    fn planned(&self) -> MutexGuard<'_, Vec<Coming<K>>> {
        self.planned.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_plan_for_a_call_strikes_and_the_others_are_used_up() {
        let plan = FaultPlan::default();
        plan.add(Some('a'), 2, Fault::OutOfMemory);
        plan.add(None, 3, Fault::Lost);
        plan.add(None, 3, Fault::Other);
        let struck: [Option<Fault>; 4] = ['a', 'b', 'a', 'a'].map(|kind| plan.strike(&kind));
        assert_eq!(struck, [None, None, Some(Fault::OutOfMemory), None]);
        assert_eq!(plan.calls(), 4);
    }

    #[test]
    fn what_is_forgotten_does_not_strike() {
        let plan = FaultPlan::default();
        plan.add(None, 1, Fault::Other);
        plan.forget();
        assert_eq!([plan.strike(&()), plan.strike(&())], [None, None]);
    }

    #[test]
    fn the_error_names_the_call_and_the_fault() {
        let planned = Planned { call: "cuMemMap", fault: Fault::OutOfMemory };
        assert_eq!(planned.to_string(), "planned fault in cuMemMap: OutOfMemory");
    }

    #[test]
    #[should_panic(expected = "call 0 cannot fail")]
    fn there_is_no_call_0() {
        FaultPlan::<()>::default().add(None, 0, Fault::Other);
    }
}
