//! What is known of a device before it is opened.

use ash::vk;

use super::export::ExportKind;
use super::facts::{Probe, version};

/// The facts that are known about a device before it is opened.
#[derive(Clone, Debug)]
pub struct DeviceInfo {
    /// The index that [`Vulkan::open`](crate::Vulkan::open) takes.
    pub index: usize,
    /// The driver's name for it.
    pub name: String,
    /// Its type: discrete, integrated, in software, and so on.
    pub kind: vk::PhysicalDeviceType,
    /// The driver's name and version, as the driver reports them.
    pub driver: String,
    /// The Vulkan version that the device has, such as "1.3.230".
    pub api_version: String,
    /// The PCI vendor.
    pub vendor_id: u32,
    /// The vendor's number for the model.
    pub device_id: u32,
    /// The driver's identifier. Two devices may have the same.
    pub uuid: [u8; 16],
    /// The queue families, by their index.
    pub queue_families: Vec<FamilyInfo>,
    /// The memory heaps, by their index.
    pub heaps: Vec<HeapInfo>,
    /// Whether it has sparse buffers, and so virtual memory.
    pub sparse: bool,
    /// Whether one page may be mapped at several addresses.
    pub sparse_aliased: bool,
    /// Whether the driver reports how much memory is left.
    pub budget: bool,
    /// Whether buffers have addresses.
    pub addresses: bool,
    /// The kinds in which memory of class 0 can be exported:
    /// [`VulkanBuilder::exports`](crate::VulkanBuilder::exports).
    pub exports: Vec<ExportKind>,
    /// The feature that this backend needs and the device lacks. `None` if the device can be opened.
    pub missing: Option<&'static str>,
}

/// One queue family.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FamilyInfo {
    /// The capabilities of its queues.
    pub flags: vk::QueueFlags,
    /// The number of its queues.
    pub count: u32,
}

/// One heap of memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HeapInfo {
    /// Its size in bytes.
    pub bytes: u64,
    /// Whether it is the device's own memory.
    pub device_local: bool,
}

impl DeviceInfo {
    /// Returns the facts of the device at this index of the list.
    pub(crate) fn of(index: usize, probe: &Probe) -> DeviceInfo {
        let family =
            |family: &vk::QueueFamilyProperties| FamilyInfo { flags: family.queue_flags, count: family.queue_count };
        let heap = |heap: &vk::MemoryHeap| HeapInfo {
            bytes: heap.size,
            device_local: heap.flags.contains(vk::MemoryHeapFlags::DEVICE_LOCAL),
        };
        DeviceInfo {
            index,
            name: probe.name.clone(),
            kind: probe.properties.device_type,
            driver: probe.driver.clone(),
            api_version: version(probe.properties.api_version),
            vendor_id: probe.properties.vendor_id,
            device_id: probe.properties.device_id,
            uuid: probe.uuid,
            queue_families: probe.families.iter().map(family).collect(),
            heaps: probe.memory.memory_heaps_as_slice().iter().map(heap).collect(),
            sparse: probe.sparse(),
            sparse_aliased: probe.sparse() && probe.features.sparse_aliased,
            budget: probe.features.budget,
            addresses: probe.features.address,
            exports: probe.exports.clone(),
            missing: probe.missing(),
        }
    }
}
