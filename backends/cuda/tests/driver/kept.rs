//! What stays for a while: memory that a capture kept from going back, memory of other code, events that threads wait
//! for, and the last event of a stream that leaves.

use std::thread;

use millpond_backend::{Backend, Point, Transfer};
use millpond_cuda::cudarc::driver::sys;

use super::races::caught_and_left;
use super::{alone, finish, give_back, segment};

/// `CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED`.
const CAPTURE_UNSUPPORTED: u32 = 900;

#[test]
fn memory_that_a_capture_kept_goes_back_once_and_before_more_is_taken() {
    alone(|control, cuda| {
        let kept = segment(cuda);
        control.fail_nth("cuMemFree_v2", 1, CAPTURE_UNSUPPORTED);
        give_back(cuda, kept);
        let freed = || control.calls("cuMemFree_v2");
        assert_eq!(freed(), 1, "the call that failed");
        let [first, second] = [(); 2].map(|()| segment(cuda));
        assert_eq!(freed(), 2, "before the first of them, and once");
        give_back(cuda, first);
        give_back(cuda, second);
        assert_eq!(freed(), 4);
    });
}

#[test]
fn memory_of_other_code_is_left_to_it() {
    alone(|control, cuda| {
        let taken = segment(cuda);
        // SAFETY: the bytes are there until `taken` is given back below, and nothing uses them meanwhile.
        let adopted = unsafe { cuda.adopt_memory(taken.address(), 1 << 20) }.unwrap();
        give_back(cuda, adopted);
        assert_eq!(control.calls("cuMemFree_v2"), 0);
        give_back(cuda, taken);
        assert_eq!(control.calls("cuMemFree_v2"), 1);
    });
}

#[test]
fn an_event_that_a_thread_waits_for_is_not_recorded_again() {
    alone(|control, cuda| {
        let stream = cuda.create_stream().unwrap();
        let tick = cuda.mark(stream);
        cuda.context().bind_to_thread().unwrap();
        let stop = control.stop_nth("cuEventSynchronize", 1);
        thread::scope(|scope| {
            let waits = scope.spawn(|| cuda.wait(Point { stream, tick }));
            stop.wait();
            // SAFETY: the stream is alive. The tick's event is recorded, and complete after this call.
            unsafe { sys::cuStreamSynchronize(cuda.raw_stream(stream).unwrap()) }.result().unwrap();
            assert_eq!(cuda.reached(stream), Ok(tick));
            let created = control.calls("cuEventCreate");
            cuda.mark(stream);
            cuda.reached(stream).unwrap();
            assert_eq!(control.calls("cuEventCreate"), created + 1, "the first event is not free yet");
            stop.go_on();
            assert!(waits.join().unwrap().unwrap() >= tick);
        });
        finish(cuda, stream);
    });
}

/// The capture is over before the backend can notice it, so that its event is never complete, while the stream is at
/// work.
#[test]
fn the_last_event_of_a_stream_is_none_that_a_capture_caught() {
    alone(|control, cuda| {
        let (stream, taken) = (cuda.create_stream().unwrap(), segment(cuda));
        let gate = control.hold(0, cuda.raw_stream(stream).unwrap() as usize);
        cuda.fill(stream, &taken, 0, 64, 1).unwrap();
        let tick = cuda.mark(stream);
        assert_eq!(caught_and_left(control, cuda, stream, || cuda.unregister(stream)), Ok(()));
        assert!(cuda.reached(stream).unwrap() < tick, "the fill is under way");
        gate.open();
        assert!(cuda.wait(Point { stream, tick }).unwrap() >= tick);
        give_back(cuda, taken);
    });
}

/// Another thread would record on a default stream of its own.
#[test]
fn only_its_own_thread_records_on_a_threads_default_stream() {
    alone(|control, cuda| {
        thread::scope(|scope| {
            let begins = scope.spawn(|| {
                let stream = cuda.register_per_thread_default().unwrap();
                let tick = cuda.mark(stream);
                let records = control.calls("cuEventRecord");
                let asks = thread::scope(|inner| inner.spawn(|| cuda.reached(stream)).join().unwrap());
                assert!(asks.unwrap() < tick, "no event covers it");
                assert_eq!(control.calls("cuEventRecord"), records);
                assert!(finish(cuda, stream) >= tick);
            });
            begins.join().unwrap();
        });
    });
}
