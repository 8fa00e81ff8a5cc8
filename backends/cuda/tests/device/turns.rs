//! Turns: one test at a time uses devices, and a test that hangs ends the program, which names the test.
//!
//! All devices of the process have one driver. It shares its locks and the thread for host functions among them,
//! whether there is one device or there are two. Without turns, one test's free would wait for work that another test
//! holds, under a lock that the other test needs, and one test's wait would invalidate another's capture.

use std::io::Write;
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

/// The longest time that a test may use devices. It is enough where a sanitizer runs with a simulated driver.
const MOST: Duration = Duration::from_secs(300);

static DEVICES: Mutex<()> = Mutex::new(());
static NOW: Mutex<Option<Now>> = Mutex::new(None);

/// The test that has its turn.
struct Now {
    thread: ThreadId,
    test: String,
    since: Instant,
}

/// A test's turn. It lasts until the test's thread ends.
struct Turn(#[expect(dead_code, reason = "it is there to be dropped")] MutexGuard<'static, ()>);

thread_local! {
    static TURN: Turn = Turn(DEVICES.lock().unwrap_or_else(PoisonError::into_inner));
}

fn now() -> MutexGuard<'static, Option<Now>> {
    NOW.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until no other test uses devices. The calling test may use them until its end.
pub(crate) fn take() {
    static WATCH: Once = Once::new();
    WATCH.call_once(|| drop(thread::spawn(watch)));
    TURN.with(|_| ());
    let current = thread::current();
    let test = current.name().unwrap_or("a thread without a name").to_owned();
    // This is set at each call, because one thread may run several tests in sequence.
    *now() = Some(Now { thread: current.id(), test, since: Instant::now() });
}

impl Drop for Turn {
    fn drop(&mut self) {
        *now() = None;
    }
}

/// Returns the message about a test that has used devices for too long, if it has.
fn overdue(now: Option<&Now>, most: Duration) -> Option<String> {
    let Now { test, since, .. } = now.filter(|now| now.since.elapsed() > most)?;
    Some(format!(
        "{test} has had the devices for {:?} and hangs: the program ends, and with it all tests",
        since.elapsed()
    ))
}

/// Ends the program when a test hangs, because a call that waits in the driver cannot be interrupted.
fn watch() {
    loop {
        thread::sleep(Duration::from_secs(1));
        if let Some(said) = overdue(now().as_ref(), MOST) {
            // The printing macros are not used: their output is kept until the test ends.
            let _ = writeln!(std::io::stderr(), "{said}");
            // The program is not left by `exit`, for which the driver may wait, too.
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
