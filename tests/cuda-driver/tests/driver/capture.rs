//! Captures.

use cudarc::driver::sys::{self, CUresult};
use cudarc::driver::{CudaEvent, CudaStream};

use crate::aid::{Answer, Turn, alloc, answer, fill, free, query, read, turn, wait};

const UNSUPPORTED: CUresult = CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
const INVALIDATED: CUresult = CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;

use sys::CUstreamCaptureMode as Mode;

fn begin(stream: &CudaStream, mode: Mode) {
    stream.begin_capture(mode).expect("a capture begins");
}

/// Ends a capture, and returns its graph.
fn end(stream: &CudaStream) -> Answer<sys::CUgraph> {
    let mut graph = std::ptr::null_mut();
    // SAFETY: the pointer is to a local pointer, and the stream is alive.
    answer(unsafe { sys::cuStreamEndCapture(stream.cu_stream(), &raw mut graph) }).map(|()| graph)
}

/// Ends a capture, and destroys its graph.
fn end_and_forget(stream: &CudaStream) -> Answer<()> {
    // SAFETY: the graph was made by the capture.
    end(stream).and_then(|graph| answer(unsafe { sys::cuGraphDestroy(graph) }))
}

fn ask(event: &CudaEvent) -> Answer<()> {
    // SAFETY: the event is alive.
    answer(unsafe { sys::cuEventQuery(event.cu_event()) })
}

#[test]
fn captured_work_runs_when_its_graph_is_launched_and_as_often() {
    let turn = turn();
    let stream = turn.stream();
    let block = alloc(16).expect("memory");
    begin(&stream, Mode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    fill(block, 5, 16, &stream).expect("recorded");
    let flags = sys::CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
    let graph = stream.end_capture(flags).expect("ended").expect("something was captured");
    assert_eq!(read(block, 1, &stream), Ok(vec![0]), "it did not run");
    for _ in 0..2 {
        graph.launch().expect("launched");
        assert_eq!(read(block, 1, &stream), Ok(vec![5]));
        fill(block, 0, 16, &stream).expect("queued");
    }
    wait(&stream).expect("done");
    drop(graph);
    free(block).expect("freed");
}

#[test]
fn asking_what_is_captured_fails_and_spoils_the_capture() {
    let turn = turn();
    let stream = turn.stream();
    let event = turn.context.new_event(None).expect("an event");
    begin(&stream, Mode::CU_STREAM_CAPTURE_MODE_RELAXED);
    event.record(&stream).expect("recorded");
    assert_eq!(ask(&event), Err(CUresult::CUDA_ERROR_CAPTURED_EVENT));
    assert_eq!(end(&stream), Err(INVALIDATED));
    begin(&stream, Mode::CU_STREAM_CAPTURE_MODE_RELAXED);
    assert_eq!(query(&stream), Err(UNSUPPORTED));
    assert_eq!(event.record(&stream).map_err(|error| error.0), Err(INVALIDATED));
    assert_eq!(end(&stream), Err(INVALIDATED));
    event.record(&stream).expect("recorded, outside a capture");
    wait(&stream).expect("done");
    assert_eq!(ask(&event), Ok(()));
}

#[test]
fn calls_that_are_unsafe_during_captures_are_refused_by_mode() {
    let turn = turn();
    let (stream, apart) = (turn.stream(), turn.stream());
    let event = apart.record_event(None).expect("recorded");
    wait(&apart).expect("done");
    begin(&stream, Mode::CU_STREAM_CAPTURE_MODE_GLOBAL);
    assert_eq!(alloc(512), Err(UNSUPPORTED));
    assert_eq!(end(&stream), Err(INVALIDATED));
    begin(&stream, Mode::CU_STREAM_CAPTURE_MODE_GLOBAL);
    assert_eq!(ask(&event), Err(UNSUPPORTED), "even of an event that is not captured");
    assert_eq!(end(&stream), Err(INVALIDATED));
    begin(&stream, Mode::CU_STREAM_CAPTURE_MODE_GLOBAL);
    let mut mode = Mode::CU_STREAM_CAPTURE_MODE_RELAXED;
    // SAFETY: the pointer is to a local value.
    let mut exchange = || answer(unsafe { sys::cuThreadExchangeStreamCaptureMode(&raw mut mode) });
    exchange().expect("this thread knows what it does");
    free(alloc(512).expect("memory")).expect("freed");
    assert_eq!(ask(&event), Ok(()));
    exchange().expect("as before");
    assert_eq!(end_and_forget(&stream), Ok(()));
}

#[test]
fn a_capture_of_another_thread_forbids_only_if_it_is_global() {
    let turn = turn();
    let (stream, context) = (turn.stream(), std::sync::Arc::clone(&turn.context));
    let elsewhere = || {
        let context = std::sync::Arc::clone(&context);
        let allocate = move || {
            context.bind_to_thread().expect("the context is alive");
            alloc(512).and_then(free)
        };
        std::thread::spawn(allocate).join().expect("it only allocates")
    };
    begin(&stream, Mode::CU_STREAM_CAPTURE_MODE_GLOBAL);
    assert_eq!(elsewhere(), Err(UNSUPPORTED));
    assert_eq!(end(&stream), Err(INVALIDATED));
    begin(&stream, Mode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    assert_eq!(elsewhere(), Ok(()));
    assert_eq!(end_and_forget(&stream), Ok(()));
}

#[test]
fn a_fork_has_to_be_joined() {
    let turn = turn();
    let (stream, fork) = (turn.stream(), turn.stream());
    let block = alloc(32).expect("memory");
    for joined in [true, false] {
        begin(&stream, Mode::CU_STREAM_CAPTURE_MODE_RELAXED);
        fill(block, 1, 16, &stream).expect("recorded");
        let start = stream.record_event(None).expect("recorded");
        fork.wait(&start).expect("the other stream takes part");
        assert_eq!(fork.capture_status(), Ok(sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE));
        fill(block + 16, 2, 16, &fork).expect("recorded");
        let done = fork.record_event(None).expect("recorded");
        if joined {
            stream.wait(&done).expect("joined");
            assert_eq!(end_and_forget(&stream), Ok(()));
        } else {
            assert_eq!(end(&stream), Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNJOINED));
        }
        assert_eq!(fork.capture_status(), Ok(sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE));
    }
    free(block).expect("freed");
}

#[test]
fn the_legacy_stream_must_not_wait_for_a_capture() {
    let turn = turn();
    let mut blocking = std::ptr::null_mut();
    // SAFETY: the pointer is to a local pointer.
    answer(unsafe { sys::cuStreamCreate(&raw mut blocking, 0) }).expect("a blocking stream");
    let block = alloc(16).expect("memory");
    // SAFETY: the stream is alive.
    answer(unsafe { sys::cuStreamBeginCapture_v2(blocking, Mode::CU_STREAM_CAPTURE_MODE_RELAXED) }).expect("begins");
    // SAFETY: the simulator checks the range.
    let legacy = answer(unsafe { sys::cuMemsetD8Async(block, 1, 16, std::ptr::null_mut()) });
    assert_eq!(legacy, Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT));
    let mut graph = std::ptr::null_mut();
    // SAFETY: the pointer is to a local pointer, and the stream is alive.
    assert_eq!(answer(unsafe { sys::cuStreamEndCapture(blocking, &raw mut graph) }), Err(INVALIDATED));
    // SAFETY: the stream is not used any more.
    answer(unsafe { sys::cuStreamDestroy_v2(blocking) }).expect("destroyed");
    free(block).expect("freed");
    assert_eq!(Turn::number(&turn.stream()), blocking as usize, "its handle is free");
}
