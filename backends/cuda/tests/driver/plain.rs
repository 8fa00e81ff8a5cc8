//! A device without test gear makes the same driver calls as one with it.

use millpond_backend::{Backend, ClassId, Point, StreamWait, Transfer, VirtualMemory};
use millpond_cuda::{CudaWith, Gear, Plain};
use millpond_cuda_driver::Control;

use crate::alone;

/// The functions that the program calls.
const CALLS: [&str; 15] = [
    "cuCtxGetCurrent",
    "cuThreadExchangeStreamCaptureMode",
    "cuStreamIsCapturing",
    "cuStreamCreate",
    "cuStreamWaitEvent",
    "cuStreamDestroy_v2",
    "cuEventCreate",
    "cuEventRecord",
    "cuEventQuery",
    "cuEventSynchronize",
    "cuMemAlloc_v2",
    "cuMemFree_v2",
    "cuMemcpyHtoDAsync_v2",
    "cuMemMap",
    "cuMemUnmap",
];

/// Opens a device, runs a program on it that uses every room, and returns how often each function was called for it.
fn calls<G: Gear>(control: Control) -> [u64; CALLS.len()] {
    let before = CALLS.map(|call| control.calls(call));
    let cuda = CudaWith::<G>::open(0).unwrap();
    let (one, other) = (cuda.create_stream().unwrap(), cuda.create_stream().unwrap());
    let segment = cuda.reserve(ClassId::DEVICE, 1 << 20).unwrap();
    cuda.upload(one, &[7; 4096], &segment, 0).unwrap();
    let point = Point { stream: one, tick: cuda.mark(one) };
    cuda.wait_for(other, point).unwrap();
    let unit = cuda.caps().pages.unwrap().granularity;
    let (range, page) =
        (cuda.reserve_range(ClassId::DEVICE, unit).unwrap(), cuda.create_page(ClassId::DEVICE, unit).unwrap());
    // SAFETY: the addresses are new, and no work uses them.
    unsafe { cuda.map(&range, 0, &page, other) }.unwrap();
    cuda.copy(other, (&segment, 0), (&range, 0), 4096).unwrap();
    let mut bytes = [0; 4096];
    cuda.download(other, &range, 0, &mut bytes).unwrap();
    assert_eq!(bytes, [7; 4096]);
    assert!(cuda.wait(point).unwrap() >= point.tick);
    let gate = control.hold(0, cuda.raw_stream(one).unwrap() as usize);
    let later = Point { stream: one, tick: cuda.mark(one) };
    assert!(cuda.reached(one).unwrap() < later.tick, "the stream is held");
    gate.open();
    assert!(cuda.wait(later).unwrap() >= later.tick);
    // SAFETY: the download has waited for all work, and the mapping is the one made above.
    unsafe {
        cuda.unmap(&range, 0, &page, other);
        cuda.release_page(page);
        cuda.release_range(range);
        cuda.release(segment);
    }
    drop(cuda);
    let mut calls = CALLS.map(|call| control.calls(call));
    calls.iter_mut().zip(before).for_each(|(calls, before)| *calls -= before);
    calls
}

#[test]
fn a_device_without_gear_makes_the_same_calls() {
    alone(|control, _| {
        let plain = calls::<Plain>(control);
        assert_eq!(plain, calls::<millpond_cuda::testing::Rigged>(control));
        assert!(plain.iter().all(|&calls| calls > 0), "{plain:?}");
    });
}
