use std::ptr;

use millpond_backend::{Backend, BackendError, Budget, ClassId, Closing, Fault, Reuse, Transfer};
use millpond_cuda::cudarc::driver::CudaContext;
use millpond_cuda::cudarc::driver::sys::{self, CUcontext};
use millpond_cuda::testing::Cuda;
use millpond_cuda::{Alloc, CudaError, Misuse};

use crate::lab::{device, finish, give_back, read, segment, two_devices};

fn current() -> CUcontext {
    let mut context: CUcontext = ptr::null_mut();
    // SAFETY: the pointer is to a local pointer.
    unsafe { sys::cuCtxGetCurrent(&raw mut context) }.result().unwrap();
    context
}

fn set_current(context: CUcontext) {
    // SAFETY: the context is held by the test, or null.
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
fn a_context_of_an_engines_own_is_used_and_left_alive() {
    let Some(cuda) = device() else { return };
    if crate::machine::IS_SIMULATED {
        eprintln!("SKIPPED: the simulator has primary contexts only");
        return;
    }
    // Bindings for CUDA 13 leave it out, and all drivers have it.
    type Create = unsafe extern "C" fn(*mut CUcontext, u32, sys::CUdevice) -> u32;
    // SAFETY: this is the function's signature in the driver's header.
    let create = unsafe { sys::culib().get::<Create>(b"cuCtxCreate_v2") }.expect("a driver has it");
    let mut raw: CUcontext = ptr::null_mut();
    // SAFETY: the pointer is to a local pointer; the device was opened.
    assert_eq!(unsafe { create(&raw mut raw, 0, cuda.context().cu_device()) }, 0);
    // SAFETY: the context is alive, of device 0, and destroyed after everything that belongs to the adopted device.
    let adopted = unsafe { Cuda::adopt_raw(raw, 0) }.unwrap();
    let (stream, other) = (adopted.create_stream().unwrap(), cuda.create_stream().unwrap());
    let (taken, primary) = (segment(&adopted), segment(&cuda));
    adopted.fill(stream, &taken, 0, taken.bytes(), 12).unwrap();
    // Two contexts of one device are two devices to each other.
    adopted.copy(stream, (&taken, 0), (&primary, 0), taken.bytes()).unwrap();
    finish(&adopted, stream);
    assert_eq!(read(&cuda, other, &primary, 0, 100), [12; 100]);
    give_back(&adopted, taken);
    give_back(&cuda, primary);
    drop(adopted);
    // SAFETY: nothing of the context is left, and the test owns it.
    unsafe { sys::cuCtxDestroy_v2(raw) }.result().expect("the context was taken along");
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
fn a_bare_pair_leaves_nothing() {
    let Some(cuda) = device() else { return };
    for alloc in [Alloc::Sync, Alloc::Async] {
        let Ok(cuda) = Cuda::builder().alloc(alloc).build() else {
            assert!(alloc == Alloc::Async && !cuda.info().memory_pools, "the device opens otherwise");
            continue;
        };
        let calls = cuda.fallible_calls();
        cuda.allocate_and_free(1 << 20).unwrap();
        assert_eq!(cuda.fallible_calls(), calls + 1, "the driver is asked each time");
        assert_eq!(cuda.held_bytes(), 0);
        assert_eq!(cuda.allocate_and_free(0), Err(CudaError::Misuse(Misuse::Empty { call: "allocate_and_free" })));
        let refused = cuda.allocate_and_free(1 << 50).unwrap_err();
        assert!(matches!(refused, CudaError::OutOfMemory { asked, .. } if asked == 1 << 50), "{refused}");
    }
}

#[test]
fn a_device_opens_where_the_thread_has_the_context_of_one_that_was_closed() {
    let Some((first, _)) = two_devices() else { return };
    drop(first);
    for ordinal in [0, 1, 0] {
        let cuda = Cuda::open(ordinal).unwrap();
        let peer = 1 - ordinal;
        assert!(cuda.info().peers.iter().all(|&place| place == peer || place > 1), "{:?}", cuda.info().peers);
        drop(Cuda::open(peer).unwrap());
    }
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
