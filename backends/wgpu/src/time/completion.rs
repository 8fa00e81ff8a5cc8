//! Completion: finding out which submissions are done.
//!
//! wgpu reports completion to callbacks, which it runs in polls and in submits. Each submit of this backend leaves a
//! callback that raises the reached tick of its stream, so that a single poll, by any code, brings all streams up to
//! date. Where the device runs on Vulkan, a semaphore shows whether the poll is worth its microseconds.

use millpond_backend::Tick;

use super::state::Time;
use crate::error::WgpuError;
use crate::streams::{Clock, Flight};

impl Time {
    /// Returns the newest tick known to be done. Polls only if work is in progress and may be done.
    pub(crate) fn reached(&self, clock: &Clock) -> Result<Tick, WgpuError> {
        self.driver.alive()?;
        let reached = clock.ticks.reached();
        if reached >= clock.ticks.submitted() {
            return Ok(reached);
        }
        self.driver.enter("reached")?;
        let oldest = self.hint.as_ref().zip(clock.oldest_value());
        let in_vain = oldest.is_some_and(|(hint, value)| !hint.may_be_done(value));
        if !in_vain {
            let _ = self.driver.poll(wgpu::PollType::Poll)?;
        }
        Ok(clock.ticks.reached())
    }

    /// Blocks until a tick is reached or all submitted work of its stream is done.
    pub(crate) fn wait(&self, clock: &Clock, tick: Tick) -> Result<Tick, WgpuError> {
        if clock.ticks.reached() >= tick {
            return Ok(clock.ticks.reached());
        }
        let Some(flight) = clock.flight_to(tick) else { return Ok(clock.ticks.reached()) };
        self.driver.enter("wait")?;
        self.finish(clock, &flight)?;
        Ok(clock.ticks.reached())
    }

    /// Blocks until a submission is done.
    pub(crate) fn finish(&self, clock: &Clock, flight: &Flight) -> Result<(), WgpuError> {
        // wgpu holds a lock while it waits, which blocks all threads that free or submit; the semaphore needs no lock.
        if let Some((hint, value)) = self.hint.as_ref().zip(flight.value) {
            hint.wait(value);
        }
        let index = Some(flight.index.clone());
        match self.driver.poll(wgpu::PollType::Wait { submission_index: index, timeout: None })? {
            Ok(_) => clock.arrive(flight.tick),
            Err(wgpu::PollError::WrongSubmissionIndex(..)) => {
                // Only a device that no longer takes submissions returns numbers of submissions that it never made.
                self.driver.loss.note("it took no submission and gave no reason");
                self.driver.alive()?;
            }
            Err(wgpu::PollError::Timeout) => panic!("a wait without a limit ran into one, for {:?}", flight.index),
        }
        Ok(())
    }
}
