//! Queues: each under its own lock, also where binds have one of their own, and buffers that all of them share.

use std::thread;

use millpond::Allocator;
use millpond_backend::{Backend, ClassId, Point, StreamWait, Transfer, VirtualMemory};
use millpond_vulkan::VulkanError;
use millpond_vulkan::ash::vk;

use super::{BYTES, finish, give_back, segment};
use crate::adopted::adopt;
use crate::lab::Lab;
use crate::recorder::{Call, Facts, Recorder, Setup, turn};

/// Returns a device with a queue for work, which could bind too, and another for binds alone.
fn two_queues(lab: &Lab) -> Recorder {
    with_two_queues(lab, false)
}

fn with_two_queues(lab: &Lab, has_threads: bool) -> Recorder {
    let work = vk::QueueFlags::COMPUTE | vk::QueueFlags::TRANSFER | vk::QueueFlags::SPARSE_BINDING;
    let families = vec![work, vk::QueueFlags::SPARSE_BINDING];
    let facts = Facts { families, ..Facts::default() };
    Recorder::with(lab, Setup { facts, has_threads, ..Setup::default() }).unwrap()
}

/// The rules say that each queue is used under its own lock.
#[test]
fn binds_have_their_own_queue_and_its_lock() {
    let Some(lab) = Lab::open() else { return };
    let device = two_queues(&lab);
    let Some(pages) = device.caps().pages else { return };
    let (stream, bytes) = (device.create_stream().unwrap(), pages.granularity);
    let range = device.reserve_range(ClassId::DEVICE, bytes).unwrap();
    let page = device.create_page(ClassId::DEVICE, bytes).unwrap();
    device.calls();
    // SAFETY: nothing is mapped there; the work is waited for before the page is unmapped and given back.
    unsafe {
        device.map(&range, 0, &page, stream).unwrap();
        device.fill(stream, &range, 0, bytes, 7).unwrap();
        finish(&device, stream);
        device.unmap(&range, 0, &page, stream);
        device.release_page(page);
        device.release_range(range);
    }
    let calls = device.calls();
    let queues = calls.iter().filter_map(|call| match call {
        Call::Submit(submit) => Some((submit.queue, submit.locked)),
        Call::Bind(bind) => Some((bind.queue, bind.locked)),
        _ => None,
    });
    let (work, binds) = (device.queue_of(stream).1, device.queues()[1].0);
    assert_eq!(binds, (1, 0));
    let queues: Vec<_> = queues.collect();
    assert_eq!(queues.len(), 3, "a bind, a submit, and the bind of the range that was given back: {queues:?}");
    assert!(queues[1] == (work, true) && [queues[0], queues[2]].iter().all(|&(queue, locked)| queue != work && locked));
}

/// Work that has signalled may still be looked at by a driver's threads: nothing is destroyed before queues are idle.
#[test]
fn all_queues_are_idle_before_anything_is_destroyed() {
    let Some(lab) = Lab::open() else { return };
    let device = two_queues(&lab);
    let stream = device.create_stream().unwrap();
    let segment = segment(&device);
    device.fill(stream, &segment, 0, BYTES, 7).unwrap();
    device.submit(stream).unwrap();
    let (semaphore, buffer) = (device.timeline_of(stream).0, segment.buffer());
    device.calls();
    let calls = device.close();
    let at = |wanted: &Call| calls.iter().position(|call| call == wanted).unwrap_or_else(|| panic!("{calls:?}"));
    let idle: Vec<_> = (0..calls.len()).filter(|&at| matches!(calls[at], Call::WaitIdle(_, true))).collect();
    assert_eq!(idle.len(), 2, "each under its lock: {calls:?}");
    assert!(at(&Call::Known(semaphore, 1)) < idle[0], "what was submitted is waited for first");
    for gone in [Call::DestroySemaphore(semaphore), Call::DestroyBuffer(buffer)] {
        assert!(idle[1] < at(&gone), "{calls:?}");
    }
}

/// wgpu's users submit to its queue without the lock that this backend gets, where binds have a queue of their own.
#[test]
fn a_queue_of_an_engine_that_was_never_used_is_left_alone() {
    let Some(lab) = Lab::open() else { return };
    let device = two_queues(&lab);
    if device.caps().pages.is_none() {
        return;
    }
    let stream = device.create_stream().unwrap();
    device.begin_submit(stream).unwrap().abandon();
    let work = device.queue_of(stream).1;
    let calls = device.close();
    let idle: Vec<_> = calls.into_iter().filter(|call| matches!(call, Call::WaitIdle(..))).collect();
    assert!(matches!(idle[..], [Call::WaitIdle(queue, true)] if queue != work), "{idle:?}");
}

#[test]
fn buffers_are_shared_by_all_families_that_there_are() {
    let Some(lab) = Lab::open() else { return };
    let families = |device: &Recorder| {
        device.calls();
        let bytes = device.caps().pages.map_or(1 << 20, |pages| pages.granularity);
        let segment = device.reserve(ClassId::DEVICE, bytes).unwrap();
        give_back(device, [segment]);
        if device.caps().pages.is_some() {
            let range = device.reserve_range(ClassId::DEVICE, bytes).unwrap();
            // SAFETY: nothing is mapped there.
            unsafe { device.release_range(range) };
        }
        let created = device.calls().into_iter().filter_map(|call| match call {
            Call::CreateBuffer { families, .. } => Some(families),
            _ => None,
        });
        created.collect::<Vec<_>>()
    };
    let made = families(&two_queues(&lab));
    assert!(!made.is_empty() && made.iter().all(|families| *families == [0, 1]), "{made:?}");
    let made = families(&Recorder::open(&lab));
    assert!(!made.is_empty() && made.iter().all(|families| families.is_empty()), "{made:?}");
}

#[test]
fn a_queue_that_is_named_twice_is_refused() {
    let Some(lab) = Lab::open() else { return };
    let compute = vk::QueueFlags::COMPUTE;
    let setup = Setup { facts: Facts { families: vec![compute; 2], ..Facts::default() }, ..Setup::default() };
    let _turn = turn();
    let mut adopted = Recorder::adopted(&lab, &setup);
    adopted.queues[1].queue = adopted.queues[0].queue;
    let error = adopt(adopted).map(drop).unwrap_err();
    assert!(matches!(error, VulkanError::QueueTwice { family: 0, index: 0 }), "{error}");
    adopt(Recorder::adopted(&lab, &setup)).unwrap();
}

/// The functions are those of Vulkan 1.2, which an instance for an older version does not give.
#[test]
fn an_instance_for_an_older_version_is_refused() {
    let Some(lab) = Lab::open() else { return };
    let of_instance = [c"vkGetPhysicalDeviceProperties2", c"vkGetPhysicalDeviceFeatures2"];
    let of_device =
        [c"vkWaitSemaphores", c"vkGetSemaphoreCounterValue", c"vkSignalSemaphore", c"vkGetBufferDeviceAddress"];
    let of_device = &of_device[..3 + usize::from(lab.enabled().buffer_device_address)];
    for &name in of_instance.iter().chain(of_device) {
        let setup = Setup { facts: Facts { hidden: vec![name], ..Facts::default() }, ..Setup::default() };
        let error = Recorder::with(&lab, setup).map(drop).unwrap_err();
        let is_named = matches!(error, VulkanError::OldInstance { missing } if missing.as_bytes() == name.to_bytes());
        assert!(is_named, "{name:?}: {error}");
    }
    let facts = Facts { hides_timelines: true, ..Facts::default() };
    let error = Recorder::with(&lab, Setup { facts, ..Setup::default() }).map(drop).unwrap_err();
    assert!(matches!(error, VulkanError::OldInstance { missing: "timelineSemaphore" }), "{error}");
    let facts = Facts { hidden: vec![c"vkQueueSubmit2", c"vkQueueSubmit2KHR"], ..Facts::default() };
    let error = Recorder::with(&lab, Setup { facts, ..Setup::default() }).map(drop).unwrap_err();
    assert!(error.to_string().contains("synchronization2"), "{error}");
}

/// Threads that submit, bind and give back at the same time: the rules see every call.
#[test]
fn threads_keep_the_locks() {
    let Some(lab) = Lab::open() else { return };
    let device = with_two_queues(&lab, true);
    let Some(pages) = device.caps().pages else { return };
    let streams = [(); 3].map(|()| device.create_stream().unwrap());
    thread::scope(|scope| {
        for (at, &stream) in streams.iter().enumerate() {
            let (device, other) = (&*device, streams[(at + 1) % streams.len()]);
            scope.spawn(move || {
                let bytes = pages.granularity;
                for _ in 0..16 {
                    let range = device.reserve_range(ClassId::DEVICE, bytes).unwrap();
                    let page = device.create_page(ClassId::DEVICE, bytes).unwrap();
                    // SAFETY: nothing is mapped there; the work is waited for before the page is given back.
                    unsafe {
                        device.map(&range, 0, &page, stream).unwrap();
                        device.fill(stream, &range, 0, BYTES, 7).unwrap();
                        let tick = device.submit(stream).unwrap();
                        StreamWait::wait_for(device, other, Point { stream, tick }).unwrap();
                        device.wait(Point { stream, tick }).unwrap();
                        device.unmap(&range, 0, &page, stream);
                        device.release_page(page);
                        device.release_range(range);
                    }
                }
            });
        }
    });
    streams.iter().for_each(|&stream| finish(&device, stream));
}

/// What a dropped allocator leaves is finished under the device's own locks, and stays where the engine has them.
#[test]
fn what_a_dropped_allocator_recorded_is_done_before_its_memory_goes() {
    let Some(lab) = Lab::open() else { return };
    for own_queues in [true, false] {
        for conf in ["policy:classic", "policy:paged"] {
            let device = Recorder::with(&lab, Setup { own_queues, ..Setup::default() }).unwrap();
            if conf == "policy:paged" && device.caps().pages.is_none() {
                continue;
            }
            let allocator = Allocator::builder((*device).clone()).conf(conf).build().unwrap();
            let stream = allocator.create_stream().unwrap();
            let (id, buffer) = (stream.id(), stream.allocate(8 << 20).unwrap());
            stream.fill(&buffer, 0, 8 << 20, 7).unwrap();
            device.calls();
            drop((buffer, stream, allocator));
            let submits = device.submits();
            assert_eq!(submits.len(), usize::from(own_queues), "{submits:?}");
            assert_eq!(device.held_bytes() == 0, own_queues, "{conf}");
            for submit in submits {
                assert_eq!((submit.commands.len(), submit.signals.len()), (1, 1));
                assert_ne!(submit.signals[0].semaphore, device.timeline_of(id).0, "the open tick stays open");
            }
            finish(&device, id);
            assert_eq!(device.held_bytes(), 0);
        }
    }
}
