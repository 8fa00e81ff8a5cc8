//! The locks and atomics that the library uses, in one module so that loom can replace them.

#[cfg(not(loom))]
mod real {
    pub(crate) use parking_lot::{Condvar, Mutex, MutexGuard};
    pub(crate) use std::sync::Arc;
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

    /// The threads that wait for a flag. They are not listed anywhere: they read the flag repeatedly.
    #[derive(Clone)]
    pub(crate) struct Waiters;

    impl Waiters {
        pub(crate) fn new() -> Self {
            Self
        }

        /// Checks again and again: first after spinning, then after yielding to other threads, then after sleeping
        /// briefly, so that a holder that was interrupted gets the processor, whatever the priorities are. Of a holder
        /// that takes the flag again as soon as it has given it up, many checks find it taken, each at another moment;
        /// and to sleep takes a hundred times as long as it holds it. So there are many checks before that.
        pub(crate) fn wait_until(&self, ready: impl Fn() -> bool) {
            let mut turns = 0;
            while !ready() {
                match turns {
                    0..32 => (0..1 << turns.min(4)).for_each(|_| std::hint::spin_loop()),
                    32..48 => std::thread::yield_now(),
                    _ => std::thread::sleep(std::time::Duration::from_micros(50)),
                }
                turns += 1;
            }
        }

        #[inline(always)]
        pub(crate) fn wake(&self) {}
    }

    /// A place whose users make sure among themselves that only one has it at a time.
    pub(crate) struct Place<T>(std::cell::UnsafeCell<T>);

    impl<T> Place<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(std::cell::UnsafeCell::new(value))
        }

        #[inline(always)]
        pub(crate) fn take(&self) -> Taken<T> {
            Taken(self.0.get())
        }
    }

    /// A place that one of them uses.
    pub(crate) struct Taken<T>(*mut T);

    impl<T> Taken<T> {
        #[inline(always)]
        pub(crate) fn pointer(&self) -> *mut T {
            self.0
        }
    }

    /// Takes a lock that others hold for microseconds at a time: spins for some of these before the thread sleeps, as
    /// to sleep and to be woken takes longer than most of them do.
    pub(crate) fn lock_soon<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        for _ in 0..32 {
            if let Some(guard) = mutex.try_lock() {
                return guard;
            }
            (0..16).for_each(|_| std::hint::spin_loop());
        }
        mutex.lock()
    }

    /// Waits until `ready` holds for the guarded value.
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

    /// The threads that wait for a flag. Loom has no notion of time in which a loop could spin, so here they sleep and
    /// are woken.
    #[derive(Clone)]
    pub(crate) struct Waiters(std::sync::Arc<(loom::sync::Mutex<()>, loom::sync::Condvar)>);

    impl Waiters {
        pub(crate) fn new() -> Self {
            Self(std::sync::Arc::new((loom::sync::Mutex::new(()), loom::sync::Condvar::new())))
        }

        pub(crate) fn wait_until(&self, ready: impl Fn() -> bool) {
            let mut guard = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
            while !ready() {
                guard = self.0.1.wait(guard).unwrap_or_else(PoisonError::into_inner);
            }
        }

        pub(crate) fn wake(&self) {
            let _guard = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
            self.0.1.notify_all();
        }
    }

    /// A place for which loom checks that no two uses overlap.
    pub(crate) struct Place<T>(loom::cell::UnsafeCell<T>);

    impl<T> Place<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(loom::cell::UnsafeCell::new(value))
        }

        pub(crate) fn take(&self) -> Taken<T> {
            Taken(self.0.get_mut())
        }
    }

    pub(crate) struct Taken<T>(loom::cell::MutPtr<T>);

    impl<T> Taken<T> {
        pub(crate) fn pointer(&self) -> *mut T {
            self.0.with(|pointer| pointer)
        }
    }

    pub(crate) fn lock_soon<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex.lock()
    }

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
