//! Ctrl-C: a command that runs for long prints what there is so far and exits with 130.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::failure::Failure;

static PRESSED: AtomicBool = AtomicBool::new(false);

/// Has the first Ctrl-C note that the command is to end, where it looks at [`is_pressed`]. The second one ends the
/// process at once, as the first does without this.
///
/// On a system without signals that can be caught, nothing changes.
pub(crate) fn catch() {
    let pressed = || {
        if PRESSED.swap(true, Ordering::Relaxed) {
            std::process::exit(i32::from(EXIT_CODE));
        }
    };
    // The only error is that there is a handler already: whoever set it decides what happens.
    let _ = ctrlc::set_handler(pressed);
}

/// The exit code of a command that was ended by Ctrl-C: 128 and the number of the signal.
pub(crate) const EXIT_CODE: u8 = 130;

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
