//! A stream is unregistered, or its capture begins, between the backend's check of the stream and its driver call. The
//! simulator stops the call in question, and the other thread acts in between.

use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use millpond_backend::{Backend, BackendError, Fault, Point, StreamId, StreamWait, Tick, Transfer};
use millpond_cuda::cudarc::driver::sys::{self, CUgraph, CUstreamCaptureMode, CUstreamCaptureStatus};
use millpond_cuda::testing::Cuda;
use millpond_cuda::{CudaError, Segment};
use millpond_cuda_driver::Control;

use super::{alone, finish, give_back, segment};

/// A time that is long enough for an error to show. No correct call takes longer.
const WHILE: Duration = Duration::from_millis(50);

/// A use of a stream, with the driver function that it calls.
type Act = (&'static str, fn(&Scene) -> Result<(), CudaError>);

/// A query of a stream, with its name.
type Ask = (&'static str, fn(&Scene, Tick) -> Result<Tick, CudaError>);

/// Waits for a point, or makes another stream wait for it.
type Wait = fn(&Cuda, StreamId, Point) -> Result<(), CudaError>;

struct Scene<'s> {
    cuda: &'s Cuda,
    /// The stream that is unregistered or captured.
    stream: StreamId,
    other: StreamId,
    ours: &'s Segment,
    theirs: &'s Segment,
}

impl Scene<'_> {
    /// Returns a point of the other stream that is not reached while its gate is closed.
    fn beyond(&self) -> Point {
        Point { stream: self.other, tick: self.cuda.mark(self.other) }
    }

    /// Returns a point of the stream that no event covers.
    fn open(&self) -> Point {
        Point { stream: self.stream, tick: self.cuda.mark(self.stream) }
    }
}

/// All operations that pass the handle of a stream to the driver.
const USES: [Act; 9] = [
    ("cuMemsetD8Async", |scene| scene.cuda.fill(scene.stream, scene.ours, 0, 64, 1)),
    ("cuMemcpyAsync", |scene| scene.cuda.copy(scene.stream, (scene.ours, 0), (scene.ours, 512), 64)),
    ("cuMemcpyPeerAsync", |scene| scene.cuda.copy(scene.stream, (scene.ours, 0), (scene.theirs, 0), 64)),
    ("cuMemcpyHtoDAsync_v2", |scene| scene.cuda.upload(scene.stream, &[1; 64], scene.ours, 0)),
    ("cuMemcpyDtoHAsync_v2", |scene| scene.cuda.download(scene.stream, scene.ours, 0, &mut [0; 64])),
    ("cuStreamWaitEvent", |scene| scene.cuda.wait_for(scene.stream, scene.beyond())),
    ("cuStreamIsCapturing", |scene| scene.cuda.wait_for(scene.other, scene.open())),
    ("cuEventRecord", |scene| scene.cuda.wait(scene.open()).map(drop)),
    ("cuLaunchHostFunc", |scene| scene.cuda.hold(scene.stream)),
];

#[test]
fn a_stream_is_not_destroyed_while_a_call_that_names_it_is_under_way() {
    alone(|control, cuda| {
        let there = Cuda::open(1).unwrap();
        let (ours, theirs, other) = (segment(cuda), segment(&there), cuda.create_stream().unwrap());
        for (function, act) in USES {
            let scene = Scene { cuda, stream: cuda.create_stream().unwrap(), other, ours: &ours, theirs: &theirs };
            let gate = control.hold(0, cuda.raw_stream(other).unwrap() as usize);
            let stop = control.stop_nth(function, 1);
            thread::scope(|scope| {
                let uses = scope.spawn(|| act(&scene));
                stop.wait();
                let leaves = scope.spawn(|| cuda.unregister(scene.stream));
                thread::sleep(WHILE);
                let early = leaves.is_finished();
                stop.go_on();
                let used = uses.join().unwrap();
                let left = leaves.join().unwrap();
                gate.open();
                assert!(!early, "{function} was about to get the handle of a stream that is destroyed: {used:?}");
                assert_eq!((used, left), (Ok(()), Ok(())), "{function}");
            });
            let gone = CudaError::Unregistered { stream: scene.stream };
            assert_eq!(cuda.fill(scene.stream, &ours, 0, 1, 0), Err(gone));
            cuda.unhold(scene.stream);
            finish(cuda, other);
        }
        give_back(cuda, ours);
        give_back(&there, theirs);
    });
}

/// The simulator uses a handle again at once: without the lock the new stream would do the fill, unnoticed.
#[test]
fn work_of_a_stream_never_goes_to_the_next_one_with_its_handle() {
    alone(|control, cuda| {
        let (stream, taken) = (cuda.create_stream().unwrap(), segment(cuda));
        let raw = cuda.raw_stream(stream).unwrap() as usize;
        let stop = control.stop_nth("cuMemsetD8Async", 1);
        thread::scope(|scope| {
            let fills = scope.spawn(|| cuda.fill(stream, &taken, 0, 64, 7));
            stop.wait();
            let swaps = scope.spawn(|| {
                cuda.unregister(stream).unwrap();
                let next = cuda.create_stream().unwrap();
                assert_eq!(cuda.raw_stream(next).unwrap() as usize, raw, "the handle has not come back");
                (next, control.hold(0, raw))
            });
            thread::sleep(WHILE);
            stop.go_on();
            fills.join().unwrap().unwrap();
            let (next, gate) = swaps.join().unwrap();
            // All work that was ever queued on the stream is done, whatever holds the next one.
            finish(cuda, stream);
            let reader = cuda.create_stream().unwrap();
            let mut bytes = [0; 64];
            cuda.download(reader, &taken, 0, &mut bytes).unwrap();
            gate.open();
            finish(cuda, next);
            assert_eq!(bytes, [7; 64], "the stream's last tick is reached, and its fill is not done");
        });
        give_back(cuda, taken);
    });
}

#[test]
fn threads_use_streams_that_others_take_away() {
    const STREAMS: usize = 4000;
    alone(|_, cuda| {
        let (taken, other) = (segment(cuda), cuda.create_stream().unwrap());
        let over = AtomicBool::new(false);
        let newest = parking_lot::Mutex::new(cuda.create_stream().unwrap());
        let (over, newest, taken) = (&over, &newest, &taken);
        thread::scope(|scope| {
            for at in 0..4_u64 {
                scope.spawn(move || {
                    for round in 0.. {
                        let stream = *newest.lock();
                        let offset = at * 4096;
                        let used = match round % 4 {
                            0 => cuda.fill(stream, taken, offset, 512, round as u8),
                            1 => cuda.copy(stream, (taken, offset), (taken, offset + 1024), 512),
                            2 => cuda.upload(stream, &[round as u8; 512], taken, offset),
                            _ => cuda.wait_for(stream, Point { stream: other, tick: cuda.mark(other) }),
                        };
                        assert!(matches!(used, Ok(()) | Err(CudaError::Unregistered { .. })), "{round}: {used:?}");
                        let tick = cuda.mark(stream);
                        assert!(cuda.wait(Point { stream, tick }).unwrap() >= tick);
                        if over.load(Ordering::Relaxed) {
                            break;
                        }
                    }
                });
            }
            for _ in 0..STREAMS {
                let next = cuda.create_stream().unwrap();
                let last = std::mem::replace(&mut *newest.lock(), next);
                cuda.unregister(last).unwrap();
            }
            over.store(true, Ordering::Relaxed);
        });
    });
}

fn begin(cuda: &Cuda, stream: StreamId) {
    cuda.context().bind_to_thread().unwrap();
    let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;
    // SAFETY: the stream is alive.
    unsafe { sys::cuStreamBeginCapture_v2(cuda.raw_stream(stream).unwrap(), mode) }.result().unwrap();
}

/// Ends the capture, which fails if a call has disturbed it or other work has become part of it.
fn end(cuda: &Cuda, stream: StreamId, what: &str) {
    let mut graph: CUgraph = ptr::null_mut();
    // SAFETY: the stream is alive and being captured; the pointer is to a local pointer.
    let ended = unsafe { sys::cuStreamEndCapture(cuda.raw_stream(stream).unwrap(), &raw mut graph) };
    ended.result().unwrap_or_else(|error| panic!("{what}: the capture was spoiled: {error:?}"));
    if !graph.is_null() {
        // SAFETY: the graph was just made and nothing uses it.
        unsafe { sys::cuGraphDestroy(graph) }.result().unwrap();
    }
}

fn is_captured(cuda: &Cuda, stream: StreamId) -> bool {
    let mut status = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
    // SAFETY: the stream is alive, and the pointer to a local number.
    unsafe { sys::cuStreamIsCapturing(cuda.raw_stream(stream).unwrap(), &raw mut status) }.result().unwrap();
    status != CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE
}

/// The calls that record an event on the stream, and what each returns if a capture has caught the event.
const ASKS: [Ask; 3] = [
    ("wait_for", |scene, tick| {
        let waited = scene.cuda.wait_for(scene.other, Point { stream: scene.stream, tick });
        let stream = scene.stream;
        assert!(
            matches!(waited, Err(CudaError::Capturing { stream: captured, .. }) if captured == stream),
            "{waited:?}"
        );
        assert_eq!(waited.unwrap_err().fault(), Fault::NotNow);
        Ok(Tick::ZERO)
    }),
    ("reached", |scene, _| scene.cuda.reached(scene.stream)),
    ("wait", |scene, tick| scene.cuda.wait(Point { stream: scene.stream, tick })),
];

/// Runs one of [`ASKS`] with a capture that begins after the backend has seen none and before it records its event.
fn caught(control: Control, scene: &Scene, (what, ask): Ask) {
    let (cuda, stream) = (scene.cuda, scene.stream);
    let tick = cuda.mark(stream);
    let stop = control.stop_nth("cuEventRecord", 1);
    thread::scope(|scope| {
        let asks = scope.spawn(|| ask(scene, tick));
        stop.wait();
        begin(cuda, stream);
        stop.go_on();
        let answer = asks.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        assert!(!is_captured(cuda, scene.other), "{what}: the other stream has come to be part of the capture");
        assert!(answer.clone().is_ok_and(|reached| reached < tick), "{what}: {answer:?}, and the tick is {tick}");
        end(cuda, stream, what);
    });
    assert!(finish(cuda, stream) >= tick, "{what}: what was caught is made up for");
}

/// What allocates does not wait for a thread that asks, and gets what was known before; a test that judges the
/// allocator has to know better.
#[test]
fn a_query_beside_another_is_answered_with_what_was_known() {
    alone(|control, cuda| {
        let (stream, ours) = (cuda.create_stream().unwrap(), segment(cuda));
        cuda.fill(stream, &ours, 0, 64, 1).unwrap();
        let tick = cuda.mark(stream);
        cuda.context().bind_to_thread().unwrap();
        let stop = control.stop_nth("cuEventQuery", 1);
        thread::scope(|scope| {
            let first = scope.spawn(|| cuda.reached(stream));
            stop.wait();
            // SAFETY: the stream is alive. The tick's event is recorded, and complete behind this call.
            unsafe { sys::cuStreamSynchronize(cuda.raw_stream(stream).unwrap()) }.result().unwrap();
            assert_eq!(cuda.reached(stream), Ok(Tick::ZERO), "another thread asks, and has no answer yet");
            let patient = scope.spawn(|| cuda.reached_by_now(stream));
            stop.go_on();
            assert_eq!(first.join().unwrap(), Ok(tick));
            assert_eq!(patient.join().unwrap(), Ok(tick));
        });
        give_back(cuda, ours);
    });
}

#[test]
fn an_event_that_a_racing_capture_catches_disturbs_nobody() {
    alone(|control, cuda| {
        let (stream, other, ours) = (cuda.create_stream().unwrap(), cuda.create_stream().unwrap(), segment(cuda));
        let scene = Scene { cuda, stream, other, ours: &ours, theirs: &ours };
        for ask in ASKS {
            caught(control, &scene, ask);
        }
        give_back(cuda, ours);
    });
}

/// Runs `act` on another thread. A capture catches the event that it records, and is over before the backend looks
/// whether there is one.
pub(super) fn caught_and_left<T: Send>(
    control: Control,
    cuda: &Cuda,
    stream: StreamId,
    act: impl FnOnce() -> T + Send,
) -> T {
    let records = control.stop_nth("cuEventRecord", 1);
    let looks = control.stop_nth("cuStreamIsCapturing", 3);
    thread::scope(|scope| {
        let acts = scope.spawn(act);
        records.wait();
        begin(cuda, stream);
        // The second query is this one, while the event is not recorded yet.
        assert!(is_captured(cuda, stream));
        records.go_on();
        looks.wait();
        end(cuda, stream, "a capture of one event");
        looks.go_on();
        acts.join().unwrap()
    })
}

/// The capture is over before the backend can notice it: its event will never be complete, and the stream is free.
#[test]
fn an_event_that_a_capture_caught_and_left_behind_is_recorded_anew() {
    alone(|control, cuda| {
        let (stream, other, taken) = (cuda.create_stream().unwrap(), cuda.create_stream().unwrap(), segment(cuda));
        // The last one unregisters the stream.
        let waits: [Wait; 3] = [
            |cuda, other, point| cuda.wait_for(other, point),
            |cuda, _, point| cuda.wait(point).map(|reached| assert!(reached >= point.tick, "{point}: {reached}")),
            |cuda, _, point| {
                cuda.unregister(point.stream)?;
                cuda.wait(point).map(|reached| assert!(reached >= point.tick, "{point}: {reached}"))
            },
        ];
        for (value, wait) in (1..).zip(waits) {
            cuda.fill(stream, &taken, 0, 64, value).unwrap();
            let point = Point { stream, tick: cuda.mark(stream) };
            assert_eq!(caught_and_left(control, cuda, stream, || wait(cuda, other, point)), Ok(()));
            let mut bytes = [0; 64];
            cuda.download(other, &taken, 0, &mut bytes).unwrap();
            assert_eq!(bytes, [value; 64]);
        }
        give_back(cuda, taken);
    });
}

/// A call that waits for room in a staging ring gets none before the capture ends, and the capture may wait for the
/// call.
#[test]
fn an_upload_does_not_wait_for_a_capture_to_end() {
    alone(|control, cuda| {
        let (stream, taken) = (cuda.create_stream().unwrap(), cuda.reserve(millpond_backend::ClassId::DEVICE, 8 << 20));
        let taken = taken.unwrap();
        let gate = control.hold(0, cuda.raw_stream(stream).unwrap() as usize);
        cuda.upload(stream, &vec![1; 4 << 20], &taken, 0).unwrap();
        // The first query is the upload's, the second is made to close the tick of the ring's pieces.
        let stop = control.stop_nth("cuStreamIsCapturing", 2);
        let (answers, answered) = channel();
        thread::scope(|scope| {
            scope.spawn(|| answers.send(cuda.upload(stream, &[2; 64], &taken, 4 << 20)));
            stop.wait();
            begin(cuda, stream);
            stop.go_on();
            let answer = answered.recv_timeout(Duration::from_secs(2));
            end(cuda, stream, "upload");
            gate.open();
            assert_ne!(answer, Err(RecvTimeoutError::Timeout), "the upload waits for the end of the capture");
            let refused = answer.unwrap().unwrap_err();
            assert!(
                matches!(refused, CudaError::Capturing { stream: captured, .. } if captured == stream),
                "{refused}"
            );
            assert_eq!(refused.fault(), Fault::NotNow);
        });
        finish(cuda, stream);
        give_back(cuda, taken);
    });
}
