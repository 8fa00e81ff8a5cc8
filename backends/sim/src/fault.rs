//! The fault plan: which of the coming driver calls shall fail.

use std::sync::atomic::{AtomicBool, Ordering};

use millpond_backend::Fault;
use parking_lot::Mutex;

use crate::CallKind;

/// One planned failure.
struct Planned {
    /// The kind it waits for, or any fallible kind.
    kind: Option<CallKind>,
    /// Calls still to come, the failing one included. Never 0.
    left: u64,
    fault: Fault,
}

/// All planned failures. Costs one atomic load per driver call while nothing is planned.
pub(crate) struct FaultPlan {
    /// Whether `planned` holds anything; lets the common case skip the lock.
    armed: AtomicBool,
    planned: Mutex<Vec<Planned>>,
}

impl FaultPlan {
    pub(crate) fn new() -> FaultPlan {
        FaultPlan { armed: AtomicBool::new(false), planned: Mutex::new(Vec::new()) }
    }

    /// Plans one failure.
    ///
    /// # Panics
    ///
    /// If `nth` is 0, or calls of the kind cannot fail.
    pub(crate) fn add(&self, kind: Option<CallKind>, nth: u64, fault: Fault) {
        assert!(nth > 0, "calls are counted from 1: call 0 cannot fail");
        if let Some(kind) = kind {
            assert!(kind.fallible(), "{kind} cannot fail: the contract gives it no error");
        }
        let mut planned = self.planned.lock();
        planned.push(Planned { kind, left: nth, fault });
        self.armed.store(true, Ordering::Release);
    }

    /// Counts one fallible call, and returns the fault if one was planned for it. Two plans for the same call strike
    /// once, with the fault planned first.
    pub(crate) fn strike(&self, kind: CallKind) -> Option<Fault> {
        if !self.armed.load(Ordering::Acquire) {
            return None;
        }
        let mut struck = None;
        let mut planned = self.planned.lock();
        planned.retain_mut(|plan| {
            if plan.kind.is_some_and(|only| only != kind) {
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
}
