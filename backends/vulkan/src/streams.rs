//! Streams: lanes on queues.

use std::sync::atomic::Ordering;

use ash::vk;
use millpond_backend::{StreamId, Tick};

use crate::device::Device;
use crate::lane::Lane;
use crate::queue::describe;
use crate::{Vulkan, VulkanError};

/// The timeline that a stream's ticks are values of.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Timeline {
    /// A timeline semaphore that the device creates, and whose values count up by one.
    Own,
    /// An engine's timeline semaphore. Ticks **are** its values.
    Engine {
        /// The semaphore, of type timeline. It must live until the last handle of the device is dropped, of which the
        /// drop of [`Adopted::keep`](crate::Adopted::keep) notifies the engine.
        semaphore: vk::Semaphore,
        /// The lowest value that no submit signals yet, at least 1.
        next_value: u64,
    },
}

impl Vulkan {
    /// Opens a stream on a certain queue, by family and by number within the family as it was opened. Several streams
    /// may share a queue; each has a timeline of its own.
    ///
    /// # Errors
    ///
    /// [`VulkanError::NoQueue`] names the queues of the device; else the driver's errors.
    pub fn stream_on(&self, family: u32, index: u32) -> Result<StreamId, VulkanError> {
        self.device.enter("vkCreateSemaphore")?;
        let queue = self.device.find_queue(family, index)?;
        self.device.open_lane(queue)
    }

    /// Registers a stream of an engine: a queue by family and index, and the timeline of its ticks. Code that submits
    /// to it without this device announces each submit first: [`begin_submit`](Vulkan::begin_submit).
    ///
    /// # Errors
    ///
    /// [`VulkanError::NoQueue`] names the queues of the device; [`VulkanError::Falls`] for a next value of 0; else the
    /// driver's errors.
    ///
    /// # Safety
    ///
    /// An engine's semaphore is a timeline of this device and outlives the last handle of the device, like all handles
    /// of the engine: the drop of [`Adopted::keep`](crate::Adopted::keep) shows that the last handle is gone. The
    /// semaphore's values rise, and no submit that is already in progress signals `next_value` or more.
    pub unsafe fn register_stream(&self, queue: (u32, u32), timeline: Timeline) -> Result<StreamId, VulkanError> {
        let Timeline::Engine { semaphore, next_value } = timeline else { return self.stream_on(queue.0, queue.1) };
        if next_value == 0 {
            return Err(VulkanError::Falls { value: 0, next: 1 });
        }
        let device = &*self.device;
        device.enter("vkCreateCommandPool")?;
        let index = device.find_queue(queue.0, queue.1)?;
        let state = device.create_lane_state(queue.0)?;
        Ok(device.push_lane(Lane::new(semaphore, false, next_value, index, state)))
    }

    /// Returns the queues that streams may be on, as `(family, index)` and their capabilities.
    pub fn queues(&self) -> Vec<((u32, u32), vk::QueueFlags)> {
        self.device.queues.iter().map(|queue| ((queue.family, queue.index), queue.flags)).collect()
    }

    /// Returns the queue that a stream submits to, with its family. Take its lock before you submit to it yourself.
    ///
    /// # Panics
    ///
    /// If the stream is not this device's.
    pub fn queue_of(&self, stream: StreamId) -> (u32, vk::Queue) {
        let queue = &self.device.queues[self.device.lane(stream).queue];
        (queue.family, queue.raw)
    }

    /// Returns the stream's timeline semaphore, whose counter is the newest complete tick, and the open tick.
    ///
    /// # Panics
    ///
    /// If the stream is not this device's.
    pub fn timeline_of(&self, stream: StreamId) -> (vk::Semaphore, Tick) {
        let lane = self.device.lane(stream);
        (lane.semaphore, Tick(lane.open()))
    }
}

impl Device {
    /// Returns the lane of a stream.
    ///
    /// # Panics
    ///
    /// If the stream is not this device's.
    #[inline]
    pub(crate) fn lane(&self, stream: StreamId) -> &Lane {
        match self.lanes.get(stream.0 as usize) {
            Some(lane) => lane,
            None => panic!("{stream} asked of a Vulkan device that has {} streams", self.lanes.count()),
        }
    }

    /// Opens a stream on the next queue that computes, each in turn, or on any queue that copies if none computes.
    pub(crate) fn create_stream(&self) -> Result<StreamId, VulkanError> {
        self.enter("vkCreateSemaphore")?;
        let mut choice: Vec<usize> = (0..self.queues.len()).filter(|&at| self.queues[at].computes()).collect();
        if choice.is_empty() {
            choice = (0..self.queues.len()).filter(|&at| self.queues[at].transfers()).collect();
        }
        if choice.is_empty() {
            return Err(VulkanError::NoQueue { family: 0, index: 0, available: describe(&self.queues) });
        }
        let turn = self.next_queue.fetch_add(1, Ordering::Relaxed);
        self.open_lane(choice[turn % choice.len()])
    }

    fn find_queue(&self, family: u32, index: u32) -> Result<usize, VulkanError> {
        let found =
            self.queues.iter().position(|queue| (queue.family, queue.index) == (family, index) && queue.transfers());
        found.ok_or_else(|| VulkanError::NoQueue { family, index, available: describe(&self.queues) })
    }

    fn open_lane(&self, queue: usize) -> Result<StreamId, VulkanError> {
        let state = self.create_lane_state(self.queues[queue].family)?;
        match self.create_timeline() {
            Ok(semaphore) => Ok(self.push_lane(Lane::new(semaphore, true, 1, queue, state))),
            Err(error) => {
                // SAFETY: nothing from the pool was ever submitted.
                unsafe { self.raw.destroy_command_pool(state.pool, None) };
                Err(error)
            }
        }
    }

    /// Creates a timeline semaphore at 0.
    pub(crate) fn create_timeline(&self) -> Result<vk::Semaphore, VulkanError> {
        let mut kind = vk::SemaphoreTypeCreateInfo::default().semaphore_type(vk::SemaphoreType::TIMELINE);
        let info = vk::SemaphoreCreateInfo::default().push_next(&mut kind);
        // SAFETY: timeline semaphores are enabled: the builder enabled them, or the caller of `adopt` promised it.
        unsafe { self.raw.create_semaphore(&info, None) }.map_err(self.failed("vkCreateSemaphore"))
    }

    fn push_lane(&self, lane: Lane) -> StreamId {
        let index = self.lanes.push(lane);
        match u32::try_from(index) {
            Ok(index) => StreamId(index),
            Err(_) => panic!("stream {index}: a device has at most 2^32"),
        }
    }
}
