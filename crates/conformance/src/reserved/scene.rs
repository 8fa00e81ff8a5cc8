//! What the programs stand on: an allocator that nothing watches, so that thousands of requests cost little, and the
//! device, which sees each use of each block.

use millpond::settings::Policy;
use millpond::{Allocator, Buffer, Readiness, Stream};
use millpond_backend::{Backend, Point};

use super::Reserved;
use crate::device::DeviceUnderTest;
use crate::session::{Setup, Stop, device_is_content, nothing_is_left, open_allocator};

/// The bytes of a block that a use of it writes: enough for the device to see the use, and for a device in software to
/// keep a page of it.
const TOUCHED_BYTES: u64 = 4096;

/// The number of steps that are in flight at once, if any are.
const FLIGHT: usize = 8;

/// The most streams that a program opens.
const STREAMS: u32 = 40;

/// The streams of a program that has ended.
pub(super) type Ended<D> = Vec<Stream<<D as DeviceUnderTest>::Backend>>;

/// A program's allocator, and the device's controls for tests.
pub(super) struct Scene<'d, D: DeviceUnderTest> {
    device: &'d D,
    /// Whether several steps are in flight at once. Else the program waits for each step.
    in_flight: bool,
    pub(super) allocator: Allocator<D::Backend>,
    twin: Option<D::Backend>,
}

impl<'d, D: DeviceUnderTest> Scene<'d, D> {
    /// Opens the device, and creates an allocator without a limit.
    pub(super) fn open(device: &'d D, policy: Policy, in_flight: bool) -> Result<Self, Stop> {
        let setup = Setup { policy, conf: "", limit: None, streams: STREAMS, bytes: true };
        let (allocator, twin) = open_allocator(device, &setup)?;
        Ok(Self { device, in_flight, allocator, twin })
    }

    /// Opens a stream. Skips where the device has no further one.
    pub(super) fn stream(&self) -> Result<Stream<D::Backend>, Stop> {
        self.allocator.create_stream().map_err(|error| Stop::Skip(format!("no further stream: {error}")))
    }

    /// Allocates on a stream, and has the stream write the block.
    pub(super) fn allocate(&self, stream: &Stream<D::Backend>, bytes: u64) -> Result<Buffer<D::Backend>, Stop> {
        let buffer = stream.allocate(bytes).map_err(|error| Stop::Fail(format!("{bytes} bytes: {error}")))?;
        if buffer.readiness() == Readiness::NeedsBarrier {
            D::place_barrier(self.allocator.backend(), stream.id());
        }
        self.touch(stream, &buffer)?;
        Ok(buffer)
    }

    /// Has a stream work on a block. Does nothing on a device that neither fills nor copies.
    pub(super) fn touch(&self, stream: &Stream<D::Backend>, buffer: &Buffer<D::Backend>) -> Result<(), Stop> {
        let (Some(mover), Some(segment)) = (self.allocator.backend().transfer(), buffer.segment()) else {
            return Ok(());
        };
        let bytes = buffer.capacity().min(TOUCHED_BYTES);
        let filled = mover.fill(stream.id(), segment, buffer.offset(), bytes, 0x3C);
        filled.map_err(|error| Stop::Fail(format!("fill of {bytes} bytes on {stream:?}: {error}")))
    }

    /// Has another stream work on a block, after all that its own stream has queued so far, until the block is freed.
    pub(super) fn use_on(&self, stream: &Stream<D::Backend>, buffer: &Buffer<D::Backend>) -> Result<(), Stop> {
        self.touch(stream, buffer)?;
        buffer.record_stream(stream).map_err(|error| Stop::Fail(format!("record_stream on {stream:?}: {error}")))
    }

    /// Submits what was recorded on a stream, held or not: where a device holds work back, nothing could wait for it.
    pub(super) fn submit(&self, stream: &Stream<D::Backend>) -> Result<Point, Stop> {
        stream.submit().map_err(|error| Stop::Fail(format!("submit of {stream:?}: {error}")))
    }

    /// Makes later work of one stream come after everything queued on another so far: on the device where it supports
    /// that, and otherwise by waiting on the host.
    pub(super) fn order(&self, later: &Stream<D::Backend>, earlier: &Stream<D::Backend>) -> Result<(), Stop> {
        let point = self.submit(earlier)?;
        match self.allocator.backend().stream_wait() {
            Some(waits) => waits
                .wait_for(later.id(), point)
                .map_err(|error| Stop::Fail(format!("{later:?} cannot wait for {point}: {error}"))),
            None => self.wait(point),
        }
    }

    /// Begins a step. What is queued on these streams stays in flight for some steps, where the device can do this.
    pub(super) fn begin_step(&self, step: usize, held: &[&Stream<D::Backend>]) {
        if self.in_flight && step.is_multiple_of(FLIGHT) {
            held.iter().for_each(|stream| _ = self.device.hold(self.allocator.backend(), stream.id()));
        }
    }

    /// Ends a step, the last one of a flight by waiting for all that is queued on these streams.
    pub(super) fn end_step(&self, step: usize, streams: &[&Stream<D::Backend>]) -> Result<(), Stop> {
        if self.in_flight && !(step + 1).is_multiple_of(FLIGHT) { Ok(()) } else { self.drain(streams) }
    }

    /// Lets everything that is queued on these streams complete, and waits for it.
    pub(super) fn drain(&self, streams: &[&Stream<D::Backend>]) -> Result<(), Stop> {
        streams.iter().for_each(|stream| self.device.unhold(self.allocator.backend(), stream.id()));
        let points: Vec<Point> = streams.iter().map(|stream| self.submit(stream)).collect::<Result<_, _>>()?;
        points.into_iter().try_for_each(|point| self.wait(point))
    }

    fn wait(&self, point: Point) -> Result<(), Stop> {
        let waited = self.allocator.backend().wait(point);
        waited.map(drop).map_err(|error| Stop::Fail(format!("the wait for {point} failed: {error}")))
    }

    /// Ends a program that holds nothing any more but these streams. Returns what it had reserved at most for what it
    /// had live at most.
    pub(super) fn finish(self, streams: Ended<D>) -> Result<Reserved, Stop> {
        self.drain(&streams.iter().collect::<Vec<_>>())?;
        drop(streams);
        let Self { device, allocator, twin, .. } = self;
        let stats = allocator.stats();
        let [reserved, live, active] = [stats.reserved_bytes, stats.allocated_bytes, stats.active_bytes];
        let most = [reserved, live, active].map(|bytes| bytes.all.peak);
        let most = Reserved { reserved: most[0], live: most[1], active: most[2] };
        allocator.check();
        device_is_content(device, allocator.backend())?;
        allocator.empty_cache().map_err(|error| Stop::Fail(format!("empty_cache: {error}")))?;
        let (live, left) = (allocator.memory_allocated(), allocator.memory_reserved());
        if live + left > 0 {
            return Err(Stop::Fail(format!("{live} bytes are live at the end, and {left} reserved")));
        }
        drop(allocator);
        nothing_is_left(device, twin.as_ref())?;
        Ok(most)
    }
}
