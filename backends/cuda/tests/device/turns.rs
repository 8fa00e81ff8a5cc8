//! Turns: one test at a time has devices, and a test that hangs ends the program, which says which test it was.
//!
//! All devices of the process have one driver, which shares locks and the thread for functions of the host among them,
//! whether there is one device or there are two: one test's free would wait for what another holds, with a lock that
//! the holder needs, and one test's wait would spoil another's capture.

use std::io::Write;
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

/// No test has devices for so long, also where a simulated driver is watched by a sanitizer.
const MOST: Duration = Duration::from_secs(300);

static DEVICES: Mutex<()> = Mutex::new(());
static NOW: Mutex<Option<Now>> = Mutex::new(None);

/// Whose turn it is.
struct Now {
    thread: ThreadId,
    test: String,
    since: Instant,
}

/// A test's turn, until its thread ends.
struct Turn(#[expect(dead_code, reason = "it is there to be dropped")] MutexGuard<'static, ()>);

thread_local! {
    static TURN: Turn = Turn(DEVICES.lock().unwrap_or_else(PoisonError::into_inner));
}

fn now() -> MutexGuard<'static, Option<Now>> {
    NOW.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until no other test has devices. This one has them from now until its end.
pub(crate) fn take() {
    static WATCH: Once = Once::new();
    WATCH.call_once(|| drop(thread::spawn(watch)));
    TURN.with(|_| ());
    let current = thread::current();
    let test = current.name().unwrap_or("a thread without a name").to_owned();
    // Anew each time: one thread may run one test after the other.
    *now() = Some(Now { thread: current.id(), test, since: Instant::now() });
}

impl Drop for Turn {
    fn drop(&mut self) {
        *now() = None;
    }
}

/// What there is to say of a test that has had devices for too long.
fn overdue(now: Option<&Now>, most: Duration) -> Option<String> {
    let Now { test, since, .. } = now.filter(|now| now.since.elapsed() > most)?;
    Some(format!(
        "{test} has had the devices for {:?} and hangs: the program ends, and with it all tests",
        since.elapsed()
    ))
}

/// Ends the program when a test hangs: a call that waits in the driver cannot be interrupted.
fn watch() {
    loop {
        thread::sleep(Duration::from_secs(1));
        if let Some(said) = overdue(now().as_ref(), MOST) {
            // Not by a macro: what those print is kept until the test ends.
            let _ = writeln!(std::io::stderr(), "{said}");
            // Not by an exit, for which the driver may wait, too.
            std::process::abort();
        }
    }
}

#[test]
fn a_test_of_two_devices_takes_its_turn_as_all_others_do() {
    if crate::lab::two_devices().is_some() {
        assert_eq!(now().as_ref().map(|now| now.thread), Some(thread::current().id()));
    }
}

#[test]
fn a_test_that_hangs_is_named() {
    let now = Now { thread: thread::current().id(), test: "peers::one".to_owned(), since: Instant::now() };
    assert_eq!(overdue(Some(&now), MOST), None);
    assert_eq!(overdue(None, Duration::ZERO), None);
    thread::sleep(Duration::from_millis(2));
    let said = overdue(Some(&now), Duration::from_millis(1)).expect("it is over time");
    assert!(said.starts_with("peers::one has had the devices for"), "{said}");
}
