//! The device itself, and the part of the contract that does not concern memory, pages or transfers.

use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use ash::vk;
use gpu_allocator::vulkan::Allocator;
use millpond_backend::{
    Backend, Budget, Caps, ClassId, FaultPlan, HostMemory, Point, StreamId, StreamWait, Tick, Transfer, VirtualMemory,
};
use parking_lot::Mutex;

use crate::binds::Binds;
use crate::classes::ClassFacts;
use crate::instance::Instance;
use crate::lane::Lane;
use crate::probe::Probe;
use crate::queue::Queue;
use crate::segment::Backed;
use crate::submit::Submission;
use crate::sync2::Sync2;
use crate::{EnabledFeatures, Page, Segment, ValidationLog, VulkanError};

/// A Vulkan device, and the handle to it: clones are the same device. What the device owns is destroyed with the last
/// handle, which waits for everything that was submitted through it.
///
/// All methods may be called from any thread. `mark`, and `reached` while nothing is outstanding, take no lock.
#[derive(Clone)]
pub struct Vulkan {
    pub(crate) device: Arc<Device>,
}

/// The state that all handles of a device share. The last four fields are destroyed in this order.
pub(crate) struct Device {
    /// Unique within the process.
    pub(crate) id: u64,
    pub(crate) caps: Caps,
    pub(crate) probe: Probe,
    pub(crate) enabled: EnabledFeatures,
    pub(crate) classes: Vec<ClassFacts>,
    pub(crate) queues: Vec<Queue>,
    /// The families of the queues, each once.
    pub(crate) families: Vec<u32>,
    pub(crate) sync2: Sync2,
    /// One lane per stream, read without a lock.
    pub(crate) lanes: boxcar::Vec<Lane>,
    /// The number of streams opened so far, from which each stream gets the next queue in turn.
    pub(crate) next_queue: AtomicUsize,
    /// The number of the next segment.
    pub(crate) ids: AtomicU64,
    /// Segments that were handed out and not given back, by number.
    pub(crate) live: Mutex<HashMap<u64, Backed>>,
    /// The number of live allocations, which the driver limits.
    pub(crate) allocations: AtomicU64,
    /// The records of sparse memory, where the device has it.
    pub(crate) binds: Option<Binds>,
    pub(crate) faults: FaultPlan,
    /// The number of closed gates.
    pub(crate) gates: AtomicUsize,
    pub(crate) lost: AtomicBool,
    pub(crate) allocator: Mutex<Allocator>,
    pub(crate) raw: RawDevice,
    pub(crate) instance: Instance,
    /// The value that is dropped last, for an engine.
    pub(crate) _keep: Option<Arc<dyn Any + Send + Sync>>,
}

/// A `VkDevice` that is destroyed with this value if it was created here.
pub(crate) struct RawDevice {
    pub(crate) raw: ash::Device,
    pub(crate) owned: bool,
}

impl Deref for RawDevice {
    type Target = ash::Device;

    fn deref(&self) -> &ash::Device {
        &self.raw
    }
}

impl Drop for RawDevice {
    fn drop(&mut self) {
        if self.owned {
            // SAFETY: the device was created here; `Device::drop` has waited for all work and destroyed everything that
            // was made from it.
            unsafe { self.raw.destroy_device(None) };
        }
    }
}

impl Vulkan {
    /// Returns the loader.
    pub fn entry(&self) -> &ash::Entry {
        &self.device.instance.entry
    }

    /// Returns the `VkInstance`.
    pub fn raw_instance(&self) -> &ash::Instance {
        &self.device.instance.raw
    }

    /// Returns the `VkDevice`. Submit to its queues only as the device's owner, or through this backend.
    pub fn raw_device(&self) -> &ash::Device {
        &self.device.raw
    }

    /// Returns the `VkPhysicalDevice`.
    pub fn physical_device(&self) -> vk::PhysicalDevice {
        self.device.probe.physical
    }

    /// Returns the features that the device was opened with.
    pub fn enabled(&self) -> EnabledFeatures {
        self.device.enabled
    }

    /// Returns the log of the validation layer, where the device was opened with it.
    pub fn validation(&self) -> Option<&ValidationLog> {
        self.device.instance.log.as_ref()
    }
}

impl fmt::Debug for Vulkan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Vulkan")
            .field("name", &self.device.caps.name)
            .field("streams", &self.device.lanes.count())
            .field("lost", &self.device.lost.load(Ordering::Relaxed))
            .finish_non_exhaustive()
    }
}

impl Device {
    /// Waits until the queues no longer use what was submitted to them. A semaphore that has its value does not
    /// guarantee this with every driver: Mesa's queue threads access the semaphores of work once more after they have
    /// signalled them.
    fn idle(&self) {
        for queue in &self.queues {
            // SAFETY: the queue belongs to the device, and its lock keeps other threads from it.
            let waited = queue.locked(|queue| unsafe { self.raw.queue_wait_idle(queue) });
            // An error means that the device is lost, and its work with it.
            let _ = waited;
        }
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        self.open_gates();
        for (_, lane) in self.lanes.iter() {
            // An error here means that the device is lost, and its work with it.
            let _ = self.wait_for(lane, lane.submitted());
        }
        self.idle();
        let lanes = std::mem::take(&mut self.lanes);
        for lane in lanes {
            let state = lane.state.into_inner();
            // SAFETY: all submitted work is done or lost, and no handle of the device is left.
            unsafe { self.raw.destroy_command_pool(state.pool, None) };
            for semaphore in lane.owned.then_some(lane.semaphore).into_iter().chain(state.gate.map(|g| g.semaphore)) {
                // SAFETY: as above.
                unsafe { self.raw.destroy_semaphore(semaphore, None) };
            }
            state.ring.into_iter().for_each(|ring| self.destroy_backed(ring.into_backed()));
        }
        if let Some(binds) = self.binds.take() {
            self.destroy_binds(binds);
        }
        let leaked = std::mem::take(self.live.get_mut());
        leaked.into_values().for_each(|backed| self.destroy_backed(backed));
    }
}

// SAFETY: every segment has a buffer and memory of its own, from the driver, of at least the bytes asked for. The
// results of `reached` and `wait` come from the counter of a timeline semaphore that the queue signals behind all work
// submitted before, and `open` is raised before a submit reaches the driver, so that later work is marked with a later
// tick. Ticks and stream ids only rise: both are counters that nothing lowers.
unsafe impl Backend for Vulkan {
    type Segment = Segment;
    type Page = Page;
    type Error = VulkanError;

    fn caps(&self) -> &Caps {
        &self.device.caps
    }

    fn create_stream(&self) -> Result<StreamId, VulkanError> {
        self.device.create_stream()
    }

    fn has_stream(&self, stream: StreamId) -> bool {
        self.device.lanes.get(stream.0 as usize).is_some()
    }

    fn reserve(&self, class: ClassId, bytes: u64) -> Result<Segment, VulkanError> {
        self.device.reserve(class, bytes)
    }

    unsafe fn release(&self, segment: Segment) {
        self.device.release(segment);
    }

    fn address(&self, segment: &Segment) -> Option<u64> {
        segment.address
    }

    #[inline]
    fn mark(&self, stream: StreamId) -> Tick {
        Tick(self.device.lane(stream).open())
    }

    #[inline]
    fn reached(&self, stream: StreamId) -> Result<Tick, VulkanError> {
        self.device.reached(stream)
    }

    fn submit(&self, stream: StreamId) -> Result<Tick, VulkanError> {
        let lane = self.device.lane(stream);
        self.device.submit(lane, &mut lane.state.lock(), &Submission::default()).map(Tick)
    }

    fn wait(&self, point: Point) -> Result<Tick, VulkanError> {
        self.device.wait(point)
    }

    fn virtual_memory(&self) -> Option<&dyn VirtualMemory<Segment = Segment, Page = Page, Error = VulkanError>> {
        if self.device.binds.is_some() { Some(self) } else { None }
    }

    fn stream_wait(&self) -> Option<&dyn StreamWait<Error = VulkanError>> {
        Some(self)
    }

    fn host_memory(&self) -> Option<&dyn HostMemory<Segment = Segment>> {
        Some(self)
    }

    fn transfer(&self) -> Option<&dyn Transfer<Segment = Segment, Error = VulkanError>> {
        Some(self)
    }

    fn budget(&self) -> Option<&dyn Budget<Error = VulkanError>> {
        if self.device.enabled.memory_budget { Some(self) } else { None }
    }
}

impl StreamWait for Vulkan {
    type Error = VulkanError;

    /// Makes the stream's next submit wait for the point.
    ///
    /// # Errors
    ///
    /// [`VulkanError::NotSubmitted`] if the point's tick was not submitted, because a queue that waits for work that is
    /// never submitted waits for ever. Submit that stream first.
    fn wait_for(&self, stream: StreamId, point: Point) -> Result<(), VulkanError> {
        let device = &*self.device;
        device.alive()?;
        let lane = device.lane(stream);
        device.submitted(point)?;
        if stream != point.stream && device.lane(point.stream).reached() < point.tick.0 {
            lane.wait_for(point);
        }
        Ok(())
    }
}
