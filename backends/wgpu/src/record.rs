//! Recording on a stream, and submitting the recorded commands.

use std::sync::Arc;

use millpond_backend::{StreamId, Tick};

use crate::device::Shared;
use crate::lane::{Flight, Lane, Work};
use crate::memory::{Announced, Memory};
use crate::{Wgpu, WgpuError};

impl Wgpu {
    /// Records commands on a stream: they run after everything that was recorded there before, transfers of this
    /// backend included, once the stream is submitted. Returns the open tick, which that submit closes: it covers the
    /// commands. Creates the stream's encoder if there is none.
    ///
    /// wgpu places the barriers, also between the passes and dispatches that one call records.
    ///
    /// The stream is locked in the meantime. `commands` may allocate and free, but must not record, transfer or submit
    /// on the same stream: it would wait for itself. Nor may wgpu's callbacks (of `on_submitted_work_done` and
    /// `map_async`) do so, on any stream: wgpu runs them inside of submits, with the queue locked, and inside of polls.
    /// They may drop buffers. They should not allocate from an allocator on this device: its own calls poll as well,
    /// and where memory is short a request would wait for the release that its callback runs in.
    ///
    /// # Errors
    ///
    /// [`WgpuError::Lost`], and wgpu's errors if no encoder can be created. Errors in the commands themselves are
    /// reported by the submit.
    ///
    /// # Panics
    ///
    /// If the stream is not this device's.
    pub fn record(
        &self,
        stream: StreamId,
        commands: impl FnOnce(&mut wgpu::CommandEncoder),
    ) -> Result<Tick, WgpuError> {
        self.shared.alive()?;
        let lane = self.shared.lane(stream);
        let mut work = lane.work.lock();
        commands(self.shared.encoder(&mut work)?);
        // A submit closes the tick under the same lock.
        Ok(Tick(lane.clock.open()))
    }

    /// Submits the commands that were recorded on the stream and then these command buffers, in one submission, and
    /// closes the open tick. Returns the tick, which covers all of them.
    ///
    /// # Errors
    ///
    /// [`WgpuError::Refused`] if wgpu refuses any of the commands: none of them runs, and what was recorded is dropped.
    /// [`WgpuError::Lost`] if the device is lost.
    ///
    /// # Panics
    ///
    /// If the stream is not this device's.
    pub fn submit_with(
        &self,
        stream: StreamId,
        command_buffers: impl IntoIterator<Item = wgpu::CommandBuffer>,
    ) -> Result<Tick, WgpuError> {
        let lane = self.shared.lane(stream);
        let flight = self.shared.submit(lane, &mut lane.work.lock(), command_buffers)?;
        Ok(Tick(flight.tick))
    }

    /// Returns the newest tick of the stream that was submitted.
    ///
    /// # Panics
    ///
    /// If the stream is not this device's.
    pub fn submitted(&self, stream: StreamId) -> Tick {
        Tick(self.shared.lane(stream).clock.submitted())
    }
}

impl Shared {
    /// Returns the open encoder of a stream, or a new one.
    pub(crate) fn encoder<'w>(&self, work: &'w mut Work) -> Result<&'w mut wgpu::CommandEncoder, WgpuError> {
        let encoder = match work.encoder.take() {
            Some(encoder) => encoder,
            None => {
                let descriptor = wgpu::CommandEncoderDescriptor { label: Some("millpond stream") };
                self.caught("create_command_encoder", 0, || self.device.create_command_encoder(&descriptor))?
            }
        };
        Ok(work.encoder.insert(encoder))
    }

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
        self.alive()?;
        // This comes before anything is taken: recorded work survives an error here.
        let announced = self.memory.as_ref().map(Memory::announce).transpose()?;
        let encoder = work.encoder.take();
        let staged_bytes = std::mem::take(&mut work.staged_bytes);
        let tick = lane.clock.close();
        let (index, value) = self.caught("submit", 0, || {
            // Errors in the recorded commands are raised by `finish`, and keep the rest from being submitted.
            let own = encoder.map(wgpu::CommandEncoder::finish);
            self.send(announced, own.into_iter().chain(command_buffers))
        })?;
        if self.hint.is_some() && value.is_none() {
            self.loss.note("it took no submission and gave no reason");
        }
        self.alive()?;
        let flight = Flight { tick, index, value, staged_bytes };
        lane.clock.depart(flight.clone());
        let clock = Arc::clone(&lane.clock);
        self.queue.on_submitted_work_done(move || clock.arrive(tick));
        Ok(flight)
    }

    fn send(
        &self,
        announced: Option<Announced<'_>>,
        command_buffers: impl Iterator<Item = wgpu::CommandBuffer>,
    ) -> (wgpu::SubmissionIndex, Option<u64>) {
        let submit = || match announced {
            Some(announced) => announced.submit(&self.queue, || self.queue.submit(command_buffers)),
            None => self.queue.submit(command_buffers),
        };
        match &self.hint {
            Some(hint) => hint.submit(&self.queue, submit),
            None => (submit(), None),
        }
    }
}
