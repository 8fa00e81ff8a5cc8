//! Submitting a stream, waiting for it, and making it wait for others.

use millpond_backend::{Backend, Point};

use super::Stream;
use crate::error::Error;

impl<B: Backend> Stream<B> {
    /// Submits what was recorded on the stream so far and returns the point that covers it, for
    /// [`wait_for`](Self::wait_for) and [`Buffer::used_until`](crate::Buffer::used_until). Does not block.
    ///
    /// Where the application closes ticks (Vulkan, wgpu) this costs a driver call, and recorded work is never reached
    /// before it is submitted. Elsewhere (CUDA) work is submitted as it is queued: there this is the same as
    /// [`point`](Self::point) and makes no driver call.
    ///
    /// # Errors
    ///
    /// [`Error::Driver`] if a driver call fails.
    pub fn submit(&self) -> Result<Point, Error<B::Error>> {
        let state = self.lane.owner();
        state.note_tick(self.id);
        let tick = state.backend.submit(self.id).map_err(|e| Error::of_driver("submit", e))?;
        let point = Point { stream: self.id, tick };
        state.note_submit(point);
        Ok(point)
    }

    /// Makes work that is queued on this stream from now on begin only after the point is reached. The device waits,
    /// not the host: CUDA's `cudaStreamWaitEvent`. Costs one driver call at most.
    ///
    /// It only orders work; the allocator does not learn about it: a buffer that is used on another stream than its own
    /// still needs [`record_stream`](crate::Buffer::record_stream) or [`used_until`](crate::Buffer::used_until).
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] on a device without such waits, where [`synchronize`](Self::synchronize) on the other
    /// stream makes the host wait instead; [`Error::UnknownStream`] for a point of a stream that the allocator does not
    /// have; [`Error::NotMarked`] if the tick lies beyond the work that was recorded on that stream so far;
    /// [`Error::Driver`] if a driver call fails, for example on Vulkan and wgpu for a point that was not
    /// [submitted](Self::submit) yet.
    pub fn wait_for(&self, point: Point) -> Result<(), Error<B::Error>> {
        let state = self.lane.owner();
        let Some(device) = state.backend.stream_wait() else {
            return Err(self.unsupported("device-side waits", "synchronize the other stream instead"));
        };
        state.expect_marked(point)?;
        let waits = state.closing(point.stream, |_| device.wait_for(self.id, point));
        waits.map_err(|e| Error::of_driver("wait_for", e))?;
        state.note_stream_wait(self.id, point);
        Ok(())
    }

    /// Submits the stream and blocks until everything queued on it so far is complete: CUDA's `cudaStreamSynchronize`.
    /// Work that other threads queue meanwhile may not be complete then.
    ///
    /// # Errors
    ///
    /// [`Error::Driver`] if a driver call fails; [`Error::NotReached`] if the stream waits for work that was never
    /// submitted.
    pub fn synchronize(&self) -> Result<(), Error<B::Error>> {
        let state = self.lane.owner();
        let point = self.submit()?;
        let reached = state.closing(self.id, |backend| backend.wait(point));
        let reached = reached.map_err(|e| Error::of_driver("wait", e))?;
        state.waited_for(point, reached)
    }

    /// Returns the error for something that the device does not have.
    pub(super) fn unsupported(&self, what: &'static str, advice: &'static str) -> Error<B::Error> {
        Error::Unsupported { what, device: self.lane.owner().backend.caps().name.clone(), advice }
    }
}
