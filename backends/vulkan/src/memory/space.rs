//! Taking segments from the driver and giving them back.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ash::vk;
use millpond_backend::{Caps, ClassId, Closing, Reuse};
use millpond_kit::Misuse;
use parking_lot::Mutex;

use super::backed::{Allocations, Backed, reclaiming};
use super::classes::{ClassFacts, IMAGE, classes};
use super::descriptor::DescriptorLimits;
#[cfg(unix)]
use super::export::ExportedMemory;
use super::export::Exports;
use super::segment::{Segment, SegmentMemory};
use crate::error::VulkanError;
use crate::open::{Driver, MappedBuffer, Settings};

/// The memory of a device.
pub(crate) struct Memory {
    pub(crate) caps: Caps,
    classes: Vec<ClassFacts>,
    pub(crate) limits: DescriptorLimits,
    /// The number of the next segment.
    ids: AtomicU64,
    /// Segments that were handed out and not given back, by number.
    live: Mutex<HashMap<u64, Backed>>,
    /// Buffers of this backend's own, which live as long as the device.
    own: Mutex<Vec<Backed>>,
    pub(crate) allocations: Allocations,
    /// How the memory of segments is exported, if it is.
    exports: Option<Exports>,
    driver: Arc<Driver>,
}

impl Memory {
    /// Finds the classes of a device, of which nothing is taken yet. Its facts say nothing of pages.
    pub(crate) fn new(driver: Arc<Driver>, settings: &Settings) -> Result<Memory, VulkanError> {
        let address = driver.enabled.buffer_device_address;
        let (table, facts) = classes(&driver.raw, &driver.probe, &driver.families, address, settings)?;
        let exports = settings.exports.map(|kind| Exports::find(&driver, kind)).transpose()?;
        let budget = driver.enabled.memory_budget;
        let caps = Caps::new(driver.probe.name.clone(), table, Reuse::InOrder, Closing::Submit)
            .with_needs_barrier(settings.engine_submits)
            // Where device memory is full, systems that report a budget move memory to the host.
            .with_oversubscribes(budget)
            .with_stream_wait(true)
            .with_host_memory(true)
            .with_transfer(true)
            .with_budget(budget);
        Ok(Memory {
            caps,
            classes: facts,
            limits: DescriptorLimits::of(&driver.probe),
            ids: AtomicU64::new(0),
            live: Mutex::default(),
            own: Mutex::default(),
            allocations: Allocations::new(Arc::clone(&driver)),
            exports,
            driver,
        })
    }

    /// Returns how segments of a class are created.
    pub(crate) fn facts(&self, class: ClassId) -> &ClassFacts {
        &self.classes[usize::from(class.0)]
    }

    /// Returns the number of the next segment.
    pub(crate) fn next_id(&self) -> u64 {
        self.ids.fetch_add(1, Ordering::Relaxed)
    }

    /// Creates a buffer of a class with memory of its own. Makes both calls that may fail for lack of memory.
    fn create_backed(&self, class: ClassId, bytes: u64, reclaim: impl FnOnce() -> bool) -> Result<Backed, VulkanError> {
        reclaiming(reclaim, || self.allocations.create(class, *self.facts(class), bytes))
    }

    /// Implements `reserve`. `reclaim` is called if the driver refuses, and returns whether it has freed memory.
    pub(crate) fn reserve(
        &self,
        class: ClassId,
        bytes: u64,
        reclaim: impl FnOnce() -> bool,
    ) -> Result<Segment, VulkanError> {
        let facts = self.caps.class(class);
        Misuse::if_empty("reserve", bytes)?;
        if bytes > facts.max_segment_bytes {
            return Err(VulkanError::TooLarge { asked: bytes, max: facts.max_segment_bytes });
        }
        self.driver.enter("vkAllocateMemory")?;
        let backed = self.create_backed(class, bytes, reclaim)?;
        let id = self.next_id();
        let ClassFacts { memory_type, is_dedicated, .. } = *self.facts(class);
        let (memory, requirements) = (backed.memory, backed.requirements);
        let segment = Segment {
            device: self.driver.id,
            id,
            buffer: backed.buffer,
            bytes,
            class,
            memory_type,
            memory: Some(SegmentMemory { memory, offset: 0, memory_type, requirements, is_dedicated }),
            address: self.buffer_address(backed.buffer),
            mapped: backed.mapped,
            limits: self.limits,
            shown: AtomicBool::new(false),
        };
        self.live.lock().insert(id, backed);
        Ok(segment)
    }

    /// Creates a buffer of a class that the host sees, which lives as long as the device.
    ///
    /// # Panics
    ///
    /// If the class is not mapped, which those for the host are.
    pub(crate) fn create_mapped(
        &self,
        class: ClassId,
        bytes: u64,
        reclaim: impl FnOnce() -> bool,
    ) -> Result<MappedBuffer, VulkanError> {
        let backed = self.create_backed(class, bytes, reclaim)?;
        let Some(pointer) = backed.mapped else {
            panic!("memory type {} is host visible and was not mapped", self.facts(class).memory_type)
        };
        let buffer = backed.buffer;
        self.own.lock().push(backed);
        Ok(MappedBuffer { buffer, pointer })
    }

    /// Returns the address of a buffer, where buffers have addresses.
    pub(crate) fn buffer_address(&self, buffer: vk::Buffer) -> Option<u64> {
        let info = vk::BufferDeviceAddressInfo::default().buffer(buffer);
        // SAFETY: the feature is enabled, and with it every buffer is created with the usage for it.
        self.driver.enabled.buffer_device_address.then(|| unsafe { self.driver.raw.get_buffer_device_address(&info) })
    }

    /// Implements `release`. The contract's caller guarantees that no work touches the segment.
    ///
    /// # Panics
    ///
    /// If the segment is another device's.
    pub(crate) fn release(&self, segment: Segment) {
        assert!(
            segment.device == self.driver.id,
            "release: the segment is of Vulkan device {}, not of device {}",
            segment.device,
            self.driver.id
        );
        let Some(backed) = self.live.lock().remove(&segment.id) else {
            panic!("release: segment {} of {} bytes is not in the device's books", segment.id, segment.bytes)
        };
        self.allocations.destroy(backed);
    }

    /// Implements [`Vulkan::export`](crate::Vulkan::export).
    #[cfg(unix)]
    pub(crate) fn export(&self, segment: &Segment) -> Result<ExportedMemory, VulkanError> {
        segment.of(self.driver.id, "export")?;
        let none = VulkanError::NotExported { remedy: "open the device with `exports`" };
        self.exports.as_ref().ok_or(none)?.export(&self.driver, segment, self.facts(segment.class))
    }

    /// Returns the number of segments that were not given back.
    pub(crate) fn live(&self) -> u64 {
        self.live.lock().len() as u64
    }

    /// Returns the bytes of the device's own memory in segments that were not given back.
    pub(crate) fn held_bytes(&self) -> u64 {
        let live = self.live.lock();
        live.values().filter(|backed| matches!(backed.class, ClassId::DEVICE | IMAGE)).map(|backed| backed.bytes).sum()
    }

    /// Destroys all segments, leaked ones too. Called when no handle of the device is left and no work touches them.
    pub(crate) fn destroy(&self) {
        let own = std::mem::take(&mut *self.own.lock());
        let leaked = std::mem::take(&mut *self.live.lock());
        own.into_iter().chain(leaked.into_values()).for_each(|backed| self.allocations.destroy(backed));
    }
}
