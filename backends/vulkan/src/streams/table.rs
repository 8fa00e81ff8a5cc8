//! The lanes of all streams.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ash::vk;
use millpond_backend::{StreamId, Tick};
use millpond_kit::Lanes;

use super::commands::create_lane_state;
use super::gate::Gates;
use super::lane::Lane;
use crate::error::VulkanError;
use crate::open::{Driver, describe};

/// The timeline whose values are a stream's ticks.
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

/// The streams of a device.
pub(crate) struct Streams {
    /// One lane per stream, read without a lock.
    lanes: Lanes<Lane>,
    /// The number of streams opened so far, from which each stream gets the next queue in turn.
    next_queue: AtomicUsize,
    pub(crate) gates: Gates,
    pub(crate) driver: Arc<Driver>,
}

impl Streams {
    /// Creates the table of a device that has no stream yet.
    pub(crate) fn new(driver: Arc<Driver>) -> Streams {
        let (lanes, next_queue) = (Lanes::of_a("Vulkan device"), AtomicUsize::new(0));
        Streams { lanes, next_queue, gates: Gates::default(), driver }
    }

    /// Returns the lane of a stream.
    ///
    /// # Panics
    ///
    /// If the stream is not this device's.
    #[inline]
    pub(crate) fn lane(&self, stream: StreamId) -> &Lane {
        self.lanes.lane(stream)
    }

    /// Returns whether the stream is one of this device.
    pub(crate) fn has(&self, stream: StreamId) -> bool {
        self.lanes.has(stream)
    }

    /// Returns the number of streams.
    pub(crate) fn count(&self) -> usize {
        self.lanes.count()
    }

    /// Returns all lanes.
    pub(crate) fn lanes(&self) -> impl Iterator<Item = &Lane> {
        self.lanes.iter().map(|(_, lane)| lane)
    }

    /// Opens a stream on the next queue that computes, each in turn, or on any queue that copies if none computes.
    pub(crate) fn create(&self) -> Result<StreamId, VulkanError> {
        self.driver.enter("vkCreateSemaphore")?;
        let mut choice: Vec<usize> =
            (0..self.driver.queues.len()).filter(|&at| self.driver.queues[at].computes()).collect();
        if choice.is_empty() {
            choice = (0..self.driver.queues.len()).filter(|&at| self.driver.queues[at].transfers()).collect();
        }
        if choice.is_empty() {
            return Err(VulkanError::NoQueue { family: 0, index: 0, available: describe(&self.driver.queues) });
        }
        let turn = self.next_queue.fetch_add(1, Ordering::Relaxed);
        self.open_lane(choice[turn % choice.len()])
    }

    /// Opens a stream on a certain queue, by family and by number within the family.
    pub(crate) fn create_on(&self, family: u32, index: u32) -> Result<StreamId, VulkanError> {
        self.driver.enter("vkCreateSemaphore")?;
        let queue = self.find_queue(family, index)?;
        self.open_lane(queue)
    }

    /// Registers a stream whose ticks are the values of an engine's timeline semaphore. The semaphore is a timeline of
    /// this device and outlives it.
    pub(crate) fn register(
        &self,
        queue: (u32, u32),
        semaphore: vk::Semaphore,
        next_value: u64,
    ) -> Result<StreamId, VulkanError> {
        if next_value == 0 {
            return Err(VulkanError::Falls { value: 0, next: 1 });
        }
        self.driver.enter("vkCreateCommandPool")?;
        let index = self.find_queue(queue.0, queue.1)?;
        let state = create_lane_state(&self.driver, queue.0)?;
        Ok(self.lanes.push(Lane::new(semaphore, false, Tick(next_value), index, state)))
    }

    fn find_queue(&self, family: u32, index: u32) -> Result<usize, VulkanError> {
        let found = self
            .driver
            .queues
            .iter()
            .position(|queue| (queue.family, queue.index) == (family, index) && queue.transfers());
        found.ok_or_else(|| VulkanError::NoQueue { family, index, available: describe(&self.driver.queues) })
    }

    fn open_lane(&self, queue: usize) -> Result<StreamId, VulkanError> {
        let state = create_lane_state(&self.driver, self.driver.queues[queue].family)?;
        match self.driver.create_timeline() {
            Ok(semaphore) => Ok(self.lanes.push(Lane::new(semaphore, true, Tick(1), queue, state))),
            Err(error) => {
                // SAFETY: nothing from the pool was ever submitted.
                unsafe { self.driver.raw.destroy_command_pool(state.pool, None) };
                Err(error)
            }
        }
    }

    /// Opens every gate whose lane is not locked at this moment.
    pub(crate) fn open_gates(&self) {
        for lane in self.lanes() {
            let mut state = lane.state.try_lock();
            if let Some(gate) = state.as_mut().and_then(|state| state.gate.as_mut()) {
                gate.open(&self.driver, &self.gates);
            }
        }
    }

    /// Destroys what the lanes have. Called when no handle of the device is left and all submitted work is done or
    /// lost.
    pub(crate) fn destroy(&self) {
        for lane in self.lanes() {
            let mut state = lane.state.lock();
            // SAFETY: all submitted work is done or lost, and no handle of the device is left.
            unsafe { self.driver.raw.destroy_command_pool(state.pool, None) };
            let gate = state.gate.take().map(|gate| gate.semaphore);
            for semaphore in lane.owned.then_some(lane.semaphore).into_iter().chain(gate) {
                // SAFETY: as above.
                unsafe { self.driver.raw.destroy_semaphore(semaphore, None) };
            }
        }
    }
}
