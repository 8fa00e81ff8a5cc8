//! Replays of the same trace by several threads at once, each on streams of its own.

use std::thread;

use millpond::{Allocator, Stream};
use millpond_backend::Backend;

use crate::check::{CheckError, Checker};
use crate::outcome::{Pass, Replayed};
use crate::replay::Replay;
use crate::until::{Deadline, Until};
use crate::watch::Unwatched;

impl Replay {
    /// Works like [`run_on`](Self::run_on) or, if `checked`, as [`run_checked`](Self::run_checked), with a thread
    /// for each entry of `streams`, which are that thread's own. The threads begin each pass at the same time, and a
    /// pass is over when the last of them is; its time is the longest that one of them took, and its refusals are those
    /// of all.
    ///
    /// The reserved bytes then depend on the timing of the threads. Each keeps the order of its own streams only.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`run_checked`](Self::run_checked): the first in the order of the threads.
    ///
    /// # Panics
    ///
    /// If there is no thread, or one has fewer streams than the trace needs.
    pub fn run_threads<B: Backend>(
        &self,
        allocator: &Allocator<B>,
        streams: &[Vec<Stream<B>>],
        until: impl Into<Until>,
        checked: bool,
        progress: impl FnMut(usize),
    ) -> Result<Replayed, CheckError<B::Error>> {
        assert!(!streams.is_empty(), "a replay takes at least one thread");
        let (mut passes, mut checked_blocks) = (0, 0);
        let replayed = self.passes(allocator, until.into(), progress, |deadline| {
            let pass = |(thread, streams)| (thread, passes, streams, checked, deadline);
            let parts: Vec<_> = streams.iter().enumerate().map(pass).collect();
            let done = thread::scope(|scope| {
                let start = |part| scope.spawn(move || self.part_of_pass(allocator, part));
                let started: Vec<_> = parts.into_iter().map(start).collect();
                started
                    .into_iter()
                    .map(|thread| match thread.join() {
                        Ok(done) => done,
                        Err(panic) => std::panic::resume_unwind(panic),
                    })
                    .collect::<Result<Vec<_>, _>>()
            })?;
            passes += 1;
            checked_blocks += done.iter().map(|(_, blocks)| blocks).sum::<u64>();
            Ok(together(done.into_iter().map(|(pass, _)| pass)))
        });
        let replayed = replayed.map_err(|error| self.located(error))?;
        let replayed = Replayed { threads: streams.len(), checked_blocks, ..replayed };
        if streams.len() == 1 {
            return Ok(replayed);
        }
        let live_peak = replayed.stats.requested_bytes.all.peak;
        Ok(Replayed { live_peak, life_live_peak: allocator.stats().requested_bytes.all.peak, ..replayed })
    }

    /// Runs the part of a pass that one thread does. Returns it with the number of blocks that the thread checked.
    fn part_of_pass<B: Backend>(
        &self,
        allocator: &Allocator<B>,
        (thread, pass, streams, checked, deadline): (usize, usize, &Vec<Stream<B>>, bool, Deadline),
    ) -> Result<(Pass, u64), CheckError<B::Error>> {
        let mut submits = self.submits(allocator, streams, !checked);
        if !checked {
            return Ok((self.watched_pass(allocator, streams, &mut submits, &mut Unwatched, deadline)?, 0));
        }
        let mut checker = Checker::new(allocator, thread, pass)?;
        let done = self.watched_pass(allocator, streams, &mut submits, &mut checker, deadline)?;
        Ok((done, checker.blocks()))
    }
}

/// Combines the passes of the threads into one.
fn together(passes: impl Iterator<Item = Pass>) -> Pass {
    let join = |all: Pass, pass: Pass| Pass {
        time: all.time.max(pass.time),
        events: all.events.min(pass.events),
        ooms: all.ooms + pass.ooms,
        first_oom: all.first_oom.or(pass.first_oom),
        live_peak: all.live_peak.max(pass.live_peak),
        reserved_peak: all.reserved_peak,
        driver: all.driver,
    };
    match passes.reduce(join) {
        Some(pass) => pass,
        None => unreachable!("there is at least one thread"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use millpond::DriverActivity;

    use super::*;

    #[test]
    fn a_pass_of_several_threads_is_as_long_as_the_slowest_and_has_all_refusals() {
        let pass = |seconds, events, ooms, first_oom: Option<&str>, live_peak| {
            let (time, driver) = (Duration::from_secs(seconds), DriverActivity::default());
            Pass { time, events, ooms, first_oom: first_oom.map(str::to_owned), live_peak, reserved_peak: 0, driver }
        };
        let parts = [pass(3, 10, 1, None, 5), pass(9, 7, 2, Some("b"), 4), pass(1, 12, 4, Some("c"), 6)];
        assert_eq!(together(parts.into_iter()), pass(9, 7, 7, Some("b"), 6));
    }
}
