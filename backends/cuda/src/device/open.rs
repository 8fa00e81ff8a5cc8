//! Opening a device, or adopting a context that another part of the program owns.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cudarc::driver::CudaContext;
use cudarc::driver::sys::{CUcontext, CUdevice};
use millpond_backend::{Caps, Class, ClassKind, Closing, Reuse};
#[cfg(doc)]
use millpond_kit::Misuse;
use parking_lot::Mutex;

use super::{CudaWith, Device};
use crate::driver::Driver;
use crate::error::CudaError;
use crate::gear::Gear;
use crate::memory::{ALIGNMENT, Memory, host};
use crate::open::context::Shared;
use crate::open::link::Link;
use crate::open::{Alloc, CudaBuilder, bind, pool_stream, retain, told, untracked};
use crate::pages::{PageFacts, Pages};
use crate::probe::DeviceInfo;
use crate::streams::Streams;
use crate::streams::handle::Handle;
use crate::time::Time;
use crate::transfer::Transfers;

impl<G: Gear> CudaWith<G> {
    /// Opens a device by its place in [`devices`](crate::Cuda::devices), in its primary context. That context is shared
    /// with all code in the process that uses it: the CUDA runtime, cudarc, PyTorch.
    ///
    /// # Errors
    ///
    /// The errors of [`CudaBuilder::build`].
    pub fn open(ordinal: usize) -> Result<CudaWith<G>, CudaError> {
        CudaWith::builder().device(ordinal).build()
    }

    /// Returns a builder of a device. The defaults are device 0 with all its capabilities, and no peers.
    pub fn builder() -> CudaBuilder<G> {
        CudaBuilder::new()
    }

    /// Creates a device from a context of cudarc's.
    ///
    /// # Errors
    ///
    /// The errors of [`CudaBuilder::build`].
    pub fn adopt(context: Arc<CudaContext>) -> Result<CudaWith<G>, CudaError> {
        CudaWith::builder().adopt(context)
    }

    /// Creates a device from a context that other code owns, and does not destroy the context. What cudarc keeps about
    /// it, a few hundred bytes, stays for the life of the process.
    ///
    /// # Errors
    ///
    /// The errors of [`CudaBuilder::build`].
    ///
    /// # Safety
    ///
    /// The context is alive, is of the device at that place, and outlives every handle of the returned device, its
    /// segments, and everything that was made through [`Cuda::context`](crate::Cuda::context).
    pub unsafe fn adopt_raw(context: CUcontext, ordinal: usize) -> Result<CudaWith<G>, CudaError> {
        let driver = Driver::load()?;
        let device = driver.device(ordinal)?;
        let _bound = bind(driver, context)?;
        // SAFETY: the context is alive and of that device, as the caller promises.
        let shared = unsafe { CudaContext::from_raw_context(ordinal, device, context) };
        let shared = shared.map_err(told("cuDeviceGetAttribute"))?;
        // Dropping the last reference would destroy the context, which is not ours, so one more reference is kept for
        // ever.
        mem::forget(Arc::clone(&shared));
        untracked(&shared);
        CudaWith::builder().adopt(shared)
    }
}

impl<G: Gear> CudaBuilder<G> {
    /// Opens the device in its primary context. Takes hundreds of milliseconds if the process has not used it yet.
    ///
    /// # Errors
    ///
    /// [`CudaError::NoDriver`], [`CudaError::MissingSymbol`], [`CudaError::DriverTooOld`], [`CudaError::NoDevice`],
    /// [`CudaError::NoPeerAccess`] and [`Misuse::Unsupported`] name what is missing; else the driver's errors.
    pub fn build(self) -> Result<CudaWith<G>, CudaError> {
        let driver = Driver::load()?;
        let context = retain(driver, self.ordinal)?;
        self.adopt(context)
    }

    /// Creates a device from a context of cudarc's, with the settings of this builder. The context determines the
    /// device.
    ///
    /// # Errors
    ///
    /// The errors of [`build`](CudaBuilder::build).
    pub fn adopt(self, context: Arc<CudaContext>) -> Result<CudaWith<G>, CudaError> {
        let driver = Driver::load()?;
        let (ordinal, raw) = (context.ordinal(), context.cu_device());
        // Even calls that need no context fail where the context of the thread was destroyed, as that of a closed
        // device is.
        let _bound = bind(driver, context.cu_ctx())?;
        let info = driver.info(ordinal)?;
        let peers = self.open_peers(driver, &context)?;
        let peer_devices: Vec<CUdevice> = peers.iter().map(|peer| peer.cu_device()).collect();
        let shareable = self.shareable_pages && info.shareable_pages;
        let pages = if self.pages && info.virtual_memory {
            Some(PageFacts::new(driver, raw, &peer_devices, shareable, info.rdma_pages)?)
        } else {
            None
        };
        let pool_stream = match self.alloc {
            Alloc::Sync => None,
            Alloc::Async => Some(pool_stream(driver, &context, &info)?),
        };
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        let caps = caps(&info, pages.as_ref(), self.alloc);
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        let link = Link::new(number, info, driver, Shared::new(driver, context));
        let memory = Memory::new(Time::new(Streams::new(link), self.blocking), caps, pool_stream.map(Handle));
        let device = Device { transfers: Transfers::new(Pages::new(memory, pages)), peers: Mutex::new(peers) };
        Ok(CudaWith { device: Arc::new(device) })
    }
}

fn caps(info: &DeviceInfo, pages: Option<&PageFacts>, alloc: Alloc) -> Caps {
    let class = |name: &str, kind, total_bytes| Class::new(kind, name, total_bytes).with_alignment(ALIGNMENT);
    let host_bytes = host::memory().map_or(u64::MAX, |(total, _)| total);
    let classes =
        vec![class("device", ClassKind::Device, info.total_bytes), class("pinned", ClassKind::Host, host_bytes)];
    Caps::new(info.name.clone(), classes, Reuse::InOrder, Closing::Backend)
        .with_release_waits(alloc == Alloc::Sync)
        .with_pages(pages.map(|facts| facts.caps))
        .with_stream_wait(true)
        .with_host_memory(true)
        .with_transfer(true)
        .with_budget(true)
}
