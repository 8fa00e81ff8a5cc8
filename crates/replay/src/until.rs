//! The end of a replay: after a number of passes, or after a time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use millpond::Allocator;
use millpond_backend::Backend;

use crate::outcome::{Pass, Replayed};
use crate::replay::Replay;

/// The number of events between two looks at the clock: few enough for a pass of slow events to end in time, and enough
/// that the looks add no measurable cost.
const LOOK_EVERY: usize = 16;

/// The condition at which a replay ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Until {
    /// After the cold pass and this number of warm ones.
    Passes(usize),
    /// After this time since the cold pass began. The pass in progress, the cold one too, is then cut short at one of
    /// its next events: live blocks are freed as they are after a whole pass, with every check made.
    Elapsed(Duration),
}

impl From<usize> for Until {
    fn from(warm: usize) -> Self {
        Self::Passes(warm)
    }
}

/// What cuts a pass short: an instant, and a flag that someone else sets; neither where both are `None`.
#[derive(Clone, Copy)]
pub(crate) struct Deadline {
    end: Option<Instant>,
    stop: Option<&'static AtomicBool>,
}

impl Deadline {
    pub(crate) const NEVER: Self = Self { end: None, stop: None };

    /// Creates the deadline. A time beyond the range of the clock never ends.
    fn new(until: Until, stop: Option<&'static AtomicBool>) -> Self {
        match until {
            Until::Passes(_) => Self { end: None, stop },
            Until::Elapsed(time) => Self { end: Instant::now().checked_add(time), stop },
        }
    }

    fn is_stopped(self) -> bool {
        self.stop.is_some_and(|stop| stop.load(Ordering::Relaxed))
    }

    fn is_over(self) -> bool {
        self.is_stopped() || self.end.is_some_and(|end| Instant::now() >= end)
    }

    /// Returns the first event before which it is looked at.
    pub(crate) fn first_look(self) -> usize {
        if self.end.is_some() || self.stop.is_some() { LOOK_EVERY } else { usize::MAX }
    }

    /// Looks at it before that event. Returns `None` where the pass ends there, and otherwise the next event to look
    /// before.
    #[inline(never)]
    pub(crate) fn look(self, at: usize) -> Option<usize> {
        (!self.is_over()).then_some(at + LOOK_EVERY)
    }
}

impl Replay {
    /// Has the replays end once a flag is set, as [`Until::Elapsed`] does once its time is over: the pass in progress
    /// is cut short, and no other begins.
    #[must_use]
    pub fn stopped_by(self, stop: &'static AtomicBool) -> Self {
        Self { stop: Some(stop), ..self }
    }

    /// Runs a cold pass, and warm ones until the end. `pass` makes one pass up to a deadline. What it returns about the
    /// driver and of reserved bytes is filled in here.
    pub(crate) fn passes<B: Backend, E>(
        &self,
        allocator: &Allocator<B>,
        until: Until,
        mut progress: impl FnMut(usize),
        mut pass: impl FnMut(Deadline) -> Result<Pass, E>,
    ) -> Result<Replayed, E> {
        let deadline = Deadline::new(until, self.stop);
        let begin = allocator.driver_activity();
        let mut before = begin;
        let mut measured = |pass: Result<Pass, E>| {
            let after = allocator.driver_activity();
            let driver = after.since(std::mem::replace(&mut before, after));
            pass.map(|pass| Pass { driver, reserved_peak: allocator.stats().reserved_bytes.all.peak, ..pass })
        };
        let cold = measured(pass(deadline))?;
        progress(1);
        let (stats, pages) = (allocator.stats(), allocator.page_stats());
        let mut warm: Vec<Pass> = Vec::new();
        let goes_on = |done: usize| match until {
            Until::Passes(count) => done < count && !deadline.is_stopped(),
            Until::Elapsed(_) => !deadline.is_over(),
        };
        while goes_on(warm.len()) {
            warm.push(measured(pass(deadline))?);
            progress(warm.len() + 1);
        }
        let (is_whole, end) = (cold.events == self.events(), allocator.stats());
        let of_passes = warm.iter().map(|pass| pass.live_peak).fold(cold.live_peak, u64::max);
        let driver = cold.driver;
        Ok(Replayed {
            events: self.events(),
            warm_events: self.events(),
            threads: 1,
            live_peak: if is_whole { cold.live_peak } else { stats.requested_bytes.all.peak },
            life_live_peak: if is_whole { of_passes } else { end.requested_bytes.all.peak },
            life_reserved_peak: end.reserved_bytes.all.peak,
            cold,
            warm,
            stats,
            pages,
            slack: allocator.slack_stats(),
            driver,
            warm_driver: before.since(begin).since(driver),
            checked_blocks: 0,
        })
    }
}
