//! Streams that the program destroys without a word. The simulated driver refuses the handle of a stream that is gone
//! with a code that loses the device, so that a call with such a handle fails each of these tests.

use millpond_backend::{Backend, ClassId, Point, StreamId, StreamWait, Tick, Transfer, VirtualMemory};
use millpond_cuda::CudaError;
use millpond_cuda::cudarc::driver::sys::{self, CUstream};
use millpond_cuda::testing::Cuda;

use super::handles::{destroy, raw_stream};
use super::{alone, finish, give_back, segment};

fn borrow(cuda: &Cuda, raw: CUstream) -> StreamId {
    // SAFETY: the tests pass streams that are alive.
    unsafe { cuda.borrow_raw(raw) }.unwrap()
}

fn arrive(cuda: &Cuda, stream: StreamId, frees: bool) {
    // SAFETY: as above.
    unsafe { cuda.arrive(stream, frees) }.unwrap();
}

/// Frees memory on a stream. Returns the point that its work is over at.
fn free(cuda: &Cuda, stream: StreamId) -> Point {
    arrive(cuda, stream, true);
    Point { stream, tick: cuda.mark(stream) }
}

fn is_over(cuda: &Cuda, point: Point) -> bool {
    cuda.reached(point.stream).unwrap() >= point.tick
}

fn begin_capture(raw: CUstream) {
    const RELAXED: sys::CUstreamCaptureMode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
    // SAFETY: the stream is alive.
    unsafe { sys::cuStreamBeginCapture_v2(raw, RELAXED) }.result().unwrap();
}

fn end_capture(raw: CUstream) {
    let mut graph = std::ptr::null_mut();
    // SAFETY: the stream is alive, and the pointer is to a local pointer.
    unsafe { sys::cuStreamEndCapture(raw, &raw mut graph) }.result().unwrap();
    // SAFETY: the capture has made it.
    unsafe { sys::cuGraphDestroy(graph) }.result().unwrap();
}

#[test]
fn a_stream_that_is_gone_is_not_asked_and_its_work_counts() {
    alone(|control, cuda| {
        let raw = raw_stream(cuda);
        let stream = borrow(cuda, raw);
        arrive(cuda, stream, false);
        let gate = control.hold(0, raw as usize);
        let point = free(cuda, stream);
        destroy(raw);
        for _ in 0..3 {
            assert!(!is_over(cuda, point), "it is freed behind work that is not over");
        }
        let own = cuda.create_stream().unwrap();
        cuda.wait_for(own, point).unwrap();
        let behind = Point { stream: own, tick: cuda.mark(own) };
        assert!(!is_over(cuda, behind));
        gate.open();
        assert!(finish(cuda, own) >= behind.tick && is_over(cuda, point));
        let late = cuda.mark(stream);
        assert!(cuda.wait(Point { stream, tick: late }).unwrap() >= late, "nothing can come behind its last event");
    });
}

#[test]
fn a_stream_with_the_handle_of_another_goes_on_behind_it() {
    alone(|control, cuda| {
        let mut last: Option<(Point, _)> = None;
        let first = raw_stream(cuda);
        let stream = borrow(cuda, first);
        destroy(first);
        for _ in 0..20 {
            let raw = raw_stream(cuda);
            assert_eq!((raw, borrow(cuda, raw)), (first, stream), "the lane is that of the handle");
            arrive(cuda, stream, false);
            let taken = segment(cuda);
            cuda.fill(stream, &taken, 0, 1 << 20, 1).unwrap();
            let filled = Point { stream, tick: cuda.mark(stream) };
            if let Some((before, gate)) = last.take() {
                assert!(!is_over(cuda, filled), "it waits for the work of the former stream");
                assert!(!is_over(cuda, before));
                drop(gate);
            }
            assert!(cuda.wait(filled).unwrap() >= filled.tick);
            give_back(cuda, taken);
            let gate = control.hold(0, raw as usize);
            last = Some((free(cuda, stream), gate));
            destroy(raw);
        }
    });
}

/// Without a call of the new stream's in between, a free there comes behind the former stream, too.
#[test]
fn a_free_on_a_new_stream_covers_the_former_one() {
    alone(|control, cuda| {
        let raw = raw_stream(cuda);
        let stream = borrow(cuda, raw);
        let gate = control.hold(0, raw as usize);
        let before = free(cuda, stream);
        destroy(raw);
        assert_eq!(raw_stream(cuda), raw);
        let after = free(cuda, stream);
        assert!(!is_over(cuda, before) && !is_over(cuda, after));
        gate.open();
        assert!(cuda.wait(after).unwrap() >= after.tick);
        destroy(raw);
    });
}

#[test]
fn frees_on_a_stream_that_is_behind_need_few_events() {
    alone(|control, cuda| {
        let raw = raw_stream(cuda);
        let stream = borrow(cuda, raw);
        let gate = control.hold(0, raw as usize);
        let mut point = free(cuda, stream);
        for _ in 0..1000 {
            point = free(cuda, stream);
        }
        assert!(control.calls("cuEventCreate") < 20, "{}", control.calls("cuEventCreate"));
        destroy(raw);
        assert!(!is_over(cuda, point));
        gate.open();
        assert!(cuda.wait(point).unwrap() >= point.tick);
    });
}

#[test]
fn a_wait_on_a_borrowed_stream_is_behind_its_later_ticks() {
    alone(|control, cuda| {
        let (raw, own) = (raw_stream(cuda), cuda.create_stream().unwrap());
        let stream = borrow(cuda, raw);
        let gate = control.hold(0, cuda.raw_stream(own).unwrap() as usize);
        let point = Point { stream: own, tick: cuda.mark(own) };
        arrive(cuda, stream, false);
        cuda.wait_for(stream, point).unwrap();
        let behind = Point { stream, tick: cuda.mark(stream) };
        destroy(raw);
        assert!(!is_over(cuda, behind));
        gate.open();
        assert!(cuda.wait(behind).unwrap() >= behind.tick);
    });
}

/// An event of a capture says nothing of the work that came before.
#[test]
fn what_is_freed_during_a_capture_is_covered_by_the_next_call() {
    alone(|control, cuda| {
        let raw = raw_stream(cuda);
        let stream = borrow(cuda, raw);
        let gate = control.hold(0, raw as usize);
        begin_capture(raw);
        let point = free(cuda, stream);
        assert!(!is_over(cuda, point));
        end_capture(raw);
        assert!(!is_over(cuda, point));
        arrive(cuda, stream, false);
        assert!(!is_over(cuda, point), "the work before the capture is not over");
        gate.open();
        assert!(cuda.wait(point).unwrap() >= point.tick);

        // The stream has gone after the capture: its successor waits for all that there is.
        let gate = control.hold(0, raw as usize);
        begin_capture(raw);
        let point = free(cuda, stream);
        end_capture(raw);
        destroy(raw);
        assert!(!is_over(cuda, point));
        assert_eq!(raw_stream(cuda), raw);
        gate.open();
        arrive(cuda, stream, false);
        assert!(is_over(cuda, point));
        destroy(raw);
    });
}

#[test]
fn a_borrowed_stream_can_be_registered_and_unregistered() {
    alone(|control, cuda| {
        let raw = raw_stream(cuda);
        let stream = borrow(cuda, raw);
        begin_capture(raw);
        assert_eq!(cuda.unregister(stream), Err(CudaError::Capturing { call: "unregister", stream }));
        free(cuda, stream);
        end_capture(raw);
        let point = free(cuda, stream);
        cuda.unregister(stream).unwrap();
        assert!(cuda.wait(point).unwrap() >= point.tick);
        // SAFETY: the stream is alive.
        let arrived = unsafe { cuda.arrive(stream, true) };
        assert_eq!(arrived, Err(CudaError::Unregistered { stream }));

        let again = borrow(cuda, raw);
        assert_ne!(again, stream);
        // SAFETY: the stream is alive.
        assert_eq!(unsafe { cuda.register_raw(raw) }, Ok(again));
        // From now on the stream itself is asked, without a call of the program's.
        let before = control.calls("cuEventRecord");
        arrive(cuda, again, true);
        assert_eq!(control.calls("cuEventRecord"), before);
        let gate = control.hold(0, raw as usize);
        let point = Point { stream: again, tick: cuda.mark(again) };
        assert!(!is_over(cuda, point) && control.calls("cuEventRecord") > before);
        assert_eq!(borrow(cuda, raw), again);
        gate.open();
        assert!(cuda.wait(point).unwrap() > Tick::ZERO);
        cuda.unregister(again).unwrap();
        destroy(raw);
    });
}

#[test]
fn a_borrowed_stream_that_is_registered_is_kept_alive() {
    alone(|_, cuda| {
        let own = cuda.context().new_stream().unwrap();
        let stream = borrow(cuda, own.cu_stream());
        assert_eq!(cuda.register(&own), Ok(stream));
        drop(own);
        let point = Point { stream, tick: cuda.mark(stream) };
        assert!(cuda.wait(point).unwrap() >= point.tick);
        cuda.unregister(stream).unwrap();
    });
}

#[test]
fn registering_a_stream_with_the_handle_of_a_borrowed_one_does_not_wait() {
    alone(|control, cuda| {
        let raw = raw_stream(cuda);
        let stream = borrow(cuda, raw);
        let gate = control.hold(0, raw as usize);
        let before = free(cuda, stream);
        destroy(raw);
        assert_eq!(raw_stream(cuda), raw);
        // SAFETY: the stream is alive.
        assert_eq!(unsafe { cuda.register_raw(raw) }, Ok(stream), "calls of other threads go on with the number");
        assert_eq!(control.calls("cuCtxSynchronize"), 0);
        let after = Point { stream, tick: cuda.mark(stream) };
        assert!(!is_over(cuda, before) && !is_over(cuda, after));
        gate.open();
        assert!(cuda.wait(after).unwrap() >= after.tick);
        cuda.unregister(stream).unwrap();
        destroy(raw);
    });
}

/// Each wait for the stream closes a tick.
#[test]
fn waits_between_frees_on_a_stream_that_is_behind_need_no_more_events() {
    alone(|control, cuda| {
        let (raw, own) = (raw_stream(cuda), cuda.create_stream().unwrap());
        let stream = borrow(cuda, raw);
        let gate = control.hold(0, raw as usize);
        for _ in 0..100 {
            let point = free(cuda, stream);
            cuda.wait_for(own, point).unwrap();
        }
        assert!(control.calls("cuEventCreate") < 20, "{}", control.calls("cuEventCreate"));
        destroy(raw);
        gate.open();
        let last = Point { stream, tick: cuda.mark(stream) };
        assert!(cuda.wait(last).unwrap() >= last.tick);
    });
}

#[test]
fn the_last_handle_asks_no_stream_that_is_gone() {
    alone(|control, _| {
        let cuda = Cuda::open(0).unwrap();
        let raw = raw_stream(&cuda);
        let stream = borrow(&cuda, raw);
        let taken = segment(&cuda);
        let gate = control.hold(0, raw as usize);
        free(&cuda, stream);
        destroy(raw);
        gate.open();
        control.fail_nth("cuEventSynchronize", 1, 2);
        control.fail_nth("cuEventQuery", 1, 2);
        drop(taken);
        let before = control.calls("cuStreamSynchronize");
        drop(cuda);
        assert_eq!(control.calls("cuStreamSynchronize"), before, "the stream is gone");
    });
}

/// Between the two questions of a call whether the stream is captured.
#[test]
fn a_capture_that_begins_during_a_call_makes_no_other_stream() {
    alone(|control, cuda| {
        let raw = raw_stream(cuda);
        let stream = borrow(cuda, raw);
        let gate = control.hold(0, raw as usize);
        let point = free(cuda, stream);
        let stop = control.stop_nth("cuStreamIsCapturing", 2);
        std::thread::scope(|scope| {
            let call = scope.spawn(|| arrive(cuda, stream, true));
            stop.wait();
            cuda.context().bind_to_thread().unwrap();
            begin_capture(raw);
            stop.go_on();
            call.join().unwrap();
        });
        end_capture(raw);
        arrive(cuda, stream, false);
        assert!(!is_over(cuda, point));
        gate.open();
        assert!(cuda.wait(point).unwrap() >= point.tick);
        assert_eq!(control.calls("cuCtxSynchronize"), 0, "it is one stream");
        destroy(raw);
    });
}

/// The number of a stream is not told during a capture, so that it may be another one that has the handle.
#[test]
fn memory_for_a_capture_is_behind_the_former_stream() {
    alone(|control, cuda| {
        let raw = raw_stream(cuda);
        let stream = borrow(cuda, raw);
        let gate = control.hold(0, raw as usize);
        let before = free(cuda, stream);
        destroy(raw);
        assert_eq!(raw_stream(cuda), raw);
        begin_capture(raw);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(std::time::Duration::from_millis(30));
                gate.open();
            });
            arrive(cuda, stream, false);
            assert!(is_over(cuda, before), "a graph that uses the memory may run at once");
        });
        end_capture(raw);
        arrive(cuda, stream, false);
        destroy(raw);
    });
}

/// Work on memory that the program has not freed has no event behind it.
#[test]
fn the_last_handle_waits_for_all_work_of_a_borrowed_stream() {
    for is_gone in [false, true] {
        alone(|control, _| {
            let cuda = Cuda::open(0).unwrap();
            let raw = raw_stream(&cuda);
            let stream = borrow(&cuda, raw);
            arrive(&cuda, stream, false);
            let bytes = cuda.caps().pages.unwrap().granularity;
            let range = cuda.reserve_range(ClassId::DEVICE, bytes).unwrap();
            let page = cuda.create_page(ClassId::DEVICE, bytes).unwrap();
            // SAFETY: the range is empty.
            unsafe { cuda.map(&range, 0, &page, stream) }.unwrap();
            let gate = control.hold(0, raw as usize);
            // SAFETY: the memory is mapped, and the stream is alive.
            unsafe { sys::cuMemsetD8Async(range.address(), 1, 4096, raw) }.result().unwrap();
            if is_gone {
                destroy(raw);
            }
            drop((range, page));
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    std::thread::sleep(std::time::Duration::from_millis(30));
                    gate.open();
                });
                drop(cuda);
            });
            if !is_gone {
                destroy(raw);
            }
        });
    }
}

#[test]
fn what_is_freed_by_a_call_that_fails_is_covered_by_the_next_one() {
    for call in ["cuStreamIsCapturing", "cuStreamGetId", "cuEventRecord"] {
        alone(|control, cuda| {
            let raw = raw_stream(cuda);
            let stream = borrow(cuda, raw);
            let gate = control.hold(0, raw as usize);
            control.fail_nth(call, 1, 2);
            // SAFETY: the stream is alive.
            unsafe { cuda.arrive(stream, true) }.unwrap_err();
            let point = Point { stream, tick: cuda.mark(stream) };
            assert!(!is_over(cuda, point), "{call}");
            arrive(cuda, stream, false);
            assert!(!is_over(cuda, point), "{call}");
            gate.open();
            assert!(cuda.wait(point).unwrap() >= point.tick);
            destroy(raw);
        });
    }
}
