//! An engine's own Vulkan device, made and used without Millpond: what an engine has before it uses the allocator.

#![allow(unsafe_code)] // Calls into Vulkan.

use std::fmt;
use std::sync::Arc;

use millpond::Buffer;
use millpond::backend::{StreamId, Tick};
use millpond_vulkan::ash::{self, ext, vk};
use millpond_vulkan::{Adopted, AdoptedQueue, EnabledFeatures, QueueLock, Timeline, ValidationLog, Vulkan};
use parking_lot::Mutex;

use crate::engine::Result;

mod open;

/// An engine's instance, device and queue, with a timeline semaphore on which the engine counts its submits.
pub struct OwnDevice {
    own: Arc<Handles>,
}

/// The objects that the engine has created. Millpond shares them for as long as it uses the device, so they are
/// destroyed when neither the engine nor Millpond needs them any more.
struct Handles {
    entry: ash::Entry,
    instance: ash::Instance,
    /// The log of the validation layer, where it is installed; `messenger` writes to it.
    log: Option<ValidationLog>,
    messenger: Option<(ext::debug_utils::Instance, vk::DebugUtilsMessengerEXT)>,
    physical: vk::PhysicalDevice,
    device: ash::Device,
    family: u32,
    queue: vk::Queue,
    /// Held during every use of the queue.
    lock: Arc<Mutex<()>>,
    timeline: vk::Semaphore,
    commands: vk::CommandPool,
}

impl OwnDevice {
    /// Lends the device to Millpond, and the engine's timeline as a stream whose ticks are its values, from
    /// `next_value` on. The engine can go on using all of it.
    ///
    /// # Errors
    ///
    /// Returns the error of the backend.
    pub fn lend(&self, next_value: u64) -> Result<(Vulkan, StreamId)> {
        let own = &self.own;
        let lock: Arc<dyn QueueLock> = Arc::<Mutex<()>>::clone(&own.lock);
        let adopted = Adopted {
            entry: own.entry.clone(),
            instance: own.instance.clone(),
            physical_device: own.physical,
            device: own.device.clone(),
            queues: vec![AdoptedQueue { family: own.family, queue: own.queue, lock: Some(lock) }],
            enabled: EnabledFeatures::default(),
            engine_submits: true,
            exports: None,
            validation: own.log.clone(),
            keep: Some(Arc::<Handles>::clone(own)),
        };
        // SAFETY: the handles belong together and were created with timeline semaphores and synchronization2 (`open`).
        // `keep` keeps them alive for as long as they are used. The engine takes the queue's lock before it uses the
        // queue.
        let device = unsafe { Vulkan::adopt(adopted) }?;
        let timeline = Timeline::Engine { semaphore: own.timeline, next_value };
        // SAFETY: the semaphore is a timeline of this device, and `keep` keeps it alive. Its values come from `submit`,
        // to which the callers give rising ones, below `next_value` before this and from Millpond after it.
        let stream = unsafe { device.register_stream((own.family, 0), timeline) }?;
        Ok((device, stream))
    }

    /// Returns the log of the validation layer, which covers all uses of the device; `None` where the layer is not
    /// installed.
    pub fn log(&self) -> Option<ValidationLog> {
        self.own.log.clone()
    }

    /// Submits a fill of the block with a word: the engine's own command buffer, through the engine's own call.
    /// Millpond is informed before the submit. Returns the value of the engine's timeline that covers it.
    ///
    /// # Errors
    ///
    /// Returns the error of the driver.
    pub fn fill(&mut self, device: &Vulkan, stream: StreamId, block: &Buffer<Vulkan>, word: u32) -> Result<Tick> {
        let segment = block.segment().ok_or("a buffer of 0 bytes cannot be filled")?;
        let (offset, bytes) = (block.offset(), block.capacity());
        // On one queue later work may overlap earlier work, so memory that was used before is fenced off,
        // whichever buffer it was used through.
        let barrier = [Vulkan::reuse_barrier()];
        let raw = self.own.device.clone();
        let commands = self.record(|commands| {
            let dependency = vk::DependencyInfo::default().memory_barriers(&barrier);
            // SAFETY: the command buffer is recording, and only this call uses it. The block lies inside the buffer,
            // which is alive until the tick of this submit: its range is a multiple of 4 at a multiple of 4.
            unsafe {
                raw.cmd_pipeline_barrier2(commands, &dependency);
                raw.cmd_fill_buffer(commands, segment.buffer(), offset, bytes, word);
            }
        })?;
        let pending = device.begin_submit(stream)?;
        match self.submit(commands, pending.waits(), pending.signal()) {
            Ok(()) => Ok(pending.finish()),
            Err(error) => {
                pending.abandon();
                Err(error)
            }
        }
    }

    /// Submits work of the engine that has nothing to do with Millpond, and signals this value of the engine's
    /// timeline.
    ///
    /// # Errors
    ///
    /// Returns the error of the driver.
    pub fn submit_empty(&mut self, value: u64) -> Result<()> {
        let commands = self.record(|_| {})?;
        let stages = vk::PipelineStageFlags2::ALL_COMMANDS;
        let signal = vk::SemaphoreSubmitInfo::default().semaphore(self.own.timeline).value(value).stage_mask(stages);
        self.submit(commands, &[], signal)
    }

    /// Returns the value that the engine's timeline has reached.
    ///
    /// # Errors
    ///
    /// Returns the error of the driver.
    pub fn reached(&self) -> Result<u64> {
        // SAFETY: the semaphore is a timeline of this device.
        Ok(unsafe { self.own.device.get_semaphore_counter_value(self.own.timeline) }?)
    }

    /// Blocks until the engine's timeline has reached the value, which must have been submitted.
    ///
    /// # Errors
    ///
    /// Returns the error of the driver.
    pub fn wait(&self, value: u64) -> Result<()> {
        let (semaphores, values) = ([self.own.timeline], [value]);
        let info = vk::SemaphoreWaitInfo::default().semaphores(&semaphores).values(&values);
        // SAFETY: the semaphore is a timeline of this device.
        Ok(unsafe { self.own.device.wait_semaphores(&info, u64::MAX) }?)
    }

    /// Records a command buffer of its own for each submit; they are freed with the pool.
    fn record(&mut self, work: impl FnOnce(vk::CommandBuffer)) -> Result<vk::CommandBuffer> {
        let info = vk::CommandBufferAllocateInfo::default().command_pool(self.own.commands).command_buffer_count(1);
        // SAFETY: no other call uses the pool meanwhile, as the engine is borrowed mutably.
        let commands = unsafe { self.own.device.allocate_command_buffers(&info) }?[0];
        let info = vk::CommandBufferBeginInfo::default().flags(vk::CommandBufferUsageFlags::ONE_TIME_SUBMIT);
        // SAFETY: the command buffer is new.
        unsafe { self.own.device.begin_command_buffer(commands, &info) }?;
        work(commands);
        // SAFETY: it is recording.
        unsafe { self.own.device.end_command_buffer(commands) }?;
        Ok(commands)
    }

    fn submit(
        &self,
        commands: vk::CommandBuffer,
        waits: &[vk::SemaphoreSubmitInfo<'static>],
        signal: vk::SemaphoreSubmitInfo<'static>,
    ) -> Result<()> {
        let commands = [vk::CommandBufferSubmitInfo::default().command_buffer(commands)];
        let signals = [signal];
        let batch = vk::SubmitInfo2::default()
            .wait_semaphore_infos(waits)
            .command_buffer_infos(&commands)
            .signal_semaphore_infos(&signals);
        let _locked = self.own.lock.lock();
        // SAFETY: the lock is held. The command buffer is ended and of the queue's family, the semaphores are this
        // device's, and the value that is signalled is higher than any before.
        Ok(unsafe { self.own.device.queue_submit2(self.own.queue, &[batch], vk::Fence::null()) }?)
    }
}

impl Drop for Handles {
    fn drop(&mut self) {
        // SAFETY: neither the engine nor Millpond has the device any more, and the work is waited for before anything
        // is destroyed. An error of the wait means that the device is lost, and its work with it.
        unsafe {
            let _ = self.device.device_wait_idle();
            self.device.destroy_command_pool(self.commands, None);
            self.device.destroy_semaphore(self.timeline, None);
            self.device.destroy_device(None);
        }
        // What was left undestroyed has been reported by now.
        if let Some((utils, messenger)) = self.messenger.take() {
            // SAFETY: the messenger is this instance's, and is destroyed only here.
            unsafe { utils.destroy_debug_utils_messenger(messenger, None) };
        }
        // SAFETY: the device and the messenger are gone, and nothing else was made from the instance.
        unsafe { self.instance.destroy_instance(None) };
    }
}

impl fmt::Debug for OwnDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (queue, family) = (self.own.queue, self.own.family);
        f.debug_struct("OwnDevice").field("queue", &queue).field("family", &family).finish_non_exhaustive()
    }
}
