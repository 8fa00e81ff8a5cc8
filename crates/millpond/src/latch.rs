//! Who may touch a lane: the flag behind a lane's lock.
//!
//! Every allocation and every free takes a lane's lock, and nearly always nobody else wants it. A lock that parks its
//! waiters must look for them when it opens, which is a second atomic read-modify-write; those two are half of what a
//! hit costs on some processors. So this one opens with a plain store, and whoever waits sees to it alone: turns on the
//! spot, lets other threads run, sleeps a moment, and looks again. A lane is held for well under a microsecond, walks
//! of its blocks excepted; locks that are held longer are the parking ones of [`crate::sync`].

use crate::sync::{AtomicBool, Ordering, pause};

/// Held or not.
pub(crate) struct Latch(AtomicBool);

impl Latch {
    pub(crate) fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// Takes it, waiting as long as another thread holds it.
    #[inline(always)]
    pub(crate) fn close(&self) {
        if self.0.swap(true, Ordering::Acquire) {
            self.wait();
        }
    }

    /// Takes it unless another thread holds it. Answers whether it did.
    #[inline(always)]
    pub(crate) fn try_close(&self) -> bool {
        !self.0.load(Ordering::Relaxed) && !self.0.swap(true, Ordering::Acquire)
    }

    /// Gives it up: what was written while it was held is seen by whoever takes it next.
    #[inline(always)]
    pub(crate) fn open(&self) {
        self.0.store(false, Ordering::Release);
    }

    #[cold]
    fn wait(&self) {
        let mut turns = 0;
        while !self.try_close() {
            pause(turns);
            turns += 1;
        }
    }
}
