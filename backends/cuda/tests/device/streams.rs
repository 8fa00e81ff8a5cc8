use std::ptr;
use std::thread;

use millpond_backend::{Backend, Point, StreamId, StreamWait, Transfer};
use millpond_cuda::CudaError;
use millpond_cuda::cudarc::driver::sys::{self, CUstream};
use millpond_cuda::testing::Cuda;

use crate::lab::{device, finish, give_back, read, segment, two_devices};

/// `CU_STREAM_DEFAULT`: the stream and the legacy default stream wait for each other.
const BLOCKING: u32 = 0;
/// `CU_STREAM_NON_BLOCKING`.
pub(crate) const NON_BLOCKING: u32 = 1;

/// Creates a stream that is not registered with the device.
pub(crate) fn raw_stream(cuda: &Cuda, flags: u32) -> CUstream {
    cuda.context().bind_to_thread().unwrap();
    let mut stream: CUstream = ptr::null_mut();
    // SAFETY: the pointer is to a local pointer, and the context is current.
    unsafe { sys::cuStreamCreate(&raw mut stream, flags) }.result().unwrap();
    stream
}

pub(crate) fn destroy(stream: CUstream) {
    // SAFETY: the test made the stream, and does not use it again.
    unsafe { sys::cuStreamDestroy_v2(stream) }.result().unwrap();
}

pub(crate) fn register(cuda: &Cuda, stream: CUstream) -> StreamId {
    // SAFETY: the stream is alive and of the device's context.
    unsafe { cuda.register_raw(stream) }.unwrap()
}

#[test]
fn a_stream_has_one_number_while_it_is_registered() {
    let Some(cuda) = device() else { return };
    let created = cuda.create_stream().unwrap();
    assert_eq!(created, StreamId(0));
    assert_eq!(register(&cuda, cuda.raw_stream(created).unwrap()), created);
    let theirs = cuda.context().new_stream().unwrap();
    assert_eq!([cuda.register(&theirs).unwrap(), cuda.register(&theirs).unwrap()], [StreamId(1); 2]);
    assert_eq!(cuda.register_legacy_default().unwrap(), StreamId(2));
    assert_eq!(register(&cuda, ptr::null_mut()), StreamId(2));
    assert_eq!(register(&cuda, ptr::without_provenance_mut(1)), StreamId(2), "CU_STREAM_LEGACY is the null handle");
    for stream in (0..3).map(StreamId) {
        finish(&cuda, stream);
    }
}

#[test]
fn a_handle_that_comes_back_is_a_new_stream() {
    let Some(cuda) = device() else { return };
    let mut seen = Vec::new();
    for round in 0..8 {
        let raw = raw_stream(&cuda, NON_BLOCKING);
        let stream = register(&cuda, raw);
        assert!(!seen.contains(&stream), "round {round}: {stream} again");
        let tick = cuda.mark(stream);
        // Every second stream is destroyed without being unregistered, as engines do.
        if round % 2 == 0 {
            cuda.unregister(stream).unwrap();
        }
        destroy(raw);
        seen.push(stream);
        if round % 2 == 0 {
            assert!(cuda.wait(Point { stream, tick }).unwrap() >= tick);
        }
    }
    let last = raw_stream(&cuda, NON_BLOCKING);
    assert!(!seen.contains(&register(&cuda, last)));
    for stream in seen {
        let lost = matches!(cuda.raw_stream(stream), Err(CudaError::Unregistered { .. }));
        // A handle that was not used again cannot be told from that of a live stream.
        assert!(lost || cuda.raw_stream(stream).unwrap() != last, "{stream} still goes by a handle of another");
    }
}

#[test]
fn the_handle_of_a_stream_that_was_destroyed_is_another_stream() {
    let Some(cuda) = device() else { return };
    let first = raw_stream(&cuda, NON_BLOCKING);
    let stream = register(&cuda, first);
    let taken = segment(&cuda);
    cuda.fill(stream, &taken, 0, 100, 1).unwrap();
    let tick = cuda.mark(stream);
    destroy(first);
    let mut made = Vec::new();
    let came_back = (0..256).any(|_| {
        made.push(raw_stream(&cuda, NON_BLOCKING));
        made.last() == Some(&first)
    });
    if came_back {
        let again = register(&cuda, first);
        assert_ne!(again, stream);
        assert_eq!(cuda.raw_stream(stream), Err(CudaError::Unregistered { stream }));
        assert!(cuda.reached(stream).unwrap() >= tick, "what was marked on the old stream is over");
        cuda.fill(again, &taken, 0, 100, 2).unwrap();
        assert_eq!(read(&cuda, again, &taken, 0, 100), [2; 100]);
        cuda.unregister(again).unwrap();
    } else {
        eprintln!("SKIPPED: the driver has not used the handle again for {} streams", made.len());
    }
    made.into_iter().for_each(destroy);
    give_back(&cuda, taken);
}

#[test]
fn the_legacy_default_stream_and_blocking_streams_keep_their_order() {
    let Some(cuda) = device() else { return };
    let legacy = cuda.register_legacy_default().unwrap();
    let raw = raw_stream(&cuda, BLOCKING);
    let blocking = register(&cuda, raw);
    let (from, to) = (segment(&cuda), segment(&cuda));
    finish(&cuda, legacy);
    cuda.hold(legacy).unwrap();
    cuda.fill(legacy, &from, 0, from.bytes(), 5).unwrap();
    let filled = cuda.mark(legacy);
    // The test does not order the copy behind the fill: the driver does.
    cuda.copy(blocking, (&from, 0), (&to, 0), from.bytes()).unwrap();
    let copied = cuda.mark(blocking);
    assert!(cuda.reached(legacy).unwrap() < filled && cuda.reached(blocking).unwrap() < copied);
    cuda.unhold(legacy);
    assert!(cuda.wait(Point { stream: blocking, tick: copied }).unwrap() >= copied);
    assert!(cuda.reached(legacy).unwrap() >= filled, "the blocking stream was behind it");
    assert_eq!(read(&cuda, blocking, &to, to.bytes() - 10, 10), [5; 10]);
    cuda.unregister(blocking).unwrap();
    destroy(raw);
    give_back(&cuda, from);
    give_back(&cuda, to);
}

#[test]
fn points_outlive_their_stream() {
    let Some(cuda) = device() else { return };
    let (stream, other) = (cuda.create_stream().unwrap(), cuda.create_stream().unwrap());
    let before = cuda.mark(stream);
    cuda.hold(stream).unwrap();
    let behind = cuda.mark(stream);
    cuda.unregister(stream).unwrap();
    let after = cuda.mark(stream);
    assert!(before < behind && behind < after, "{before} {behind} {after}");
    let reached = cuda.reached(stream).unwrap();
    assert!(reached >= before && reached < behind, "{reached} of {before}, {behind} is reached");
    StreamWait::wait_for(&cuda, other, Point { stream, tick: behind }).unwrap();
    cuda.unhold(stream);
    assert!(cuda.wait(Point { stream, tick: after }).unwrap() >= after);
    finish(&cuda, other);
    let taken = segment(&cuda);
    assert_eq!(cuda.fill(stream, &taken, 0, 1, 0), Err(CudaError::Unregistered { stream }));
    assert_eq!(cuda.unregister(stream), Err(CudaError::Unregistered { stream }));
    let last = cuda.mark(stream);
    assert_eq!(cuda.reached(stream).unwrap(), last, "marks of a stream without work are reached");
    give_back(&cuda, taken);
}

#[test]
fn a_threads_own_stream_is_that_threads() {
    let Some(cuda) = device() else { return };
    let own = cuda.register_per_thread_default().unwrap();
    assert_eq!(cuda.register_per_thread_default().unwrap(), own);
    let taken = segment(&cuda);
    cuda.fill(own, &taken, 0, 100, 7).unwrap();
    let tick = cuda.mark(own);
    thread::scope(|scope| {
        let elsewhere = scope.spawn(|| {
            assert_ne!(cuda.register_per_thread_default().unwrap(), own);
            assert!(
                matches!(cuda.fill(own, &taken, 0, 1, 0), Err(CudaError::OtherThread { stream, .. }) if stream == own)
            );
            assert!(cuda.reached(own).unwrap() < tick, "nobody can have closed it here");
            assert!(cuda.wait(Point { stream: own, tick }).unwrap() >= tick);
        });
        elsewhere.join().unwrap();
    });
    assert_eq!(read(&cuda, own, &taken, 0, 100), [7; 100]);
    give_back(&cuda, taken);
}

#[test]
fn streams_of_another_context_are_refused() {
    let Some((first, second)) = two_devices() else { return };
    let stream = second.context().new_stream().unwrap();
    assert_eq!(first.register(&stream), Err(CudaError::ForeignStream { ordinal: 0 }));
}
