//! What is done as a process forks: its child disowns what it inherits, before `fork` returns there. Calls pay nothing
//! for that. A handler of `fork` runs for `fork` alone: not for `_Fork`, nor for the system's own call.

use crate::code::Failure;
use crate::fork;
#[cfg(unix)]
use crate::{handles, table::opened};

/// Has children of this process disown what they inherit. Called before an allocator is made.
#[cfg(unix)]
pub(crate) fn start() {
    static WATCHED: std::sync::Once = std::sync::Once::new();
    WATCHED.call_once(|| {
        // SAFETY: `child` is a function of this type, and the system forgets it when it unloads the library. Where the
        // host has no memory for one more handler, children are as they are after `_Fork`.
        unsafe { libc::pthread_atfork(None, None, Some(child)) };
    });
}

/// There is no `fork`.
#[cfg(not(unix))]
pub(crate) fn start() {}

/// Begins to make the allocators of devices. Fails in a child whose parent had begun.
pub(crate) fn begin_devices() -> Result<(), Failure> {
    fork::DEVICES.check()?;
    start();
    fork::DEVICES.note();
    Ok(())
}

/// Runs in the child before `fork` returns there. Other threads may have held any lock, so it takes none.
#[cfg(unix)]
unsafe extern "C" fn child() {
    handles::disown();
    opened::disown();
    fork::pass_on();
}
