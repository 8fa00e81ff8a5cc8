//! The clock of a stream whose ticks the backend closes, by an event behind the work.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use millpond_backend::Tick;

/// The ticks of one stream: the open one, whether it is marked, and the newest that is known to be complete.
///
/// [`mark`](TickClock::mark) and the queries may be called by any thread and take no lock. [`close`](TickClock::close)
/// and [`complete`](TickClock::complete) are called by one thread at a time: under a lock of the backend's, the same
/// for both.
///
/// Invariant, whenever that lock is not held: every tick above the reached one and below the open one is covered by an
/// event of the backend's, or the clock is marked, so that the next event covers it.
#[derive(Debug)]
pub struct TickClock {
    /// The tick that the next mark returns.
    open: AtomicU64,
    /// Whether the open tick may have been marked. Never false after a mark of the open tick was returned; may be true
    /// without one.
    marked: AtomicBool,
    /// The newest tick known to be complete.
    reached: AtomicU64,
}

impl Default for TickClock {
    fn default() -> TickClock {
        TickClock::new()
    }
}

impl TickClock {
    /// Returns the clock of a new stream: tick 1 is open, and tick 0 is reached.
    pub const fn new() -> TickClock {
        TickClock { open: AtomicU64::new(1), marked: AtomicBool::new(false), reached: AtomicU64::new(0) }
    }

    /// Notes that the open tick is marked, and returns it. Costs a few nanoseconds.
    #[inline]
    pub fn mark(&self) -> Tick {
        // `open` is read before `marked`. `close` clears `marked` before it raises `open`, so a thread that reads the
        // raised number also sees the flag cleared, and sets it again.
        let open = self.open.load(Ordering::Acquire);
        if !self.marked.load(Ordering::Relaxed) {
            self.marked.store(true, Ordering::Release);
        }
        Tick(open)
    }

    /// Returns the open tick, without marking it.
    #[inline]
    pub fn open(&self) -> Tick {
        Tick(self.open.load(Ordering::Acquire))
    }

    /// Returns the newest tick known to be complete.
    #[inline]
    pub fn reached(&self) -> Tick {
        Tick(self.reached.load(Ordering::Acquire))
    }

    /// Returns whether the next event has to close the open tick. May be true without a mark, and is never false after
    /// one.
    #[inline]
    pub fn is_marked(&self) -> bool {
        self.marked.load(Ordering::Acquire)
    }

    /// Returns whether every closed tick is known to be complete, marked or not.
    #[inline]
    pub fn is_caught_up(&self) -> bool {
        self.reached.load(Ordering::Acquire) + 1 >= self.open.load(Ordering::Acquire)
    }

    /// Returns whether nothing is outstanding: every tick that was marked is known to be complete.
    #[inline]
    pub fn is_drained(&self) -> bool {
        !self.is_marked() && self.is_caught_up()
    }

    /// Closes the open tick, marked or not, and returns it. Called before the event is recorded: work that is recorded
    /// after the event must not be marked with a tick that the event closes.
    pub fn close(&self) -> Tick {
        self.marked.store(false, Ordering::Relaxed);
        let open = self.open.load(Ordering::Relaxed);
        self.open.store(open + 1, Ordering::Release);
        Tick(open)
    }

    /// Notes that the event of a closed tick does not cover it, because the event failed or was lost: the next event
    /// has to.
    pub fn uncover(&self) {
        self.marked.store(true, Ordering::Release);
    }

    /// Notes that a closed tick is complete, and all before it.
    ///
    /// # Panics
    ///
    /// Panics if the tick was never closed, or if a later one was complete before.
    pub fn complete(&self, tick: Tick) {
        let (reached, open) = (self.reached.load(Ordering::Relaxed), self.open.load(Ordering::Relaxed));
        let tick = tick.0;
        assert!(tick < open, "tick {tick} is complete and was never closed: the open tick is {open}");
        assert!(tick >= reached, "a lane's ticks fell: {reached} was reached, and now {tick}");
        self.reached.store(tick, Ordering::Release);
    }

    /// Checks the clock. Called under the lock of [`close`](TickClock::close).
    ///
    /// # Panics
    ///
    /// Panics if a tick is reached that was never closed.
    pub fn check(&self) {
        let (reached, open) = (self.reached.load(Ordering::Acquire), self.open.load(Ordering::Acquire));
        assert!(reached < open, "tick {reached} is reached, and the open tick is {open}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_of_the_open_tick_and_makes_the_clock_busy() {
        let clock = TickClock::new();
        assert!(clock.is_drained());
        assert_eq!([clock.mark(), clock.mark()], [Tick(1), Tick(1)]);
        assert!(!clock.is_drained() && clock.is_caught_up(), "tick 1 is marked");
        assert_eq!(clock.close(), Tick(1));
        assert!(!clock.is_marked() && !clock.is_drained(), "tick 1 is closed and not reached");
        assert_eq!(clock.mark(), Tick(2));
        clock.complete(Tick(1));
        assert!(!clock.is_drained(), "tick 2 is marked");
        assert_eq!(clock.close(), Tick(2));
        clock.complete(Tick(2));
        assert!(clock.is_drained());
        assert_eq!((clock.open(), clock.reached()), (Tick(3), Tick(2)));
        clock.check();
    }

    #[test]
    fn a_tick_that_lost_its_event_is_closed_again() {
        let clock = TickClock::new();
        clock.mark();
        clock.close();
        clock.uncover();
        assert!(clock.is_marked() && !clock.is_drained(), "tick 1 is not covered");
        assert_eq!(clock.close(), Tick(2));
        clock.complete(Tick(2));
        assert!(clock.is_drained());
    }

    #[test]
    #[should_panic(expected = "ticks fell: 3 was reached, and now 2")]
    fn ticks_never_fall() {
        let clock = TickClock::new();
        assert_eq!([clock.close(), clock.close(), clock.close()], [Tick(1), Tick(2), Tick(3)]);
        clock.complete(Tick(3));
        clock.complete(Tick(2));
    }

    #[test]
    #[should_panic(expected = "tick 1 is complete and was never closed: the open tick is 1")]
    fn an_open_tick_is_never_complete() {
        TickClock::new().complete(Tick(1));
    }

    #[test]
    fn no_mark_is_lost_beside_a_thread_that_closes() {
        let clock = TickClock::new();
        std::thread::scope(|scope| {
            let marker = scope.spawn(|| {
                for _ in 0..20_000 {
                    let tick = clock.mark();
                    // Between the two halves of a close neither can be seen, for a moment.
                    let is_kept = |_| clock.open() > tick || clock.is_marked();
                    assert!((0..100_000_000).any(is_kept), "tick {tick} is open, and its mark is lost");
                }
            });
            while !marker.is_finished() {
                if clock.is_marked() {
                    let tick = clock.close();
                    clock.complete(tick);
                    clock.check();
                }
            }
        });
    }
}
