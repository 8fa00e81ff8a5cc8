//! The end of a device: leaks, losses, work in flight. Nothing may be left, and no call may hang.

use millpond_backend::{Backend, BackendError, ClassId, Fault, Point, Tick, Transfer};
use millpond_vulkan::ash::{ext, vk};
use millpond_vulkan::{Planned, VulkanError};

use crate::lab::{Lab, Latch};

#[test]
fn the_layer_watches() {
    let Some(lab) = Lab::open() else { return };
    if !lab.is_watched() {
        return;
    }
    // SAFETY: this leaks a semaphore, which the layer must notice when the device is destroyed.
    let leaked = unsafe { lab.raw_device().create_semaphore(&vk::SemaphoreCreateInfo::default(), None) };
    assert!(leaked.is_ok());
    let utils = ext::debug_utils::Instance::new(lab.entry(), lab.raw_instance());
    let data = vk::DebugUtilsMessengerCallbackDataEXT::default().message(c"a warning").message_id_name(c"told");
    let kind = vk::DebugUtilsMessageTypeFlagsEXT::VALIDATION;
    // SAFETY: the instance has the extension; the structure and what it points to live until the call returns.
    unsafe { utils.submit_debug_utils_message(vk::DebugUtilsMessageSeverityFlagsEXT::WARNING, kind, &data) };
    let errors = lab.close();
    assert!(errors.contains(&"told: a warning".to_owned()), "{errors:?}");
    assert!(errors.iter().any(|error| error.contains("vkDestroyDevice")), "{errors:?}");
}

#[test]
fn what_was_leaked_goes_with_the_last_handle() {
    let Some(lab) = Lab::open() else { return };
    let twin = (*lab).clone();
    let stream = lab.create_stream().unwrap();
    let leaked: Vec<_> = (0..3).map(|class| lab.reserve(ClassId(class), 1 << 20).unwrap()).collect();
    lab.fill(stream, &leaked[0], 1, 1000, 1).unwrap();
    lab.submit(stream).unwrap();
    lab.fill(stream, &leaked[0], 1, 1000, 2).unwrap();
    assert_eq!(twin.held_bytes(), 1 << 20);
    drop(twin);
    assert_eq!(lab.close(), [""; 0]);
    assert_eq!(leaked.len(), 3);
}

#[test]
fn dropping_a_device_waits_for_work_in_flight() {
    let Some(lab) = Lab::open() else { return };
    let [held, other] = [(); 2].map(|()| lab.create_stream().unwrap());
    let segment = lab.segment(1 << 20);
    lab.hold(held).unwrap();
    lab.fill(held, &segment, 0, 1 << 20, 1).unwrap();
    let tick = lab.submit(held).unwrap();
    lab.after(other, Point { stream: held, tick }).unwrap();
    lab.fill(other, &segment, 0, 1 << 20, 2).unwrap();
    lab.submit(other).unwrap();
    assert_eq!(lab.close(), [""; 0]);
}

#[test]
fn a_lost_device_stays_lost_and_can_be_dropped() {
    let Some(lab) = Lab::open() else { return };
    let stream = lab.create_stream().unwrap();
    let segment = lab.segment(1 << 20);
    lab.fill(stream, &segment, 0, 1 << 20, 1).unwrap();
    let latch = Latch::new(&lab);
    let tick = latch.submit(stream);
    lab.fail_nth(1, Fault::Lost);
    let first = lab.reserve(ClassId::DEVICE, 1).unwrap_err();
    assert!(matches!(first, VulkanError::Planned(Planned { fault: Fault::Lost, .. })), "{first}");
    let point = Point { stream, tick };
    let all = [
        lab.reserve(ClassId::DEVICE, 1).map(drop),
        lab.create_stream().map(drop),
        lab.submit(stream).map(drop),
        lab.reached(stream).map(drop),
        lab.wait(point).map(drop),
        lab.after(stream, point),
        lab.record(stream, |_| ()).map(drop),
        lab.fill(stream, &segment, 0, 1, 1),
        lab.copy(stream, (&segment, 0), (&segment, 8), 4),
        lab.upload(stream, &[1], &segment, 0),
        lab.download(stream, &segment, 0, &mut [0]),
        lab.begin_submit(stream).map(drop),
        lab.hold(stream),
    ];
    for (index, result) in all.into_iter().enumerate() {
        let error = result.unwrap_err();
        assert!(matches!(error, VulkanError::Lost), "call {index}: {error}");
        assert_eq!(error.fault(), Fault::Lost);
    }
    assert_eq!(lab.mark(stream), Tick(tick.0 + 1), "marks go on");
    lab.give_back_when_open(latch, segment, point);
}

impl Lab {
    /// Opens the latch, waits for the point without the lost device, and gives the segment back.
    fn give_back_when_open(&self, latch: Latch<'_>, segment: millpond_vulkan::Segment, point: Point) {
        latch.open();
        let (semaphores, values) = ([self.timeline_of(point.stream).0], [point.tick.0]);
        let info = vk::SemaphoreWaitInfo::default().semaphores(&semaphores).values(&values);
        // SAFETY: the semaphore is the stream's timeline.
        unsafe { self.raw_device().wait_semaphores(&info, u64::MAX) }.unwrap();
        self.give_back(segment);
    }
}

#[test]
fn planned_faults_strike_once_and_where_they_were_planned() {
    let Some(lab) = Lab::open() else { return };
    let before = lab.fallible_calls();
    lab.fail_nth(2, Fault::OutOfMemory);
    let first = lab.segment(64);
    let error = lab.reserve(ClassId::DEVICE, 64).unwrap_err();
    assert_eq!(error.fault(), Fault::OutOfMemory, "{error}");
    let second = lab.segment(64);
    assert_eq!(lab.fallible_calls() - before, 3);
    lab.fail_nth(1, Fault::Other);
    lab.forget_faults();
    lab.give_back(lab.segment(64));
    [first, second].into_iter().for_each(|segment| lab.give_back(segment));
}
