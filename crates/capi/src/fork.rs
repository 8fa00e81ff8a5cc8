//! What `fork` leaves to a child of the process: a copy of everything, of which no allocator can be used. The driver
//! does not serve a child with what its parent has opened, and a lock that another thread held stays shut for ever.
//!
//! So the child's copy of the library disowns what it has inherited, and a call that names it fails. This file has what
//! the process and its parent have begun, and knows no allocator; [`watch`](crate::watch) has the child disown them.

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

/// Returns the failure of what belongs to the parent.
#[cold]
pub(crate) fn inherited() -> Failure {
    let text = "this process was forked from one that had made allocators, and a child can use neither their memory \
                nor their driver: fork before the first allocator is made, or start the child anew, with exec (in \
                Python: multiprocessing's `spawn`)";
    Failure::new(Code::BadAllocator, text)
}

/// Notes in a child what its parent had begun, of all that there is.
pub(crate) fn pass_on() {
    DEVICES.pass_on();
    CUDA.pass_on();
}
