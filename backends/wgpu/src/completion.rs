//! Completion: finding out which submissions are done.
//!
//! wgpu reports completion to callbacks, which it runs in polls and in submits. Each submit of this backend leaves a
//! callback that raises the reached tick of its stream, so that a single poll, by any code, brings all streams up to
//! date. Where the device runs on Vulkan, a semaphore shows whether the poll is worth its microseconds.

use millpond_backend::Point;

use crate::WgpuError;
use crate::device::Shared;
use crate::lane::{Clock, Flight};

impl Shared {
    /// Returns the newest tick known to be done. Polls only if work is in progress and may be done.
    pub(crate) fn reached(&self, clock: &Clock) -> Result<u64, WgpuError> {
        self.alive()?;
        let reached = clock.reached();
        if reached >= clock.submitted() {
            return Ok(reached);
        }
        self.enter("reached")?;
        let oldest = self.hint.as_ref().zip(clock.oldest_value());
        let in_vain = oldest.is_some_and(|(hint, value)| !hint.may_be_done(value));
        if !in_vain {
            let _ = self.poll(wgpu::PollType::Poll)?;
        }
        Ok(clock.reached())
    }

    /// Blocks until a point is reached or all submitted work of its stream is done.
    pub(crate) fn wait(&self, point: Point) -> Result<u64, WgpuError> {
        self.alive()?;
        let clock = &self.lane(point.stream).clock;
        if clock.reached() >= point.tick.0 {
            return Ok(clock.reached());
        }
        let Some(flight) = clock.flight_to(point.tick.0) else { return Ok(clock.reached()) };
        self.enter("wait")?;
        self.finish(clock, &flight)?;
        Ok(clock.reached())
    }

    /// Blocks until a submission is done.
    pub(crate) fn finish(&self, clock: &Clock, flight: &Flight) -> Result<(), WgpuError> {
        // wgpu holds a lock while it waits, which blocks all threads that free or submit; the semaphore needs no lock.
        if let Some((hint, value)) = self.hint.as_ref().zip(flight.value) {
            hint.wait(value);
        }
        let index = Some(flight.index.clone());
        match self.poll(wgpu::PollType::Wait { submission_index: index, timeout: None })? {
            Ok(_) => clock.arrive(flight.tick),
            Err(wgpu::PollError::WrongSubmissionIndex(..)) => {
                // Only a device that no longer takes submissions returns numbers of submissions that it never made.
                self.loss.note("it took no submission and gave no reason");
                self.alive()?;
            }
            Err(wgpu::PollError::Timeout) => panic!("a wait without a limit ran into one, for {:?}", flight.index),
        }
        Ok(())
    }
}
