use std::ptr;

use millpond_backend::{Backend, ClassId, Point, StreamId, Transfer, VirtualMemory};
use millpond_cuda::CudaError;
use millpond_cuda::cudarc::driver::sys::{self, CUstream};
use millpond_cuda::testing::Cuda;

use super::{alone, give_back, segment};

/// Creates a stream that is not registered with the device.
pub(super) fn raw_stream(cuda: &Cuda) -> CUstream {
    cuda.context().bind_to_thread().unwrap();
    let mut stream: CUstream = ptr::null_mut();
    // SAFETY: the pointer is to a local pointer, and the context is current. 1 is CU_STREAM_NON_BLOCKING.
    unsafe { sys::cuStreamCreate(&raw mut stream, 1) }.result().unwrap();
    stream
}

/// The simulator refuses such pages where the device cannot make them, as drivers do.
#[test]
fn pages_are_made_for_rdma_just_where_the_device_can() {
    for supported in [true, false] {
        alone(|control, _| {
            control.set_rdma(0, supported);
            for shareable in [true, false] {
                let cuda = Cuda::builder().shareable_pages(shareable).build().unwrap();
                assert_eq!(cuda.info().rdma_pages, supported);
                let unit = cuda.caps().pages.unwrap().granularity;
                let page = cuda.create_page(ClassId::DEVICE, unit).unwrap();
                // SAFETY: all zeros is a value of this plain structure of the header's.
                let mut made: sys::CUmemAllocationProp = unsafe { std::mem::zeroed() };
                // SAFETY: the pointer is to a local structure, and the page is alive.
                unsafe { sys::cuMemGetAllocationPropertiesFromHandle(&raw mut made, page.handle()) }.result().unwrap();
                assert_eq!(made.allocFlags.gpuDirectRDMACapable, u8::from(supported));
                // SAFETY: it is mapped nowhere.
                unsafe { cuda.release_page(page) };
            }
        });
    }
}

pub(super) fn destroy(stream: CUstream) {
    // SAFETY: the test made the stream, and does not use it again.
    unsafe { sys::cuStreamDestroy_v2(stream) }.result().unwrap();
}

/// The simulator uses a handle again as soon as it is free, as drivers do.
#[test]
fn a_handle_that_comes_back_gets_a_number_of_its_own() {
    alone(|_, cuda| {
        let mut numbers = Vec::new();
        let mut before = None;
        for round in 0..20 {
            let raw = raw_stream(cuda);
            assert!(before.is_none_or(|before| before == raw), "the handle has not come back");
            before = Some(raw);
            // SAFETY: the stream is alive and of the device's context.
            let stream = unsafe { cuda.register_raw(raw) }.unwrap();
            assert_eq!(stream, StreamId(round));
            // SAFETY: as above.
            assert_eq!(unsafe { cuda.register_raw(raw) }, Ok(stream), "it is registered already");
            let taken = segment(cuda);
            cuda.fill(stream, &taken, 0, 1 << 20, 1).unwrap();
            let tick = cuda.mark(stream);
            for &(old, last) in &numbers {
                assert_eq!(cuda.raw_stream(old), Err(CudaError::Unregistered { stream: old }));
                assert!(cuda.reached(old).unwrap() >= last, "what was marked there is over");
                assert_eq!(cuda.fill(old, &taken, 0, 1, 0), Err(CudaError::Unregistered { stream: old }));
            }
            assert!(cuda.wait(Point { stream, tick }).unwrap() >= tick);
            let last = cuda.mark(stream);
            numbers.push((stream, last));
            give_back(cuda, taken);
            // The stream is destroyed without being unregistered, as engines do.
            destroy(raw);
        }
        let raw = raw_stream(cuda);
        // SAFETY: the stream is alive and of the device's context.
        let last = unsafe { cuda.register_raw(raw) }.unwrap();
        assert!(cuda.takes_work(last));
        cuda.unregister(last).unwrap();
        assert!(cuda.has_stream(last) && !cuda.takes_work(last), "it is known, and nothing is queued there any more");
        destroy(raw);
    });
}
