//! The memory of the Vulkan device under wgpu, which wgpu does not report.

use ash::vk;
use wgpu::hal::api::Vulkan;

/// Returns the bytes of the largest heap of the device's own memory.
pub(crate) fn device_bytes(device: &wgpu::Device) -> Option<u64> {
    // SAFETY: the handle is only read, and no object of wgpu's is destroyed.
    let hal = unsafe { device.as_hal::<Vulkan>() }?;
    let instance = hal.shared_instance().raw_instance();
    // SAFETY: the physical device is the one that this instance listed for wgpu.
    let memory = unsafe { instance.get_physical_device_memory_properties(hal.raw_physical_device()) };
    let own = |heap: &&vk::MemoryHeap| heap.flags.contains(vk::MemoryHeapFlags::DEVICE_LOCAL);
    memory.memory_heaps_as_slice().iter().filter(own).map(|heap| heap.size).max()
}
