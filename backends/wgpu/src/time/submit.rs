//! Submitting the recorded commands.

use std::sync::Arc;

use super::state::Time;
use crate::error::WgpuError;
use crate::open::{Announced, Under};
use crate::streams::{Flight, Lane, Work};

impl Time {
    /// Submits a lane's work and closes its tick.
    ///
    /// One queue runs everything in the order of its submits, and wgpu places the barriers. So streams are ordered if
    /// the work that must come first is submitted first.
    pub(crate) fn submit(
        &self,
        lane: &Lane,
        work: &mut Work,
        command_buffers: impl IntoIterator<Item = wgpu::CommandBuffer>,
    ) -> Result<Flight, WgpuError> {
        self.driver.alive()?;
        // This comes before anything is taken: recorded work survives an error here.
        let announced = self.under.as_deref().map(Under::announce).transpose()?;
        let encoder = work.encoder.take();
        let staged_bytes = std::mem::take(&mut work.staged_bytes);
        let tick = lane.clock.ticks.close();
        let (index, value) = self.driver.caught("submit", 0, || {
            // Errors in the recorded commands are raised by `finish`, and keep the rest from being submitted.
            let own = encoder.map(wgpu::CommandEncoder::finish);
            self.send(announced, own.into_iter().chain(command_buffers))
        })?;
        if self.hint.is_some() && value.is_none() {
            self.driver.loss.note("it took no submission and gave no reason");
        }
        self.driver.alive()?;
        let flight = Flight { tick, index, value, staged_bytes };
        lane.clock.depart(flight.clone());
        let clock = Arc::clone(&lane.clock);
        self.driver.queue.on_submitted_work_done(move || clock.arrive(tick));
        Ok(flight)
    }

    fn send(
        &self,
        announced: Option<Announced<'_>>,
        command_buffers: impl Iterator<Item = wgpu::CommandBuffer>,
    ) -> (wgpu::SubmissionIndex, Option<u64>) {
        let submit = || match announced {
            Some(announced) => announced.submit(&self.driver.queue, || self.driver.queue.submit(command_buffers)),
            None => self.driver.queue.submit(command_buffers),
        };
        match &self.hint {
            Some(hint) => hint.submit(&self.driver.queue, submit),
            None => (submit(), None),
        }
    }
}
