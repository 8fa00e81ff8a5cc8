//! Textures of wgpu in memory of the Vulkan backend that the device's segments come from.

#![cfg(all(feature = "vulkan-segments", not(target_vendor = "apple")))]

use std::sync::Arc;
use std::sync::mpsc::channel;

use millpond::{Allocator, Stream};
use millpond_vulkan::{Segment, Vulkan, ash::vk};
use millpond_wgpu::{Wgpu, wgpu};
use wgpu::hal::{self, api, vulkan::TextureMemory};

use crate::common;

/// A row is as long as wgpu wants the rows of a copy to be.
const SIDE: u32 = wgpu::COPY_BYTES_PER_ROW_ALIGNMENT / 4;
const SIZE: wgpu::Extent3d = wgpu::Extent3d { width: SIDE, height: SIDE, depth_or_array_layers: 1 };
const BYTES: usize = (SIDE * SIDE * 4) as usize;

/// Makes a texture in a block of Millpond's, which is freed when wgpu is done with the texture.
fn texture(device: &Wgpu, images: &Stream<Vulkan>) -> wgpu::Texture {
    let raw = device.vulkan().unwrap().raw_device().clone();
    let info = vk::ImageCreateInfo::default()
        .image_type(vk::ImageType::TYPE_2D)
        .format(vk::Format::R8G8B8A8_UNORM)
        .extent(vk::Extent3D { width: SIDE, height: SIDE, depth: 1 })
        .mip_levels(1)
        .array_layers(1)
        .samples(vk::SampleCountFlags::TYPE_1)
        .usage(vk::ImageUsageFlags::TRANSFER_SRC | vk::ImageUsageFlags::TRANSFER_DST);
    // SAFETY: all devices support such images of this format.
    let image = unsafe { raw.create_image(&info, None) }.unwrap();
    // SAFETY: the image was just created.
    let needed = device.vulkan().unwrap().apart(unsafe { raw.get_image_memory_requirements(image) });
    let block = images.allocate_aligned(needed.size, needed.alignment).unwrap();
    let place = block.segment().and_then(Segment::memory).unwrap();
    assert!(needed.memory_type_bits & (1 << place.memory_type) != 0);
    // SAFETY: the memory is of a type, a size and an alignment that the image requires, and lives until wgpu is done.
    unsafe { raw.bind_image_memory(image, place.memory, place.offset + block.offset()) }.unwrap();
    let is_done = move || {
        // SAFETY: wgpu calls this once the device is done with the image.
        unsafe { raw.destroy_image(image, None) };
        drop(block);
    };
    let desc = hal::TextureDescriptor {
        label: None,
        size: SIZE,
        mip_level_count: 1,
        sample_count: 1,
        dimension: wgpu::TextureDimension::D2,
        format: wgpu::TextureFormat::Rgba8Unorm,
        usage: wgpu::TextureUses::COPY_SRC | wgpu::TextureUses::COPY_DST,
        memory_flags: hal::MemoryFlags::empty(),
        view_formats: Vec::new(),
    };
    // SAFETY: the device is on Vulkan, and its handles are only used here.
    let below = unsafe { device.device().as_hal::<api::Vulkan>() }.unwrap();
    // SAFETY: the image is as described, and the callback ends it.
    let below = unsafe { below.texture_from_raw(image, &desc, Some(Box::new(is_done)), TextureMemory::External) };
    let desc = wgpu::TextureDescriptor {
        label: None,
        size: SIZE,
        mip_level_count: 1,
        sample_count: 1,
        dimension: wgpu::TextureDimension::D2,
        format: wgpu::TextureFormat::Rgba8Unorm,
        usage: wgpu::TextureUsages::COPY_SRC | wgpu::TextureUsages::COPY_DST,
        view_formats: &[],
    };
    let state = wgpu::TextureUses::UNINITIALIZED;
    // SAFETY: the texture is of this device and as described, and nothing is in it.
    unsafe { device.device().create_texture_from_hal::<api::Vulkan>(below, &desc, state) }
}

/// Copies bytes into a texture and back.
fn through(device: &Wgpu, texture: &wgpu::Texture, bytes: &[u8]) -> Vec<u8> {
    let (device, queue) = (device.device(), device.queue());
    let rows = wgpu::TexelCopyBufferLayout { offset: 0, bytes_per_row: Some(4 * SIDE), rows_per_image: None };
    queue.write_texture(texture.as_image_copy(), bytes, rows, SIZE);
    let to = device.create_buffer(&wgpu::BufferDescriptor {
        label: None,
        size: BYTES as u64,
        usage: wgpu::BufferUsages::COPY_DST | wgpu::BufferUsages::MAP_READ,
        mapped_at_creation: false,
    });
    let mut commands = device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
    let into = wgpu::TexelCopyBufferInfo { buffer: &to, layout: rows };
    commands.copy_texture_to_buffer(texture.as_image_copy(), into, SIZE);
    queue.submit([commands.finish()]);
    let (send, receive) = channel();
    to.map_async(wgpu::MapMode::Read, .., move |mapped| send.send(mapped).unwrap());
    device.poll(wgpu::PollType::wait_indefinitely()).unwrap();
    receive.recv().unwrap().unwrap();
    to.get_mapped_range(..).unwrap().to_vec()
}

#[test]
fn textures_come_and_go_in_memory_that_is_reserved_once() {
    let Some(device) = common::open(Wgpu::builder().vulkan_segments(true)) else { return };
    let allocator = Allocator::builder(device.vulkan().unwrap().clone()).class(Vulkan::IMAGE).build().unwrap();
    let images = allocator.create_stream().unwrap();
    let kept = texture(&device, &images);
    let first = vec![7; BYTES];
    assert!(through(&device, &kept, &first) == first);
    let reserved = allocator.memory_reserved();
    for round in 0..20u8 {
        let texture = texture(&device, &images);
        let picture: Vec<u8> = (0..BYTES).map(|at| (at as u8).wrapping_mul(7).wrapping_add(round)).collect();
        assert!(through(&device, &texture, &picture) == picture, "round {round}");
        assert_eq!(allocator.memory_reserved(), reserved, "round {round}");
    }
    drop(kept);
    device.device().poll(wgpu::PollType::wait_indefinitely()).unwrap();
    assert_eq!(allocator.memory_allocated(), 0, "wgpu is done with all of them");
    drop((images, allocator));
    device.vulkan().unwrap().release_left().unwrap();
    assert_eq!((device.vulkan().unwrap().held_bytes(), device.errors()), (0, vec![]));
}

/// wgpu's queue holds the buffers of work that is not over, and these hold the Vulkan backend. So that must not hold
/// the queue.
#[test]
fn a_device_is_destroyed_although_its_queue_has_work() {
    for is_submitted in [false, true] {
        let Some(device) = common::open(Wgpu::builder().vulkan_segments(true)) else { return };
        let lives = Arc::new(());
        let ends = Arc::downgrade(&lives);
        device.device().on_uncaptured_error(Arc::new(move |_| {
            let _ = &lives;
        }));
        let (own, queue) = (device.device().clone(), device.queue().clone());
        let allocator = Allocator::builder(device.clone()).conf("policy:classic").build().unwrap();
        let buffer = allocator.create_stream().unwrap().allocate(64 << 20).unwrap();
        let raw = buffer.segment().unwrap().buffer().clone();
        drop((buffer, allocator, device));
        queue.write_buffer(&raw, 0, &vec![1; 64 << 20]);
        if is_submitted {
            queue.submit([]);
        }
        drop((raw, own, queue));
        assert!(ends.upgrade().is_none(), "the device lives, submitted: {is_submitted}");
    }
}

/// A handle of the Vulkan backend keeps wgpu's device.
#[test]
fn images_outlive_the_last_handle_of_the_device() {
    let Some(device) = common::open(Wgpu::builder().vulkan_segments(true)) else { return };
    let vulkan = device.vulkan().unwrap().clone();
    drop(device);
    let allocator = Allocator::builder(vulkan).class(Vulkan::IMAGE).build().unwrap();
    let block = allocator.create_stream().unwrap().allocate(1 << 20).unwrap();
    assert!(block.segment().and_then(Segment::memory).is_some());
}
