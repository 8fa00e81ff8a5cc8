//! The replacement of `heap.rs` where wgpu has no Vulkan: nothing is known of the device's memory.

pub(crate) fn device_bytes(_device: &wgpu::Device) -> Option<u64> {
    None
}
