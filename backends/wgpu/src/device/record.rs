//! Recording on a stream, and submitting it.

use millpond_backend::{StreamId, Tick};

use super::Wgpu;
use crate::error::WgpuError;

impl Wgpu {
    /// Records commands on a stream: they run after everything that was recorded there before, transfers of this
    /// backend included, once the stream is submitted. Returns the open tick, which that submit closes: it covers the
    /// commands. Creates the stream's encoder if there is none.
    ///
    /// wgpu places the barriers, also between the passes and dispatches that one call records.
    ///
    /// The stream is locked meanwhile. `commands` may allocate and free, but must not record, transfer or submit on the
    /// same stream: it would deadlock. Nor may wgpu's callbacks (of `on_submitted_work_done` and `map_async`) do so, on
    /// any stream: wgpu runs them inside of submits, with the queue locked, and inside of polls. They may drop buffers.
    /// They should not allocate from an allocator on this device: its calls poll, too, and if memory is short a request
    /// would wait for the release that its callback runs in.
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
        self.shared.driver.alive()?;
        let lane = self.shared.streams.lane(stream);
        let mut work = lane.work.lock();
        commands(self.shared.streams.encoder(&mut work)?);
        // A submit closes the tick under the same lock.
        Ok(lane.clock.ticks.open())
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
        let lane = self.shared.streams.lane(stream);
        let flight = self.shared.time.submit(lane, &mut lane.work.lock(), command_buffers)?;
        Ok(flight.tick)
    }

    /// Returns the newest tick of the stream that was submitted.
    ///
    /// # Panics
    ///
    /// If the stream is not this device's.
    pub fn submitted(&self, stream: StreamId) -> Tick {
        self.shared.streams.lane(stream).clock.ticks.submitted()
    }
}
