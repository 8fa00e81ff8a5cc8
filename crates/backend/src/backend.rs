//! The trait itself.

use crate::{
    BackendError, Budget, Caps, ClassId, HostMemory, Point, StreamId, StreamWait, Tick, Transfer, VirtualMemory,
};

/// A device that Millpond can take memory from.
///
/// All methods may be called from any thread at any time. None may call back into the allocator.
///
/// None should panic. Of one that does, the allocator takes it that a call which takes something has taken nothing, and
/// that a call which gives something back has given it back; it puts its own state in order, and the panic goes on to
/// the caller. What a call that panics has taken nevertheless is lost.
///
/// # Safety
///
/// Implementing it is unsafe because users' data depends on it:
/// - live segments of one backend do not overlap, and each holds the bytes that were asked for;
/// - [`reached`](Backend::reached) and [`wait`](Backend::wait) never run ahead: when they report a tick, all work that
///   [`mark`](Backend::mark) had covered with that tick or a lower one is complete and visible;
/// - ticks of a stream never fall, and stream ids are never reused.
pub unsafe trait Backend: Send + Sync + 'static {
    /// One driver allocation or one reserved address range, owned.
    type Segment: Send + Sync + 'static;
    /// One handle of physical memory, owned. `()` where the device has no virtual memory.
    type Page: Send + Sync + 'static;
    /// The driver's error.
    type Error: BackendError;

    /// The device's facts. Constant; costs nothing.
    fn caps(&self) -> &Caps;

    /// Opens a new stream and returns its id, the next dense number.
    ///
    /// Backends also let an engine register streams of its own, in their own terms; both ways share the numbering.
    ///
    /// # Errors
    ///
    /// The driver's, for example when the device has no further queue.
    fn create_stream(&self) -> Result<StreamId, Self::Error>;

    /// Whether the stream is this backend's: opened or registered here, even if it was taken away since. The allocator
    /// asks before it keeps anything for a stream that is named to it by number. Calls no driver, costs a few
    /// nanoseconds.
    fn has_stream(&self, stream: StreamId) -> bool;

    /// Takes `bytes` (not 0) of `class` from the driver.
    ///
    /// # Errors
    ///
    /// [`Fault::OutOfMemory`](crate::Fault::OutOfMemory) when there is no room, or the class cannot make a segment so
    /// large.
    fn reserve(&self, class: ClassId, bytes: u64) -> Result<Self::Segment, Self::Error>;

    /// Gives a segment back. Cannot fail: a driver error here is kept by the backend and surfaces as
    /// [`Fault::Lost`](crate::Fault::Lost) from its next fallible call.
    ///
    /// # Safety
    ///
    /// No recorded or submitted work may still touch the segment, and none may be recorded later.
    unsafe fn release(&self, segment: Self::Segment);

    /// Where the segment starts in the device's address space, if the device has addresses. Constant per segment.
    fn address(&self, segment: &Self::Segment) -> Option<u64>;

    /// The tick that covers everything recorded on the stream so far. Never fails, calls no driver, costs a few
    /// nanoseconds: it is on the path of every free.
    ///
    /// # Panics
    ///
    /// If the stream is not this backend's.
    fn mark(&self, stream: StreamId) -> Tick;

    /// The newest tick of the stream known to be complete. Never blocks; may close the open tick if that is the
    /// backend's to do ([`Closing::Backend`](crate::Closing::Backend)).
    ///
    /// # Errors
    ///
    /// "Not yet" is an answer, not an error; everything else the driver reports is one.
    fn reached(&self, stream: StreamId) -> Result<Tick, Self::Error>;

    /// Closes the open tick: submits what was recorded through the backend itself, if anything, behind what was
    /// submitted on the stream before. The tick then covers all work that anybody recorded on the stream so far, so
    /// whoever records work of his own submits it first. Answers the tick.
    ///
    /// Where the backend closes ticks ([`Closing::Backend`](crate::Closing::Backend)) there is nothing to submit, and
    /// this is [`mark`](Backend::mark). Elsewhere it costs a driver call. Does not block.
    ///
    /// # Errors
    ///
    /// The driver's.
    ///
    /// # Panics
    ///
    /// If the stream is not this backend's.
    fn submit(&self, stream: StreamId) -> Result<Tick, Self::Error> {
        Ok(self.mark(stream))
    }

    /// Blocks until the point is reached **or** until all submitted work of that stream is done, whichever is first,
    /// and returns what was reached. So it cannot hang on work that was never submitted, and the caller must look at
    /// the answer.
    ///
    /// # Errors
    ///
    /// The driver's.
    #[must_use = "the point may not have been reached: work that was never submitted is never waited for"]
    fn wait(&self, point: Point) -> Result<Tick, Self::Error>;

    /// Virtual memory, if the device has it; announced as [`Caps::pages`].
    fn virtual_memory(
        &self,
    ) -> Option<&dyn VirtualMemory<Segment = Self::Segment, Page = Self::Page, Error = Self::Error>> {
        None
    }

    /// Device-side waits, if the device has them; announced as [`Caps::stream_wait`].
    fn stream_wait(&self) -> Option<&dyn StreamWait<Error = Self::Error>> {
        None
    }

    /// Host addresses of host-visible segments; announced as [`Caps::host_memory`].
    fn host_memory(&self) -> Option<&dyn HostMemory<Segment = Self::Segment>> {
        None
    }

    /// Fills and copies; announced as [`Caps::transfer`].
    fn transfer(&self) -> Option<&dyn Transfer<Segment = Self::Segment, Error = Self::Error>> {
        None
    }

    /// How much memory is left; announced as [`Caps::budget`].
    fn budget(&self) -> Option<&dyn Budget<Error = Self::Error>> {
        None
    }

    /// Nanoseconds on the device's own clock, for devices whose time is not the host's. A simulated device counts here
    /// what its driver calls would have cost; real ones leave the default, and the host's clock is used.
    fn driver_clock(&self) -> Option<u64> {
        None
    }
}
