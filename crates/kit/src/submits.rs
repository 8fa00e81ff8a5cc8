//! The clock of a stream whose ticks are closed by submits.

use std::sync::atomic::{AtomicU64, Ordering};

use millpond_backend::Tick;

/// The ticks of one stream: the open one, the newest that was submitted, and the newest that is known to be complete.
///
/// The queries may be called by any thread and take no lock; so may [`complete`](SubmitClock::complete).
/// [`close`](SubmitClock::close), [`close_at`](SubmitClock::close_at) and [`submit`](SubmitClock::submit) are called by
/// one thread at a time, under a lock of the backend's.
///
/// The submitted tick is below the one before the open tick while a submit is being made, and for good after one that
/// failed: a later submit then covers the work.
#[derive(Debug)]
pub struct SubmitClock {
    /// The tick that the next submit closes, which is the one that a mark returns.
    open: AtomicU64,
    /// The newest tick that the driver was given.
    submitted: AtomicU64,
    /// The newest tick known to be complete.
    reached: AtomicU64,
}

impl Default for SubmitClock {
    fn default() -> SubmitClock {
        SubmitClock::starting_at(Tick(1))
    }
}

impl SubmitClock {
    /// Returns the clock of a new stream whose open tick is `next`: 1, or the next value of a timeline that other code
    /// has raised before. All earlier ticks count as complete, since nothing was marked with them. Whether other code
    /// ever signals such a value is not known here.
    ///
    /// # Panics
    ///
    /// Panics if `next` is 0, which is before all work.
    pub const fn starting_at(next: Tick) -> SubmitClock {
        assert!(next.0 > 0, "a stream starts at tick 1 or later: tick 0 is before all work");
        let before = next.0 - 1;
        SubmitClock { open: AtomicU64::new(next.0), submitted: AtomicU64::new(before), reached: AtomicU64::new(before) }
    }

    /// Returns the open tick, which a mark returns. Costs one read.
    #[inline]
    pub fn open(&self) -> Tick {
        Tick(self.open.load(Ordering::Acquire))
    }

    /// Returns the newest tick that was submitted.
    #[inline]
    pub fn submitted(&self) -> Tick {
        Tick(self.submitted.load(Ordering::Acquire))
    }

    /// Returns the newest tick known to be complete.
    #[inline]
    pub fn reached(&self) -> Tick {
        Tick(self.reached.load(Ordering::Acquire))
    }

    /// Returns whether everything that was submitted is known to be complete.
    #[inline]
    pub fn is_drained(&self) -> bool {
        self.reached() >= self.submitted()
    }

    /// Closes the open tick and returns it. Called before its work goes to the driver: what is marked from here on
    /// belongs to the next tick, because its work may be recorded after the driver took this one.
    pub fn close(&self) -> Tick {
        Tick(self.open.fetch_add(1, Ordering::AcqRel))
    }

    /// Closes all ticks up to `tick`, which is the next value that other code signals on a timeline of its own.
    ///
    /// # Panics
    ///
    /// Panics if that tick is closed already.
    pub fn close_at(&self, tick: Tick) {
        let (tick, open) = (tick.0, self.open.load(Ordering::Relaxed));
        assert!(tick >= open, "tick {tick} is closed again: the open tick is {open}");
        self.open.store(tick + 1, Ordering::Release);
    }

    /// Notes that the driver has taken the work of a closed tick, and returns the tick that was the newest before.
    ///
    /// # Panics
    ///
    /// Panics if the tick is still open, or is not above the one that was submitted last.
    pub fn submit(&self, tick: Tick) -> Tick {
        let (newest, open) = (self.submitted.load(Ordering::Relaxed), self.open.load(Ordering::Relaxed));
        let tick = tick.0;
        assert!(tick > newest, "tick {tick} was submitted after tick {newest}: they must rise");
        assert!(tick < open, "tick {tick} was submitted and never closed: the open tick is {open}");
        self.submitted.store(tick, Ordering::Release);
        Tick(newest)
    }

    /// Notes that a tick is complete, if that was not known, and returns the newest that is. A tick that is still open
    /// counts as the one before the open tick: other code may raise a timeline further than it has announced.
    pub fn complete(&self, tick: Tick) -> Tick {
        let tick = tick.0.min(self.open.load(Ordering::Acquire) - 1);
        Tick(self.reached.fetch_max(tick, Ordering::AcqRel).max(tick))
    }

    /// Checks the clock. Called under the lock of [`close`](SubmitClock::close).
    ///
    /// # Panics
    ///
    /// Panics if a tick is submitted or reached that is still open.
    pub fn check(&self) {
        let (reached, submitted, open) = (self.reached().0, self.submitted().0, self.open().0);
        assert!(submitted < open, "tick {submitted} is submitted, and the open tick is {open}");
        assert!(reached < open, "tick {reached} is reached, and the open tick is {open}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tick_is_closed_then_submitted_then_complete() {
        let clock = SubmitClock::default();
        assert_eq!((clock.open(), clock.submitted(), clock.reached()), (Tick(1), Tick(0), Tick(0)));
        assert_eq!(clock.close(), Tick(1));
        assert!(clock.is_drained(), "nothing is submitted");
        assert_eq!(clock.submit(Tick(1)), Tick(0));
        assert!(!clock.is_drained());
        assert_eq!(clock.complete(Tick(1)), Tick(1));
        assert!(clock.is_drained());
        clock.check();
    }

    #[test]
    fn a_submit_that_failed_leaves_a_gap() {
        let clock = SubmitClock::default();
        clock.close();
        assert_eq!(clock.close(), Tick(2));
        assert_eq!(clock.submit(Tick(2)), Tick(0), "tick 1 was never submitted");
        assert_eq!(clock.complete(Tick(2)), Tick(2));
        clock.check();
    }

    #[test]
    fn an_open_tick_is_never_reached_and_reached_ticks_never_fall() {
        let clock = SubmitClock::starting_at(Tick(5));
        assert_eq!(clock.complete(Tick(9)), Tick(4), "an engine has raised its timeline");
        assert_eq!(clock.complete(Tick(2)), Tick(4));
        clock.check();
    }

    #[test]
    fn what_came_before_the_clock_is_complete() {
        let clock = SubmitClock::starting_at(Tick(5));
        assert_eq!((clock.submitted(), clock.reached()), (Tick(4), Tick(4)));
        assert!(clock.is_drained(), "other code may never signal those values");
        assert_eq!(clock.complete(Tick(1)), Tick(4), "though the timeline is behind");
        clock.check();
    }

    #[test]
    fn values_of_a_foreign_timeline_may_be_skipped() {
        let clock = SubmitClock::starting_at(Tick(5));
        clock.close_at(Tick(7));
        assert_eq!(clock.submit(Tick(7)), Tick(4));
        assert_eq!(clock.open(), Tick(8));
    }

    #[test]
    #[should_panic(expected = "tick 4 is closed again: the open tick is 5")]
    fn no_tick_is_closed_twice() {
        SubmitClock::starting_at(Tick(5)).close_at(Tick(4));
    }

    #[test]
    #[should_panic(expected = "tick 1 was submitted after tick 2: they must rise")]
    fn submitted_ticks_rise() {
        let clock = SubmitClock::default();
        clock.close();
        clock.close();
        clock.submit(Tick(2));
        clock.submit(Tick(1));
    }

    #[test]
    #[should_panic(expected = "tick 1 was submitted and never closed")]
    fn an_open_tick_is_not_submitted() {
        SubmitClock::default().submit(Tick(1));
    }
}
