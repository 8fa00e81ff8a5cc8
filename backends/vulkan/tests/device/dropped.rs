//! What a dropped allocator leaves: the device has all of it back once no work may touch it, and not before.

use millpond::{Allocator, Buffer, Stream};
use millpond_backend::{Backend, BackendError, ClassId, Fault, Point, StreamId, VirtualMemory};
use millpond_vulkan::ash::vk;
use millpond_vulkan::{Submission, Vulkan, VulkanError};

use crate::lab::{Lab, skip};
use crate::recorder::{Facts, Recorder, Setup};

const CONFS: [&str; 3] = ["policy:paged", "policy:classic", "policy:direct"];

/// Returns an allocator of that configuration with a stream and a buffer; `None` where the device lacks what it needs.
fn opened(device: &Vulkan, conf: &str) -> Option<(Allocator<Vulkan>, Stream<Vulkan>, Buffer<Vulkan>)> {
    let allocator = match Allocator::builder(device.clone()).conf(conf).build() {
        Ok(allocator) => allocator,
        Err(error) => {
            skip("sparse", &format!("{conf}: {error}"));
            return None;
        }
    };
    let stream = allocator.create_stream().unwrap();
    let buffer = stream.allocate(8 << 20).unwrap();
    Some((allocator, stream, buffer))
}

/// Asserts that the device has everything back.
fn all_is_back(device: &Vulkan, what: &str) {
    assert_eq!((device.held_bytes(), device.live()), (0, (0, 0, 0)), "{what}");
    device.flush_binds().unwrap();
}

fn finish(lab: &Lab, stream: StreamId) {
    let tick = lab.submit(stream).unwrap();
    assert_eq!(lab.wait(Point { stream, tick }).unwrap(), tick);
}

#[test]
fn dropped_allocators_give_everything_back_without_a_submit() {
    let Some(lab) = Lab::open() else { return };
    for conf in CONFS {
        for used in [false, true] {
            for _ in 0..4 {
                let Some((allocator, stream, buffer)) = opened(&lab, conf) else { continue };
                let small = stream.allocate(1000).unwrap();
                if used {
                    stream.fill(&buffer, 0, 8 << 20, 7).unwrap();
                    finish(&lab, stream.id());
                }
                drop((buffer, small, stream, allocator));
            }
            all_is_back(&lab, &format!("{conf}, used: {used}"));
        }
    }
}

/// Code outside has the handle and the address, and records commands through the device.
#[test]
fn allocators_dropped_one_after_another_leave_nothing() {
    let Some(lab) = Lab::open() else { return };
    for conf in CONFS {
        for submitted in [false, true] {
            for _ in 0..4 {
                let Some((allocator, stream, buffer)) = opened(&lab, conf) else { continue };
                record_fill(&lab, &buffer);
                if submitted {
                    finish(&lab, stream.id());
                }
                drop((buffer, stream, allocator));
            }
            all_is_back(&lab, &format!("{conf}, submitted: {submitted}"));
        }
    }
}

/// Where an engine submits, its own commands may use the memory, of which it says when they are submitted.
#[test]
fn an_engine_says_when_what_allocators_left_may_go() {
    let Some(lab) = Lab::build(Vulkan::builder().engine_submits(true)) else { return };
    lab.release_left().unwrap();
    for conf in CONFS {
        let mut dropped = 0;
        for _ in 0..4 {
            let Some((allocator, stream, buffer)) = opened(&lab, conf) else { continue };
            record_fill(&lab, &buffer);
            let other = allocator.create_stream().unwrap();
            buffer.record_stream(&other).unwrap();
            finish(&lab, stream.id());
            drop((buffer, stream, other, allocator));
            dropped += 1;
        }
        assert_eq!(lab.held_bytes() > 0, dropped > 0, "{conf}: commands may be recorded that use it");
        lab.release_left().unwrap();
        all_is_back(&lab, conf);
    }
}

/// Records a fill of a buffer, with its raw handle.
fn record_fill(lab: &Lab, buffer: &Buffer<Vulkan>) {
    let (raw, _) = (buffer.segment().unwrap().buffer(), buffer.address());
    let fill = |commands| {
        // SAFETY: the range is the buffer's, and the device submits the commands.
        unsafe { lab.raw_device().cmd_fill_buffer(commands, raw, buffer.offset(), buffer.capacity(), 7) };
    };
    lab.record(buffer.stream(), fill).unwrap();
}

#[test]
fn addresses_of_dropped_allocators_serve_later_ones() {
    let Some(lab) = Lab::open() else { return };
    // As few as lavapipe has.
    let facts = Facts { limits: Some(|limits| limits.sparse_address_space_size = 1 << 31), ..Facts::default() };
    let device = Recorder::with(&lab, Setup { facts, own_queues: true, ..Setup::default() }).unwrap();
    // Each allocator takes part of the addresses: many more of them than there are parts.
    for _ in 0..200 {
        let Some((allocator, stream, buffer)) = opened(&device, "policy:paged") else { return };
        drop((buffer, stream, allocator));
    }
    all_is_back(&device, "two hundred");
    let pages = device.caps().pages.unwrap();
    assert_eq!(pages.address_bytes, 1 << 31);
    let part = pages.address_bytes / 64 / pages.granularity * pages.granularity;
    let all: Vec<_> = (0..64).map(|_| device.reserve_range(ClassId::DEVICE, part).unwrap()).collect();
    // No addresses are left, and the error names them.
    let left = device.reserve_range(ClassId::DEVICE, part).unwrap_err();
    assert!(matches!(left, VulkanError::AddressSpace { asked, .. } if asked == part), "{left}");
    assert!(left.to_string().starts_with("out of addresses"), "{left}");
    assert_eq!(left.fault(), Fault::OutOfMemory);
    // SAFETY: nothing was mapped there.
    all.into_iter().for_each(|range| unsafe { device.release_range(range) });
}

#[test]
fn what_was_recorded_and_not_submitted_keeps_its_memory_until_it_is_done() {
    let Some(lab) = Lab::open() else { return };
    for conf in CONFS {
        let Some((allocator, stream, buffer)) = opened(&lab, conf) else { continue };
        let id = stream.id();
        stream.fill(&buffer, 0, 8 << 20, 7).unwrap();
        drop((buffer, stream, allocator));
        all_is_back(&lab, &format!("{conf}: the fill is done, though nobody has submitted it"));
        finish(&lab, id);

        // Held work is not waited for longer than by any wait.
        let Some((allocator, stream, buffer)) = opened(&lab, conf) else { continue };
        lab.hold(stream.id()).unwrap();
        stream.fill(&buffer, 0, 8 << 20, 7).unwrap();
        drop((buffer, stream, allocator));
        all_is_back(&lab, conf);
    }
}

/// A copy that is recorded when its source's allocator ends is made all the same, before what is recorded later.
#[test]
fn what_was_recorded_is_done_in_its_place() {
    let Some(lab) = Lab::open() else { return };
    let Some((allocator, stream, buffer)) = opened(&lab, "policy:paged") else { return };
    let other = Allocator::builder((*lab).clone()).build().unwrap();
    let there = other.stream(stream.id()).unwrap();
    let kept = there.allocate(8 << 20).unwrap();
    let tick = lab.mark(there.id());
    stream.fill(&buffer, 0, 8 << 20, 7).unwrap();
    stream.copy((&buffer, 0), (&kept, 0), 8 << 20).unwrap();
    drop((buffer, stream, allocator));
    assert_eq!(lab.mark(there.id()), tick, "the open tick may cover what the application has not submitted");
    there.fill(&kept, 0, 16, 9).unwrap();
    let mut bytes = vec![0; 32];
    there.download(&kept, 0, &mut bytes).unwrap();
    assert_eq!((&bytes[..16], &bytes[16..]), (&[9; 16][..], &[7; 16][..]));
}

/// The layer reports a submit of commands whose buffer is destroyed.
#[test]
fn commands_of_the_application_keep_their_memory_until_they_are_done() {
    let Some(lab) = Lab::build(Vulkan::builder().engine_submits(true)) else { return };
    for conf in CONFS {
        let Some((allocator, stream, buffer)) = opened(&lab, conf) else { continue };
        let id = stream.id();
        let raw = buffer.segment().unwrap().buffer();
        let (pool, commands) = recorded(&lab, id, |commands| {
            // SAFETY: the range is the buffer's, and the commands are submitted once.
            unsafe { lab.raw_device().cmd_fill_buffer(commands, raw, buffer.offset(), buffer.capacity(), 7) };
        });
        drop((buffer, stream, allocator));
        assert!(lab.held_bytes() > 0, "{conf}: commands that are not submitted use it");
        let submission = Submission { command_buffers: &[commands], ..Submission::default() };
        // SAFETY: the commands are ended, and live until they are waited for.
        let tick = unsafe { lab.submit_with(id, &submission) }.unwrap();
        assert_eq!(lab.wait(Point { stream: id, tick }).unwrap(), tick);
        // SAFETY: all of it is done.
        unsafe { lab.raw_device().destroy_command_pool(pool, None) };
        all_is_back(&lab, conf);
    }
}

/// Records commands of the application's own, for the family of a stream's queue.
fn recorded(lab: &Lab, stream: StreamId, work: impl FnOnce(vk::CommandBuffer)) -> (vk::CommandPool, vk::CommandBuffer) {
    let (family, _) = lab.queue_of(stream);
    let device = lab.raw_device();
    let pool = vk::CommandPoolCreateInfo::default().queue_family_index(family);
    // SAFETY: the family is the device's; the pool is used here alone.
    unsafe {
        let pool = device.create_command_pool(&pool, None).unwrap();
        let info = vk::CommandBufferAllocateInfo::default().command_pool(pool).command_buffer_count(1);
        let commands = device.allocate_command_buffers(&info).unwrap()[0];
        device.begin_command_buffer(commands, &vk::CommandBufferBeginInfo::default()).unwrap();
        work(commands);
        device.end_command_buffer(commands).unwrap();
        (pool, commands)
    }
}

/// Freeing is allowed while a submit is announced and while commands are recorded, so the last drop is, too.
#[test]
fn the_last_drop_may_come_while_its_stream_is_busy() {
    let Some(lab) = Lab::open() else { return };
    for conf in CONFS {
        let Some((allocator, stream, buffer)) = opened(&lab, conf) else { continue };
        let id = stream.id();
        drop((stream, allocator));
        let pending = lab.begin_submit(id).unwrap();
        drop(buffer);
        pending.abandon();
        finish(&lab, id);
        all_is_back(&lab, conf);

        let Some((allocator, stream, buffer)) = opened(&lab, conf) else { continue };
        let id = stream.id();
        drop((stream, allocator));
        lab.record(id, |_| drop(buffer)).unwrap();
        finish(&lab, id);
        all_is_back(&lab, conf);
    }
}

/// The address of a buffer is as good as its handle.
#[test]
fn memory_whose_address_was_given_out_waits_for_the_next_submit() {
    let Some(lab) = Lab::build(Vulkan::builder().engine_submits(true)) else { return };
    let Some((allocator, stream, buffer)) = opened(&lab, "policy:classic") else { return };
    let id = stream.id();
    if buffer.address().is_none() {
        return skip("addresses", "buffers have no addresses");
    }
    drop((buffer, stream, allocator));
    assert!(lab.held_bytes() > 0, "commands may be recorded that use the address");
    finish(&lab, id);
    all_is_back(&lab, "after the submit");
}
