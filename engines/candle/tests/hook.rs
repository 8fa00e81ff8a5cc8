//! cudarc's memory on Millpond, on the simulated driver. A program of its own because the hook stays for the rest of
//! the process.

#![allow(unsafe_code)] // cudarc leaves uninitialized memory to the caller.
#![cfg(target_os = "linux")]

use std::sync::{Arc, MutexGuard, OnceLock};
use std::time::Duration;

use millpond_candle::{InstallError, Installed};
use millpond_cuda::cudarc::driver::sys::{self, CUresult};
use millpond_cuda::cudarc::driver::{CudaContext, CudaSlice, CudaStream, DriverError, result};
use millpond_cuda_driver::Control;

/// `CU_STREAM_PER_THREAD`.
const PER_THREAD: usize = 2;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// What the tests share: the hook is installed once.
struct Shared {
    control: Control,
    millpond: Installed,
    context: Arc<CudaContext>,
}

/// Returns what the tests share. The first call installs Millpond, between the two halves of a slice's life, and tests
/// that the driver served it as it does without the hook.
fn shared() -> (&'static Shared, MutexGuard<'static, ()>) {
    static SHARED: OnceLock<Shared> = OnceLock::new();
    let shared = SHARED.get_or_init(|| {
        let control = millpond_cuda_driver::install().expect("the simulator is built beside the test");
        let context = CudaContext::new(0).unwrap();
        let stream = context.default_stream();
        let early: CudaSlice<f32> = stream.alloc_zeros(1000).unwrap();
        assert_eq!(control.calls("cuMemAllocAsync"), 1);
        let millpond = millpond_candle::install(0, "policy:paged").unwrap();
        assert_eq!(millpond.allocator().memory_allocated(), 0);
        drop(early);
        assert_eq!(control.calls("cuMemFreeAsync"), 1);
        Shared { control, millpond, context }
    });
    (shared, shared.control.alone())
}

fn live(shared: &Shared) -> u64 {
    shared.millpond.allocator().memory_allocated()
}

fn address(slice: &CudaSlice<u8>) -> u64 {
    use millpond_cuda::cudarc::driver::DevicePtr;
    slice.device_ptr(slice.stream()).0
}

fn uninitialized(stream: &Arc<CudaStream>, bytes: usize) -> CudaSlice<u8> {
    // SAFETY: nothing reads the bytes.
    unsafe { stream.alloc(bytes) }.unwrap()
}

/// Tests that a slice is other memory than was at `place`, or the same with a guard: then all later work of its stream
/// waits. Something holds the work that used the memory.
fn expect_in_order(slice: &CudaSlice<u8>, place: u64) {
    if address(slice) == place {
        std::thread::sleep(Duration::from_millis(50));
        // SAFETY: the stream is alive.
        let queried = unsafe { sys::cuStreamQuery(slice.stream().cu_stream()) };
        assert_eq!(queried, CUresult::CUDA_ERROR_NOT_READY, "held work may still use the memory");
    }
}

#[test]
fn each_way_to_a_slice_is_served() -> Result<()> {
    let (shared, _alone) = shared();
    let stream = shared.context.new_stream()?;
    let calls = || ["cuMemAllocAsync", "cuMemAlloc_v2", "cuMemFreeAsync"].map(|call| shared.control.calls(call));
    let before = calls();
    let empty = stream.null::<u8>()?;
    let plain = uninitialized(&stream, 1 << 20);
    let zeros = stream.alloc_zeros::<f32>(1000)?;
    let copied = stream.clone_htod(&[1_u32, 2, 3])?;
    let cloned = copied.try_clone()?;
    assert_eq!(stream.clone_dtoh(&cloned)?, [1, 2, 3]);
    assert_eq!(live(shared), (1 << 20) + 4096 + 3 * 512);
    drop((empty, plain, zeros, copied, cloned));
    assert_eq!(live(shared), 0);
    assert_eq!(calls(), before, "the driver's pool was asked");
    shared.context.check_err()?;
    assert_eq!(shared.control.violations(), []);
    Ok(())
}

#[test]
fn freed_memory_is_reused_in_the_order_of_its_stream_and_by_no_other_too_early() -> Result<()> {
    let (shared, _alone) = shared();
    let (own, other) = (shared.context.new_stream()?, shared.context.new_stream()?);
    let gate = shared.control.hold(0, own.cu_stream() as usize);
    let first = uninitialized(&own, 3 << 20);
    let place = address(&first);
    drop(first);
    let again = uninitialized(&own, 3 << 20);
    assert_eq!(address(&again), place, "the order of the stream keeps the two apart");
    drop(again);
    let taken = uninitialized(&other, 3 << 20);
    expect_in_order(&taken, place);
    gate.open();
    Ok(())
}

#[test]
fn a_leaked_address_that_another_stream_frees_waits_for_both() -> Result<()> {
    let (shared, _alone) = shared();
    let (own, other) = (shared.context.new_stream()?, shared.context.new_stream()?);
    let place = uninitialized(&own, 5 << 20).leak();
    assert_eq!(live(shared), 5 << 20);
    let gate = shared.control.hold(0, other.cu_stream() as usize);
    // SAFETY: the address is of that many bytes, and no slice has it.
    let adopted = unsafe { other.upgrade_device_ptr::<u8>(place, 5 << 20) };
    drop(adopted);
    assert_eq!(live(shared), 0);
    let next = uninitialized(&own, 5 << 20);
    expect_in_order(&next, place);
    gate.open();
    own.synchronize()?;
    Ok(())
}

#[test]
fn raw_calls_are_served_and_freed_without_a_stream_after_all_work() -> Result<()> {
    let (shared, _alone) = shared();
    shared.context.bind_to_thread()?;
    let stream = shared.context.new_stream()?;
    // SAFETY: the stream is alive; each address is freed once.
    unsafe {
        let ordered = result::malloc_async(stream.cu_stream(), 1 << 20)?;
        let released = result::malloc_async(stream.cu_stream(), 1 << 20)?;
        let sync = result::malloc_sync(1 << 20)?;
        assert_eq!(live(shared), 2 << 20, "requests without a stream are the driver's");
        result::free_async(ordered, stream.cu_stream())?;
        let synchronized = shared.control.calls("cuCtxSynchronize");
        result::free_sync(released)?;
        assert_eq!(shared.control.calls("cuCtxSynchronize"), synchronized + 1);
        result::free_sync(sync)?;
    }
    assert_eq!(live(shared), 0);
    Ok(())
}

#[test]
fn memory_of_a_graph_is_the_drivers() -> Result<()> {
    let (shared, _alone) = shared();
    let stream = shared.context.new_stream()?;
    shared.context.bind_to_thread()?;
    let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
    // SAFETY: the stream is alive, the address is freed once, and the graph is destroyed once.
    unsafe {
        result::stream::begin_capture(stream.cu_stream(), mode)?;
        let asked = shared.control.calls("cuMemAllocAsync");
        if let Ok(address) = result::malloc_async(stream.cu_stream(), 1 << 20) {
            result::free_async(address, stream.cu_stream())?;
        }
        assert_eq!((shared.control.calls("cuMemAllocAsync"), live(shared)), (asked + 1, 0));
        // The simulator's graphs have no memory: the request has spoiled the capture there.
        if let Ok(graph) = result::stream::end_capture(stream.cu_stream()) {
            result::graph::destroy(graph)?;
        }
    }
    Ok(())
}

#[test]
fn other_devices_stay_on_the_driver() -> Result<()> {
    let (shared, _alone) = shared();
    let second = CudaContext::new(1)?;
    let before = shared.control.calls("cuMemAllocAsync");
    let slice = second.default_stream().alloc_zeros::<u8>(4096)?;
    assert_eq!((shared.control.calls("cuMemAllocAsync"), live(shared)), (before + 1, 0));
    drop(slice);
    second.check_err()?;
    Ok(())
}

#[test]
fn a_refusal_has_the_drivers_code_and_the_report() -> Result<()> {
    let (shared, _alone) = shared();
    let stream = shared.context.new_stream()?;
    shared.millpond.allocator().set_limit(Some(64 << 20));
    // SAFETY: nothing reads the bytes.
    let refused = unsafe { stream.alloc::<u8>(100 << 20) };
    shared.millpond.allocator().set_limit(None);
    assert_eq!(refused.err(), Some(DriverError(CUresult::CUDA_ERROR_OUT_OF_MEMORY)));
    let report = shared.millpond.last_refusal().unwrap_or_default();
    assert!(report.contains("100.00 MiB") || report.contains("100 MiB"), "{report}");
    drop(uninitialized(&stream, 1 << 20));
    Ok(())
}

#[test]
fn a_destroyed_stream_is_forgotten() -> Result<()> {
    let (shared, _alone) = shared();
    for _ in 0..20 {
        let stream = shared.context.new_stream()?;
        drop(uninitialized(&stream, 1 << 20));
    }
    shared.millpond.allocator().empty_cache()?;
    assert_eq!((live(shared), shared.millpond.allocator().memory_reserved()), (0, 0));
    shared.context.check_err()?;
    assert_eq!(shared.control.violations(), []);
    Ok(())
}

#[test]
fn threads_have_default_streams_of_their_own() -> Result<()> {
    let (shared, _alone) = shared();
    let stream = shared.context.per_thread_stream();
    let (gate, made, place) = std::thread::scope(|scope| {
        let there = scope.spawn(|| {
            let gate = shared.control.hold(0, PER_THREAD);
            let made = uninitialized(&stream, 1 << 20);
            let freed = uninitialized(&stream, 7 << 20);
            let place = address(&freed);
            drop(freed);
            (gate, made, place)
        });
        there.join().unwrap()
    });
    let own = uninitialized(&stream, 7 << 20);
    expect_in_order(&own, place);
    gate.open();
    drop((made, own));
    assert_eq!(live(shared), 0);
    assert_eq!(shared.control.violations(), []);
    Ok(())
}

#[test]
fn a_device_has_one_allocator() {
    let (_shared, _alone) = shared();
    let second = millpond_candle::install(0, "");
    assert!(matches!(second, Err(InstallError::Installed { ordinal: 0 })));
}
