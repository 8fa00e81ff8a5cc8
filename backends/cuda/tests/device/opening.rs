use std::ptr;

use millpond_backend::{Backend, BackendError, Budget, ClassId, Closing, Fault, Reuse};
use millpond_cuda::cudarc::driver::CudaContext;
use millpond_cuda::cudarc::driver::sys::{self, CUcontext};
use millpond_cuda::{Alloc, Cuda, CudaError};

use crate::lab::{device, finish, give_back, segment, two_devices};

fn current() -> CUcontext {
    let mut context: CUcontext = ptr::null_mut();
    // SAFETY: the pointer is to a local pointer.
    unsafe { sys::cuCtxGetCurrent(&raw mut context) }.result().unwrap();
    context
}

fn set_current(context: CUcontext) {
    // SAFETY: the context is held by the test, or none.
    unsafe { sys::cuCtxSetCurrent(context) }.result().unwrap();
}

#[test]
fn devices_are_listed_as_they_are_opened() {
    let Some(cuda) = device() else { return };
    let listed = Cuda::devices().unwrap();
    assert_eq!(&listed[0], cuda.info());
    assert!(Cuda::driver_version().unwrap() >= (12, 0));
    let beyond = Cuda::open(listed.len()).unwrap_err();
    assert_eq!(beyond, CudaError::NoDevice { ordinal: listed.len(), count: listed.len() });
    assert_eq!(beyond.fault(), Fault::Other);
}

#[test]
fn the_facts_are_those_of_the_contract() {
    let Some(cuda) = device() else { return };
    let caps = cuda.caps();
    assert_eq!((caps.closing, caps.reuse, caps.needs_barrier), (Closing::Backend, Reuse::InOrder, false));
    assert!(caps.release_waits && caps.stream_wait && caps.host_memory && caps.transfer && caps.budget);
    assert_eq!(caps.classes.len(), 2);
    for class in [ClassId::DEVICE, ClassId(1)] {
        let budget = Budget::budget(&cuda, class).unwrap();
        assert!(budget.free_bytes <= budget.total_bytes && budget.total_bytes > 0, "{budget:?}");
    }
    assert_eq!(caps.pages.is_some(), cuda.virtual_memory().is_some());
    let without = Cuda::builder().pages(false).build().unwrap();
    assert!(without.virtual_memory().is_none() && without.caps().pages.is_none());
}

#[test]
fn contexts_of_others_are_used_and_left_alive() {
    let Some(cuda) = device() else { return };
    let context = CudaContext::new(0).unwrap();
    let raw = context.cu_ctx();
    for adopted in [Cuda::adopt(context.clone()).unwrap(), {
        // SAFETY: the context is device 0's and is held by the test.
        unsafe { Cuda::adopt_raw(raw, 0) }.unwrap()
    }] {
        let stream = adopted.create_stream().unwrap();
        let taken = segment(&adopted);
        finish(&adopted, stream);
        give_back(&adopted, taken);
        drop(adopted);
        assert!(context.mem_get_info().is_ok(), "the context was taken along");
    }
    drop(cuda);
}

#[test]
fn a_thread_keeps_the_context_that_it_had() {
    let Some((first, second)) = two_devices() else { return };
    set_current(second.context().cu_ctx());
    let stream = first.create_stream().unwrap();
    let taken = segment(&first);
    finish(&first, stream);
    give_back(&first, taken);
    drop(Cuda::open(0).unwrap());
    assert_eq!(current(), second.context().cu_ctx());
    set_current(ptr::null_mut());
    finish(&first, stream);
    assert_eq!(current(), first.context().cu_ctx(), "a thread with none keeps the device's");
}

#[test]
fn the_drivers_pool_can_serve_segments() {
    let Some(cuda) = device() else { return };
    let pooled = match Cuda::builder().alloc(Alloc::Async).build() {
        Ok(pooled) => pooled,
        Err(error) => {
            assert!(!cuda.info().memory_pools, "the device has pools: {error}");
            return;
        }
    };
    assert!(!pooled.caps().release_waits);
    let stream = pooled.create_stream().unwrap();
    pooled.hold(stream).unwrap();
    let taken = segment(&pooled);
    assert_eq!(pooled.held_bytes(), taken.bytes());
    give_back(&pooled, taken);
    assert_eq!(pooled.held_bytes(), 0);
    pooled.unhold(stream);
}

#[test]
fn peers_are_named_or_refused() {
    let Some((_, second)) = two_devices() else { return };
    match Cuda::builder().device(0).peers(&[0, 1]).build() {
        Ok(cuda) => assert_eq!(cuda.peers(), [1]),
        Err(error) => assert_eq!(error, CudaError::NoPeerAccess { own: 0, peer: second.ordinal() }),
    }
    assert!(matches!(Cuda::builder().peers(&[999]).build(), Err(CudaError::NoDevice { ordinal: 999, .. })));
}
