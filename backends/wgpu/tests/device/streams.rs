//! Ticks, recorded commands and submits.

use millpond_backend::{Backend, BackendError, ClassId, Fault, Point, StreamId, StreamWait, Tick, Transfer};
use millpond_wgpu::{Wgpu, WgpuError, wgpu};

use crate::common;

fn at(stream: StreamId, tick: u64) -> Point {
    Point { stream, tick: Tick(tick) }
}

#[test]
fn ticks_are_closed_by_submits_and_reached_by_waits() {
    for device in common::both() {
        let [a, b] = [(); 2].map(|()| device.create_stream().unwrap());
        assert_eq!((a, b), (StreamId(0), StreamId(1)));
        assert_eq!((device.mark(a), device.reached(a).unwrap()), (Tick(1), Tick(0)));
        assert_eq!(device.wait(at(a, 1)).unwrap(), Tick(0), "what was not submitted is not waited for");
        assert_eq!(device.submit(a).unwrap(), Tick(1), "an empty submit closes a tick too");
        assert_eq!((device.mark(a), device.mark(b), device.submitted(a)), (Tick(2), Tick(1), Tick(1)));
        assert_eq!(device.wait(at(a, 9)).unwrap(), Tick(1), "all that was submitted is waited for, and no more");
        assert_eq!((device.reached(a).unwrap(), device.reached(b).unwrap()), (Tick(1), Tick(0)));
    }
}

#[test]
fn looks_alone_find_out_that_work_is_done() {
    for device in common::both_of(common::for_many_calls(Wgpu::builder())) {
        let stream = device.create_stream().unwrap();
        let ticks: Vec<_> = (0..20).map(|_| device.submit(stream).unwrap()).collect();
        let mut seen = Tick(0);
        while seen < ticks[19] {
            let now = device.reached(stream).unwrap();
            assert!(now >= seen, "from {seen} to {now}");
            seen = now;
            std::thread::yield_now();
        }
        assert_eq!(seen, Tick(20));
    }
}

#[test]
fn recorded_commands_and_given_buffers_run_in_that_order() {
    for device in common::both() {
        let stream = device.create_stream().unwrap();
        let segment = device.reserve(ClassId::DEVICE, 64).unwrap();
        let given = {
            let mut encoder = device.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
            encoder.clear_buffer(segment.buffer(), 8, Some(8));
            encoder.finish()
        };
        device.fill(stream, &segment, 0, 16, 7).unwrap();
        let tick = device.record(stream, |encoder| encoder.clear_buffer(segment.buffer(), 0, Some(4)));
        assert_eq!(tick.unwrap(), Tick(1));
        assert_eq!(device.submit_with(stream, [given]).unwrap(), Tick(1));
        assert_eq!(device.record(stream, |_| ()).unwrap(), Tick(2), "what is recorded now goes with the next submit");
        let mut seen = [1; 20];
        device.download(stream, &segment, 0, &mut seen).unwrap();
        assert_eq!(seen, [0, 0, 0, 0, 7, 7, 7, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    }
}

#[test]
fn what_wgpu_refuses_is_an_error_and_the_stream_goes_on() {
    for device in common::both() {
        let stream = device.create_stream().unwrap();
        let segment = device.reserve(ClassId::DEVICE, 64).unwrap();
        device.fill(stream, &segment, 0, 64, 3).unwrap();
        device.record(stream, |encoder| encoder.clear_buffer(segment.buffer(), 60, Some(64))).unwrap();
        let refused = device.submit(stream).unwrap_err();
        assert!(matches!(refused, WgpuError::Refused { call: "submit", .. }), "{refused:?}");
        assert_eq!(refused.fault(), Fault::Other);
        let seen = &mut [9; 4];
        device.download(stream, &segment, 0, seen).unwrap();
        assert_eq!(*seen, [0; 4], "nothing of it ran");
        let newest = device.submit(stream).unwrap();
        assert_eq!(device.wait(Point { stream, tick: newest }).unwrap(), newest);
        assert_eq!(device.errors(), [""; 0], "it was no secret");
    }
}

#[test]
fn streams_wait_for_what_was_submitted() {
    let Some(device) = common::open(Wgpu::builder()) else { return };
    let [a, b] = [(); 2].map(|()| device.create_stream().unwrap());
    let early = StreamWait::wait_for(&device, b, at(a, 1));
    assert!(matches!(early, Err(WgpuError::NotSubmitted { point, submitted: 0 }) if point == at(a, 1)), "{early:?}");
    assert_eq!(early.unwrap_err().fault(), Fault::NotNow, "it may be submitted later");
    StreamWait::wait_for(&device, a, at(a, 1)).unwrap();
    let segment = device.reserve(ClassId::DEVICE, 1 << 20).unwrap();
    device.fill(a, &segment, 0, 1 << 20, 5).unwrap();
    let tick = device.submit(a).unwrap();
    StreamWait::wait_for(&device, b, Point { stream: a, tick }).unwrap();
    let mut seen = vec![0; 1 << 20];
    device.download(b, &segment, 0, &mut seen).unwrap();
    assert!(seen.iter().all(|&byte| byte == 5));
}

#[test]
fn errors_outside_of_our_calls_are_kept() {
    let Some(device) = common::open(Wgpu::builder()) else { return };
    let usage = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::MAP_WRITE;
    let descriptor = wgpu::BufferDescriptor { label: None, size: 4, usage, mapped_at_creation: false };
    drop(device.device().create_buffer(&descriptor));
    assert_eq!(device.errors().len(), 1, "{:?}", device.errors());
}

/// Threads submit the same stream and their own; every tick is reached, and each stream's bytes are those that were
/// recorded there last.
#[test]
fn threads_share_the_queue() {
    for device in common::both() {
        let shared = device.create_stream().unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4_u8 {
                let device = &device;
                scope.spawn(move || {
                    let own = device.create_stream().unwrap();
                    let segment = device.reserve(ClassId::DEVICE, 4096).unwrap();
                    for round in 0..20_u8 {
                        let value = 1 + thread * 40 + round;
                        device.fill(own, &segment, 0, 4096, value).unwrap();
                        let ticks = [own, shared].map(|stream| (stream, device.submit(stream).unwrap()));
                        for (stream, tick) in ticks {
                            assert!(device.wait(Point { stream, tick }).unwrap() >= tick);
                        }
                        let seen = &mut [0; 4];
                        device.download(own, &segment, 4092, seen).unwrap();
                        assert_eq!(*seen, [value; 4]);
                    }
                });
            }
        });
        assert_eq!(device.reached(shared).unwrap(), Tick(80));
    }
}

#[test]
fn a_stream_that_was_never_made_is_a_mistake() {
    let Some(device) = common::open(Wgpu::builder()) else { return };
    let panic = std::thread::spawn(move || device.mark(StreamId(3))).join().unwrap_err();
    let text = panic.downcast::<String>().unwrap();
    assert_eq!(*text, "stream 3 asked of a device that has 0 streams");
}
