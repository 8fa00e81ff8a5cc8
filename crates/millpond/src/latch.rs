//! Who may touch a lane: the flag behind a lane's lock.
//!
//! Every allocation and every free takes a lane's lock, and nearly always nobody else wants it. A lock that parks its
//! waiters must look for them when it opens, which is a second atomic read-modify-write, and on some processors these
//! are half of what a hit costs. So this one opens with a plain store, and whoever waits sees to it alone: turns on the
//! spot, lets other threads run, sleeps a moment, and looks again. A lane is held for well under a microsecond, walks
//! of its blocks excepted; locks that are held longer are the parking ones of [`crate::sync`].

use crate::sync::{AtomicBool, Ordering, Waiters};

/// Held or not.
pub(crate) struct Latch {
    closed: AtomicBool,
    waiters: Waiters,
}

impl Latch {
    pub(crate) fn new() -> Self {
        Self { closed: AtomicBool::new(false), waiters: Waiters::new() }
    }

    /// Takes it, waiting as long as another thread holds it.
    #[inline(always)]
    pub(crate) fn close(&self) {
        if !self.try_close() {
            self.wait();
        }
    }

    /// Takes it unless another thread holds it. Answers whether it did.
    #[inline(always)]
    pub(crate) fn try_close(&self) -> bool {
        self.closed.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// What it takes to give it up. Whoever holds it stores `false` with `Release`, so that what was written meanwhile
    /// is seen by whoever takes it next, and then wakes the waiters. The store may be the end of the latch, and so it
    /// is made where no reference to the latch is an argument: in [`crate::raw`].
    #[inline(always)]
    pub(crate) fn parts(&self) -> (&AtomicBool, Waiters) {
        (&self.closed, self.waiters.clone())
    }

    #[cold]
    #[inline(never)]
    fn wait(&self) {
        self.waiters.wait_until(|| self.try_close());
    }
}
