//! Calls that are stopped until a test lets them go on.

use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

struct Stop {
    id: u64,
    function: &'static str,
    /// The number of calls still to come, including the one that is stopped; 0 once that has arrived.
    left: u64,
}

struct Stops {
    stops: Vec<Stop>,
    numbers: u64,
}

static STOPS: Mutex<Stops> = Mutex::new(Stops { stops: Vec::new(), numbers: 0 });

/// Wakes the calls that are stopped, and the tests that wait for a call to arrive.
static CHANGED: Condvar = Condvar::new();

/// Counts a call, and blocks it for as long as a test has stopped it. The caller holds no lock of the driver.
pub(crate) fn stand(function: &'static str) {
    let mut all = STOPS.lock();
    let mut here = Vec::new();
    for stop in all.stops.iter_mut().filter(|stop| stop.function == function && stop.left > 0) {
        stop.left -= 1;
        if stop.left == 0 {
            here.push(stop.id);
        }
    }
    if here.is_empty() {
        return;
    }
    CHANGED.notify_all();
    CHANGED.wait_while(&mut all, |all| all.stops.iter().any(|stop| here.contains(&stop.id)));
}

/// Stops the `nth` coming call of a function. Returns the number of the stop.
pub(crate) fn add(function: &'static str, nth: u64) -> u64 {
    let mut all = STOPS.lock();
    all.numbers += 1;
    let id = all.numbers;
    all.stops.push(Stop { id, function, left: nth.max(1) });
    id
}

/// Waits until the call has arrived. Returns whether it has arrived in time.
pub(crate) fn arrived(id: u64, patience: Duration) -> bool {
    let deadline = Instant::now() + patience;
    let mut all = STOPS.lock();
    let to_come = |all: &mut Stops| all.stops.iter().any(|stop| stop.id == id && stop.left > 0);
    CHANGED.wait_while_until(&mut all, to_come, deadline);
    !to_come(&mut all)
}

/// Lets a call go on, or arrive without being stopped.
pub(crate) fn go_on(id: u64) {
    STOPS.lock().stops.retain(|stop| stop.id != id);
    CHANGED.notify_all();
}

/// Lets all calls go on.
pub(crate) fn reset() {
    STOPS.lock().stops.clear();
    CHANGED.notify_all();
}
