//! An image and a buffer of an engine's own, bound to memory of Millpond's.

#![allow(unsafe_code)] // Calls into Vulkan.

use millpond_vulkan::Vulkan;
use millpond_vulkan::ash::vk;

use crate::engine::Result;
use crate::vulkan_memory::{Allocation, EngineMemory, Location};

/// The width and the height of a picture, in texels of four bytes.
pub const SIDE: u32 = 128;

/// The bytes of a picture.
pub const BYTES: usize = (SIDE * SIDE * 4) as usize;

/// An image, or a buffer, and its memory. Dropping it destroys the one and frees the other.
pub struct Bound<T: Destroy> {
    device: Vulkan,
    /// The image or the buffer.
    pub raw: T,
    /// Its memory.
    pub memory: Allocation,
}

/// A handle that can be destroyed.
pub trait Destroy: Copy {
    /// Destroys it. No work uses it any more.
    fn destroy(self, device: &Vulkan);
}

impl Destroy for vk::Image {
    fn destroy(self, device: &Vulkan) {
        // SAFETY: the owner has waited for all work on it.
        unsafe { device.raw_device().destroy_image(self, None) };
    }
}

impl Destroy for vk::Buffer {
    fn destroy(self, device: &Vulkan) {
        // SAFETY: the owner has waited for all work on it.
        unsafe { device.raw_device().destroy_buffer(self, None) };
    }
}

impl<T: Destroy> Drop for Bound<T> {
    fn drop(&mut self) {
        self.raw.destroy(&self.device);
    }
}

/// Creates an image with optimal tiling, in device memory.
///
/// # Errors
///
/// Returns the driver's errors and those of the memory.
pub fn image(memory: &EngineMemory) -> Result<Bound<vk::Image>> {
    let device = memory.device().clone();
    let info = vk::ImageCreateInfo::default()
        .image_type(vk::ImageType::TYPE_2D)
        .format(vk::Format::R8G8B8A8_UNORM)
        .extent(vk::Extent3D { width: SIDE, height: SIDE, depth: 1 })
        .mip_levels(1)
        .array_layers(1)
        .samples(vk::SampleCountFlags::TYPE_1)
        .tiling(vk::ImageTiling::OPTIMAL)
        .usage(vk::ImageUsageFlags::TRANSFER_SRC | vk::ImageUsageFlags::TRANSFER_DST);
    // SAFETY: every device supports such images of this format. The image is destroyed with the result.
    let raw = unsafe { device.raw_device().create_image(&info, None) }?;
    // SAFETY: the image was just created.
    let required = unsafe { device.raw_device().get_image_memory_requirements(raw) };
    let memory = memory.allocate(required, Location::Device).inspect_err(|_| raw.destroy(&device))?;
    let bound = Bound { memory, device, raw };
    let (to, offset) = (bound.memory.memory, bound.memory.offset);
    // SAFETY: the memory is of a type, a size and an alignment that the image requires, and lives as long.
    unsafe { bound.device.raw_device().bind_image_memory(raw, to, offset) }?;
    Ok(bound)
}

/// Creates a buffer for a picture that the host sees.
///
/// # Errors
///
/// Returns the driver's errors and those of the memory.
pub fn buffer(memory: &EngineMemory, location: Location) -> Result<Bound<vk::Buffer>> {
    let device = memory.device().clone();
    let usage = vk::BufferUsageFlags::TRANSFER_SRC | vk::BufferUsageFlags::TRANSFER_DST;
    let info = vk::BufferCreateInfo::default().size(BYTES as u64).usage(usage);
    // SAFETY: the structure is complete. The buffer is destroyed with the result.
    let raw = unsafe { device.raw_device().create_buffer(&info, None) }?;
    // SAFETY: the buffer was just created.
    let required = unsafe { device.raw_device().get_buffer_memory_requirements(raw) };
    let memory = memory.allocate(required, location).inspect_err(|_| raw.destroy(&device))?;
    let bound = Bound { memory, device, raw };
    let (to, offset) = (bound.memory.memory, bound.memory.offset);
    // SAFETY: the memory is of a type, a size and an alignment that the buffer requires, and lives as long.
    unsafe { bound.device.raw_device().bind_buffer_memory(raw, to, offset) }?;
    Ok(bound)
}

/// Records copies of a picture from one buffer through an image to another. Barriers inside of a recording are the
/// engine's: those in front of it are Millpond's.
///
/// # Errors
///
/// Returns the driver's errors.
pub fn copy_through(
    memory: &EngineMemory,
    from: &Bound<vk::Buffer>,
    image: &Bound<vk::Image>,
    to: &Bound<vk::Buffer>,
) -> Result<()> {
    use vk::ImageLayout as Layout;
    let device = memory.device().raw_device();
    let color = vk::ImageAspectFlags::COLOR;
    let range = vk::ImageSubresourceRange::default().aspect_mask(color).level_count(1).layer_count(1);
    let becomes = |commands, old, new| {
        let transfer = vk::PipelineStageFlags2::ALL_TRANSFER;
        let barrier = vk::ImageMemoryBarrier2::default()
            .src_stage_mask(transfer)
            .src_access_mask(vk::AccessFlags2::TRANSFER_WRITE)
            .dst_stage_mask(transfer)
            .dst_access_mask(vk::AccessFlags2::TRANSFER_WRITE | vk::AccessFlags2::TRANSFER_READ)
            .old_layout(old)
            .new_layout(new)
            .image(image.raw)
            .subresource_range(range);
        let info = [barrier];
        let info = vk::DependencyInfo::default().image_memory_barriers(&info);
        // SAFETY: the device has synchronization2, and the image lives until the work is done.
        unsafe { device.cmd_pipeline_barrier2(commands, &info) };
    };
    let region = vk::BufferImageCopy::default()
        .image_subresource(vk::ImageSubresourceLayers::default().aspect_mask(color).layer_count(1))
        .image_extent(vk::Extent3D { width: SIDE, height: SIDE, depth: 1 });
    let for_host = vk::MemoryBarrier2::default()
        .src_stage_mask(vk::PipelineStageFlags2::ALL_TRANSFER)
        .src_access_mask(vk::AccessFlags2::TRANSFER_WRITE)
        .dst_stage_mask(vk::PipelineStageFlags2::HOST)
        .dst_access_mask(vk::AccessFlags2::HOST_READ);
    memory.device().record(memory.stream().id(), |commands| {
        // The memory may have been another image's: what it has is of no use, and so the old layout is none.
        becomes(commands, Layout::UNDEFINED, Layout::TRANSFER_DST_OPTIMAL);
        // SAFETY: the image has this layout, and the buffer has a picture.
        unsafe {
            device.cmd_copy_buffer_to_image(commands, from.raw, image.raw, Layout::TRANSFER_DST_OPTIMAL, &[region]);
        }
        becomes(commands, Layout::TRANSFER_DST_OPTIMAL, Layout::TRANSFER_SRC_OPTIMAL);
        let barriers = [for_host];
        // SAFETY: as above. The barrier lets the host read once it has waited.
        unsafe {
            device.cmd_copy_image_to_buffer(commands, image.raw, Layout::TRANSFER_SRC_OPTIMAL, to.raw, &[region]);
            device.cmd_pipeline_barrier2(commands, &vk::DependencyInfo::default().memory_barriers(&barriers));
        }
    })?;
    Ok(())
}
