//! The device, and the part of the contract that does not concern time or transfers.

use std::fmt;
use std::sync::Arc;

use millpond_backend::{Backend, Caps, ClassId, FaultPlan, Point, StreamId, StreamWait, Tick, Transfer};

use crate::lane::Lane;
use crate::memory::{Memory, Page};
use crate::scope::{Loss, Uncaptured};
use crate::segment::{Account, WORD};
use crate::transfer::Movers;
use crate::vulkan::Hint;
use crate::{Segment, WgpuError};

/// The class whose blocks are meant to have a buffer of their own. It has the same memory and usages as class 0, and is
/// used with the policy `direct`, by a separate allocator that shares the device and its streams. [`Segment::binding`]
/// describes its purpose.
pub const EXCLUSIVE: ClassId = ClassId(1);

/// A wgpu device, and the handle to it: clones are the same device.
///
/// All methods may be called from any thread. Dropping the last handle waits for the work that was submitted.
#[derive(Clone)]
pub struct Wgpu {
    pub(crate) shared: Arc<Shared>,
}

/// The state that all handles of a device share.
pub(crate) struct Shared {
    /// The source of segments that are not wgpu's own. Dropped before the device.
    pub(crate) memory: Option<Memory>,
    pub(crate) device: wgpu::Device,
    pub(crate) queue: wgpu::Queue,
    pub(crate) caps: Caps,
    pub(crate) usage: wgpu::BufferUsages,
    pub(crate) staging_bytes: u64,
    pub(crate) account: Arc<Account>,
    pub(crate) lanes: boxcar::Vec<Lane>,
    pub(crate) hint: Option<Hint>,
    pub(crate) movers: Movers,
    pub(crate) faults: FaultPlan,
    pub(crate) loss: Arc<Loss>,
    pub(crate) uncaptured: Arc<Uncaptured>,
}

impl Wgpu {
    /// Returns the wgpu device.
    pub fn device(&self) -> &wgpu::Device {
        &self.shared.device
    }

    /// Returns the wgpu queue. Code that submits work to it that uses blocks of a stream submits that stream afterwards
    /// ([`Backend::submit`]): the tick then covers the work.
    pub fn queue(&self) -> &wgpu::Queue {
        &self.shared.queue
    }

    /// Returns the number of the device within this process, as error messages give it.
    pub fn serial(&self) -> u64 {
        self.shared.account.serial
    }

    /// Returns the bytes of the segments that were reserved and not released.
    pub fn held_bytes(&self) -> u64 {
        self.shared.account.held_bytes()
    }

    /// Returns whether a semaphore of Vulkan shows when to poll wgpu, which is a thousand times cheaper than a poll.
    pub fn has_semaphore(&self) -> bool {
        self.shared.hint.is_some()
    }

    /// Returns the errors that wgpu reported outside of this backend's calls, the first 64 of them. A device that was
    /// opened here keeps such errors, where wgpu would otherwise panic. Always empty on a device that was adopted.
    pub fn errors(&self) -> Vec<String> {
        self.shared.uncaptured.texts()
    }

    /// Reports that the device is lost. For adopted devices: wgpu has one callback for a loss, and it belongs to the
    /// application; call this from it. Without it a loss shows in waits and downloads, and on Vulkan in submits.
    pub fn report_lost(&self, reason: &str) {
        self.shared.loss.note(reason);
    }
}

impl fmt::Debug for Wgpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wgpu")
            .field("name", &self.shared.caps.name)
            .field("serial", &self.serial())
            .field("streams", &self.shared.lanes.count())
            .field("held_bytes", &self.held_bytes())
            .finish_non_exhaustive()
    }
}

impl Shared {
    /// Returns the lane of a stream.
    ///
    /// # Panics
    ///
    /// If the stream is not this device's.
    #[inline]
    pub(crate) fn lane(&self, stream: StreamId) -> &Lane {
        match self.lanes.get(stream.0 as usize) {
            Some(lane) => lane,
            None => panic!("{stream} asked of a device that has {} streams", self.lanes.count()),
        }
    }

    /// Creates a buffer of at least that many bytes.
    pub(crate) fn create_buffer(
        &self,
        call: &'static str,
        bytes: u64,
        usage: wgpu::BufferUsages,
        mapped: bool,
    ) -> Result<wgpu::Buffer, WgpuError> {
        let size = bytes.next_multiple_of(WORD);
        let descriptor = wgpu::BufferDescriptor { label: Some("millpond"), size, usage, mapped_at_creation: mapped };
        let buffer = self.caught(call, bytes, || self.device.create_buffer(&descriptor))?;
        self.alive()?;
        Ok(buffer)
    }

    /// Checks whether the device still works. A device that is lost, or that was destroyed while work was in progress,
    /// returns invalid buffers without an error; this shows only when such a buffer is mapped.
    fn probe(&self, call: &'static str) -> Result<(), WgpuError> {
        let usage = wgpu::BufferUsages::MAP_WRITE | wgpu::BufferUsages::COPY_SRC;
        let buffer = self.create_buffer(call, WORD, usage, true)?;
        if let Err(error) = buffer.slice(..).get_mapped_range_mut() {
            self.loss.note(&format!("it makes no buffers any more: {error}"));
        }
        self.alive()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if self.hint.is_none() && self.memory.is_none() {
            return;
        }
        // A lost device has no work in progress, and the poll returns at once or with an error.
        let _ = self.poll(wgpu::PollType::wait_indefinitely());
        if let Some(hint) = &self.hint {
            hint.destroy();
        }
        if let Some(memory) = &self.memory {
            memory.free_returned();
        }
    }
}

// SAFETY: each segment is a buffer of its own, made by wgpu with the bytes that were asked for. A lane's `reached`
// rises only when wgpu reports that the submission of that tick is done: in the callback left behind it, or by a wait
// for its index. A tick is closed before its work is submitted and under the lock that recording takes, so work that
// was recorded before a mark is in that tick's submission or in a later one, and ticks are submitted in their order.
// Stream ids are indices of a vector that only grows.
unsafe impl Backend for Wgpu {
    type Segment = Segment;
    type Page = Page;
    type Error = WgpuError;

    fn caps(&self) -> &Caps {
        &self.shared.caps
    }

    fn create_stream(&self) -> Result<StreamId, WgpuError> {
        self.shared.enter("create_stream")?;
        let index = self.shared.lanes.push(Lane::new());
        Ok(StreamId(u32::try_from(index).expect("fewer than 2^32 streams")))
    }

    fn has_stream(&self, stream: StreamId) -> bool {
        self.shared.lanes.get(stream.0 as usize).is_some()
    }

    fn reserve(&self, class: ClassId, bytes: u64) -> Result<Segment, WgpuError> {
        const CALL: &str = "reserve";
        let shared = &*self.shared;
        shared.enter(CALL)?;
        let max = shared.caps.class(class).max_segment_bytes;
        if bytes == 0 {
            return Err(WgpuError::Empty { call: CALL });
        }
        if bytes > max {
            return Err(WgpuError::TooLarge { asked: bytes, max });
        }
        // A poll frees memory that was released and whose work is done.
        let _ = shared.poll(wgpu::PollType::Poll)?;
        let (buffer, backing) = match &shared.memory {
            Some(memory) => memory.reserve(shared, bytes).map(|(buffer, backing)| (buffer, Some(backing)))?,
            None => (shared.create_buffer(CALL, bytes, shared.usage, false)?, None),
        };
        let segment = Segment::new(&shared.account, buffer, bytes, class, backing);
        match shared.probe(CALL) {
            Ok(()) => Ok(segment),
            Err(error) => {
                segment.destroy();
                Err(error)
            }
        }
    }

    unsafe fn release(&self, segment: Segment) {
        segment.destroy();
        // wgpu frees a buffer when a poll finds that its last use is done, which is the case already.
        let _ = self.shared.poll(wgpu::PollType::Poll);
        if let Some(memory) = &self.shared.memory {
            memory.free_returned();
        }
    }

    fn address(&self, _segment: &Segment) -> Option<u64> {
        None
    }

    #[inline]
    fn mark(&self, stream: StreamId) -> Tick {
        Tick(self.shared.lane(stream).clock.open())
    }

    #[inline]
    fn reached(&self, stream: StreamId) -> Result<Tick, WgpuError> {
        self.shared.reached(&self.shared.lane(stream).clock).map(Tick)
    }

    fn submit(&self, stream: StreamId) -> Result<Tick, WgpuError> {
        self.submit_with(stream, [])
    }

    fn wait(&self, point: Point) -> Result<Tick, WgpuError> {
        self.shared.wait(point).map(Tick)
    }

    #[cfg(all(feature = "vulkan-segments", not(target_vendor = "apple"), not(target_family = "wasm")))]
    fn virtual_memory(
        &self,
    ) -> Option<&dyn millpond_backend::VirtualMemory<Segment = Segment, Page = Page, Error = WgpuError>> {
        if self.shared.caps.pages.is_some() { Some(self) } else { None }
    }

    #[cfg(all(feature = "vulkan-segments", not(target_vendor = "apple"), not(target_family = "wasm")))]
    fn budget(&self) -> Option<&dyn millpond_backend::Budget<Error = WgpuError>> {
        if self.shared.caps.budget { Some(self) } else { None }
    }

    fn stream_wait(&self) -> Option<&dyn StreamWait<Error = WgpuError>> {
        Some(self)
    }

    fn transfer(&self) -> Option<&dyn Transfer<Segment = Segment, Error = WgpuError>> {
        Some(self)
    }
}

impl StreamWait for Wgpu {
    type Error = WgpuError;

    /// Checks that the point's work is submitted; the wait itself costs nothing: there is one queue, and work that was
    /// submitted runs before work that is submitted later. A wait of a stream for itself is always allowed.
    ///
    /// # Errors
    ///
    /// [`WgpuError::NotSubmitted`] if the point's stream was not submitted, which must come first; [`WgpuError::Lost`].
    fn wait_for(&self, stream: StreamId, point: Point) -> Result<(), WgpuError> {
        self.shared.enter("wait_for")?;
        self.shared.lane(stream);
        let submitted = self.submitted(point.stream).0;
        if stream == point.stream || point.tick.0 <= submitted {
            Ok(())
        } else {
            Err(WgpuError::NotSubmitted { point, submitted })
        }
    }
}
