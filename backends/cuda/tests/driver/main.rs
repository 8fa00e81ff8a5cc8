//! The driver calls of the backend, and how it handles their results, counted and planned on the simulated driver.
//! A program of its own, because the driver counts the calls of the whole process.

#![cfg(target_os = "linux")] // The simulated driver exists only there.
#![allow(unsafe_code)] // The contract's unsafe methods.

mod borrowed;
mod every_call;
mod exports;
mod handles;
mod kept;
mod plain;
mod races;
mod slice_order;
mod slices;

use millpond_backend::{
    Backend, BackendError, Budget, ClassId, Fault, Point, StreamId, StreamWait, Tick, Transfer, VirtualMemory,
};
use millpond_cuda::testing::Cuda;
use millpond_cuda::{Code, CudaError, End, Segment};
use millpond_cuda_driver::{Control, Kind, install};

/// The kinds of object that a program makes and has to give back.
const KINDS: [Kind; 7] =
    [Kind::Allocation, Kind::HostMemory, Kind::Range, Kind::Mapping, Kind::Page, Kind::Stream, Kind::Event];

/// Runs one test at a time, on a new device, and verifies that nothing is left and no call broke the driver's rules.
fn alone(test: impl FnOnce(Control, &Cuda)) {
    alone_losing(0, test);
}

/// Works like [`alone`], for a test in which the driver fails to take this number of segments back.
fn alone_losing(segments: u64, test: impl FnOnce(Control, &Cuda)) {
    let control = install().expect("the simulator is built with the tests");
    let _alone = control.alone();
    // Dropping the last handle of a primary context frees everything in it, which would hide a leak.
    let keeper = Cuda::open(0).expect("the simulator has two devices");
    // The test that makes every call fail leaves objects that could not be given back.
    let before = KINDS.map(|kind| control.live(kind));
    let cuda = Cuda::builder().build().expect("the simulator has two devices");
    test(control, &cuda);
    drop(cuda);
    assert_eq!(control.violations(), []);
    for (kind, before) in KINDS.into_iter().zip(before) {
        let lost = if kind == Kind::Allocation { segments } else { 0 };
        assert_eq!(control.live(kind), before + lost, "{kind:?} left behind");
    }
    drop(keeper);
}

fn segment(cuda: &Cuda) -> Segment {
    cuda.reserve(ClassId::DEVICE, 1 << 20).unwrap()
}

fn give_back(cuda: &Cuda, segment: Segment) {
    // SAFETY: the tests call this when no work touches the segment any more.
    unsafe { cuda.release(segment) };
}

fn finish(cuda: &Cuda, stream: StreamId) -> Tick {
    let tick = cuda.mark(stream);
    cuda.wait(Point { stream, tick }).unwrap()
}

#[test]
fn a_hundred_marks_cost_one_event_and_events_are_recorded_anew() {
    alone(|control, cuda| {
        let stream = cuda.create_stream().unwrap();
        for round in 1..=50 {
            let tick = (0..100).map(|_| cuda.mark(stream)).max().unwrap();
            assert!(cuda.wait(Point { stream, tick }).unwrap() >= tick);
            assert_eq!((control.calls("cuEventRecord"), control.calls("cuEventCreate")), (round, 1));
        }
        let asked = ["cuCtxGetCurrent", "cuEventQuery", "cuEventSynchronize", "cuStreamIsCapturing"];
        let count = || asked.map(|call| control.calls(call));
        let before = count();
        let reached = cuda.reached(stream).unwrap();
        assert_eq!(cuda.wait(Point { stream, tick: reached }).unwrap(), reached);
        assert_eq!(cuda.mark(stream), Tick(reached.0 + 1));
        assert_eq!(count(), before, "nothing is outstanding");
    });
}

#[test]
fn a_stream_that_is_behind_costs_one_query_and_few_events() {
    alone(|control, cuda| {
        let stream = cuda.create_stream().unwrap();
        let first = cuda.mark(stream);
        let gate = control.hold(0, cuda.raw_stream(stream).unwrap() as usize);
        let calls = ["cuEventQuery", "cuCtxGetCurrent", "cuThreadExchangeStreamCaptureMode", "cuEventRecord"];
        let count = || calls.map(|call| control.calls(call));
        assert!(cuda.reached(stream).unwrap() < first);
        let before = count();
        for _ in 0..100 {
            assert!(cuda.reached(stream).unwrap() < first);
        }
        let cost: Vec<_> = count().iter().zip(before).map(|(after, before)| after - before).collect();
        assert_eq!(cost, [100, 100, 200, 0], "{calls:?}, for a hundred questions");

        let last = (0..1000).map(|_| (cuda.mark(stream), cuda.reached(stream).unwrap()).0).max().unwrap();
        assert!(last > first);
        assert_eq!((control.calls("cuEventRecord"), control.calls("cuEventCreate")), (16, 16));
        gate.open();
        assert!(cuda.wait(Point { stream, tick: last }).unwrap() >= last);
        assert_eq!(cuda.reached(stream).unwrap(), last);
    });
}

#[test]
fn a_view_makes_no_event_and_frees_nothing() {
    alone(|control, cuda| {
        let stream = cuda.context().new_stream().unwrap();
        let taken = segment(cuda);
        let calls = ["cuEventCreate", "cuEventRecord", "cuStreamWaitEvent", "cuMemFree_v2", "cuMemFreeAsync"];
        let count = || calls.map(|call| control.calls(call));
        let before = count();
        for at in 0..100 {
            // SAFETY: the bytes belong to the test, any bytes are valid numbers, and all work is on one stream.
            let mut view = unsafe { taken.view::<u32>(&stream, at * 4096, 1024) }.unwrap();
            stream.memset_zeros(&mut view.as_view_mut()).unwrap();
        }
        stream.synchronize().unwrap();
        assert_eq!(count(), before, "{calls:?}");
        give_back(cuda, taken);
    });
}

#[test]
fn a_reached_point_needs_no_wait_of_the_device() {
    alone(|control, cuda| {
        let (stream, other) = (cuda.create_stream().unwrap(), cuda.create_stream().unwrap());
        let tick = finish(cuda, stream);
        StreamWait::wait_for(cuda, other, Point { stream, tick }).unwrap();
        assert_eq!(control.calls("cuStreamWaitEvent"), 0);
        let open = cuda.mark(stream);
        StreamWait::wait_for(cuda, other, Point { stream, tick: open }).unwrap();
        StreamWait::wait_for(cuda, other, Point { stream, tick: open }).unwrap();
        assert!(control.calls("cuStreamWaitEvent") >= 1);
        finish(cuda, other);
    });
}

#[test]
fn a_sticky_error_loses_the_device_with_its_cause() {
    alone(|control, cuda| {
        let stream = cuda.create_stream().unwrap();
        cuda.mark(stream);
        control.lose(0, 700);
        let error = cuda.reached(stream).unwrap_err();
        assert!(matches!(error, CudaError::Lost { code: Code(700), .. }), "{error:?}");
        assert_eq!(error.fault(), Fault::Lost);
        assert_eq!(cuda.reserve(ClassId::DEVICE, 512).unwrap_err(), error, "the first cause is kept");
        control.reset();
    });
}

#[test]
fn a_code_that_no_header_knows_is_passed_on() {
    alone(|control, cuda| {
        control.fail_nth("cuMemAlloc_v2", 1, 4242);
        let error = cuda.reserve(ClassId::DEVICE, 512).unwrap_err();
        assert_eq!(error, CudaError::Driver { call: "cuMemAlloc", code: Code(4242) });
        assert!(error.to_string().contains("4242"), "{error}");
        assert_eq!(error.fault(), Fault::Other);
        give_back(cuda, segment(cuda));
    });
}

#[test]
fn no_memory_is_out_of_memory_with_what_was_asked() {
    alone(|control, cuda| {
        control.set_bytes(0, 8 << 20);
        let asked = 16 << 20;
        let class = ClassId::DEVICE;
        let refused = CudaError::OutOfMemory { call: "cuMemAlloc", asked, class };
        assert_eq!(cuda.reserve(class, asked).unwrap_err(), refused);
        let refused = CudaError::OutOfMemory { call: "cuMemCreate", asked, class };
        assert_eq!(cuda.create_page(class, asked).unwrap_err(), refused);
        assert_eq!(refused.fault(), Fault::OutOfMemory);
        assert_eq!(cuda.held_bytes(), 0);
    });
}

#[test]
fn what_others_hold_is_in_use_and_not_told_apart() {
    alone(|control, cuda| {
        const GIB: u64 = 1 << 30;
        let others = 2 * GIB + control.held_bytes(0);
        control.others(0, 2 * GIB);
        let taken = cuda.reserve(ClassId::DEVICE, GIB).unwrap();
        let budget = Budget::budget(cuda, ClassId::DEVICE).unwrap();
        assert_eq!((budget.free_bytes, budget.process_bytes, budget.others_bytes), (7 * GIB - others, None, None));
        let usage = millpond::Usage::new(&budget, cuda.held_bytes());
        assert_eq!(usage.parts(), [("reserved here", GIB), ("context, others", others)]);
        give_back(cuda, taken);
    });
}

#[test]
fn the_last_handle_waits_for_work_even_without_an_event() {
    alone(|control, _| {
        let cuda = Cuda::open(0).unwrap();
        let stream = cuda.create_stream().unwrap();
        let bytes = cuda.caps().pages.unwrap().granularity;
        let range = cuda.reserve_range(ClassId::DEVICE, bytes).unwrap();
        let page = cuda.create_page(ClassId::DEVICE, bytes).unwrap();
        // SAFETY: the range is empty.
        unsafe { cuda.map(&range, 0, &page, stream) }.unwrap();
        let gate = control.hold(0, cuda.raw_stream(stream).unwrap() as usize);
        cuda.fill(stream, &range, 0, bytes, 1).unwrap();
        drop((range, page));
        control.fail_nth("cuEventCreate", 1, 1);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(std::time::Duration::from_millis(30));
                gate.open();
            });
            drop(cuda);
        });
        assert_eq!(control.calls("cuEventRecord"), 0, "there was no event to wait for");
    });
}

#[test]
fn a_copy_that_fails_names_both_ends() {
    alone(|control, cuda| {
        let other = Cuda::open(1).unwrap();
        let stream = cuda.create_stream().unwrap();
        let (ours, theirs, bytes) = (segment(cuda), segment(&other), [7; 64]);
        let here = End::Device { ordinal: 0, address: ours.address() + 5 };
        let there = End::Device { ordinal: 1, address: theirs.address() + 9 };
        let host = End::Host { address: bytes.as_ptr() as u64 };
        let failed = |call, from, to, code| Err(CudaError::Copy { call, from, to, bytes: 64, code: Code(code) });
        // A code that loses a context concerns the other device here: this device's context is intact.
        for code in [1, 719] {
            control.fail_nth("cuMemcpyPeerAsync", 1, code);
            let copied = cuda.copy(stream, (&ours, 5), (&theirs, 9), 64);
            assert_eq!(copied, failed("cuMemcpyPeerAsync", here, there, code));
            assert_eq!(copied.unwrap_err().fault(), Fault::Other);
        }
        control.fail_nth("cuMemcpyHtoDAsync_v2", 1, 1);
        assert_eq!(cuda.upload(stream, &bytes, &ours, 5), failed("cuMemcpyHtoDAsync", host, here, 1));
        control.fail_nth("cuMemcpyDtoHAsync_v2", 1, 1);
        let mut came = [0; 64];
        let to = End::Host { address: came.as_mut_ptr() as u64 };
        let refused = cuda.download(stream, &ours, 5, &mut came);
        assert_eq!(refused, failed("cuMemcpyDtoHAsync", here, to, 1));
        let text = refused.unwrap_err().to_string();
        assert!(text.contains("of device 0 to") && text.contains("of the host"), "{text}");
        cuda.copy(stream, (&ours, 5), (&theirs, 9), 64).unwrap();
        finish(cuda, stream);
        give_back(cuda, ours);
        give_back(&other, theirs);
    });
}

#[test]
fn a_device_that_is_lost_in_the_middle_of_a_copy_is_named() {
    alone(|control, cuda| {
        let other = Cuda::open(1).unwrap();
        let stream = cuda.create_stream().unwrap();
        let (ours, theirs) = (segment(cuda), segment(&other));
        cuda.hold(stream).unwrap();
        cuda.copy(stream, (&ours, 0), (&theirs, 0), 1 << 20).unwrap();
        let tick = cuda.mark(stream);
        control.lose(0, 719);
        cuda.unhold(stream);
        let lost = cuda.wait(Point { stream, tick }).unwrap_err();
        assert!(matches!(lost, CudaError::Lost { device: 0, code: Code(719), .. }), "{lost:?}");
        assert_eq!(cuda.copy(stream, (&ours, 0), (&theirs, 0), 1), Err(lost));
        let there = other.create_stream().unwrap();
        other.fill(there, &theirs, 0, 100, 1).unwrap();
        finish(&other, there);
        control.reset();
        give_back(cuda, ours);
        give_back(&other, theirs);
    });
}

#[test]
fn a_failed_release_is_told_by_the_next_call() {
    alone_losing(1, |control, cuda| {
        let (first, second) = (segment(cuda), segment(cuda));
        control.fail_nth("cuMemFree_v2", 1, 1);
        give_back(cuda, first);
        let lost = CudaError::Lost { device: 0, call: "cuMemFree", code: Code(1) };
        assert_eq!(cuda.reserve(ClassId::DEVICE, 512).unwrap_err(), lost);
        give_back(cuda, second);
        assert_eq!(cuda.held_bytes(), 0);
        control.reset();
    });
}

#[test]
fn what_a_capture_forbids_to_give_back_is_given_back_later() {
    alone(|control, cuda| {
        let before = control.live(Kind::Allocation);
        let (first, second) = (segment(cuda), segment(cuda));
        control.fail_nth("cuMemFree_v2", 1, 900);
        give_back(cuda, first);
        assert_eq!(control.live(Kind::Allocation), before + 2, "the driver has not taken it");
        give_back(cuda, second);
        assert_eq!(control.live(Kind::Allocation), before);
    });
}

#[test]
fn a_mapping_that_cannot_be_opened_is_undone() {
    alone(|control, cuda| {
        let stream = cuda.create_stream().unwrap();
        let bytes = cuda.caps().pages.unwrap().granularity;
        let range = cuda.reserve_range(ClassId::DEVICE, bytes).unwrap();
        let page = cuda.create_page(ClassId::DEVICE, bytes).unwrap();
        control.fail_nth("cuMemSetAccess", 1, 2);
        // SAFETY: the range is empty, and no work touches it.
        unsafe {
            assert_eq!(cuda.map(&range, 0, &page, stream).unwrap_err().fault(), Fault::OutOfMemory);
            assert_eq!(control.calls("cuMemUnmap"), 1);
            cuda.map(&range, 0, &page, stream).unwrap();
            cuda.unmap(&range, 0, &page, stream);
            cuda.release_page(page);
            cuda.release_range(range);
        }
    });
}

#[test]
fn an_event_that_cannot_be_recorded_is_made_up_for() {
    alone(|control, cuda| {
        let stream = cuda.create_stream().unwrap();
        let taken = segment(cuda);
        cuda.fill(stream, &taken, 0, 1 << 20, 1).unwrap();
        let tick = cuda.mark(stream);
        control.fail_nth("cuEventRecord", 1, 1);
        assert_eq!(cuda.reached(stream).unwrap_err().fault(), Fault::Other);
        assert!(cuda.wait(Point { stream, tick }).unwrap() >= tick, "a later event covers the tick");
        give_back(cuda, taken);
    });
}

#[test]
fn an_event_that_a_capture_caught_is_made_up_for() {
    alone(|control, cuda| {
        let stream = cuda.create_stream().unwrap();
        let tick = cuda.mark(stream);
        control.fail_nth("cuEventQuery", 1, Code::CAPTURED_EVENT.0);
        assert!(cuda.reached(stream).unwrap() < tick, "nothing is known of it yet");
        assert!(cuda.wait(Point { stream, tick }).unwrap() >= tick);
    });
}

/// An event that failed, and one that a capture caught, are made up for by the next question alone: a program that only
/// polls waits for no tick and marks none.
#[test]
fn polling_makes_up_for_an_event_that_does_not_cover_its_tick() {
    for (call, code) in [("cuEventRecord", 1), ("cuEventQuery", Code::CAPTURED_EVENT.0)] {
        alone(|control, cuda| {
            let stream = cuda.create_stream().unwrap();
            let tick = cuda.mark(stream);
            control.fail_nth(call, 1, code);
            let asked = cuda.reached(stream);
            assert!(asked.is_err() || asked.is_ok_and(|reached| reached < tick), "{call} failed");
            let polled = (0..10_000).any(|_| {
                std::thread::yield_now();
                cuda.reached(stream).unwrap() >= tick
            });
            assert!(polled, "{call}: {tick:?} is never seen to be reached");
        });
    }
}

#[test]
fn handles_that_are_dropped_without_a_word_are_given_back_at_the_end() {
    alone(|_, cuda| {
        let stream = cuda.create_stream().unwrap();
        let bytes = cuda.caps().pages.unwrap().granularity;
        let (range, page) =
            (cuda.reserve_range(ClassId::DEVICE, bytes).unwrap(), cuda.create_page(ClassId::DEVICE, bytes).unwrap());
        // SAFETY: the range is empty.
        unsafe { cuda.map(&range, 0, &page, stream) }.unwrap();
        cuda.fill(stream, &range, 0, bytes, 1).unwrap();
        cuda.upload(stream, &[1; 5000], &range, 7).unwrap();
        drop((segment(cuda), cuda.reserve(ClassId(1), 4096).unwrap(), range, page));
    });
}
