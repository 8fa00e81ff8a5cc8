//! Each driver function that the backend calls is made to fail once: at one of its first calls, at one in the middle,
//! or at its last. The failure is reported, nothing is left behind, and a device that is opened again works.

use std::collections::BTreeSet;
use std::os::fd::AsFd;
use std::ptr::NonNull;

use millpond_backend::{Backend, Budget, ClassId, Point, StreamId, StreamWait, Transfer, VirtualMemory};
use millpond_cuda::cudarc::driver::DriverError;
use millpond_cuda::cudarc::driver::sys::{self, CUstream};
use millpond_cuda::testing::Cuda;
use millpond_cuda::{Alloc, Code, CudaError};
use millpond_cuda_driver::{Control, install};

use super::KINDS;

/// `CUDA_ERROR_INVALID_VALUE`: a code that loses no context.
const REFUSED: Code = Code(1);

/// The functions that are called once when the driver is loaded, or to describe a code.
const ELSEWHERE: [&str; 3] = ["cuInit", "cuGetErrorName", "cuGetErrorString"];

/// The functions that give something back, which the driver keeps where they fail, and the functions that query or
/// restore the current context: where those fail while a device is dropped, its memory cannot be given back.
const LEAVES: [&str; 11] = [
    "cuMemFree_v2",
    "cuMemFreeAsync",
    "cuMemFreeHost",
    "cuMemHostUnregister",
    "cuMemUnmap",
    "cuMemRelease",
    "cuMemAddressFree",
    "cuStreamDestroy_v2",
    "cuEventDestroy_v2",
    "cuCtxGetCurrent",
    "cuCtxSetCurrent",
];

/// The functions whose failure need not be reported. They concern captures, of which there are none here, or waits in a
/// drop, which has another way to wait.
const SILENT: [&str; 7] = [
    "cuEventCreate",
    "cuThreadExchangeStreamCaptureMode",
    "cuStreamIsCapturing",
    "cuEventRecord",
    "cuEventSynchronize",
    "cuEventQuery",
    // A failure with this code means that a capture has caught the event, and the backend makes up for it.
    "cuStreamWaitEvent",
];

/// The functions for kernels, which the simulator does not have: it runs none.
const KERNELS: [&str; 3] = ["cuModuleLoadData", "cuModuleUnload", "cuModuleGetFunction"];

/// Returns the functions in the backend's table, read from its source: a function that is added there must be called
/// here.
fn functions() -> BTreeSet<&'static str> {
    let lines = include_str!("../../src/driver.rs").lines().map(str::trim);
    let names = lines.filter(|line| line.starts_with("cu") && line.ends_with(");"));
    let names = names.filter_map(|line| line.split_once('(').map(|(name, _)| name));
    names.filter(|name| !KERNELS.contains(name)).collect()
}

fn finish(cuda: &Cuda, stream: StreamId) -> Result<(), CudaError> {
    let tick = cuda.mark(stream);
    cuda.wait(Point { stream, tick }).map(drop)
}

/// Makes every call that the backend makes, once or a few times. What an error leaves unfinished is given back when the
/// handles are dropped.
fn everything() -> Result<(), CudaError> {
    Cuda::driver_version()?;
    // This handle is dropped last, after the drop of the other one has waited for the copies between the two.
    let other = Cuda::open(1)?;
    let cuda = Cuda::builder().peers(&[1]).shareable_pages(true).build()?;
    let (stream, later) = (cuda.create_stream()?, cuda.create_stream()?);
    memory(&cuda, stream)?;
    pages(&cuda, stream)?;
    between(&cuda, &other, stream)?;
    pool()?;
    cuda.hold(stream)?;
    let point = Point { stream, tick: cuda.mark(stream) };
    cuda.reached(stream)?;
    cuda.wait_for(later, point)?;
    cuda.unhold(stream);
    finish(&cuda, later)?;
    cuda.unregister(later)?;
    came_back(&cuda)?;
    // The next call reports what could not be given back.
    cuda.create_stream()?;
    other.create_stream().map(drop)
}

fn memory(cuda: &Cuda, stream: StreamId) -> Result<(), CudaError> {
    Budget::budget(cuda, ClassId::DEVICE)?;
    let (first, second) = (cuda.reserve(ClassId::DEVICE, 4096)?, cuda.reserve(ClassId(1), 4096)?);
    cuda.fill(stream, &first, 0, 4096, 1)?;
    cuda.copy(stream, (&first, 0), (&second, 0), 4096)?;
    cuda.upload(stream, &[2; 100], &first, 0)?;
    cuda.download(stream, &first, 0, &mut [0; 100])?;
    // The memory is never freed: if it cannot be unregistered, no other allocation may get its addresses.
    let own = NonNull::from(vec![0_u8; 4096].leak()).cast();
    // SAFETY: the memory stays, and no work of a device touches it.
    drop(unsafe { cuda.register_host(own, 4096) }?);
    finish(cuda, stream)?;
    // SAFETY: all work was waited for.
    unsafe {
        cuda.release(first);
        cuda.release(second);
    }
    Ok(())
}

fn pages(cuda: &Cuda, stream: StreamId) -> Result<(), CudaError> {
    let bytes = cuda.caps().pages.expect("simulated devices have virtual memory").granularity;
    let range = cuda.reserve_range(ClassId::DEVICE, 2 * bytes)?;
    let page = cuda.create_page(ClassId::DEVICE, bytes)?;
    // SAFETY: each target is unmapped, and no work touches it when it is unmapped again.
    unsafe {
        cuda.map(&range, 0, &page, stream)?;
        cuda.map(&range, bytes, &page, stream)?;
        let shared = cuda.export(range.address(), 1)?;
        cuda.export_dma_buf(range.address(), 2 * bytes)?;
        let imported = cuda.import(&[(shared.pages[0].descriptor.as_fd(), bytes)])?;
        cuda.end_import(imported);
        cuda.unmap(&range, 0, &page, stream);
        cuda.unmap(&range, bytes, &page, stream);
        cuda.release_page(page);
        cuda.release_range(range);
    }
    Ok(())
}

fn between(cuda: &Cuda, other: &Cuda, stream: StreamId) -> Result<(), CudaError> {
    let (here, there) = (cuda.reserve(ClassId::DEVICE, 4096)?, other.reserve(ClassId::DEVICE, 4096)?);
    cuda.copy(stream, (&here, 0), (&there, 0), 4096)?;
    let behind = other.create_stream()?;
    other.wait_for_peer(behind, cuda, Point { stream, tick: cuda.mark(stream) })?;
    finish(other, behind)?;
    // SAFETY: the copy was waited for.
    unsafe {
        cuda.release(here);
        other.release(there);
    }
    Ok(())
}

/// Uses the driver's own pool.
fn pool() -> Result<(), CudaError> {
    let pooled = Cuda::builder().alloc(Alloc::Async).build()?;
    let taken = pooled.reserve(ClassId::DEVICE, 4096)?;
    // SAFETY: no work touches it.
    unsafe { pooled.release(taken) };
    pooled.create_stream().map(drop)
}

/// Returns the error of a planned failure that hit a call of the test's own.
fn own_call(error: DriverError) -> CudaError {
    CudaError::Driver { call: "the test", code: Code(error.0 as u32) }
}

/// Destroys a registered stream, so that its handle is used again for another stream.
fn came_back(cuda: &Cuda) -> Result<(), CudaError> {
    for _ in 0..2 {
        cuda.context().bind_to_thread().map_err(own_call)?;
        let mut raw: CUstream = std::ptr::null_mut();
        // SAFETY: the pointer is to a local pointer, and the context is current.
        unsafe { sys::cuStreamCreate(&raw mut raw, 1) }.result().map_err(own_call)?;
        // SAFETY: the stream is alive and of the device's context. It is destroyed in spite of the promise; the device
        // detects that.
        let registered = unsafe { cuda.register_raw(raw) };
        // SAFETY: the test owns the stream, and does not use it again.
        unsafe { sys::cuStreamDestroy_v2(raw) }.result().map_err(own_call)?;
        cuda.mark(registered?);
    }
    Ok(())
}

fn live(control: Control) -> [u64; KINDS.len()] {
    KINDS.map(|kind| control.live(kind))
}

fn code(error: &CudaError) -> Option<Code> {
    match error {
        CudaError::Driver { code, .. }
        | CudaError::Copy { code, .. }
        | CudaError::NotExported { code, .. }
        | CudaError::DmaBufRefused { code, .. }
        | CudaError::NotImported { code, .. }
        | CudaError::Lost { code, .. } => Some(*code),
        _ => None,
    }
}

/// Makes the nth call of one function fail, and checks the result.
fn fail(control: Control, function: &str, nth: u64) {
    let before = live(control);
    control.fail_nth(function, nth, REFUSED.0);
    let told = everything();
    match &told {
        Err(error) => assert_eq!(code(error), Some(REFUSED), "{function}, call {nth}: {error}"),
        Ok(()) => {
            let may = SILENT.contains(&function) || LEAVES.contains(&function);
            assert!(may, "{function}, call {nth}: nobody was told");
        }
    }
    assert_eq!(control.violations(), [], "{function}, call {nth}");
    control.reset();
    let after = live(control);
    if !LEAVES.contains(&function) {
        assert_eq!(after, before, "{function}, call {nth}: {KINDS:?} are left, {told:?}");
    }
    if let Err(error) = everything() {
        panic!("{function}, call {nth}: a device that was opened afterwards: {error}");
    }
    assert_eq!(live(control), after, "{function}, call {nth}: a round that succeeds leaves something");
}

#[test]
fn each_function_of_the_driver_fails_once() {
    let control = install().expect("the simulator is built with the tests");
    let _alone = control.alone();
    // Dropping the last handle of a primary context frees everything in it, which would hide a leak.
    let _keepers = (Cuda::open(0).expect("it is there"), Cuda::open(1).expect("it is there"));
    control.reset();
    everything().expect("nothing is planned");
    let functions = functions();
    assert!(functions.len() > 45, "{functions:?}");
    let counted: Vec<(&str, u64)> = functions.iter().map(|&function| (function, control.calls(function))).collect();
    for (function, calls) in counted {
        if ELSEWHERE.contains(&function) {
            continue;
        }
        assert!(calls > 0, "{function} is not called: add to `everything` what calls it");
        for nth in BTreeSet::from([1, 2, 3, calls / 2, calls]).into_iter().filter(|nth| (1..=calls).contains(nth)) {
            fail(control, function, nth);
        }
    }
}
