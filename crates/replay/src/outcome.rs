//! The results of a replay.

use std::time::Duration;

use millpond::DriverActivity;
use millpond::stats::{MemoryStats, PageStats, SlackStats};

/// The result of one pass over a trace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pass {
    /// The time that it took on the host, including the driver's work; on the clock of the work in flight, if that has
    /// one ([`Timed`](crate::Timed)).
    pub time: Duration,
    /// The number of its events: fewer than the trace has where the replay's time was over before the pass was. With
    /// several threads, the least number that one of them reached.
    pub events: usize,
    /// The number of allocations refused for lack of memory. The replay continues without those blocks.
    pub ooms: u64,
    /// The message of the first of them.
    pub first_oom: Option<String>,
    /// The largest sum of requested bytes that are live at one time in a whole pass, for one thread.
    pub live_peak: u64,
    /// The most bytes that were reserved at one time, in this pass or one before it.
    pub reserved_peak: u64,
    /// The driver's activity in it, with that of the frees at its end.
    pub driver: DriverActivity,
}

/// The result of replaying a trace on one allocator: a cold pass, then warm ones.
#[derive(Clone, PartialEq, Debug)]
pub struct Replayed {
    /// The number of events of the trace; completions are part of their frees.
    pub events: usize,
    /// The number of events of a whole warm pass: fewer where blocks are kept.
    pub warm_events: usize,
    /// The number of threads that replayed it at the same time.
    pub threads: usize,
    /// The first pass, in which the cache is empty and every growth happens.
    pub cold: Pass,
    /// The passes after it, on the same allocator. The last may be cut short.
    pub warm: Vec<Pass>,
    /// The largest sum of requested bytes that were live at one time: that of the trace, or what was measured with
    /// several threads or with a first pass that was cut short.
    pub live_peak: u64,
    /// The same number over all passes.
    pub life_live_peak: u64,
    /// The most bytes that were reserved at one time, over all passes.
    pub life_reserved_peak: u64,
    /// The statistics at the end of the first pass.
    pub stats: MemoryStats,
    /// The page statistics of the `paged` policy at the end of the first pass; all 0 under other policies.
    pub pages: PageStats,
    /// What was reserved beyond the slack at the end of the last pass, and what work in flight pinned then.
    pub slack: SlackStats,
    /// The driver's activity in the first pass.
    pub driver: DriverActivity,
    /// The driver's activity in all the passes after it.
    pub warm_driver: DriverActivity,
    /// The number of blocks that were found to hold what was written to them, over all passes; 0 without a check.
    pub checked_blocks: u64,
}

impl Replayed {
    /// Returns the nanoseconds per event of the first pass.
    pub fn cold_ns_per_event(&self) -> f64 {
        per_event(self.cold.time, self.cold.events)
    }

    /// Returns the nanoseconds per event, the median over the whole warm passes; `None` if there were none.
    pub fn warm_ns_per_event(&self) -> Option<f64> {
        let mut times: Vec<_> = self.whole_warm_passes().map(|pass| pass.time).collect();
        times.sort_unstable();
        let middle = times.len().checked_sub(1)? / 2;
        let median =
            if times.len().is_multiple_of(2) { (times[middle] + times[middle + 1]) / 2 } else { times[middle] };
        Some(per_event(median, self.warm_events))
    }

    /// Returns the warm passes that were not cut short.
    pub fn whole_warm_passes(&self) -> impl Iterator<Item = &Pass> {
        self.warm.iter().filter(|pass| pass.events == self.warm_events)
    }

    /// Returns the number of events of all passes together, for one thread.
    pub fn events_replayed(&self) -> u64 {
        self.passes().map(|pass| pass.events as u64).sum()
    }

    /// Returns all passes, the first one first.
    pub fn passes(&self) -> impl Iterator<Item = &Pass> {
        std::iter::once(&self.cold).chain(&self.warm)
    }

    /// Returns the last pass that was not cut short, or the first pass if there is no other.
    pub fn last(&self) -> &Pass {
        self.whole_warm_passes().last().unwrap_or(&self.cold)
    }

    /// Returns the peak of reserved bytes of the first pass over its peak of live bytes, which is 1 at best.
    pub fn reserved_over_live(&self) -> f64 {
        self.stats.reserved_bytes.all.peak as f64 / self.live_peak.max(1) as f64
    }

    /// Returns the most bytes that were reserved by the end of a pass over the most that were live by then, for the
    /// pass after which that is largest. It is 1 at best. Where sizes vary a later pass may have more live than all
    /// before it, which takes nothing from what was reserved for less. With several threads, or a first pass that was
    /// cut short, it is that at the end, as what is live was not measured pass by pass.
    pub fn life_reserved_over_live(&self) -> f64 {
        let ratio = |reserved: u64, live: u64| reserved as f64 / live.max(1) as f64;
        if self.threads > 1 || self.cold.events < self.events {
            return ratio(self.life_reserved_peak, self.life_live_peak);
        }
        let mut live = 0;
        let by_pass = self.passes().map(|pass| {
            live = live.max(pass.live_peak);
            ratio(pass.reserved_peak, live)
        });
        by_pass.fold(0.0, f64::max)
    }
}

fn per_event(time: Duration, events: usize) -> f64 {
    time.as_nanos() as f64 / events.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a pass with this time, number of events and peaks.
    fn pass(nanoseconds: u64, events: usize, live_peak: u64, reserved_peak: u64) -> Pass {
        let (time, driver) = (Duration::from_nanos(nanoseconds), DriverActivity::default());
        Pass { time, events, ooms: 0, first_oom: None, live_peak, reserved_peak, driver }
    }

    fn replayed(cold: Pass, warm: Vec<Pass>) -> Replayed {
        Replayed {
            events: 100,
            warm_events: 50,
            threads: 1,
            cold,
            warm,
            live_peak: 10,
            life_live_peak: 40,
            life_reserved_peak: 60,
            stats: MemoryStats::default(),
            pages: PageStats::default(),
            slack: SlackStats::default(),
            driver: DriverActivity::default(),
            warm_driver: DriverActivity::default(),
            checked_blocks: 0,
        }
    }

    #[test]
    fn a_warm_event_takes_the_median_of_the_whole_passes() {
        let with = |times: &[u64]| {
            let whole = times.iter().map(|time| pass(*time, 50, 0, 0));
            // The last pass was cut short, and is of no account.
            replayed(pass(9_999, 100, 0, 0), whole.chain([pass(1, 20, 0, 0)]).collect())
        };
        assert_eq!(with(&[]).warm_ns_per_event(), None);
        assert_eq!(with(&[700]).warm_ns_per_event(), Some(14.0));
        assert_eq!(with(&[900, 100]).warm_ns_per_event(), Some(10.0));
        assert_eq!(with(&[900, 100, 200]).warm_ns_per_event(), Some(4.0));
        assert_eq!(with(&[900, 100, 200, 400]).warm_ns_per_event(), Some(6.0));
        let one = with(&[700]);
        assert_eq!((one.whole_warm_passes().count(), one.last().time.as_nanos()), (1, 700));
        assert_eq!(with(&[]).last().events, 100, "without a whole warm pass it is the first");
    }

    #[test]
    fn a_life_takes_the_pass_that_reserved_most_over_what_was_live() {
        let warm = || vec![pass(1, 50, 8, 30), pass(1, 50, 40, 60)];
        let whole = replayed(pass(1, 100, 10, 20), warm());
        assert_eq!(whole.life_reserved_over_live(), 3.0, "30 where 10 were live by then");
        let cut = replayed(pass(1, 99, 10, 20), warm());
        assert_eq!(cut.life_reserved_over_live(), 1.5, "60 where 40 were live in the end");
        let threads = Replayed { threads: 2, ..whole.clone() };
        assert_eq!(threads.life_reserved_over_live(), 1.5);
        let nothing = Replayed { live_peak: 0, ..whole };
        assert_eq!(nothing.reserved_over_live(), 0.0, "no infinity, and a number");
    }
}
