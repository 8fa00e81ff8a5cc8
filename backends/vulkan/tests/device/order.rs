//! Order: within a stream by barriers, across streams by device-side waits.

use millpond_backend::{Backend, BackendError, Fault, Point, Tick, Transfer};
use millpond_vulkan::ash::vk;
use millpond_vulkan::{Misuse, Segment, Submission, Vulkan, VulkanError};

use crate::lab::{Lab, Latch};

const BYTES: u64 = 1 << 20;

#[test]
fn memory_is_reused_in_order_on_one_stream() {
    let Some(lab) = Lab::open() else { return };
    let stream = lab.create_stream().unwrap();
    let (block, first, second) = (lab.segment(BYTES), lab.segment(BYTES), lab.segment(BYTES));
    lab.fill(stream, &block, 0, BYTES, 1).unwrap();
    lab.copy(stream, (&block, 0), (&first, 0), BYTES).unwrap();
    lab.fill(stream, &block, 0, BYTES, 2).unwrap();
    lab.submit(stream).unwrap();
    lab.copy(stream, (&block, 0), (&second, 0), BYTES).unwrap();
    lab.fill(stream, &block, 0, BYTES, 3).unwrap();
    for (segment, value) in [(&first, 1), (&second, 2), (&block, 3)] {
        assert!(lab.read(stream, segment, 0, BYTES).iter().all(|&byte| byte == value), "{value}");
    }
    [block, first, second].into_iter().for_each(|segment| lab.give_back(segment));
}

#[test]
fn a_stream_waits_for_a_point_of_another() {
    let Some(lab) = Lab::open() else { return };
    let [first, second] = [(); 2].map(|()| lab.create_stream().unwrap());
    let (from, to) = (lab.segment(BYTES), lab.segment(BYTES));
    let latch = Latch::new(&lab);
    lab.fill(first, &from, 0, BYTES, 9).unwrap();
    let tick = latch.submit(first);
    lab.after(second, Point { stream: first, tick }).unwrap();
    lab.copy(second, (&from, 0), (&to, 0), BYTES).unwrap();
    let copied = lab.submit(second).unwrap();
    assert_eq!((lab.reached(first).unwrap(), lab.reached(second).unwrap()), (Tick::ZERO, Tick::ZERO));
    latch.open();
    assert_eq!(lab.wait(Point { stream: second, tick: copied }).unwrap(), copied);
    assert_eq!(lab.reached(first).unwrap(), tick, "what was waited for came first");
    assert!(lab.read(second, &to, 0, BYTES).iter().all(|&byte| byte == 9));
    [from, to].into_iter().for_each(|segment| lab.give_back(segment));
}

#[test]
fn a_wait_for_what_was_never_submitted_is_refused() {
    let Some(lab) = Lab::open() else { return };
    let [first, second] = [(); 2].map(|()| lab.create_stream().unwrap());
    lab.record(first, |_| ()).unwrap();
    let open = Point { stream: first, tick: lab.mark(first) };
    let refused = |error: VulkanError| {
        let VulkanError::Misuse(misuse) = error else { return false };
        misuse == Misuse::NotSubmitted { point: open, submitted: 0 }
    };
    let error = lab.after(second, open).unwrap_err();
    assert_eq!(error.fault(), Fault::NotNow, "it may be submitted later: {error}");
    assert!(refused(error));
    let after = [open];
    // SAFETY: there are no handles in the submission.
    let submitted = unsafe { lab.submit_with(second, &Submission { after: &after, ..Submission::default() }) };
    assert!(refused(submitted.unwrap_err()));
    assert_eq!(lab.mark(second), Tick(1), "nothing was submitted");
    lab.submit(first).unwrap();
    lab.after(second, open).unwrap();
    // SAFETY: as above.
    unsafe { lab.submit_with(second, &Submission { after: &after, ..Submission::default() }) }.unwrap();
    lab.finish(second);
}

/// Records a command buffer of the application's own that fills a segment.
fn fills(device: &Vulkan, family: u32, segment: &Segment, value: u8) -> (vk::CommandPool, vk::CommandBuffer) {
    let raw = device.raw_device();
    // SAFETY: the pool and the buffer are new and used only here; the segment outlives them.
    unsafe {
        let pool = vk::CommandPoolCreateInfo::default().queue_family_index(family);
        let pool = raw.create_command_pool(&pool, None).unwrap();
        let info = vk::CommandBufferAllocateInfo::default().command_pool(pool).command_buffer_count(1);
        let commands = raw.allocate_command_buffers(&info).unwrap()[0];
        raw.begin_command_buffer(commands, &vk::CommandBufferBeginInfo::default()).unwrap();
        raw.cmd_fill_buffer(commands, segment.buffer(), 0, segment.bytes(), u32::from_ne_bytes([value; 4]));
        raw.end_command_buffer(commands).unwrap();
        (pool, commands)
    }
}

#[test]
fn command_buffers_of_the_application_come_after_the_streams_own() {
    let Some(lab) = Lab::open() else { return };
    let stream = lab.create_stream().unwrap();
    let (block, kept) = (lab.segment(BYTES), lab.segment(BYTES));
    let (pool, commands) = fills(&lab, lab.queue_of(stream).0, &block, 5);
    lab.fill(stream, &block, 0, BYTES, 4).unwrap();
    lab.copy(stream, (&block, 0), (&kept, 0), BYTES).unwrap();
    // SAFETY: the command buffer is ended, of the stream's family, and lives until the stream is finished.
    let tick =
        unsafe { lab.submit_with(stream, &Submission { command_buffers: &[commands], ..Submission::default() }) };
    assert_eq!(tick.unwrap(), Tick(1));
    for (segment, value) in [(&block, 5), (&kept, 4)] {
        assert!(lab.read(stream, segment, 0, BYTES).iter().all(|&byte| byte == value), "{value}");
    }
    lab.finish(stream);
    // SAFETY: all work is done.
    unsafe { lab.raw_device().destroy_command_pool(pool, None) };
    [block, kept].into_iter().for_each(|segment| lab.give_back(segment));
}
