//! Submits: what they wait for, in which order their command buffers come, and what they signal.

use millpond_backend::{Backend, Point, StreamId, StreamWait, Tick, Transfer};
use millpond_vulkan::ash::vk;
use millpond_vulkan::{SemaphoreAt, Submission, Vulkan};

use super::{BYTES, at, finish, give_back, segment};
use crate::lab::Lab;
use crate::recorder::{At, Call, Recorder, Submit};

/// Two command buffers of the application's own, with nothing in them, and their pool.
fn applications(lab: &Lab) -> (vk::CommandPool, Vec<vk::CommandBuffer>) {
    let raw = lab.raw_device();
    let pool = vk::CommandPoolCreateInfo::default().queue_family_index(lab.queues()[0].0.0);
    // SAFETY: the family is the device's; the pool and its buffers are used here alone.
    unsafe {
        let pool = raw.create_command_pool(&pool, None).unwrap();
        let info = vk::CommandBufferAllocateInfo::default().command_pool(pool).command_buffer_count(2);
        let all = raw.allocate_command_buffers(&info).unwrap();
        for &commands in &all {
            raw.begin_command_buffer(commands, &vk::CommandBufferBeginInfo::default()).unwrap();
            raw.end_command_buffer(commands).unwrap();
        }
        (pool, all)
    }
}

fn wait_for(device: &Vulkan, stream: StreamId, (other, tick): (StreamId, u64)) {
    StreamWait::wait_for(device, stream, Point { stream: other, tick: Tick(tick) }).unwrap();
}

/// Returns the one submit since this was asked last.
fn one(device: &Recorder) -> Submit {
    let mut submits = device.submits();
    assert_eq!(submits.len(), 1, "{submits:?}");
    submits.remove(0)
}

#[test]
fn a_submit_signals_the_tick_that_it_closes() {
    let Some(lab) = Lab::open() else { return };
    let device = Recorder::open(&lab);
    let stream = device.create_stream().unwrap();
    for tick in 1..4 {
        finish(&device, stream);
        let submit = one(&device);
        assert_eq!((submit.waits, submit.commands), (vec![], vec![]));
        assert_eq!(submit.signals, [at(&device, stream, tick)]);
    }
}

#[test]
fn commands_come_in_order_with_a_barrier_in_front_of_those_of_others() {
    let Some(lab) = Lab::open() else { return };
    let device = Recorder::open(&lab);
    let stream = device.create_stream().unwrap();
    let segment = segment(&device);
    let (pool, given) = applications(&lab);
    let made = device.calls();
    let is_barrier = |call: &&Call| matches!(call, Call::Begin(_, vk::CommandBufferUsageFlags::SIMULTANEOUS_USE));
    let Some(&Call::Begin(barrier, _)) = made.iter().find(is_barrier) else { panic!("{made:?}") };
    let submit = |given: &[vk::CommandBuffer]| {
        // SAFETY: the command buffers are ended, of the stream's family, and live until the end of the test.
        let tick = unsafe {
            device.submit_with(stream, &Submission { command_buffers: given, ..Submission::default() }).unwrap()
        };
        device.wait(Point { stream, tick }).unwrap();
        one(&device).commands
    };
    assert_eq!(submit(&given), [barrier, given[0], given[1]]);
    let mut own = vk::CommandBuffer::null();
    device.record(stream, |commands| own = commands).unwrap();
    device.fill(stream, &segment, 0, BYTES, 7).unwrap();
    assert_eq!(submit(&given), [own, barrier, given[0], given[1]]);
    device.record(stream, |commands| own = commands).unwrap();
    assert_eq!(submit(&[]), [own], "what the device has recorded begins with a barrier itself");
    // SAFETY: all of it is done.
    unsafe { lab.raw_device().destroy_command_pool(pool, None) };
    give_back(&device, [segment]);
}

#[test]
fn semaphores_of_the_caller_are_passed_on() {
    let Some(lab) = Lab::open() else { return };
    let device = Recorder::open(&lab);
    let stream = device.create_stream().unwrap();
    let mut kind = vk::SemaphoreTypeCreateInfo::default().semaphore_type(vk::SemaphoreType::TIMELINE).initial_value(3);
    let info = vk::SemaphoreCreateInfo::default().push_next(&mut kind);
    // SAFETY: the device has timeline semaphores.
    let semaphore = unsafe { lab.raw_device().create_semaphore(&info, None) }.unwrap();
    let wait = SemaphoreAt { semaphore, value: 3, stages: vk::PipelineStageFlags2::COPY };
    let signal = SemaphoreAt { semaphore, value: 9, stages: vk::PipelineStageFlags2::CLEAR };
    let submission = Submission { waits: &[wait], signals: &[signal], ..Submission::default() };
    // SAFETY: the semaphore lives until the submit is waited for, and its values rise.
    let tick = unsafe { device.submit_with(stream, &submission) }.unwrap();
    device.wait(Point { stream, tick }).unwrap();
    let submit = one(&device);
    let as_seen = |it: SemaphoreAt| At { semaphore, value: it.value, stages: it.stages };
    assert_eq!(submit.waits, [as_seen(wait)]);
    assert_eq!(submit.signals, [as_seen(signal), at(&device, stream, tick.0)], "its own timeline comes last");
    // SAFETY: the submit is done.
    unsafe { lab.raw_device().destroy_semaphore(semaphore, None) };
}

#[test]
fn a_submit_waits_once_for_the_latest_point_of_each_stream() {
    let Some(lab) = Lab::open() else { return };
    let device = Recorder::open(&lab);
    let [stream, first, second] = [(); 3].map(|()| device.create_stream().unwrap());
    for other in [first, second] {
        device.hold(other).unwrap();
        (1..4).for_each(|tick| assert_eq!(device.submit(other).unwrap(), Tick(tick)));
    }
    device.calls();
    for point in [(first, 1), (second, 3), (first, 2), (second, 1)] {
        wait_for(&device, stream, point);
    }
    device.submit(stream).unwrap();
    assert_eq!(one(&device).waits, [at(&device, first, 2), at(&device, second, 3)]);
    device.submit(stream).unwrap();
    assert_eq!(one(&device).waits, [], "what is waited for is waited for once");
    let after = [Point { stream: first, tick: Tick(3) }];
    // SAFETY: there are no handles in the submission.
    unsafe { device.submit_with(stream, &Submission { after: &after, ..Submission::default() }) }.unwrap();
    assert_eq!(one(&device).waits, [at(&device, first, 3)]);
    device.unhold(first);
    device.unhold(second);
    finish(&device, stream);
    finish(&device, first);
    device.calls();
    wait_for(&device, stream, (first, 3));
    wait_for(&device, stream, (stream, 1));
    device.submit(stream).unwrap();
    assert_eq!(one(&device).waits, [], "the one is reached, and the other is earlier on the same stream");
    device.hold(stream).unwrap();
    let held = device.submit(stream).unwrap();
    device.calls();
    let after = [Point { stream: first, tick: Tick(3) }, Point { stream, tick: held }];
    device.unhold(stream);
    // SAFETY: there are no handles in the submission.
    unsafe { device.submit_with(stream, &Submission { after: &after, ..Submission::default() }) }.unwrap();
    assert_eq!(one(&device).waits, [], "nor are they where a submit names them");
}

#[test]
fn an_engine_s_submit_that_was_made_has_waited() {
    let Some(lab) = Lab::open() else { return };
    let device = Recorder::open(&lab);
    let [stream, other] = [(); 2].map(|()| device.create_stream().unwrap());
    device.hold(other).unwrap();
    device.submit(other).unwrap();
    wait_for(&device, stream, (other, 1));
    let pending = device.begin_submit(stream).unwrap();
    let signals = [pending.signal()];
    let batch = vk::SubmitInfo2::default().wait_semaphore_infos(pending.waits()).signal_semaphore_infos(&signals);
    // SAFETY: no other thread uses the queue, and the semaphores live until the submit is waited for.
    unsafe { lab.raw_device().queue_submit2(device.queue_of(stream).1, &[batch], vk::Fence::null()) }.unwrap();
    assert_eq!(pending.finish(), Tick(1));
    device.calls();
    device.submit(stream).unwrap();
    assert_eq!(one(&device).waits, [], "what was waited for is waited for once");
    device.unhold(other);
    finish(&device, stream);
}

#[test]
fn a_tick_without_a_submit_is_waited_for_by_the_next() {
    let Some(lab) = Lab::open() else { return };
    let device = Recorder::open(&lab);
    let [stream, other] = [(); 2].map(|()| device.create_stream().unwrap());
    device.hold(other).unwrap();
    device.begin_submit(other).unwrap().abandon();
    (2..4).for_each(|tick| assert_eq!(device.submit(other).unwrap(), Tick(tick)));
    device.calls();
    wait_for(&device, stream, (other, 1));
    device.submit(stream).unwrap();
    assert_eq!(one(&device).waits, [at(&device, other, 2)]);
    device.unhold(other);
    finish(&device, stream);
}

#[test]
fn an_announced_submit_has_what_one_of_the_device_would_have() {
    let Some(lab) = Lab::open() else { return };
    let device = Recorder::open(&lab);
    let [stream, other] = [(); 2].map(|()| device.create_stream().unwrap());
    device.hold(other).unwrap();
    device.submit(other).unwrap();
    wait_for(&device, stream, (other, 1));
    let pending = device.begin_submit(stream).unwrap();
    let seen =
        |it: &vk::SemaphoreSubmitInfo<'_>| At { semaphore: it.semaphore, value: it.value, stages: it.stage_mask };
    assert_eq!(pending.waits().iter().map(seen).collect::<Vec<_>>(), [at(&device, other, 1)]);
    assert_eq!(seen(&pending.signal()), at(&device, stream, 1));
    pending.abandon();
    device.unhold(other);
    device.submit(stream).unwrap();
    let submit = device.submits().pop().unwrap();
    assert_eq!(submit.waits, [at(&device, other, 1)], "what was abandoned has waited for nothing");
    finish(&device, stream);
}
