//! Signals that end the command: Ctrl-C has a command that runs for long print what there is so far and exit with 130,
//! and whatever ends a command leaves no file that it has written in part.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::failure::{Failure, INTERRUPTED};

static PRESSED: AtomicBool = AtomicBool::new(false);
static CAUGHT: AtomicBool = AtomicBool::new(false);

/// Has signals that end the process remove what was written in part. It is called once, at the beginning.
///
/// On a system without signals that can be caught, nothing changes.
#[cfg(unix)]
pub(crate) fn watch() {
    use signal_hook::consts::{
        SIGALRM, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGVTALRM, SIGXCPU, SIGXFSZ,
    };
    use signal_hook::iterator::Signals;
    let ignored = ignored();
    let is_ignored = move |signal: i32| ignored >> (signal - 1) & 1 == 1;
    let ending = [SIGTERM, SIGHUP, SIGQUIT, SIGALRM, SIGVTALRM, SIGXCPU, SIGUSR1, SIGUSR2];
    let ending = ending.into_iter().filter(|signal| !is_ignored(*signal));
    // A file beyond the limit of its size is an error of the write like a full disk. Its signal has nothing to do.
    let Ok(mut signals) = Signals::new(ending.chain([SIGINT, SIGXFSZ])) else { return };
    let wait = move || {
        for signal in signals.forever() {
            match signal {
                SIGXFSZ => {}
                SIGINT if CAUGHT.load(Ordering::Relaxed) => pressed(),
                SIGINT if is_ignored(SIGINT) => {}
                signal => end(signal),
            }
        }
    };
    // Without the thread the signals would have no effect at all, so there has to be one.
    if let Err(error) = std::thread::Builder::new().name("signals".into()).spawn(wait) {
        panic!("the system has no thread for signals: {error}");
    }
}

#[cfg(not(unix))]
pub(crate) fn watch() {}

/// Returns a bit for each signal that whoever started the process has it ignore, as `nohup` does.
#[cfg(unix)]
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

#[cfg(unix)]
fn pressed() {
    if PRESSED.swap(true, Ordering::Relaxed) {
        millpond_trace::remove_unfinished_files();
        std::process::exit(i32::from(INTERRUPTED));
    }
}

/// Ends the process as the signal does by itself.
#[cfg(unix)]
fn end(signal: i32) {
    millpond_trace::remove_unfinished_files();
    let _ = signal_hook::low_level::emulate_default_handler(signal);
    std::process::exit(128 + signal);
}

/// Has the first Ctrl-C note that the command is to end, where it looks at [`is_pressed`]. The second one ends the
/// process at once, as the first does without this.
pub(crate) fn catch() {
    CAUGHT.store(true, Ordering::Relaxed);
}

/// Returns whether Ctrl-C was pressed.
pub(crate) fn is_pressed() -> bool {
    PRESSED.load(Ordering::Relaxed)
}

/// Returns what is true once Ctrl-C was pressed.
pub(crate) fn flag() -> &'static AtomicBool {
    &PRESSED
}

/// Returns the failure of a command that ended early because of Ctrl-C.
///
/// # Errors
///
/// Returns [`Failure::Interrupted`] if it was pressed.
pub(crate) fn check() -> Result<(), Failure> {
    if is_pressed() { Err(Failure::Interrupted) } else { Ok(()) }
}
