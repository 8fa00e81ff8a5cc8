//! The trait that every backend implements.

use crate::{
    BackendError, Budget, Caps, ClassId, HostMemory, Left, Point, StreamId, StreamWait, Tick, Transfer, VirtualMemory,
};

/// A device that Millpond can take memory from.
///
/// All methods may be called from any thread at any time. None may call back into the allocator.
///
/// None should panic. If one does, the allocator assumes that a call which takes something has taken nothing, and that
/// a call which gives something back has given it back. It puts its own state in order, and the panic goes on to the
/// caller. Anything that a call took although it panicked is lost.
///
/// # Safety
///
/// Implementing it is unsafe because the data of users depends on it:
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

    /// Returns the device's facts. They are constant, and the call costs nothing.
    fn caps(&self) -> &Caps;

    /// Opens a new stream and returns its id, the next dense number.
    ///
    /// Backends also let an engine register streams of its own, in their own terms; both ways share the numbering.
    ///
    /// # Errors
    ///
    /// Returns the driver's error, for example when the device has no further queue.
    fn create_stream(&self) -> Result<StreamId, Self::Error>;

    /// Returns whether the stream belongs to this backend: it was opened or registered here, even if it was taken away
    /// since. The allocator calls this before it keeps anything for a stream that a caller names by number. It calls no
    /// driver and costs a few nanoseconds.
    fn has_stream(&self, stream: StreamId) -> bool;

    /// Returns whether work can still be queued on a stream of this backend: it was not taken away. The allocator asks
    /// this before it hands out a stream again whose handles are all dropped. It calls no driver. The default is for
    /// backends whose streams are never taken away.
    fn takes_work(&self, stream: StreamId) -> bool {
        self.has_stream(stream)
    }

    /// Takes `bytes` (not 0) of `class` from the driver.
    ///
    /// # Errors
    ///
    /// Returns an error with [`Fault::OutOfMemory`](crate::Fault::OutOfMemory) when there is no room, or the class
    /// cannot make a segment of that size.
    fn reserve(&self, class: ClassId, bytes: u64) -> Result<Self::Segment, Self::Error>;

    /// Gives a segment back. It cannot fail: the backend keeps a driver error here, and reports it as
    /// [`Fault::Lost`](crate::Fault::Lost) from its next fallible call.
    ///
    /// # Safety
    ///
    /// No recorded or submitted work may still touch the segment, and none may be recorded later.
    unsafe fn release(&self, segment: Self::Segment);

    /// Returns the address at which the segment starts in the device's address space, if the device has addresses. It
    /// is constant for each segment.
    fn address(&self, segment: &Self::Segment) -> Option<u64>;

    /// Returns whether a request for aligned memory is about the offset in the segment, where segments have addresses,
    /// too. It is constant and calls no driver. The default is for devices whose work and driver name memory by
    /// address. On Vulkan the driver's own alignments are those of offsets: in memory, and in a buffer.
    fn aligns_offsets(&self) -> bool {
        false
    }

    /// Returns the tick that covers everything recorded on the stream so far. It never fails, calls no driver and costs
    /// a few nanoseconds: it is on the path of every free.
    ///
    /// # Panics
    ///
    /// Panics if the stream does not belong to this backend.
    fn mark(&self, stream: StreamId) -> Tick;

    /// Returns the newest tick of the stream that is known to be complete. It never blocks. It may close the open tick,
    /// if the backend closes ticks ([`Closing::Backend`](crate::Closing::Backend)).
    ///
    /// # Errors
    ///
    /// Returns any error that the driver reports. Work that is not complete yet is not an error.
    fn reached(&self, stream: StreamId) -> Result<Tick, Self::Error>;

    /// Closes the open tick and returns it: submits what was recorded through the backend itself, if anything, behind
    /// what was submitted on the stream before. The tick then covers all work that any caller has recorded on the
    /// stream so far, so callers that record work without the backend submit it first.
    ///
    /// Where the backend closes ticks ([`Closing::Backend`](crate::Closing::Backend)) there is nothing to submit, and
    /// this is the same as [`mark`](Backend::mark). Elsewhere it costs a driver call. It does not block.
    ///
    /// # Errors
    ///
    /// Returns the driver's error.
    ///
    /// # Panics
    ///
    /// Panics if the stream does not belong to this backend.
    fn submit(&self, stream: StreamId) -> Result<Tick, Self::Error> {
        Ok(self.mark(stream))
    }

    /// Blocks until the point is reached **or** until all submitted work of that stream is done, whichever is first,
    /// and returns what was reached. So it cannot wait for ever on work that was never submitted, and the caller must
    /// check the returned tick.
    ///
    /// # Errors
    ///
    /// Returns the driver's error.
    #[must_use = "the point may not have been reached: work that was never submitted is never waited for"]
    fn wait(&self, point: Point) -> Result<Tick, Self::Error>;

    /// Works like [`wait`](Backend::wait) for a thread that has nothing else to do and need not know at once: it
    /// keeps no core busy. Backends whose `wait` sleeps keep the default.
    ///
    /// # Errors
    ///
    /// Returns the driver's error.
    #[must_use = "the point may not have been reached: work that was never submitted is never waited for"]
    fn wait_asleep(&self, point: Point) -> Result<Tick, Self::Error> {
        self.wait(point)
    }

    /// Takes what a dropped allocator leaves, because work that was not submitted may still touch it, and gives it back
    /// by itself once the points are reached, or as soon as it is known that no such work exists. Looks at that
    /// whenever a stream comes further, and at the latest before a request is refused. It cannot fail.
    ///
    /// It may block until work is done. It closes no tick, which may cover work that only a caller knows of, and takes
    /// no lock that a caller may hold who frees memory: the last buffer may be dropped while work is recorded or a
    /// submit is made.
    ///
    /// Devices that close ticks by themselves ([`Closing::Backend`](crate::Closing::Backend)) get something only after
    /// an error. The default keeps all of it until the device is destroyed.
    ///
    /// # Safety
    ///
    /// No new work will touch it: what may touch it was recorded before, and each of the points covers it on its
    /// stream. All of it is this device's, and the pages are mapped where they say and nowhere else.
    unsafe fn leave(&self, left: Left<Self::Segment, Self::Page>) {
        core::mem::forget(left);
    }

    /// Returns the operations on virtual memory, if the device has it. It is announced as [`Caps::pages`].
    fn virtual_memory(
        &self,
    ) -> Option<&dyn VirtualMemory<Segment = Self::Segment, Page = Self::Page, Error = Self::Error>> {
        None
    }

    /// Returns the device-side waits, if the device has them. They are announced as [`Caps::stream_wait`].
    fn stream_wait(&self) -> Option<&dyn StreamWait<Error = Self::Error>> {
        None
    }

    /// Returns the host addresses of host-visible segments, if the device has them. They are announced as
    /// [`Caps::host_memory`].
    fn host_memory(&self) -> Option<&dyn HostMemory<Segment = Self::Segment>> {
        None
    }

    /// Returns fills and copies, if the device has them. They are announced as [`Caps::transfer`].
    fn transfer(&self) -> Option<&dyn Transfer<Segment = Self::Segment, Error = Self::Error>> {
        None
    }

    /// Returns the query for how much memory is left, if the device has it. It is announced as [`Caps::budget`].
    fn budget(&self) -> Option<&dyn Budget<Error = Self::Error>> {
        None
    }

    /// Returns the nanoseconds on the device's own clock, for devices whose time is not the host's. A simulated device
    /// counts here what its driver calls would have cost. Real devices keep the default, and the host's clock is used.
    fn driver_clock(&self) -> Option<u64> {
        None
    }

    /// Returns the open tick of a stream without marking it, where the backend closes ticks. Makes no driver call. The
    /// default returns `None`: it is then not known when ticks are closed, and the policy `paged` cannot tell whether
    /// streams run side by side, nor what was freed after a stream was asked how far it is.
    fn open_tick(&self, stream: StreamId) -> Option<Tick> {
        let _ = stream;
        None
    }

    /// Returns the time by which the device's work proceeds, in nanoseconds, for devices whose time is not the host's.
    /// It never falls, and stands still on a simulated device whose work takes no time. Real devices keep the default,
    /// and the host's clock is used.
    fn work_clock(&self) -> Option<u64> {
        None
    }
}
