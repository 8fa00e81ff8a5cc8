//! A CUDA device as a device under test.

use std::sync::{Mutex, MutexGuard, PoisonError};

use millpond_backend::{Backend as _, Fault, StreamId, Tick};
use millpond_cuda::testing::Cuda;
use millpond_cuda::{Alloc, CudaError};

use crate::device::{DeviceUnderTest, Need, Unavailable};

/// A CUDA device of this machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CudaDevice {
    ordinal: usize,
    alloc: Alloc,
    pages: bool,
}

impl CudaDevice {
    /// Creates the device at this index of [`Cuda::devices`], with virtual memory where the device has it, and with
    /// segments from `cuMemAlloc`.
    pub const fn new(ordinal: usize) -> Self {
        Self { ordinal, alloc: Alloc::Sync, pages: true }
    }

    /// Returns the same device with segments from this allocator of the driver.
    pub const fn alloc(self, alloc: Alloc) -> Self {
        Self { alloc, ..self }
    }

    /// Returns the same device with virtual memory where it has it, or without.
    pub const fn pages(self, pages: bool) -> Self {
        Self { pages, ..self }
    }
}

impl DeviceUnderTest for CudaDevice {
    type Backend = Cuda;

    fn name(&self) -> String {
        let listed = Cuda::devices().ok().and_then(|devices| devices.into_iter().nth(self.ordinal));
        let name = listed.map_or_else(|| "none".to_owned(), |device| device.name);
        let alloc = if self.alloc == Alloc::Async { ", cuMemAllocAsync" } else { "" };
        format!("CUDA device {} ({name}{alloc}{})", self.ordinal, if self.pages { "" } else { ", no pages" })
    }

    fn open(&self, need: &Need) -> Result<Cuda, Unavailable> {
        let builder = Cuda::builder().device(self.ordinal).alloc(self.alloc).pages(self.pages);
        let device = builder.build().map_err(|error| Unavailable(error.to_string()))?;
        if need.pages && device.caps().pages.is_none() {
            return Err(Unavailable("the device has no virtual memory, or was opened without it".to_owned()));
        }
        Ok(device)
    }

    fn requirement(&self) -> Option<&'static str> {
        Some("cuda")
    }

    /// Returns a guard, because all devices of the process share a context, and the driver runs functions of the host
    /// on one thread. A free would wait for work that another scenario holds, while that scenario waits for a lock that
    /// the free has.
    fn turn(&self) -> Option<MutexGuard<'static, ()>> {
        static TURN: Mutex<()> = Mutex::new(());
        Some(TURN.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn twin(&self, backend: &Cuda) -> Option<Cuda> {
        Some(backend.clone())
    }

    fn hold(&self, backend: &Cuda, stream: StreamId) -> bool {
        backend.hold(stream).is_ok()
    }

    fn unhold(&self, backend: &Cuda, stream: StreamId) {
        backend.unhold(stream);
    }

    fn fail_nth(&self, backend: &Cuda, nth: u64, fault: Fault) -> bool {
        backend.fail_nth(nth, fault);
        true
    }

    fn forget_faults(&self, backend: &Cuda) {
        backend.forget_faults();
    }

    fn fallible_calls(&self, backend: &Cuda) -> Option<u64> {
        Some(backend.fallible_calls())
    }

    fn held_bytes(&self, backend: &Cuda) -> Option<u64> {
        Some(backend.held_bytes())
    }

    fn reached(backend: &Cuda, stream: StreamId) -> Result<Tick, CudaError> {
        backend.reached_by_now(stream)
    }

    /// Returns whether segments come from `cuMemAlloc`. The driver's own pool gives memory back at times of its own
    /// choice.
    fn budget_follows(&self, _backend: &Cuda) -> bool {
        self.alloc == Alloc::Sync
    }
}
