//! Streams that the program destroys without a word. The simulated driver refuses the handle of a stream that is gone
//! with a code that loses the device, so that a call with such a handle fails each of these tests.

use std::time::Duration;

use millpond_backend::{Backend, ClassId, Point, StreamId, StreamWait, Tick, Transfer, VirtualMemory};
use millpond_cuda::CudaError;
use millpond_cuda::cudarc::driver::sys::{self, CUstream};
use millpond_cuda::testing::Cuda;
use millpond_cuda_driver::{Control, Gate};

use super::handles::{destroy, raw_stream};
use super::{alone, finish, give_back, segment};

/// A stream of the program's, which is borrowed.
#[derive(Clone, Copy)]
pub(super) struct Lent<'c> {
    control: Control,
    cuda: &'c Cuda,
    raw: CUstream,
    stream: StreamId,
}

impl<'c> Lent<'c> {
    pub(super) fn new(control: Control, cuda: &'c Cuda) -> Lent<'c> {
        let raw = raw_stream(cuda);
        // SAFETY: the stream is alive.
        Lent { control, cuda, raw, stream: unsafe { cuda.borrow_raw(raw) }.unwrap() }
    }

    /// Creates a stream that is in a capture when it is borrowed.
    fn captured(control: Control, cuda: &'c Cuda) -> Lent<'c> {
        let raw = raw_stream(cuda);
        begin_capture(raw);
        // SAFETY: the stream is alive.
        Lent { control, cuda, raw, stream: unsafe { cuda.borrow_raw(raw) }.unwrap() }
    }

    /// Holds what is queued from now on.
    fn hold(&self) -> Gate {
        self.control.hold(0, self.raw as usize)
    }

    fn try_arrive(&self, frees: bool) -> Result<(), CudaError> {
        // SAFETY: the tests call this while a stream has the handle.
        unsafe { self.cuda.arrive(self.stream, frees) }
    }

    fn arrive(&self) {
        self.try_arrive(false).unwrap();
    }

    /// Frees memory on the stream. Returns the point that its work is over at.
    fn free(&self) -> Point {
        self.try_arrive(true).unwrap();
        self.mark()
    }

    /// Frees memory on the stream in a capture, which ends.
    fn free_in_a_capture(&self) -> Point {
        begin_capture(self.raw);
        let point = self.free();
        end_capture(self.raw);
        point
    }

    fn mark(&self) -> Point {
        Point { stream: self.stream, tick: self.cuda.mark(self.stream) }
    }

    fn is_over(&self, point: Point) -> bool {
        self.cuda.reached(point.stream).unwrap() >= point.tick
    }

    /// Waits on the host. Returns whether that has reached the point.
    fn wait(&self, point: Point) -> bool {
        self.cuda.wait(point).unwrap() >= point.tick
    }

    fn destroy(self) {
        destroy(self.raw);
    }

    /// Destroys the stream. Its handle comes back as that of another one.
    fn replace(self) {
        self.destroy();
        assert_eq!(raw_stream(self.cuda), self.raw);
    }

    /// Borrows the stream with that handle.
    fn borrow(self) -> Lent<'c> {
        // SAFETY: the tests call this while a stream has the handle.
        Lent { stream: unsafe { self.cuda.borrow_raw(self.raw) }.unwrap(), ..self }
    }

    /// Borrows the stream anew that has the handle now, after its former number is over.
    fn borrow_anew(self) -> Lent<'c> {
        assert_eq!(self.try_arrive(false), Err(CudaError::Unregistered { stream: self.stream }));
        let anew = self.borrow();
        assert_ne!(anew.stream, self.stream);
        anew
    }
}

/// Runs a test with a borrowed stream.
fn lent(test: impl FnOnce(Lent)) {
    alone(|control, cuda| test(Lent::new(control, cuda)));
}

fn begin_capture(raw: CUstream) {
    const RELAXED: sys::CUstreamCaptureMode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
    // SAFETY: the stream is alive.
    unsafe { sys::cuStreamBeginCapture_v2(raw, RELAXED) }.result().unwrap();
}

/// Ends a capture that no call has spoiled.
fn end_capture(raw: CUstream) {
    let mut graph = std::ptr::null_mut();
    // SAFETY: the stream is alive, and the pointer is to a local pointer.
    unsafe { sys::cuStreamEndCapture(raw, &raw mut graph) }.result().unwrap();
    // SAFETY: the capture has made it.
    unsafe { sys::cuGraphDestroy(graph) }.result().unwrap();
}

/// Calls the body, and lets the held work run while it waits.
fn open_during<T>(gate: Gate, body: impl FnOnce() -> T) -> T {
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(30));
            gate.open();
        });
        body()
    })
}

#[test]
fn a_stream_that_is_gone_is_not_asked_and_its_work_counts() {
    lent(|lent| {
        let cuda = lent.cuda;
        lent.arrive();
        let gate = lent.hold();
        let point = lent.free();
        lent.destroy();
        for _ in 0..3 {
            assert!(!lent.is_over(point), "it is freed behind work that is not over");
        }
        let own = cuda.create_stream().unwrap();
        cuda.wait_for(own, point).unwrap();
        let behind = Point { stream: own, tick: cuda.mark(own) };
        assert!(!lent.is_over(behind));
        gate.open();
        assert!(finish(cuda, own) >= behind.tick && lent.is_over(point));
        assert!(lent.wait(lent.mark()), "nothing can come behind its last event");
    });
}

#[test]
fn a_stream_with_the_handle_of_another_goes_on_behind_it() {
    lent(|lent| {
        let cuda = lent.cuda;
        let mut last: Option<(Point, _)> = None;
        for _ in 0..20 {
            lent.replace();
            assert_eq!(lent.borrow().stream, lent.stream, "the lane is that of the handle");
            lent.arrive();
            let taken = segment(cuda);
            cuda.fill(lent.stream, &taken, 0, 1 << 20, 1).unwrap();
            let filled = lent.mark();
            if let Some((before, gate)) = last.take() {
                assert!(!lent.is_over(filled), "it waits for the work of the former stream");
                assert!(!lent.is_over(before));
                drop(gate);
            }
            assert!(lent.wait(filled));
            give_back(cuda, taken);
            let gate = lent.hold();
            last = Some((lent.free(), gate));
        }
        lent.destroy();
    });
}

/// Without a call of the new stream's in between, a free there comes behind the former stream, too.
#[test]
fn a_free_on_a_new_stream_covers_the_former_one() {
    lent(|lent| {
        let gate = lent.hold();
        let before = lent.free();
        lent.replace();
        let after = lent.free();
        assert!(!lent.is_over(before) && !lent.is_over(after));
        gate.open();
        assert!(lent.wait(after));
        lent.destroy();
    });
}

#[test]
fn frees_on_a_stream_that_is_behind_need_few_events() {
    lent(|lent| {
        let gate = lent.hold();
        let mut point = lent.free();
        for _ in 0..1000 {
            point = lent.free();
        }
        let created = lent.control.calls("cuEventCreate");
        assert!(created < 20, "{created}");
        lent.destroy();
        assert!(!lent.is_over(point));
        gate.open();
        assert!(lent.wait(point));
    });
}

#[test]
fn a_wait_on_a_borrowed_stream_is_behind_its_later_ticks() {
    lent(|lent| {
        let cuda = lent.cuda;
        let own = cuda.create_stream().unwrap();
        let gate = lent.control.hold(0, cuda.raw_stream(own).unwrap() as usize);
        let point = Point { stream: own, tick: cuda.mark(own) };
        lent.arrive();
        cuda.wait_for(lent.stream, point).unwrap();
        let behind = lent.mark();
        lent.destroy();
        assert!(!lent.is_over(behind));
        gate.open();
        assert!(lent.wait(behind));
    });
}

/// An event of a capture says nothing of the work that came before.
#[test]
fn what_is_freed_during_a_capture_is_covered_by_the_next_call() {
    lent(|lent| {
        let gate = lent.hold();
        begin_capture(lent.raw);
        let point = lent.free();
        assert!(!lent.is_over(point));
        end_capture(lent.raw);
        assert!(!lent.is_over(point));
        lent.arrive();
        assert!(!lent.is_over(point), "the work before the capture is not over");
        gate.open();
        assert!(lent.wait(point));
        lent.destroy();
    });
}

/// The stream has gone after its capture, so that its successor cannot wait for it. To wait for the context would spoil
/// the capture of another stream.
#[test]
fn a_stream_that_is_gone_after_a_capture_is_left_to_whoever_needs_its_memory() {
    lent(|lent| {
        let other = raw_stream(lent.cuda);
        let gate = lent.hold();
        let point = lent.free_in_a_capture();
        lent.replace();
        begin_capture(other);
        let anew = lent.borrow_anew();
        let after = anew.free();
        assert!(anew.wait(after), "it has nothing to do with the former stream");
        assert_eq!(lent.control.calls("cuCtxSynchronize"), 0);
        end_capture(other);
        assert!(!lent.is_over(point));
        assert!(open_during(gate, || lent.wait(point)));
        assert!(lent.wait(lent.mark()), "it has no other work");
        assert_eq!(lent.control.calls("cuCtxSynchronize"), 1);
        anew.destroy();
        destroy(other);
    });
}

/// Its number is not known before the first call outside of a capture: until then it may have changed.
#[test]
fn a_stream_that_was_never_seen_outside_of_a_capture_may_be_another_one() {
    alone(|control, cuda| {
        let lent = Lent::captured(control, cuda);
        let point = lent.free();
        end_capture(lent.raw);
        let gate = lent.hold();
        let taken = segment(cuda);
        // SAFETY: the memory is there, and the stream is alive.
        unsafe { sys::cuMemsetD8Async(taken.address(), 1, 4096, lent.raw) }.result().unwrap();
        lent.replace();
        let anew = lent.borrow_anew();
        assert!(anew.wait(anew.free()));
        assert!(!lent.is_over(point), "an event of the new stream lies behind nothing of the old one");
        open_during(gate, || cuda.settle_uncovered()).unwrap();
        assert!(lent.is_over(point));
        give_back(cuda, taken);
        anew.destroy();
    });
}

/// A stream whose calls were all made in one capture is not asked for the former one's work: it has freed nothing.
#[test]
fn a_stream_that_has_freed_nothing_in_a_capture_keeps_its_number() {
    alone(|control, cuda| {
        let lent = Lent::captured(control, cuda);
        lent.arrive();
        end_capture(lent.raw);
        lent.arrive();
        assert!(lent.wait(lent.free()));
        lent.destroy();
    });
}

/// The handle of a stream that is gone has not come back, so the device cannot tell whether its capture is over.
#[test]
fn what_was_freed_in_a_capture_is_settled_for_whoever_asks() {
    lent(|lent| {
        let (other, own) = (raw_stream(lent.cuda), lent.cuda.create_stream().unwrap());
        let waits = || lent.control.calls("cuCtxSynchronize");
        let gate = lent.hold();
        let point = lent.free_in_a_capture();
        lent.destroy();
        assert!(!lent.wait(point) && waits() == 0, "the stream may still be captured");
        // A stream of which it is known that it is captured.
        // SAFETY: the stream is alive.
        let registered = unsafe { lent.cuda.register_raw(other) }.unwrap();
        begin_capture(other);
        lent.cuda.settle_uncovered().unwrap();
        assert!(!lent.is_over(point) && waits() == 0);
        end_capture(other);
        open_during(gate, || lent.cuda.settle_uncovered()).unwrap();
        assert!(lent.is_over(point) && waits() == 1);
        assert!(lent.is_over(lent.mark()), "it has no other work");
        lent.cuda.settle_uncovered().unwrap();
        assert_eq!(waits(), 1, "there is nothing to wait for");
        assert!(finish(lent.cuda, own) > Tick::ZERO);
        lent.cuda.unregister(registered).unwrap();
        destroy(other);
    });
}

#[test]
fn a_wait_for_memory_spoils_no_capture_of_a_borrowed_stream() {
    lent(|lent| {
        let point = lent.free_in_a_capture();
        lent.replace();
        let others = lent.borrow_anew();
        begin_capture(others.raw);
        others.arrive();
        assert!(!lent.wait(point), "a borrowed stream was captured in its last call");
        end_capture(others.raw);
        assert!(!lent.wait(point), "it is not known to be free");
        others.arrive();
        assert!(lent.wait(point));
        others.destroy();
    });
}

/// Without a call with it here: it shows on the legacy default stream.
#[test]
fn a_wait_for_memory_spoils_no_capture_of_an_unknown_blocking_stream() {
    lent(|lent| {
        let point = lent.free_in_a_capture();
        lent.replace();
        let others = lent.borrow_anew();
        let mut blocking: CUstream = std::ptr::null_mut();
        // SAFETY: the pointer is to a local pointer, and the context is current.
        unsafe { sys::cuStreamCreate(&raw mut blocking, 0) }.result().unwrap();
        begin_capture(blocking);
        assert!(!lent.wait(point));
        lent.cuda.settle_uncovered().unwrap();
        assert!(!lent.is_over(point));
        end_capture(blocking);
        assert!(lent.wait(point));
        destroy(blocking);
        others.destroy();
    });
}

/// Of a stream that is neither known here nor a blocking one no question is answered.
#[test]
fn a_wait_for_memory_that_a_capture_forbids_is_no_error() {
    lent(|lent| {
        let point = lent.free_in_a_capture();
        lent.replace();
        let others = lent.borrow_anew();
        lent.control.fail_nth("cuCtxSynchronize", 1, 900);
        assert!(!lent.wait(point));
        lent.control.fail_nth("cuCtxSynchronize", 1, 900);
        lent.cuda.settle_uncovered().unwrap_err();
        assert!(!lent.is_over(point) && lent.wait(point));
        others.destroy();
    });
}

/// Memory that is freed in a capture while another thread waits for the context is not covered by that wait.
#[test]
fn a_free_during_a_wait_for_the_context_is_not_covered_by_it() {
    lent(|lent| {
        let before = lent.free_in_a_capture();
        let stop = lent.control.stop_nth("cuCtxSynchronize", 1);
        let (cuda, stream) = (lent.cuda, lent.stream);
        let raw = lent.raw as usize;
        std::thread::scope(|scope| {
            let wait = scope.spawn(|| cuda.settle_uncovered());
            stop.wait();
            begin_capture(raw as CUstream);
            // SAFETY: the stream is alive.
            unsafe { cuda.arrive(stream, true) }.unwrap();
            end_capture(raw as CUstream);
            stop.go_on();
            wait.join().unwrap().unwrap();
        });
        assert!(!lent.is_over(before), "the lane has no event");
        lent.arrive();
        assert!(lent.wait(before));
        lent.destroy();
    });
}

#[test]
fn a_stream_of_the_device_s_own_with_the_handle_of_a_borrowed_one_ends_that_one() {
    lent(|lent| {
        let gate = lent.hold();
        let point = lent.free_in_a_capture();
        lent.destroy();
        let own = lent.cuda.create_stream().unwrap();
        assert_eq!(lent.cuda.raw_stream(own), Ok(lent.raw));
        assert!(!lent.is_over(point));
        assert!(open_during(gate, || lent.wait(point)), "its capture is over, as it is gone");
        assert_eq!(lent.borrow_anew().stream, own);
    });
}

#[test]
fn a_former_stream_whose_last_event_was_caught_is_left_alone() {
    lent(|lent| {
        let gate = lent.hold();
        let point = lent.free();
        lent.replace();
        lent.control.fail_nth("cuStreamWaitEvent", 1, 907);
        let anew = lent.borrow_anew();
        assert!(anew.wait(anew.free()) && !lent.is_over(point));
        assert!(open_during(gate, || lent.wait(point)));
        anew.destroy();
    });
}

#[test]
fn a_borrowed_stream_can_be_registered_and_unregistered() {
    lent(|lent| {
        let (control, cuda, stream) = (lent.control, lent.cuda, lent.stream);
        begin_capture(lent.raw);
        assert_eq!(cuda.unregister(stream), Err(CudaError::Capturing { call: "unregister", stream }));
        lent.free();
        end_capture(lent.raw);
        let point = lent.free();
        cuda.unregister(stream).unwrap();
        assert!(lent.wait(point));

        let again = lent.borrow_anew();
        // SAFETY: the stream is alive.
        assert_eq!(unsafe { cuda.register_raw(lent.raw) }, Ok(again.stream));
        // From now on the stream itself is asked, without a call of the program's.
        let before = control.calls("cuEventRecord");
        again.try_arrive(true).unwrap();
        assert_eq!(control.calls("cuEventRecord"), before);
        let gate = again.hold();
        let point = again.mark();
        assert!(!again.is_over(point) && control.calls("cuEventRecord") > before);
        assert_eq!(again.borrow().stream, again.stream);
        gate.open();
        assert!(cuda.wait(point).unwrap() > Tick::ZERO);
        cuda.unregister(again.stream).unwrap();
        again.destroy();
    });
}

/// The handle has become that of another stream, which cannot wait for the one that has the number.
#[test]
fn a_number_that_is_over_can_be_unregistered_or_registered_anew() {
    for registers in [false, true] {
        lent(|lent| {
            let gate = lent.hold();
            let point = lent.free_in_a_capture();
            lent.replace();
            if registers {
                // SAFETY: the stream is alive.
                let anew = unsafe { lent.cuda.register_raw(lent.raw) }.unwrap();
                assert_ne!(anew, lent.stream);
                lent.cuda.unregister(anew).unwrap();
            } else {
                lent.cuda.unregister(lent.stream).unwrap();
            }
            let stream = lent.stream;
            assert_eq!(lent.cuda.unregister(stream), Err(CudaError::Unregistered { stream }));
            assert!(!lent.is_over(point));
            assert!(open_during(gate, || lent.wait(point)));
            lent.destroy();
        });
    }
}

#[test]
fn a_borrowed_stream_that_is_registered_is_kept_alive() {
    alone(|_, cuda| {
        let own = cuda.context().new_stream().unwrap();
        // SAFETY: the stream is alive.
        let stream = unsafe { cuda.borrow_raw(own.cu_stream()) }.unwrap();
        assert_eq!(cuda.register(&own), Ok(stream));
        drop(own);
        let point = Point { stream, tick: cuda.mark(stream) };
        assert!(cuda.wait(point).unwrap() >= point.tick);
        cuda.unregister(stream).unwrap();
    });
}

#[test]
fn registering_a_stream_with_the_handle_of_a_borrowed_one_does_not_wait() {
    lent(|lent| {
        let gate = lent.hold();
        let before = lent.free();
        lent.replace();
        // SAFETY: the stream is alive.
        let registered = unsafe { lent.cuda.register_raw(lent.raw) };
        assert_eq!(registered, Ok(lent.stream), "calls of other threads go on with the number");
        assert_eq!(lent.control.calls("cuCtxSynchronize"), 0);
        let after = lent.mark();
        assert!(!lent.is_over(before) && !lent.is_over(after));
        gate.open();
        assert!(lent.wait(after));
        lent.cuda.unregister(lent.stream).unwrap();
        lent.destroy();
    });
}

/// The program has broken its promise to unregister the stream first.
#[test]
fn borrowing_a_stream_with_the_handle_of_a_registered_one_ends_that_one() {
    for is_captured in [false, true] {
        alone(|control, cuda| {
            let (raw, own) = (raw_stream(cuda), cuda.create_stream().unwrap());
            // SAFETY: the stream is alive.
            let stream = unsafe { cuda.register_raw(raw) }.unwrap();
            let point = Point { stream, tick: cuda.mark(stream) };
            destroy(raw);
            let captured = cuda.raw_stream(own).unwrap();
            if is_captured {
                begin_capture(captured);
            }
            let lent = Lent::new(control, cuda);
            assert!(lent.raw == raw && lent.stream != stream, "it is another stream");
            assert_eq!(cuda.raw_stream(stream), Err(CudaError::Unregistered { stream }));
            assert_eq!(lent.is_over(point), !is_captured, "no call waits while a stream is captured");
            if is_captured {
                end_capture(captured);
                assert!(lent.wait(point));
            }
            assert!(lent.wait(lent.free()));
            lent.destroy();
        });
    }
}

/// Each wait for the stream closes a tick.
#[test]
fn waits_between_frees_on_a_stream_that_is_behind_need_no_more_events() {
    lent(|lent| {
        let own = lent.cuda.create_stream().unwrap();
        let gate = lent.hold();
        for _ in 0..100 {
            lent.cuda.wait_for(own, lent.free()).unwrap();
        }
        let created = lent.control.calls("cuEventCreate");
        assert!(created < 20, "{created}");
        lent.destroy();
        gate.open();
        assert!(lent.wait(lent.mark()));
    });
}

#[test]
fn the_last_handle_asks_no_stream_that_is_gone() {
    alone(|control, _| {
        let cuda = Cuda::open(0).unwrap();
        let lent = Lent::new(control, &cuda);
        let taken = segment(&cuda);
        let gate = lent.hold();
        lent.free();
        lent.destroy();
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
    lent(|lent| {
        let gate = lent.hold();
        let point = lent.free();
        let stop = lent.control.stop_nth("cuStreamIsCapturing", 2);
        let (cuda, stream) = (lent.cuda, lent.stream);
        std::thread::scope(|scope| {
            // SAFETY: the stream is alive.
            let call = scope.spawn(move || unsafe { cuda.arrive(stream, true) }.unwrap());
            stop.wait();
            cuda.context().bind_to_thread().unwrap();
            begin_capture(lent.raw);
            stop.go_on();
            call.join().unwrap();
        });
        end_capture(lent.raw);
        lent.arrive();
        assert!(!lent.is_over(point));
        gate.open();
        assert!(lent.wait(point));
        assert_eq!(lent.control.calls("cuCtxSynchronize"), 0, "it is one stream");
        lent.destroy();
    });
}

/// The number of a stream is not told during a capture, so that it may be another one that has the handle.
#[test]
fn memory_for_a_capture_is_behind_the_former_stream() {
    lent(|lent| {
        let gate = lent.hold();
        let before = lent.free();
        lent.replace();
        begin_capture(lent.raw);
        open_during(gate, || lent.arrive());
        assert!(lent.is_over(before), "a graph that uses the memory may run at once");
        end_capture(lent.raw);
        lent.arrive();
        lent.destroy();
    });
}

/// Work on memory that the program has not freed has no event behind it.
#[test]
fn the_last_handle_waits_for_all_work_of_a_borrowed_stream() {
    for is_gone in [false, true] {
        alone(|control, _| {
            let cuda = Cuda::open(0).unwrap();
            let lent = Lent::new(control, &cuda);
            lent.arrive();
            let bytes = cuda.caps().pages.unwrap().granularity;
            let range = cuda.reserve_range(ClassId::DEVICE, bytes).unwrap();
            let page = cuda.create_page(ClassId::DEVICE, bytes).unwrap();
            // SAFETY: the range is empty.
            unsafe { cuda.map(&range, 0, &page, lent.stream) }.unwrap();
            let (gate, raw) = (lent.hold(), lent.raw);
            // SAFETY: the memory is mapped, and the stream is alive.
            unsafe { sys::cuMemsetD8Async(range.address(), 1, 4096, raw) }.result().unwrap();
            if is_gone {
                lent.destroy();
            }
            drop((range, page));
            open_during(gate, || drop(cuda));
            if !is_gone {
                destroy(raw);
            }
        });
    }
}

/// The orphan's work is in the context, too.
#[test]
fn the_last_handle_waits_for_a_stream_that_is_gone_after_a_capture() {
    alone(|control, _| {
        let cuda = Cuda::open(0).unwrap();
        let lent = Lent::new(control, &cuda);
        let taken = segment(&cuda);
        let (gate, raw) = (lent.hold(), lent.raw);
        // SAFETY: the memory is there, and the stream is alive.
        unsafe { sys::cuMemsetD8Async(taken.address(), 1, 4096, raw) }.result().unwrap();
        lent.free_in_a_capture();
        lent.replace();
        cuda.unregister(lent.stream).unwrap();
        drop(taken);
        open_during(gate, || drop(cuda));
        destroy(raw);
    });
}

#[test]
fn what_is_freed_by_a_call_that_fails_is_covered_by_the_next_one() {
    for call in ["cuStreamIsCapturing", "cuStreamGetId", "cuEventRecord"] {
        lent(|lent| {
            let gate = lent.hold();
            lent.control.fail_nth(call, 1, 2);
            lent.try_arrive(true).unwrap_err();
            let point = lent.mark();
            assert!(!lent.is_over(point), "{call}");
            lent.arrive();
            assert!(!lent.is_over(point), "{call}");
            gate.open();
            assert!(lent.wait(point));
            lent.destroy();
        });
    }
}
