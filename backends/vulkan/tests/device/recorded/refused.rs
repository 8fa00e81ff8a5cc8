//! What the driver refuses: nothing of it counts as done, and all that can goes with the next submit.

use millpond_backend::{Backend, BackendError, ClassId, Fault, Point, StreamWait, Tick, Transfer, VirtualMemory};
use millpond_vulkan::ash::vk;
use millpond_vulkan::{Misuse, VulkanError};

use super::{BYTES, at, finish, full, give_back, segment};
use crate::lab::Lab;
use crate::recorder::{Call, Command, Recorder};

const SHORT: vk::Result = vk::Result::ERROR_OUT_OF_HOST_MEMORY;

#[test]
fn a_refused_submit_is_not_done_and_goes_with_the_next() {
    let Some(lab) = Lab::open() else { return };
    let device = Recorder::open(&lab);
    let [stream, other] = [(); 2].map(|()| device.create_stream().unwrap());
    let segment = segment(&device);
    device.hold(other).unwrap();
    device.submit(other).unwrap();
    StreamWait::wait_for(&*device, stream, Point { stream: other, tick: Tick(1) }).unwrap();
    device.fill(stream, &segment, 0, BYTES, 1).unwrap();
    device.calls();
    device.fail("vkQueueSubmit2", 1, SHORT);
    let error = device.submit(stream).unwrap_err();
    assert!(matches!(error, VulkanError::Driver { call: "vkQueueSubmit2", result: SHORT }), "{error}");
    let refused = device.submits().remove(0);
    assert_eq!(device.mark(stream), Tick(2), "the tick is closed");
    let point = Point { stream, tick: Tick(1) };
    assert_eq!((device.reached(stream).unwrap(), device.wait(point).unwrap()), (Tick::ZERO, Tick::ZERO));
    let early = StreamWait::wait_for(&*device, other, point).unwrap_err();
    assert!(matches!(early, VulkanError::Misuse(Misuse::NotSubmitted { .. })), "{early}");
    assert_eq!(early.fault(), Fault::NotNow);

    device.fill(stream, &segment, 0, BYTES, 2).unwrap();
    device.unhold(other);
    finish(&device, stream);
    let calls = device.calls();
    let taken =
        calls.iter().find_map(|call| if let Call::Submit(it) = call { Some(it.clone()) } else { None }).unwrap();
    assert_eq!(taken.commands[..1], refused.commands, "what was refused comes first, as it was recorded");
    assert_eq!((taken.commands.len(), &taken.waits), (2, &refused.waits));
    assert_eq!(taken.signals, [at(&device, stream, 2)]);
    assert!(device.wait(point).unwrap() >= Tick(2), "the next covers it");
    finish(&device, stream);
    assert_eq!(device.submits()[0].commands, [], "and it goes once");
    give_back(&device, [segment]);
}

#[test]
fn what_could_not_be_ended_is_said_to_be_lost() {
    let Some(lab) = Lab::open() else { return };
    let device = Recorder::open(&lab);
    let stream = device.create_stream().unwrap();
    let segment = segment(&device);
    finish(&device, stream);
    device.fill(stream, &segment, 0, BYTES, 1).unwrap();
    let calls = device.calls();
    let Some(&Call::Begin(commands, _)) = calls.iter().rfind(|call| matches!(call, Call::Begin(..))) else { panic!() };
    device.fail("vkEndCommandBuffer", 1, SHORT);
    let error = device.submit(stream).unwrap_err();
    assert!(matches!(error, VulkanError::NotRecorded { result: SHORT }), "{error}");
    assert!(error.to_string().contains("record them again"), "{error}");
    assert_eq!(error.fault(), Fault::Other, "the same submit, made again, would leave the work out");
    assert_eq!((device.submits(), device.mark(stream)), (vec![], Tick(2)));
    finish(&device, stream);
    assert_eq!(device.submits()[0].commands, []);
    device.fill(stream, &segment, 0, BYTES, 2).unwrap();
    let again = device.commands();
    assert!(matches!(again[..], [barrier, Command::Fill { .. }] if barrier == full()), "{again:?}");
    finish(&device, stream);
    assert_eq!(device.submits()[0].commands, [commands], "it serves again");
    give_back(&device, [segment]);
}

#[test]
fn a_refused_bind_is_made_with_the_next() {
    let Some(lab) = Lab::open() else { return };
    let device = Recorder::open(&lab);
    let Some(pages) = device.caps().pages else { return };
    let (stream, bytes) = (device.create_stream().unwrap(), pages.granularity);
    let range = device.reserve_range(ClassId::DEVICE, bytes).unwrap();
    let page = device.create_page(ClassId::DEVICE, bytes).unwrap();
    // SAFETY: nothing is mapped there, and no work touches it yet.
    unsafe { device.map(&range, 0, &page, stream) }.unwrap();
    device.calls();
    device.fail("vkQueueBindSparse", 1, SHORT);
    let error = device.submit(stream).unwrap_err();
    assert!(matches!(error, VulkanError::Driver { call: "vkQueueBindSparse", .. }), "{error}");
    assert_eq!(device.mark(stream), Tick(1), "nothing was submitted");
    device.fail("vkQueueSubmit2", 1, SHORT);
    device.submit(stream).unwrap_err();
    device.submit(stream).unwrap();
    let calls = device.calls();
    let [Call::Bind(refused), Call::Bind(bind), Call::Submit(not), Call::Submit(taken)] = &calls[..] else {
        panic!("{calls:?}")
    };
    assert_eq!((&refused.mappings, &refused.waits, &refused.signals), (&bind.mappings, &bind.waits, &bind.signals));
    assert_eq!(not.waits, taken.waits, "a submit that was refused has waited for no bind");
    assert_eq!((taken.waits[0].semaphore, taken.waits[0].value), bind.signals[0]);
    finish(&device, stream);
    // SAFETY: the page is mapped there, and all work is done.
    unsafe {
        device.unmap(&range, 0, &page, stream);
        device.release_page(page);
        device.release_range(range);
    }
}

/// A command buffer that cannot be begun is used by the next that is recorded.
#[test]
fn what_could_not_be_begun_is_begun_again() {
    let Some(lab) = Lab::open() else { return };
    let device = Recorder::open(&lab);
    let stream = device.create_stream().unwrap();
    let segment = segment(&device);
    device.fill(stream, &segment, 0, BYTES, 1).unwrap();
    finish(&device, stream);
    let commands = device.submits().remove(0).commands;
    device.fail("vkBeginCommandBuffer", 1, SHORT);
    device.fill(stream, &segment, 0, BYTES, 1).unwrap_err();
    assert_eq!(device.commands(), []);
    device.fill(stream, &segment, 0, BYTES, 1).unwrap();
    finish(&device, stream);
    assert_eq!(device.submits()[0].commands, commands, "it serves again");
    give_back(&device, [segment]);
}

/// The rules say that the bind which frees it is made under the queue's lock.
#[test]
fn a_refused_request_gets_what_was_given_back_and_not_bound_yet() {
    let Some(lab) = Lab::open() else { return };
    let device = Recorder::open(&lab);
    let Some(pages) = device.caps().pages else { return };
    let (stream, bytes) = (device.create_stream().unwrap(), pages.granularity);
    let range = device.reserve_range(ClassId::DEVICE, bytes).unwrap();
    let page = device.create_page(ClassId::DEVICE, bytes).unwrap();
    let memory = page.memory();
    // SAFETY: nothing is mapped there, and no work touches it.
    unsafe {
        device.map(&range, 0, &page, stream).unwrap();
        finish(&device, stream);
        device.unmap(&range, 0, &page, stream);
        device.release_page(page);
    }
    device.calls();
    device.fail("vkAllocateMemory", 1, SHORT);
    let next = device.create_page(ClassId::DEVICE, bytes).unwrap();
    let calls = device.calls();
    let at = |is: fn(&Call) -> bool| calls.iter().position(is).unwrap_or_else(|| panic!("{calls:?}"));
    assert!(at(|call| matches!(call, Call::Bind(_))) < at(|call| matches!(call, Call::Free(_))));
    assert!(calls.contains(&Call::Free(memory)), "{calls:?}");
    // SAFETY: nothing is mapped there.
    unsafe {
        device.release_page(next);
        device.release_range(range);
    }
}
