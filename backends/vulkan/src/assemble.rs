//! Assembling a device that was opened here or adopted from an engine.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use ash::vk;
use gpu_allocator::vulkan::{Allocator, AllocatorCreateDesc};
use millpond_backend::{Caps, ClassId, Closing, FaultPlan, Reuse};
use parking_lot::Mutex;

use crate::classes::{COUNT, classes};
use crate::device::{Device, RawDevice};
use crate::instance::Instance;
use crate::probe::Probe;
use crate::queue::Queue;
use crate::sync2::Sync2;
use crate::{Vulkan, VulkanError};

/// The optional features that a device was opened with.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EnabledFeatures {
    /// `bufferDeviceAddress`: segments have addresses.
    pub buffer_device_address: bool,
    /// `sparseBinding`.
    pub sparse_binding: bool,
    /// `sparseResidencyBuffer`.
    pub sparse_residency: bool,
    /// `sparseResidencyAliased`.
    pub sparse_aliased: bool,
    /// `VK_EXT_memory_budget`.
    pub memory_budget: bool,
}

/// The parts that a device is assembled from. They are dropped in this order if that fails.
pub(crate) struct Parts {
    pub(crate) raw: RawDevice,
    pub(crate) instance: Instance,
    pub(crate) probe: Probe,
    pub(crate) enabled: EnabledFeatures,
    pub(crate) queues: Vec<Queue>,
    pub(crate) usages: [vk::BufferUsageFlags; COUNT],
    pub(crate) engine_submits: bool,
    /// The least granularity of pages, in bytes.
    pub(crate) page_granularity: u64,
    /// The value that is dropped last, for an engine.
    pub(crate) keep: Option<Arc<dyn Any + Send + Sync>>,
}

static DEVICES: AtomicU64 = AtomicU64::new(0);

/// Assembles a device that was opened or adopted.
pub(crate) fn assemble(parts: Parts) -> Result<Vulkan, VulkanError> {
    let mut families: Vec<u32> = parts.queues.iter().map(|queue| queue.family).collect();
    families.sort_unstable();
    families.dedup();
    let sync2 = Sync2::find(&parts.instance, &parts.raw)?;
    let address = parts.enabled.buffer_device_address;
    let (table, facts) = classes(&parts.raw, &parts.probe, &families, address, parts.usages)?;
    let description = AllocatorCreateDesc {
        instance: parts.instance.raw.clone(),
        device: parts.raw.raw.clone(),
        physical_device: parts.probe.physical,
        debug_settings: Default::default(),
        buffer_device_address: address,
        allocation_sizes: Default::default(),
    };
    let allocator = Allocator::new(&description).map_err(|source| VulkanError::Memory {
        bytes: 0,
        class: ClassId::DEVICE,
        source,
    })?;
    let budget = parts.enabled.memory_budget;
    let caps = Caps {
        name: parts.probe.name.clone(),
        classes: table,
        reuse: Reuse::InOrder,
        needs_barrier: parts.engine_submits,
        closing: Closing::Submit,
        release_waits: false,
        // Where device memory is full, systems that report a budget move memory to the host.
        oversubscribes: budget,
        pages: None,
        stream_wait: true,
        host_memory: true,
        transfer: true,
        budget,
    };
    let mut device = Device {
        id: DEVICES.fetch_add(1, Ordering::Relaxed),
        caps,
        probe: parts.probe,
        enabled: parts.enabled,
        classes: facts,
        queues: parts.queues,
        families,
        sync2,
        lanes: boxcar::Vec::new(),
        next_queue: AtomicUsize::new(0),
        ids: AtomicU64::new(0),
        live: Mutex::default(),
        allocations: AtomicU64::new(0),
        binds: None,
        faults: FaultPlan::default(),
        gates: AtomicUsize::new(0),
        lost: AtomicBool::new(false),
        allocator: Mutex::new(allocator),
        raw: parts.raw,
        instance: parts.instance,
        _keep: parts.keep,
    };
    device.open_pages(parts.page_granularity)?;
    Ok(Vulkan { device: Arc::new(device) })
}
