//! What the tests share: devices that may be missing, and a few short forms.

use millpond_backend::{Backend, ClassId, Point, StreamId, Tick, Transfer};
use millpond_conformance::required;
use millpond_cuda::{Cuda, Segment};

/// How large the tests' segments are, in bytes.
pub(crate) const BYTES: u64 = 4 << 20;

/// Device 0, opened anew; `None`, said aloud, if there is none.
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

/// Devices 0 and 1.
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

/// Device memory.
pub(crate) fn segment(cuda: &Cuda) -> Segment {
    cuda.reserve(ClassId::DEVICE, BYTES).unwrap()
}

/// Gives a segment back when nothing is under way any more.
pub(crate) fn give_back(cuda: &Cuda, segment: Segment) {
    // SAFETY: the tests call this when all work on the segment was waited for, and queue no more.
    unsafe { cuda.release(segment) };
}

/// Waits for all work of the stream.
pub(crate) fn finish(cuda: &Cuda, stream: StreamId) -> Tick {
    let tick = cuda.mark(stream);
    let reached = cuda.wait(Point { stream, tick }).unwrap();
    assert!(reached >= tick, "{stream}: tick {tick} was waited for, and {reached} is reached");
    reached
}

/// The segment's bytes, after all earlier work of the stream.
pub(crate) fn read(cuda: &Cuda, stream: StreamId, segment: &Segment, offset: u64, bytes: usize) -> Vec<u8> {
    let mut read = vec![0; bytes];
    cuda.download(stream, segment, offset, &mut read).unwrap();
    read
}
