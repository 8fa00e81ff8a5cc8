//! What a dropped allocator leaves: wgpu frees it once no work that was recorded uses it.

use millpond::Allocator;
use millpond_backend::{Backend, Point};
use millpond_wgpu::{Wgpu, wgpu};

use crate::common;

/// The devices: with wgpu's own buffers, and with those of the Vulkan backend where they are built in.
fn devices() -> Vec<Wgpu> {
    #[cfg(all(feature = "vulkan-segments", not(target_vendor = "apple")))]
    let builders = [Wgpu::builder(), Wgpu::builder().vulkan_segments(true)];
    #[cfg(not(all(feature = "vulkan-segments", not(target_vendor = "apple"))))]
    let builders = [Wgpu::builder()];
    builders.into_iter().filter_map(common::open).collect()
}

/// Asserts that the device, and the Vulkan backend under it, have everything back.
fn all_is_back(device: &Wgpu, what: &str) {
    assert_eq!(device.held_bytes(), 0, "{what}");
    #[cfg(all(feature = "vulkan-segments", not(target_vendor = "apple")))]
    if let Some(vulkan) = device.vulkan() {
        // What wgpu has let go of is freed with the next segment.
        let next = device.reserve(millpond_backend::ClassId::DEVICE, 4).unwrap();
        // SAFETY: no work touches it.
        unsafe { device.release(next) };
        assert_eq!((vulkan.held_bytes(), vulkan.live()), (0, (0, 0, 0)), "{what}");
    }
}

#[test]
fn dropped_allocators_give_everything_back_without_a_submit() {
    for device in devices() {
        for used in [false, true] {
            for _ in 0..4 {
                let allocator = Allocator::new(device.clone());
                let stream = allocator.create_stream().unwrap();
                let (buffer, small) = (stream.allocate(8 << 20).unwrap(), stream.allocate(1000).unwrap());
                if used {
                    stream.fill(&buffer, 0, 8 << 20, 7).unwrap();
                    let point = stream.submit().unwrap();
                    assert_eq!(device.wait(point).unwrap(), point.tick);
                }
                drop((buffer, small, stream, allocator));
            }
            all_is_back(&device, &format!("{device:?}, used: {used}"));
        }
    }
}

/// Commands of the application's own, and commands that the device has recorded.
#[test]
fn commands_that_are_submitted_after_the_drop_still_have_their_memory() {
    for device in devices() {
        let kept = device.device().create_buffer(&wgpu::BufferDescriptor {
            label: None,
            size: 64,
            usage: wgpu::BufferUsages::COPY_DST | wgpu::BufferUsages::COPY_SRC,
            mapped_at_creation: false,
        });
        let allocator = Allocator::new(device.clone());
        let stream = allocator.create_stream().unwrap();
        let id = stream.id();
        let buffer = stream.allocate(8 << 20).unwrap();
        let mut encoder = device.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        stream.fill(&buffer, 0, 64, 7).unwrap();
        encoder.copy_buffer_to_buffer(buffer.segment().unwrap().buffer(), buffer.offset(), &kept, 0, 64);
        drop((buffer, stream, allocator));
        // A submit of the device's own commands, behind which the others come.
        let tick = device.submit_with(id, [encoder.finish()]).unwrap();
        assert_eq!(device.wait(Point { stream: id, tick }).unwrap(), tick);
        assert_eq!(device.errors(), [""; 0]);
        assert_eq!(bytes_of(&device, &kept), [7; 64]);
        all_is_back(&device, &format!("{device:?}"));
    }
}

/// A page is mapped in a home and in a window. It stays until wgpu has let go of both.
#[test]
#[cfg(all(feature = "vulkan-segments", not(target_vendor = "apple")))]
fn pages_stay_as_long_as_any_of_their_ranges() {
    let Some(device) = common::open(Wgpu::builder().vulkan_segments(true)) else { return };
    let (Some(pages), Some(vulkan)) = (device.caps().pages, device.vulkan().cloned()) else {
        assert!(!common::required("sparse"), "MILLPOND_REQUIRE names sparse, and {device:?} has no pages");
        eprintln!("SKIPPED: the device has no sparse buffers");
        return;
    };
    let size = pages.granularity;
    for keeps_window in [false, true] {
        let allocator = Allocator::builder(device.clone()).conf("policy:paged").limit(8 * size).build().unwrap();
        let streams = [(); 2].map(|()| allocator.create_stream().unwrap());
        let mut blocks: Vec<_> = (0..8).map(|at| streams[at % 2].allocate(size).unwrap()).collect();
        let home = blocks[0].segment().unwrap().buffer().clone();
        // The seven pages that come free are not side by side.
        let between = blocks.swap_remove(3);
        drop(blocks);
        for stream in &streams {
            let point = stream.submit().unwrap();
            assert_eq!(device.wait(point).unwrap(), point.tick);
        }
        let large = streams[0].allocate(7 * size).unwrap();
        let window = large.segment().unwrap().buffer().clone();
        assert_ne!(home, window);
        let (kept, other) = if keeps_window { (window, home) } else { (home, window) };
        drop((other, large, between, streams, allocator));
        let next = device.reserve(millpond_backend::ClassId::DEVICE, 4).unwrap();
        // SAFETY: no work touches it.
        unsafe { device.release(next) };
        assert!(vulkan.held_bytes() >= 7 * size, "{:?}", vulkan.live());
        drop(kept);
        all_is_back(&device, &format!("keeps the window: {keeps_window}"));
    }
    assert_eq!(device.errors(), [""; 0]);
}

fn bytes_of(device: &Wgpu, buffer: &wgpu::Buffer) -> Vec<u8> {
    let usage = wgpu::BufferUsages::COPY_DST | wgpu::BufferUsages::MAP_READ;
    let read = wgpu::BufferDescriptor { label: None, size: buffer.size(), usage, mapped_at_creation: false };
    let read = device.device().create_buffer(&read);
    let mut encoder = device.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
    encoder.copy_buffer_to_buffer(buffer, 0, &read, 0, buffer.size());
    device.queue().submit([encoder.finish()]);
    read.slice(..).map_async(wgpu::MapMode::Read, |mapped| mapped.unwrap());
    device.device().poll(wgpu::PollType::wait_indefinitely()).unwrap();
    read.slice(..).get_mapped_range().unwrap().to_vec()
}
