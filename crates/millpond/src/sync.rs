//! The locks and atomics that the library uses, in one place so that loom can stand in for them.

#[cfg(not(loom))]
mod real {
    pub(crate) use parking_lot::{Condvar, Mutex, MutexGuard};
    pub(crate) use std::sync::Arc;
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

    /// Waits until `ready` holds of what the guard guards.
    pub(crate) fn wait_until<'a, T>(
        condvar: &Condvar,
        mut guard: MutexGuard<'a, T>,
        ready: impl Fn(&T) -> bool,
    ) -> MutexGuard<'a, T> {
        while !ready(&guard) {
            condvar.wait(&mut guard);
        }
        guard
    }
}

#[cfg(loom)]
mod real {
    pub(crate) use loom::sync::Arc;
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
    use std::sync::PoisonError;

    pub(crate) type MutexGuard<'a, T> = loom::sync::MutexGuard<'a, T>;

    /// `parking_lot::Mutex`, made of loom's.
    #[derive(Debug)]
    pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(loom::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner)
        }

        pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
            self.0.try_lock().ok()
        }
    }

    /// `parking_lot::Condvar`, made of loom's.
    #[derive(Debug)]
    pub(crate) struct Condvar(loom::sync::Condvar);

    impl Condvar {
        pub(crate) fn new() -> Self {
            Self(loom::sync::Condvar::new())
        }

        pub(crate) fn notify_all(&self) {
            self.0.notify_all();
        }
    }

    pub(crate) fn wait_until<'a, T>(
        condvar: &Condvar,
        mut guard: MutexGuard<'a, T>,
        ready: impl Fn(&T) -> bool,
    ) -> MutexGuard<'a, T> {
        while !ready(&guard) {
            guard = condvar.0.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
        guard
    }
}

pub(crate) use real::*;
