//! Segments of the Vulkan backend in a wgpu device: the conformance suite, virtual memory, shaders on pages, budgets.

#![cfg(all(feature = "vulkan-segments", not(target_vendor = "apple")))]

use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use millpond::{Allocator, Error, Keep, Readiness};
use millpond_backend::{Backend, Budget, ClassId, Fault, Point, Reuse as Promise, Transfer, VirtualMemory};
use millpond_conformance::{WgpuDevice, conformance_tests};
use millpond_wgpu::{EXCLUSIVE, Planned, Wgpu, WgpuBuilder, WgpuError, wgpu};

use crate::common;

fn builder() -> WgpuBuilder {
    Wgpu::builder().vulkan_segments(true)
}

fn device() -> WgpuDevice {
    WgpuDevice::new("Vulkan's segments", common::for_many_calls(builder()))
}

conformance_tests!(device(), differences: []);

/// Opens a device with pages, or prints that there is none.
fn with_pages() -> Option<Wgpu> {
    let device = common::open(builder())?;
    if device.caps().pages.is_some() {
        return Some(device);
    }
    assert!(!common::required("sparse"), "MILLPOND_REQUIRE names sparse, and {device:?} has no pages");
    eprintln!("SKIPPED: the device has no sparse buffers");
    None
}

#[test]
fn facts_are_those_of_both() {
    let Some(device) = common::open(builder()) else { return };
    let (caps, vulkan) = (device.caps(), device.vulkan().unwrap().caps());
    assert_eq!(caps.classes[0].total_bytes, vulkan.classes[0].total_bytes);
    assert!(caps.classes[0].max_segment_bytes <= device.device().limits().max_buffer_size);
    assert_eq!((caps.budget, caps.oversubscribes), (vulkan.budget, vulkan.oversubscribes));
    assert_eq!(caps.pages.map(|pages| pages.granularity), vulkan.pages.map(|pages| pages.granularity));
    assert_eq!(device.virtual_memory().is_some(), caps.pages.is_some());
    if let Some(pages) = caps.pages {
        assert!(pages.address_bytes / 64 <= caps.classes[0].max_segment_bytes, "{pages:?}");
        assert_eq!(pages.alias_reuse, Promise::AfterSubmit, "wgpu places no barrier between two buffers");
    }
}

#[test]
fn released_memory_goes_back_to_the_driver_at_once() {
    let Some(device) = common::open(builder()) else { return };
    let stream = device.create_stream().unwrap();
    let segment = device.reserve(ClassId::DEVICE, 1 << 20).unwrap();
    device.fill(stream, &segment, 0, 1 << 20, 7).unwrap();
    let tick = device.submit(stream).unwrap();
    assert_eq!(device.wait(Point { stream, tick }).unwrap(), tick);
    let (kept, vulkan) = (segment.buffer().clone(), device.vulkan().unwrap().clone());
    assert_eq!((device.held_bytes(), vulkan.held_bytes()), (1 << 20, 1 << 20));
    // SAFETY: the only work on it is done.
    unsafe { device.release(segment) };
    assert_eq!((device.held_bytes(), vulkan.held_bytes()), (0, 0));
    drop(kept);
}

/// wgpu copies and binds whole words, so the buffer behind a segment of any length ends with one: each byte can be
/// written, read and bound.
#[test]
fn a_segment_of_any_length_is_read_and_bound_to_its_end() {
    let Some(device) = common::open(builder()) else { return };
    let stream = device.create_stream().unwrap();
    let layout = device.device().create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor {
        label: None,
        entries: &[wgpu::BindGroupLayoutEntry {
            binding: 0,
            visibility: wgpu::ShaderStages::COMPUTE,
            ty: wgpu::BindingType::Buffer {
                ty: wgpu::BufferBindingType::Storage { read_only: false },
                has_dynamic_offset: false,
                min_binding_size: None,
            },
            count: None,
        }],
    });
    for bytes in [1_u64, 2, 3, 4, 5, 1001, 1002, 1003, 65_537] {
        let segment = device.reserve(ClassId::DEVICE, bytes).unwrap();
        let written: Vec<u8> = (0..bytes).map(|at| (at % 251) as u8 + 1).collect();
        device.upload(stream, &written, &segment, 0).unwrap();
        let mut read = vec![0; bytes as usize];
        device.download(stream, &segment, 0, &mut read).unwrap();
        assert!(read == written, "{bytes} bytes");
        let (binding, before) = segment.window(bytes - 1, 1).unwrap();
        assert_eq!(binding.offset + before, bytes - 1);
        let scope = device.device().push_error_scope(wgpu::ErrorFilter::Validation);
        drop(device.device().create_bind_group(&wgpu::BindGroupDescriptor {
            label: None,
            layout: &layout,
            entries: &[wgpu::BindGroupEntry { binding: 0, resource: wgpu::BindingResource::Buffer(binding) }],
        }));
        assert!(pollster::block_on(scope.pop()).is_none(), "the last byte of {bytes}");
        assert_eq!(segment.bytes(), bytes);
        // SAFETY: the download has waited for all work on it.
        unsafe { device.release(segment) };
    }
    assert_eq!((device.held_bytes(), device.errors()), (0, vec![]));
}

/// Buffers that a program still has when the device's last handle is dropped keep the memory behind them alive.
#[test]
fn buffers_may_outlive_the_device_handle() {
    let Some(device) = common::open(builder()) else { return };
    let segment = device.reserve(ClassId::DEVICE, 1 << 20).unwrap();
    let (buffer, raw, queue) = (segment.buffer().clone(), device.device().clone(), device.queue().clone());
    drop((segment, device));
    let mut encoder = raw.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
    encoder.clear_buffer(&buffer, 0, None);
    queue.submit([encoder.finish()]);
    raw.poll(wgpu::PollType::wait_indefinitely()).unwrap();
}

#[test]
fn one_page_moves_from_place_to_place_with_its_bytes() {
    let Some(device) = with_pages() else { return };
    let pages = device.caps().pages.unwrap();
    let size = pages.granularity;
    let stream = device.create_stream().unwrap();
    let range = device.reserve_range(ClassId::DEVICE, 4 * size).unwrap();
    let page = device.create_page(ClassId::DEVICE, size).unwrap();
    assert_eq!(device.held_bytes(), size, "addresses are no memory");
    for offset in [0, 3 * size] {
        // SAFETY: nothing is mapped in the range.
        unsafe { device.map(&range, offset, &page, stream) }.unwrap();
        if offset == 0 {
            device.fill(stream, &range, 0, size, 0x5A).unwrap();
        }
        let mut seen = vec![0; size as usize];
        device.download(stream, &range, offset, &mut seen).unwrap();
        assert!(seen.iter().all(|&byte| byte == 0x5A), "at {offset}");
        // SAFETY: the page is mapped there, and the download has waited for all work.
        unsafe { device.unmap(&range, offset, &page, stream) };
    }
    // SAFETY: the page is mapped nowhere, and no work touches either.
    unsafe {
        device.release_page(page);
        device.release_range(range);
    }
    assert_eq!(device.held_bytes(), 0);
    assert_eq!(device.errors(), [""; 0]);
}

#[test]
fn ranges_that_no_buffer_can_be_are_refused() {
    let Some(device) = with_pages() else { return };
    let max = device.caps().classes[0].max_segment_bytes;
    let size = device.caps().pages.unwrap().granularity;
    let refused = device.reserve_range(ClassId::DEVICE, (max / size + 1) * size).unwrap_err();
    assert!(matches!(refused, WgpuError::TooLarge { max: most, .. } if most == max), "{refused:?}");
    let odd = device.create_page(ClassId::DEVICE, size + 4).unwrap_err();
    assert!(matches!(odd, WgpuError::Vulkan { call: "create_page", .. }), "{odd:?}");
    device.fail_nth(1, Fault::OutOfMemory);
    assert!(matches!(device.create_page(ClassId::DEVICE, size), Err(WgpuError::Planned(Planned { .. }))));
}

/// Under the policy `paged`, a block that fits nowhere is made of free pages of several streams.
#[test]
fn free_pages_of_other_streams_make_one_large_block() {
    let Some(device) = with_pages() else { return };
    let size = device.caps().pages.unwrap().granularity;
    let allocator = Allocator::builder(device.clone()).conf("policy:paged").limit(8 * size).build().unwrap();
    let streams = [(); 2].map(|()| allocator.create_stream().unwrap());
    for round in 0..3_u8 {
        let blocks: Vec<_> = (0..8).map(|at| streams[at % 2].allocate(size).unwrap()).collect();
        for (at, block) in blocks.iter().enumerate() {
            let value = 1 + round * 10 + at as u8;
            device.fill(block.stream(), block.segment().unwrap(), block.offset(), size, value).unwrap();
        }
        drop(blocks);
        for stream in &streams {
            let tick = device.submit(stream.id()).unwrap();
            assert_eq!(device.wait(Point { stream: stream.id(), tick }).unwrap(), tick);
        }
        let large = streams[0].allocate(7 * size).unwrap();
        let stream = streams[0].id();
        device.fill(stream, large.segment().unwrap(), large.offset(), 7 * size, 0xC0 + round).unwrap();
        let mut seen = vec![0; 7 * size as usize];
        device.download(stream, large.segment().unwrap(), large.offset(), &mut seen).unwrap();
        assert!(seen.iter().all(|&byte| byte == 0xC0 + round));
        drop(large);
        device.submit(stream).unwrap();
    }
    assert!(allocator.memory_reserved() <= 8 * size);
    allocator.check();
    assert_eq!(device.errors(), [""; 0]);
}

/// A submit that wgpu refuses is abandoned, and its waits and its signal with it. Pages that it announced are bound all
/// the same, and the next submits run.
#[test]
fn a_refused_submit_is_abandoned() {
    let Some(device) = with_pages() else { return };
    let size = device.caps().pages.unwrap().granularity;
    let stream = device.create_stream().unwrap();
    let range = device.reserve_range(ClassId::DEVICE, size).unwrap();
    for round in 1..4 {
        let page = device.create_page(ClassId::DEVICE, size).unwrap();
        // SAFETY: nothing is mapped in the range.
        unsafe { device.map(&range, 0, &page, stream) }.unwrap();
        device.record(stream, |encoder| encoder.clear_buffer(range.buffer(), size, Some(4))).unwrap();
        let refused = device.submit(stream).unwrap_err();
        assert!(matches!(refused, WgpuError::Refused { call: "submit", .. }), "{refused:?}");
        device.fill(stream, &range, 0, size, round).unwrap();
        let mut seen = vec![0; size as usize];
        device.download(stream, &range, 0, &mut seen).unwrap();
        assert!(seen.iter().all(|&byte| byte == round), "round {round}");
        // SAFETY: the page is mapped there, and the download has waited for all work. It is mapped nowhere then.
        unsafe {
            device.unmap(&range, 0, &page, stream);
            device.release_page(page);
        }
    }
    let tick = device.submit(stream).unwrap();
    assert_eq!(device.wait(Point { stream, tick }).unwrap(), tick);
    // SAFETY: nothing is mapped there, and no work touches it.
    unsafe { device.release_range(range) };
    assert_eq!((device.held_bytes(), device.vulkan().unwrap().held_bytes()), (0, 0));
}

/// A submit that wgpu refuses gives no signal, so nothing waits for it: not even the end of the device, if no other
/// submit follows.
#[test]
fn a_device_ends_after_a_submit_that_was_refused() {
    let Some(device) = common::open(builder()) else { return };
    let stream = device.create_stream().unwrap();
    let segment = device.reserve(ClassId::DEVICE, 4096).unwrap();
    device.record(stream, |encoder| encoder.clear_buffer(segment.buffer(), 4096, Some(4))).unwrap();
    let refused = device.submit(stream).unwrap_err();
    assert!(matches!(refused, WgpuError::Refused { call: "submit", .. }), "{refused:?}");
    // SAFETY: no work touches it.
    unsafe { device.release(segment) };
    let (tell, told) = channel();
    thread::spawn(move || {
        drop(device);
        let _ = tell.send(());
    });
    assert!(told.recv_timeout(PATIENCE).is_ok(), "it waits for a signal that nothing gives");
}

/// wgpu places barriers for each buffer separately. A window is in another buffer than the homes of its pages, so
/// memory that was used at home is not used through a window in the same submission, where nothing would order the two.
#[test]
fn memory_comes_to_another_buffer_only_behind_a_submit() {
    let Some(device) = with_pages() else { return };
    const MIB: u64 = 1 << 20;
    let page = device.caps().pages.unwrap().granularity.max(2 * MIB);
    for limited in [true, false] {
        let limit = if limited { 4 * page } else { 16 * page };
        let conf = "policy:paged,growth:tight";
        let allocator = Allocator::builder(device.clone()).conf(conf).limit(limit).build().unwrap();
        let stream = allocator.create_stream().unwrap();
        let fill = |buffer: &millpond::Buffer<Wgpu>, value| {
            let (segment, bytes) = (buffer.segment().unwrap(), buffer.capacity());
            device.fill(stream.id(), segment, buffer.offset(), bytes, value).unwrap();
        };
        let mut blocks: Vec<_> = (0..4).map(|_| stream.allocate(page).unwrap()).collect();
        blocks.iter().for_each(|block| fill(block, 0x11));
        // The first one and the third one are free, the others are not.
        drop((blocks.remove(2), blocks.remove(0)));
        let tick = device.mark(stream.id());
        if limited {
            let refused = stream.allocate(2 * page).map(|block| block.readiness());
            assert!(matches!(refused, Err(Error::OutOfMemory(_))), "granted in tick {tick:?}: {refused:?}");
            assert_eq!(device.submit(stream.id()).unwrap(), tick);
        }
        let large = stream.allocate(2 * page).unwrap();
        let moved = allocator.page_stats().moved;
        if limited {
            assert!(
                moved > 0 && matches!(large.readiness(), Readiness::Ordered | Readiness::Complete),
                "{moved}: {large:?}"
            );
        } else {
            assert_eq!((moved, large.readiness()), (0, Readiness::Fresh), "there is other memory");
        }
        fill(&large, 0x22);
        let mut seen = vec![0; large.capacity() as usize];
        device.download(stream.id(), large.segment().unwrap(), large.offset(), &mut seen).unwrap();
        assert!(seen.iter().all(|&byte| byte == 0x22));
        drop(large);
        device.submit(stream.id()).unwrap();
        allocator.check();
    }
    assert_eq!(device.errors(), [""; 0]);
}

#[test]
fn budgets_are_the_drivers() {
    let Some(device) = common::open(builder()) else { return };
    if !device.caps().budget {
        assert!(!common::required("budget"), "MILLPOND_REQUIRE names budget, and {device:?} has none");
        eprintln!("SKIPPED: the driver reports no budget");
        return;
    }
    let budget = Budget::budget(&device, ClassId::DEVICE).unwrap();
    assert_eq!(budget.total_bytes, device.caps().classes[0].total_bytes);
    assert!(budget.free_bytes > 0 && budget.free_bytes <= budget.total_bytes, "{budget:?}");
    assert_eq!(Budget::budget(&device, EXCLUSIVE).unwrap().total_bytes, budget.total_bytes);
}

#[test]
fn usages_that_vulkans_segments_lack_are_refused() {
    if common::open(builder()).is_none() {
        return;
    }
    let refused = builder().usage(wgpu::BufferUsages::QUERY_RESOLVE).build().unwrap_err();
    assert!(matches!(refused, WgpuError::NoVulkanSegments { .. }), "{refused:?}");
}

/// The limit of bytes given back beyond which they are unbound without a submit.
const LEAVING_BYTES: u64 = 64 << 20;
/// The time after which the scenario below counts as hanging. It takes a second otherwise.
const PATIENCE: Duration = Duration::from_secs(30);

/// wgpu runs callbacks inside of submits, while this thread has the queue locked. A callback that allocates waits for
/// no other thread, although another thread gives back enough in the meantime that it would be unbound on the same
/// queue.
#[test]
fn a_callback_allocates_inside_of_a_submit_while_another_thread_gives_pages_back() {
    let Some(device) = with_pages() else { return };
    let (tell, told) = channel();
    let running = thread::spawn(move || {
        allocate_in_a_callback(&device);
        let _ = tell.send(());
    });
    if told.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
        let text = "FAILED: a callback that allocates and a thread that gives pages back wait for each other\n";
        let _ = std::io::stderr().write_all(text.as_bytes());
        std::process::exit(1);
    }
    running.join().expect("the scenario passes");
}

fn allocate_in_a_callback(device: &Wgpu) {
    static SUBMITTING: AtomicBool = AtomicBool::new(false);
    let size = device.caps().pages.unwrap().granularity;
    let stream = device.create_stream().unwrap();
    let count = LEAVING_BYTES / size + 1;
    let range = device.reserve_range(ClassId::DEVICE, count * size).unwrap();
    let pages: Vec<_> = (0..count).map(|_| device.create_page(ClassId::DEVICE, size).unwrap()).collect();
    for (at, page) in (0..).zip(&pages) {
        // SAFETY: nothing is mapped there.
        unsafe { device.map(&range, at * size, page, stream) }.unwrap();
    }
    let target = device.reserve(ClassId::DEVICE, 4096).unwrap();
    device.fill(stream, &target, 0, 4096, 1).unwrap();
    device.submit(stream).unwrap();
    let (tell, told) = channel();
    let inside = device.clone();
    device.queue().on_submitted_work_done(move || {
        let in_time = SUBMITTING.load(Ordering::SeqCst);
        let giver = thread::spawn({
            let device = inside.clone();
            move || {
                for (at, page) in (0..).zip(pages) {
                    // SAFETY: the page is mapped there, and no work touches it.
                    unsafe {
                        device.unmap(&range, at * size, &page, stream);
                        device.release_page(page);
                    }
                }
                range
            }
        });
        // This is enough time for the other thread to reach the queue, or to finish.
        thread::sleep(Duration::from_millis(300));
        let page = inside.create_page(ClassId::DEVICE, size).unwrap();
        let segment = inside.reserve(ClassId::DEVICE, 4096).unwrap();
        // SAFETY: no work touches them, and the page is mapped nowhere.
        unsafe {
            inside.release_page(page);
            inside.release(segment);
        }
        let _ = tell.send((in_time, giver));
    });
    // The work is done by then, and the next submit is the first call to notice it.
    thread::sleep(Duration::from_millis(200));
    SUBMITTING.store(true, Ordering::SeqCst);
    let tick = device.submit(stream).unwrap();
    SUBMITTING.store(false, Ordering::SeqCst);
    let (in_time, giver) = told.recv().unwrap();
    assert!(in_time, "the callback ran elsewhere: the test shows nothing");
    let range = giver.join().unwrap();
    assert_eq!(device.wait(Point { stream, tick }).unwrap(), tick);
    // SAFETY: nothing is mapped in the range, and all work is done.
    unsafe {
        device.release_range(range);
        device.release(target);
    }
    assert_eq!(device.errors(), [""; 0]);
}

/// The host cannot address page-locked memory of wgpu's, so contents are not kept. The group goes on as before.
#[test]
fn groups_are_paused_without_their_contents() {
    let Some(device) = with_pages() else { return };
    let allocator = Allocator::builder(device).conf("policy:paged").build().unwrap();
    let group = allocator.group("kv").unwrap();
    let stream = group.stream(allocator.create_stream().unwrap().id()).unwrap();
    let buffer = stream.allocate(5 << 20).unwrap();
    stream.fill(&buffer, 0, 5 << 20, 7).unwrap();
    let error = group.pause(Keep::Host).unwrap_err();
    assert!(matches!(error, Error::Unsupported { .. }) && !group.is_paused(), "{error}");
    let mut bytes = [0; 4];
    stream.download(&buffer, 0, &mut bytes).unwrap();
    assert_eq!(bytes, [7; 4]);
    group.pause(Keep::Discard).unwrap();
    assert_eq!(allocator.memory_reserved(), 0);
    group.resume().unwrap();
    stream.fill(&buffer, 0, 5 << 20, 9).unwrap();
    stream.download(&buffer, 0, &mut bytes).unwrap();
    assert_eq!(bytes, [9; 4]);
    drop(buffer);
    allocator.check();
}

/// Without pages there are no groups.
#[test]
fn groups_need_segments_of_vulkan() {
    let Some(device) = common::open(Wgpu::builder()) else { return };
    let error = Allocator::new(device).group("kv").unwrap_err();
    assert!(error.to_string().contains("on a device with virtual memory"), "{error}");
}
