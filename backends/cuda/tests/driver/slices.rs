//! Slices with cudarc's own copies and fills: what arrives, what it costs, and what is refused.

use std::sync::Arc;

use millpond::{Allocator, Error};
use millpond_cuda::cudarc::driver::sys::{CUgraphInstantiate_flags, CUresult, CUstreamCaptureMode};
use millpond_cuda::cudarc::driver::{CudaStream, DeviceSlice};
use millpond_cuda::{Cuda, CudaError, Slice, SliceAllocator, SliceStream, SliceView, SliceViewMut};
use millpond_cuda_driver::Control;

use super::alone;

/// Runs a test with slices on a stream of its own, under each policy that caches.
pub(super) fn with_slices(test: impl Fn(Control, &SliceStream)) {
    for policy in ["classic", "paged"] {
        alone(|control, cuda| {
            let own = cuda.context().new_stream().unwrap();
            let cuda = Cuda::adopt(Arc::clone(own.context())).unwrap();
            let allocator = Allocator::builder(cuda).conf(&format!("policy:{policy}")).build().unwrap();
            let stream = SliceAllocator::new(&allocator).stream(&own).unwrap();
            test(control, &stream);
            stream.stream().synchronize().unwrap();
            drop(stream);
            allocator.empty_cache().unwrap();
            assert_eq!(allocator.memory_reserved(), 0, "{policy}");
        });
    }
}

/// Returns a further stream of the context, which the allocator knows.
pub(super) fn another(home: &SliceStream) -> Arc<CudaStream> {
    let other = home.cudarc().context().new_stream().unwrap();
    home.allocator().stream(&other).unwrap();
    other
}

#[test]
fn one_call_adopts_a_stream_and_its_context() {
    alone(|control, cuda| {
        let own = cuda.context().new_stream().unwrap();
        let home = SliceStream::from_stream(&own).unwrap();
        assert!(Arc::ptr_eq(home.cudarc(), &own));
        let slice = home.upload(&[1.5_f32, 2.5]).unwrap();
        assert_eq!(own.clone_dtoh(&slice).unwrap(), [1.5, 2.5]);
        let before = (control.calls("cuStreamGetId"), control.calls("cuStreamIsCapturing"));
        let again = home.allocator().stream(&own).unwrap();
        assert_eq!(again.stream().id(), home.stream().id());
        let after = (control.calls("cuStreamGetId"), control.calls("cuStreamIsCapturing"));
        assert_eq!(after, before, "a stream that is known is not asked for");
    });
}

#[test]
fn copies_and_fills_of_cudarc_reach_slices_and_views() {
    with_slices(|_, home| {
        let own = home.cudarc();
        let numbers: Vec<u32> = (0..1000).collect();
        let mut slice = home.upload(&numbers).unwrap();
        assert_eq!(own.clone_dtoh(&slice).unwrap(), numbers);
        assert_eq!((slice.len(), DeviceSlice::num_bytes(&slice)), (1000, 4000));
        own.memset_zeros(&mut slice.slice_mut(10..20)).unwrap();
        let (mut low, mut high) = slice.split_at_mut(500);
        own.memcpy_htod(&[7; 3], &mut low).unwrap();
        own.memcpy_htod(&[9; 500], &mut high).unwrap();
        let mut expected: Vec<u32> = numbers.clone();
        expected[10..20].fill(0);
        expected[..3].fill(7);
        expected[500..].fill(9);
        assert_eq!(own.clone_dtoh(&slice).unwrap(), expected);
        assert_eq!(own.clone_dtoh(&slice.slice(498..=501)).unwrap(), [498, 499, 9, 9]);
        let (low, high) = slice.split_at(2);
        assert_eq!((low.len(), high.len(), own.clone_dtoh(&low).unwrap()), (2, 998, vec![7, 7]));
        let mut copy = home.zeros::<u32>(1000).unwrap();
        assert_eq!(own.clone_dtoh(&copy).unwrap(), [0; 1000]);
        own.memcpy_dtod(&slice, &mut copy).unwrap();
        assert_eq!(own.clone_dtoh(&copy).unwrap(), expected);
        assert_eq!(own.clone_dtoh(&own.clone_dtod(&copy).unwrap()).unwrap(), expected);
    });
}

#[test]
fn views_have_parts_to_be_read_and_written() {
    with_slices(|_, home| {
        let own = home.cudarc();
        let mut slice = home.upload(&[0_u32, 1, 2, 3, 4, 5, 6, 7]).unwrap();
        let mut middle = slice.slice_mut(2..6);
        own.memset_zeros(&mut middle.slice_mut(3..)).unwrap();
        own.memcpy_htod(&[8], &mut middle.split_at_mut(1).1.slice_mut(..1)).unwrap();
        assert_eq!(own.clone_dtoh(&middle.slice(1..)).unwrap(), [8, 4, 0]);
        assert_eq!(own.clone_dtoh(&middle.as_view().slice(1..).slice(..=1)).unwrap(), [8, 4]);
        assert!(middle.try_slice(..5).is_none() && middle.try_slice_mut(5..).is_none());
        own.memset_zeros(&mut middle.as_view_mut()).unwrap();
        assert_eq!(own.clone_dtoh(&slice).unwrap(), [0, 1, 0, 0, 0, 0, 6, 7]);
    });
}

#[test]
fn ranges_beyond_a_slice_are_refused() {
    with_slices(|_, home| {
        let mut slice = home.zeros::<u16>(8).unwrap();
        assert_eq!(slice.try_slice(8..).unwrap().len(), 0);
        assert!(slice.try_slice(9..).is_none() && slice.try_slice(..9).is_none() && slice.try_slice(..=8).is_none());
        assert!(slice.try_slice(..=usize::MAX).is_none());
        #[allow(clippy::reversed_empty_ranges)] // What the test is about.
        let reversed = slice.try_slice_mut(4..3).is_none();
        assert!(reversed);
        let inner = slice.slice(2..6);
        assert!(inner.try_slice(..5).is_none() && inner.try_slice(1..).unwrap().len() == 3);
    });
}

#[test]
fn a_slice_without_elements_works() {
    with_slices(|_, home| {
        let own = home.cudarc();
        for slice in [home.zeros::<u64>(0).unwrap(), home.upload::<u64>(&[]).unwrap()] {
            assert!(slice.is_empty() && slice.address() != 0);
            assert_eq!(own.clone_dtoh(&slice).unwrap(), [0; 0]);
            assert!(slice.as_view().is_empty());
        }
    });
}

#[test]
fn a_size_that_is_no_number_is_an_error() {
    with_slices(|_, home| {
        let size = home.zeros::<u64>(usize::MAX / 4).map(drop);
        assert!(matches!(size, Err(Error::TooLarge { requested: u64::MAX })), "{size:?}");
        let size = home.zeros::<u8>(usize::MAX).map(drop);
        assert!(matches!(size, Err(Error::TooLarge { .. })), "{size:?}");
    });
}

#[test]
fn uses_of_the_home_stream_cost_no_call() {
    with_slices(|control, home| {
        let own = home.cudarc();
        drop(home.zeros::<u8>(1 << 20).unwrap());
        let calls = ["cuEventCreate", "cuEventRecord", "cuStreamWaitEvent", "cuStreamSynchronize", "cuMemAlloc_v2"];
        let count = || calls.map(|call| control.calls(call));
        let before = count();
        for _ in 0..100 {
            let mut slice = home.zeros::<u8>(1 << 20).unwrap();
            own.memset_zeros(&mut slice.slice_mut(..100)).unwrap();
        }
        assert_eq!(count(), before, "{calls:?}");
    });
}

#[test]
fn a_stream_of_another_context_is_refused_and_its_copies_arrive() {
    with_slices(|_, home| {
        let there = Cuda::open(1).unwrap();
        let other = there.context().new_stream().unwrap();
        let refused = home.allocator().stream(&other).map(drop).unwrap_err();
        let is_foreign = matches!(refused, Error::Driver { source: CudaError::ForeignStream { ordinal: 0 }, .. });
        assert!(is_foreign, "{refused:?}");
        let slice = home.upload(&[3_u8; 64]).unwrap();
        let others = SliceStream::from_stream(&other).unwrap();
        let mut copy = others.zeros::<u8>(64).unwrap();
        other.memcpy_dtod(&slice, &mut copy).unwrap();
        assert_eq!(other.clone_dtoh(&copy).unwrap(), [3; 64]);
    });
}

#[test]
fn a_stream_that_is_forgotten_is_registered_anew() {
    with_slices(|_, home| {
        let other = another(home);
        let first = home.allocator().stream(&other).unwrap();
        let slice = first.upload(&[5_u8; 10]).unwrap();
        home.allocator().forget(&other).unwrap();
        home.allocator().forget(&other).unwrap();
        let second = home.allocator().stream(&other).unwrap();
        assert_ne!(first.stream().id(), second.stream().id());
        drop((slice, first));
        assert_eq!(other.clone_dtoh(&second.upload(&[6_u8; 10]).unwrap()).unwrap(), [6; 10]);
    });
}

/// Nothing can be recorded behind what a stream does after it was unregistered, so the host waits for it.
#[test]
fn the_host_waits_for_a_home_that_is_not_registered_any_more() {
    with_slices(|control, home| {
        let other = another(home);
        let slices = SliceAllocator::new(home.allocator().allocator());
        for mut slice in [
            home.allocator().stream(&other).unwrap().zeros::<u8>(64).unwrap(),
            slices.stream(&other).unwrap().zeros::<u8>(64).unwrap(),
        ] {
            home.allocator().forget(&other).unwrap();
            let before = control.calls("cuStreamSynchronize");
            other.memset_zeros(&mut slice).unwrap();
            assert!(control.calls("cuStreamSynchronize") > before, "its memory is free once it is dropped");
        }
        // The stream can be known anew.
        let again = slices.stream(&other).unwrap();
        assert_eq!(other.clone_dtoh(&again.upload(&[6_u8; 10]).unwrap()).unwrap(), [6; 10]);
    });
}

#[test]
fn a_capture_has_the_uses_of_its_stream_and_survives_a_drop() {
    with_slices(|_, home| {
        let own = home.cudarc();
        let mut kept = home.upload(&[1_u8; 512]).unwrap();
        let (dropped, other) = (home.zeros::<u8>(512).unwrap(), another(home));
        own.synchronize().unwrap();
        own.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL).unwrap();
        own.memset_zeros(&mut kept).unwrap();
        drop(dropped);
        // A fork of the capture: the program orders it.
        other.join(own).unwrap();
        other.memset_zeros(&mut kept.slice_mut(..8)).unwrap();
        own.join(&other).unwrap();
        let graph = own.end_capture(CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
        assert!(graph.expect("no call has disturbed the capture").is_some());
        own.context().check_err().unwrap();
    });
}

#[test]
fn a_buffer_of_a_private_pool_becomes_a_slice() {
    with_slices(|_, home| {
        let allocator = home.allocator().allocator();
        let (pool, other) = (allocator.create_pool().unwrap(), home.allocator().stream(&another(home)).unwrap());
        let inside = pool.stream(home.stream().id()).unwrap();
        let take = || inside.allocate(4096).unwrap();
        // SAFETY: all elements are written before they are read, or the slice is refused.
        let (slice, longer, elsewhere) = unsafe {
            (home.slice_of::<u32>(take(), 1024), home.slice_of::<u32>(take(), 1025), other.slice_of(take(), 1))
        };
        let mut slice = slice.unwrap();
        home.cudarc().memcpy_htod(&[4; 1024], &mut slice).unwrap();
        assert_eq!(home.cudarc().clone_dtoh(&slice).unwrap(), [4; 1024]);
        let outside = longer.map(drop).unwrap_err();
        let expected =
            "OutOfRange { call: Some(\"slice_of\"), role: None, offset: 0, bytes: 4100, segment_bytes: 4096 }";
        assert!(format!("{outside:?}").contains(expected), "{outside:?}");
        let elsewhere: Result<Slice<u8>, _> = elsewhere;
        assert!(matches!(elsewhere.map(drop), Err(Error::UnknownStream { .. })));
        // SAFETY: the slice is refused.
        let empty = unsafe { home.slice_of::<u8>(home.stream().allocate(0).unwrap(), 0) };
        assert!(empty.is_err(), "it has no address");
    });
}

#[test]
fn a_capture_on_an_unknown_stream_is_reported_and_goes_on() {
    with_slices(|_, home| {
        let mut slice = home.zeros::<u8>(512).unwrap();
        let unknown = home.cudarc().context().new_stream().unwrap();
        unknown.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED).unwrap();
        unknown.memset_zeros(&mut slice).unwrap();
        let error = unknown.context().check_err().unwrap_err();
        assert_eq!(error.0, CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        let graph = unknown.end_capture(CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
        graph.expect("no call has disturbed the capture");
    });
}

#[test]
fn an_unknown_stream_stays_out_of_a_capture_of_the_home_stream() {
    with_slices(|_, home| {
        let (own, unknown) = (home.cudarc(), home.cudarc().context().new_stream().unwrap());
        let mut slice = home.zeros::<u8>(512).unwrap();
        own.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED).unwrap();
        own.memset_zeros(&mut slice).unwrap();
        unknown.memset_zeros(&mut slice).unwrap();
        let error = own.context().check_err().unwrap_err();
        assert_eq!(error.0, CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        let graph = own.end_capture(CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
        graph.expect("no call has disturbed the capture");
        unknown.synchronize().unwrap();
    });
}

#[test]
fn slices_go_to_other_threads() {
    fn is_sent<T: Send + Sync>() {}
    is_sent::<Slice<f32>>();
    is_sent::<SliceView<'_, f32>>();
    is_sent::<SliceViewMut<'_, f32>>();
    is_sent::<SliceStream>();
    is_sent::<SliceAllocator>();
}
