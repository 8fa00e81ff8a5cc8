//! Helpers that the tests share: devices that may be missing, and a few short forms.

use millpond_backend::{Backend, ClassId, Point, StreamId, Tick, Transfer};
use millpond_conformance::required;
use millpond_cuda::Segment;
use millpond_cuda::testing::Cuda;

/// The size of the tests' segments, in bytes.
pub(crate) const BYTES: u64 = 4 << 20;

/// Opens device 0. Returns `None`, and prints a line, if there is none.
pub(crate) fn device() -> Option<Cuda> {
    crate::machine::prepare();
    crate::turns::take();
    match Cuda::open(0) {
        Ok(cuda) => Some(cuda),
        Err(error) => {
            assert!(!required("cuda"), "MILLPOND_REQUIRE demands a CUDA device: {error}");
            eprintln!("SKIPPED: {error}");
            None
        }
    }
}

/// Opens devices 0 and 1. Returns `None`, and prints a line, if there are fewer.
pub(crate) fn two_devices() -> Option<(Cuda, Cuda)> {
    crate::machine::prepare();
    crate::turns::take();
    match Cuda::open(0).and_then(|first| Ok((first, Cuda::open(1)?))) {
        Ok(both) => Some(both),
        Err(error) => {
            assert!(!required("cuda") || Cuda::open(0).is_ok(), "MILLPOND_REQUIRE demands a CUDA device: {error}");
            assert!(!required("cuda2"), "MILLPOND_REQUIRE demands two CUDA devices: {error}");
            eprintln!("SKIPPED: {error}");
            None
        }
    }
}

/// Takes a segment of device memory.
pub(crate) fn segment(cuda: &Cuda) -> Segment {
    cuda.reserve(ClassId::DEVICE, BYTES).unwrap()
}

/// Gives a segment back when no work on it is in progress any more.
pub(crate) fn give_back(cuda: &Cuda, segment: Segment) {
    // SAFETY: the tests call this when all work on the segment was waited for, and queue no more.
    unsafe { cuda.release(segment) };
}

/// Waits for all work of the stream, and returns the tick that is reached.
pub(crate) fn finish(cuda: &Cuda, stream: StreamId) -> Tick {
    let tick = cuda.mark(stream);
    let reached = cuda.wait(Point { stream, tick }).unwrap();
    assert!(reached >= tick, "{stream}: tick {tick} was waited for, and {reached} is reached");
    reached
}

/// Reads the segment's bytes, after all earlier work of the stream.
pub(crate) fn read(cuda: &Cuda, stream: StreamId, segment: &Segment, offset: u64, bytes: usize) -> Vec<u8> {
    let mut read = vec![0; bytes];
    cuda.download(stream, segment, offset, &mut read).unwrap();
    read
}
