//! The flag behind a lane's lock.
//!
//! Every allocation and every free takes a lane's lock, and almost always no other thread needs it. A lock that parks
//! its waiters must look for them when it opens, which is a second atomic read-modify-write, and on some processors
//! these two operations are half of the cost of a hit. So this one opens with a plain store, and waiting threads need
//! no wake-up: they spin, yield to other threads, sleep briefly, and try again. A lane is held for well under a
//! microsecond, except for walks over its blocks. Locks that are held longer are the parking ones of [`crate::sync`].

use crate::sync::{AtomicBool, Ordering, Waiters};

/// A flag that is held by one thread or by none.
pub(crate) struct Latch {
    closed: AtomicBool,
    waiters: Waiters,
}

impl Latch {
    pub(crate) fn new() -> Self {
        Self { closed: AtomicBool::new(false), waiters: Waiters::new() }
    }

    /// Takes the latch, and waits as long as another thread holds it.
    #[inline(always)]
    pub(crate) fn close(&self) {
        if !self.try_close() {
            self.wait();
        }
    }

    /// Takes the latch unless another thread holds it. Returns whether it was taken.
    #[inline(always)]
    pub(crate) fn try_close(&self) -> bool {
        self.closed.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Returns the parts that are needed to give the latch up. The holder stores `false` with `Release`, so that the
    /// next thread that takes the latch sees what was written meanwhile, and then wakes the waiters. After the store
    /// the latch may be dropped, so the store is made where no reference to the latch is an argument: in
    /// [`crate::raw`].
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
