//! The fault plan, and the counts of calls.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use crate::driver::code::{Answer, Code};

struct Planned {
    /// The function that fails, or any that works with a context or with pages.
    function: Option<&'static str>,
    /// The number of calls still to come, including the failing one. At least 1.
    left: u64,
    code: Code,
}

struct Plan {
    planned: Vec<Planned>,
    calls: BTreeMap<&'static str, u64>,
}

static PLAN: Mutex<Plan> = Mutex::new(Plan { planned: Vec::new(), calls: BTreeMap::new() });

/// Counts one call, and fails it if that was planned. If two plans apply to the same call, it has the code of the
/// first.
pub(crate) fn strike(function: &'static str, fallible: bool) -> Answer {
    let mut plan = PLAN.lock();
    *plan.calls.entry(function).or_default() += 1;
    let mut struck = Ok(());
    plan.planned.retain_mut(|planned| {
        if planned.function.map_or(fallible, |only| only == function) {
            planned.left -= 1;
            if planned.left == 0 {
                struck = struck.and(Err(planned.code));
            }
        }
        planned.left > 0
    });
    struck
}

/// Plans one failure.
pub(crate) fn add(function: Option<&'static str>, nth: u64, code: Code) {
    PLAN.lock().planned.push(Planned { function, left: nth.max(1), code });
}

/// Returns how often the function was called.
pub(crate) fn calls(function: &str) -> u64 {
    PLAN.lock().calls.get(function).copied().unwrap_or(0)
}

/// Forgets what was planned and counted.
pub(crate) fn reset() {
    let mut plan = PLAN.lock();
    plan.planned.clear();
    plan.calls.clear();
}
