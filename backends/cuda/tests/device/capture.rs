use std::ptr;

use millpond_backend::{Backend, ClassId, Point, StreamId, StreamWait, Transfer};
use millpond_cuda::CudaError;
use millpond_cuda::cudarc::driver::sys::{self, CUgraph, CUstreamCaptureMode};
use millpond_cuda::testing::Cuda;

use crate::lab::{device, finish, give_back, segment};
use crate::streams::{NON_BLOCKING, destroy, raw_stream, register};

/// Begins to capture the work on the stream, in the strictest mode.
fn begin(cuda: &Cuda, stream: StreamId) {
    cuda.context().bind_to_thread().unwrap();
    let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;
    // SAFETY: the stream is alive.
    unsafe { sys::cuStreamBeginCapture_v2(cuda.raw_stream(stream).unwrap(), mode) }.result().unwrap();
}

/// Ends the capture, which fails if any call has disturbed it.
fn end(cuda: &Cuda, stream: StreamId) {
    let mut graph: CUgraph = ptr::null_mut();
    // SAFETY: the stream is alive and being captured; the pointer is to a local pointer.
    let ended = unsafe { sys::cuStreamEndCapture(cuda.raw_stream(stream).unwrap(), &raw mut graph) };
    ended.result().expect("the capture is valid to its end");
    if !graph.is_null() {
        // SAFETY: the graph was just made and nothing uses it.
        unsafe { sys::cuGraphDestroy(graph) }.result().unwrap();
    }
}

#[test]
fn a_stream_is_left_alone_while_it_is_captured() {
    let Some(cuda) = device() else { return };
    let (stream, other) = (cuda.create_stream().unwrap(), cuda.create_stream().unwrap());
    let taken = segment(&cuda);
    let done = finish(&cuda, stream);
    begin(&cuda, stream);
    let tick = cuda.mark(stream);
    let point = Point { stream, tick };
    assert_eq!(cuda.reached(stream).unwrap(), done);
    assert_eq!(cuda.wait(point).unwrap(), done, "nothing was submitted since");
    let refused = StreamWait::wait_for(&cuda, other, point);
    assert!(matches!(refused, Err(CudaError::Capturing { stream: captured, .. }) if captured == stream), "{refused:?}");
    assert!(matches!(cuda.upload(stream, &[1], &taken, 0), Err(CudaError::Capturing { .. })));
    let refused = cuda.overwrite(stream, &taken, 0, 1);
    assert!(matches!(refused, Err(CudaError::Capturing { .. })), "it would be the graph's: {refused:?}");
    assert!(matches!(cuda.download(stream, &taken, 0, &mut [0]), Err(CudaError::Capturing { .. })));
    assert!(matches!(cuda.unregister(stream), Err(CudaError::Capturing { .. })));
    assert!(matches!(cuda.hold(stream), Err(CudaError::Capturing { .. })));
    end(&cuda, stream);
    assert!(finish(&cuda, stream) >= tick);
    give_back(&cuda, taken);
}

/// PyTorch uses a stream for the first time behind the beginning of its capture.
#[test]
fn a_stream_is_registered_while_it_is_captured() {
    let Some(cuda) = device() else { return };
    let raw = raw_stream(&cuda, NON_BLOCKING);
    let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;
    // SAFETY: the stream is alive.
    unsafe { sys::cuStreamBeginCapture_v2(raw, mode) }.result().unwrap();
    let stream = register(&cuda, raw);
    assert_eq!(register(&cuda, raw), stream);
    end(&cuda, stream);
    assert_eq!(register(&cuda, raw), stream, "it has kept its number");
    begin(&cuda, stream);
    assert_eq!(register(&cuda, raw), stream);
    end(&cuda, stream);
    finish(&cuda, stream);
    cuda.unregister(stream).unwrap();
    destroy(raw);
    assert_ne!(register(&cuda, raw_stream(&cuda, NON_BLOCKING)), stream);
}

#[test]
fn a_capture_is_not_disturbed_by_what_goes_on_beside_it() {
    let Some(cuda) = device() else { return };
    let (stream, other) = (cuda.create_stream().unwrap(), cuda.create_stream().unwrap());
    let early = cuda.mark(stream);
    begin(&cuda, stream);
    let taken = segment(&cuda);
    let pinned = cuda.reserve(ClassId(1), 4096).unwrap();
    cuda.fill(other, &taken, 0, 100, 1).unwrap();
    let tick = cuda.mark(other);
    let _ = cuda.reached(other).unwrap();
    assert!(cuda.wait(Point { stream: other, tick }).unwrap() >= tick);
    if let Some(pages) = cuda.virtual_memory() {
        let bytes = cuda.caps().pages.unwrap().granularity;
        let range = pages.reserve_range(ClassId::DEVICE, bytes).unwrap();
        let page = pages.create_page(ClassId::DEVICE, bytes).unwrap();
        // SAFETY: the range is empty; no work touches it.
        unsafe {
            pages.map(&range, 0, &page, other).unwrap();
            pages.unmap(&range, 0, &page, other);
            pages.release_page(page);
            pages.release_range(range);
        }
    }
    give_back(&cuda, taken);
    give_back(&cuda, pinned);
    assert_eq!(cuda.held_bytes(), 0);
    end(&cuda, stream);
    assert!(finish(&cuda, stream) >= early, "what cannot be given back during a capture loses no device");
    give_back(&cuda, segment(&cuda));
}
