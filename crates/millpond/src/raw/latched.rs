//! The value that a lane's latch guards.

use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use crate::latch::Latch;
use crate::sync::{Ordering, Place, Taken};

/// A value that one thread at a time can access, behind a [`Latch`].
pub(crate) struct Latched<T> {
    latch: Latch,
    value: Place<T>,
}

// SAFETY: the value is reached through a `Guard` only, there is one guard at a time, and what was written through one
// is seen through the next: the latch guarantees both. So threads that share this pass the value from one to the next,
// for which `Send` is enough.
unsafe impl<T: Send> Sync for Latched<T> {}

/// Access to the value of a [`Latched`], for as long as the guard lives. It holds a pointer to the latch, not a
/// reference, because the latch may be dropped while the guard's own drop has not returned yet.
pub(crate) struct Guard<'a, T> {
    latch: NonNull<Latch>,
    value: ManuallyDrop<Taken<T>>,
    latched: PhantomData<&'a Latched<T>>,
}

impl<T> Latched<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { latch: Latch::new(), value: Place::new(value) }
    }

    /// Waits until no other guard lives, and returns a guard.
    #[inline(always)]
    pub(crate) fn lock(&self) -> Guard<'_, T> {
        self.latch.close();
        self.guard()
    }

    /// Returns a guard, if no other lives.
    pub(crate) fn try_lock(&self) -> Option<Guard<'_, T>> {
        self.latch.try_close().then(|| self.guard())
    }

    /// Creates the guard. The caller has just closed the latch.
    #[inline(always)]
    fn guard(&self) -> Guard<'_, T> {
        let value = ManuallyDrop::new(self.value.take());
        Guard { latch: NonNull::from(&self.latch), value, latched: PhantomData }
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: the place is borrowed for as long as the guard, which closed the latch and opens it when it is
        // dropped, so no other guard refers to the value, and this one only as its own borrows allow.
        unsafe { &*self.value.pointer() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above; the guard itself is borrowed mutably.
        unsafe { &mut *self.value.pointer() }
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: the value is dropped only here, and not used afterwards. It is dropped before the latch opens,
        // because from then on the place may belong to another guard.
        unsafe { ManuallyDrop::drop(&mut self.value) }
        // SAFETY: the latch is closed by this guard. The reference that keeps the latch's memory is given up only under
        // the latch, or is held by the guard's own thread, so the memory is valid until the store below. After the
        // store only `waiters` is used, which is a clone and no part of the latch.
        let (closed, waiters) = unsafe { self.latch.as_ref() }.parts();
        closed.store(false, Ordering::Release);
        waiters.wake();
    }
}
