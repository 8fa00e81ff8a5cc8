//! Streams of the device's own and of engines.

use ash::vk;
use millpond_backend::{StreamId, Tick};

use super::Vulkan;
use crate::error::VulkanError;
use crate::streams::Timeline;

impl Vulkan {
    /// Opens a stream on a certain queue, by family and by number within the family as it was opened. Several streams
    /// may share a queue; each has a timeline of its own.
    ///
    /// # Errors
    ///
    /// [`VulkanError::NoQueue`] names the queues of the device; else the driver's errors.
    pub fn stream_on(&self, family: u32, index: u32) -> Result<StreamId, VulkanError> {
        self.device.streams.create_on(family, index)
    }

    /// Registers a stream of an engine: a queue by family and index, and the timeline of its ticks. Code that submits
    /// to it without this device announces each submit first: [`begin_submit`](Vulkan::begin_submit). Values below
    /// `next_value` count as reached, and nothing waits for them: they cover no work of this device, and the engine may
    /// never signal them.
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
        self.device.streams.register(queue, semaphore, next_value)
    }

    /// Returns the queues that streams may be on, as `(family, index)` and their capabilities.
    pub fn queues(&self) -> Vec<((u32, u32), vk::QueueFlags)> {
        self.device.driver.queues.iter().map(|queue| ((queue.family, queue.index), queue.flags)).collect()
    }

    /// Returns the queue that a stream submits to, with its family. Take its lock before you submit to it yourself.
    ///
    /// # Panics
    ///
    /// If the stream is not this device's.
    pub fn queue_of(&self, stream: StreamId) -> (u32, vk::Queue) {
        let queue = &self.device.driver.queues[self.device.streams.lane(stream).queue];
        (queue.family, queue.raw)
    }

    /// Returns the stream's timeline semaphore, whose counter is the newest complete tick, and the open tick.
    ///
    /// # Panics
    ///
    /// If the stream is not this device's.
    pub fn timeline_of(&self, stream: StreamId) -> (vk::Semaphore, Tick) {
        let lane = self.device.streams.lane(stream);
        (lane.semaphore, lane.clock.open())
    }
}
