//! What `fork` leaves to a child of the process: a copy of everything, of which no allocator can be used. The driver
//! does not serve a child with what its parent has opened, and a lock that another thread held stays shut for ever.
//!
//! So the child's copy of the library disowns what it has inherited before `fork` returns there, and a call that names
//! it fails. Calls pay nothing for that. A handler of `fork` runs for `fork` alone: not for `_Fork`, nor for the
//! system's own call.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::code::{Code, Failure};

/// Something that a process begins once, and that its children cannot go on with.
pub(crate) struct Begun {
    here: AtomicBool,
    by_the_parent: AtomicBool,
}

impl Begun {
    const fn new() -> Begun {
        Begun { here: AtomicBool::new(false), by_the_parent: AtomicBool::new(false) }
    }

    /// Notes that this process has begun.
    pub(crate) fn note(&self) {
        self.here.store(true, Ordering::Release);
    }

    /// Returns whether the parent had begun before it forked this process.
    pub(crate) fn is_inherited(&self) -> bool {
        self.by_the_parent.load(Ordering::Acquire)
    }

    /// Fails in a child whose parent had begun.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        if self.is_inherited() { Err(inherited()) } else { Ok(()) }
    }

    /// Notes in a child what its parent had begun. The child's children inherit the same from the child.
    fn pass_on(&self) {
        self.by_the_parent.store(self.here.load(Ordering::Acquire), Ordering::Release);
    }
}

/// The allocators that exist once for each device, for frameworks: noted before the first one is made.
pub(crate) static DEVICES: Begun = Begun::new();

/// CUDA's driver: noted once a device was opened.
pub(crate) static CUDA: Begun = Begun::new();

/// Begins to make the allocators of devices. Fails in a child whose parent had begun.
pub(crate) fn begin_devices() -> Result<(), Failure> {
    DEVICES.check()?;
    watch();
    DEVICES.note();
    Ok(())
}

/// Returns the failure of what belongs to the parent.
#[cold]
pub(crate) fn inherited() -> Failure {
    let text = "this process was forked from one that had made allocators, and a child can use neither their memory \
                nor their driver: fork before the first allocator is made, or start the child anew, with exec (in \
                Python: multiprocessing's `spawn`)";
    Failure::new(Code::BadAllocator, text)
}

/// Has children of this process disown what they inherit. Called before an allocator is made.
#[cfg(unix)]
pub(crate) fn watch() {
    static WATCHED: std::sync::Once = std::sync::Once::new();
    WATCHED.call_once(|| {
        // SAFETY: `child` is a function of this type, and the system forgets it when it unloads the library. Where the
        // host has no memory for one more handler, children are as they are after `_Fork`.
        unsafe { libc::pthread_atfork(None, None, Some(child)) };
    });
}

/// There is no `fork`.
#[cfg(not(unix))]
pub(crate) fn watch() {}

/// Runs in the child before `fork` returns there. Other threads may have held any lock, so it takes none.
#[cfg(unix)]
unsafe extern "C" fn child() {
    crate::handles::disown();
    crate::table::disown();
    DEVICES.pass_on();
    CUDA.pass_on();
}
