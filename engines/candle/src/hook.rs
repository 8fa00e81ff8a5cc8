//! The hook in cudarc, and the only module of the library with unsafe code: which device serves a request, and which
//! buffer an address is.

#![allow(unsafe_code)]

use std::collections::HashMap;
use std::sync::LazyLock;
use std::thread::ThreadId;

use millpond::backend::{BackendError, Fault, StreamId};
use millpond::{Buffer, Error};
use millpond_cuda::cudarc::driver::DriverError;
use millpond_cuda::cudarc::driver::result::{self, StreamAllocator};
use millpond_cuda::cudarc::driver::sys::{CUdeviceptr, CUstream, CUstreamCaptureStatus};
use millpond_cuda::{Cuda, CudaError};
use parking_lot::{Mutex, RwLock};

use crate::{Device, InstallError};

/// Threads that free different buffers seldom meet at one lock.
const SHELVES: usize = 16;

/// What the driver calls the default stream of whatever thread asks.
const PER_THREAD: usize = 2;

/// The identity of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Key {
    Handle(usize),
    /// The default stream of a thread. All of these have one handle.
    Thread(ThreadId),
}

impl Key {
    pub(crate) fn new(handle: CUstream) -> Key {
        match handle as usize {
            PER_THREAD => Key::Thread(std::thread::current().id()),
            // `CU_STREAM_LEGACY` and null are one stream.
            1 => Key::Handle(0),
            other => Key::Handle(other),
        }
    }
}

/// A buffer that cudarc holds, by its address.
struct Lent {
    buffer: Buffer<Cuda>,
    device: &'static Device,
}

#[derive(Default)]
struct Hook {
    devices: RwLock<Vec<&'static Device>>,
    lent: [Mutex<HashMap<CUdeviceptr, Lent>>; SHELVES],
}

static HOOK: LazyLock<Hook> = LazyLock::new(Hook::default);

/// Adds a device, and sets cudarc's hook if it is the first.
pub(crate) fn add(device: Device, ordinal: usize) -> Result<&'static Device, InstallError> {
    let mut devices = HOOK.devices.write();
    if devices.iter().any(|other| other.context == device.context) {
        return Err(InstallError::Installed { ordinal });
    }
    if devices.is_empty() && !result::set_allocator(&*HOOK) {
        return Err(InstallError::Taken);
    }
    let device: &'static Device = Box::leak(Box::new(device));
    devices.push(device);
    Ok(device)
}

/// Registers a stream of cudarc's.
pub(crate) fn register(cuda: &Cuda, handle: CUstream) -> Result<StreamId, Error<CudaError>> {
    // SAFETY: cudarc's caller allocates or frees on the stream, so it is alive, and of the context that is current.
    // `destroyed` unregisters it before it is destroyed.
    let registered = unsafe { cuda.register_raw(handle) };
    registered.map_err(|source| Error::Driver { call: "register", lost: source.fault() == Fault::Lost, source })
}

impl Hook {
    /// Returns the device of the context that is current, if it is one of ours.
    fn current(&self) -> Option<&'static Device> {
        let context = result::ctx::get_current().ok()?? as usize;
        self.devices.read().iter().find(|device| device.context == context).copied()
    }

    fn shelf(&self, address: CUdeviceptr) -> &Mutex<HashMap<CUdeviceptr, Lent>> {
        // Addresses are multiples of 512.
        &self.lent[(address >> 9) as usize % SHELVES]
    }
}

// SAFETY: a buffer's memory is its own from the allocation on its stream until it is dropped, and aligned to 512 bytes.
// A buffer is dropped only when its address is freed, after the stream that frees it was recorded.
unsafe impl StreamAllocator for Hook {
    unsafe fn alloc(&self, stream: CUstream, num_bytes: usize) -> Option<Result<CUdeviceptr, DriverError>> {
        let device = self.current()?;
        // Memory that a graph uses each time it is launched has to be the graph's own, which the driver sees to.
        // SAFETY: the stream is alive, as the caller promises.
        if unsafe { result::stream::is_capturing(stream) } != Ok(CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE) {
            return None;
        }
        Some(device.allocate(stream, num_bytes).map(|buffer| {
            let address = buffer.address().expect("buffers of CUDA have addresses");
            self.shelf(address).lock().insert(address, Lent { buffer, device });
            address
        }))
    }

    unsafe fn free(&self, dptr: CUdeviceptr, stream: Option<CUstream>) -> bool {
        let lent = self.shelf(dptr).lock().remove(&dptr);
        let Some(Lent { buffer, device }) = lent else { return false };
        device.free(buffer, stream);
        true
    }

    unsafe fn destroyed(&self, stream: CUstream) {
        let devices = self.devices.read().clone();
        devices.iter().for_each(|device| device.forget(stream));
    }
}
