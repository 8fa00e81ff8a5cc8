//! The release of memory that nothing has needed for a while: at polls of the program, or on a thread of the
//! allocator's own. What goes and when is the core's decision.

#[cfg(not(loom))]
use std::thread::{self, JoinHandle};
use std::time::Duration;

use millpond_backend::Backend;
use millpond_core::Plan;
use millpond_core::stats::IdleStats;

use crate::allocator::Allocator;
use crate::error::Error;
use crate::state::{LockedShards, State};
use crate::sync::Ordering;
#[cfg(not(loom))]
use crate::sync::{Arc, Condvar, Mutex};

/// Idle memory.
impl<B: Backend> Allocator<B> {
    /// Returns what went back to the driver because nothing had needed it for a while: see
    /// [`Builder::release_idle_after`](crate::Builder::release_idle_after).
    pub fn idle_stats(&self) -> IdleStats {
        let state = self.state();
        let now = nanoseconds(state.opened.elapsed());
        state.coordinator.lock().idle_stats(now)
    }

    /// Does what [`poll`](Self::poll) does with idle memory, as if this much time had passed since the allocator was
    /// created, for tests and simulations.
    #[doc(hidden)]
    pub fn release_idle_at(&self, now: Duration) -> Result<u64, Error<B::Error>> {
        self.state().release_unneeded(now)
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// A release of idle memory in progress. However it ends, the next time to be idle begins.
struct Releasing<'a, B: Backend> {
    state: &'a State<B>,
    plan: Plan,
    now: u64,
}

impl<B: Backend> Drop for Releasing<'_, B> {
    fn drop(&mut self) {
        let mut coordinator = self.state.coordinator.lock();
        coordinator.idle_released(self.now, self.plan.released_bytes(), &mut LockedShards(self.state));
    }
}

impl<B: Backend> State<B> {
    /// Gives back what nothing has needed for as long as the settings say. Returns the bytes that went back.
    pub(crate) fn release_unneeded(&self, now: Duration) -> Result<u64, Error<B::Error>> {
        if !self.releases_idle.load(Ordering::Relaxed) {
            return Ok(0);
        }
        let Some(_running) = self.releasing.try_lock() else { return Ok(0) };
        let now = nanoseconds(now);
        let plan = self.coordinator.lock().idle_release(now, self.clocks(), &mut LockedShards(self));
        let Some(plan) = plan else { return Ok(0) };
        let mut releasing = Releasing { state: self, plan, now };
        self.run(&mut releasing.plan)?;
        Ok(releasing.plan.released_bytes())
    }

    /// Waits until a release of idle memory has seen that a capture has begun, and has ended. It ends after the driver
    /// call that it is in.
    pub(crate) fn await_release(&self) {
        if self.releases_idle.load(Ordering::Relaxed) {
            drop(self.releasing.lock());
        }
    }
}

/// The thread that gives idle memory back. It ends when this is dropped, and does not keep the allocator.
#[cfg(not(loom))]
pub(crate) struct Background {
    over: Arc<Over>,
    thread: Option<JoinHandle<()>>,
}

/// Whether the thread is to end.
#[cfg(not(loom))]
struct Over {
    is_over: Mutex<bool>,
    changed: Condvar,
}

#[cfg(not(loom))]
impl Background {
    /// Starts the thread if the settings ask for one.
    pub(crate) fn of<B: Backend>(state: &Arc<State<B>>) -> Option<Self> {
        let idle = state.coordinator.lock().settings().idle;
        idle.after.filter(|_| idle.in_background).map(|after| Self::start(state, after))
    }

    /// Starts the thread, which looks once in this time. Where no thread can be started, memory goes back at polls
    /// alone.
    pub(crate) fn start<B: Backend>(state: &Arc<State<B>>, after: Duration) -> Self {
        let over = Arc::new(Over { is_over: Mutex::new(false), changed: Condvar::new() });
        let (state, own) = (Arc::downgrade(state), Arc::clone(&over));
        let run = move || {
            while own.sleep(after)
                && let Some(state) = state.upgrade()
            {
                // The driver's errors come again where there is someone to return them to.
                let _ = state.release_unneeded(state.opened.elapsed());
            }
        };
        let thread = thread::Builder::new().name("millpond idle".into()).spawn(run).ok();
        Self { over, thread }
    }
}

#[cfg(not(loom))]
impl Over {
    /// Sleeps for a while. Returns whether the thread goes on.
    fn sleep(&self, time: Duration) -> bool {
        let mut is_over = self.is_over.lock();
        if !*is_over {
            self.changed.wait_for(&mut is_over, time);
        }
        !*is_over
    }
}

#[cfg(not(loom))]
impl Drop for Background {
    fn drop(&mut self) {
        *self.over.is_over.lock() = true;
        self.over.changed.notify_all();
        if let Some(thread) = self.thread.take().filter(|thread| thread.thread().id() != thread::current().id()) {
            // The thread may be in a driver call. If it panics there, the panic is printed, and dropping goes on.
            let _ = thread.join();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use millpond_sim::Sim;

    use super::*;

    /// The thread has a reference of its own to the flag for as long as it runs.
    #[test]
    fn the_thread_ends_with_its_handle_and_does_not_keep_the_state() {
        let allocator = Allocator::new(Sim::new());
        let state = Arc::clone(allocator.shared_state());
        drop(allocator);
        for after in [Duration::from_micros(1), Duration::from_secs(10_000)] {
            let background = Background::start(&state, after);
            let over = Arc::clone(&background.over);
            assert!(Arc::strong_count(&over) == 3 && !*over.is_over.lock(), "it runs");
            drop(background);
            assert_eq!((Arc::strong_count(&over), Arc::strong_count(&state)), (1, 1), "it has ended");
        }
        let background = Background::start(&state, Duration::from_micros(1));
        let over = Arc::clone(&background.over);
        drop(state);
        while Arc::strong_count(&over) == 3 {
            thread::yield_now();
        }
        assert!(!*over.is_over.lock(), "it has ended by itself");
    }
}
