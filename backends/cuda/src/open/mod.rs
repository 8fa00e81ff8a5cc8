//! The builder of a device: describing it, opening it, or adopting a context that another part of the program owns.

use std::marker::PhantomData;
use std::mem;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cudarc::driver::sys::{CUcontext, CUdevice};
use cudarc::driver::{CudaContext, DriverError};
use millpond_backend::{Caps, Class, ClassKind, Closing, Reuse};
use millpond_kit::Misuse;

use crate::context::{self, Bound, Shared};
use crate::driver::Driver;
use crate::error::{Code, CudaError};
use crate::gear::{Gear, Plain};
use crate::handle::Handle;
use crate::link::Link;
use crate::memory::{ALIGNMENT, Memory, host};
use crate::pages::{PageFacts, Pages};
use crate::probe::DeviceInfo;
use crate::streams::Streams;
use crate::time::Time;
use crate::transfer::Transfers;

mod contract;
pub(crate) mod device;
mod registered;
mod surface;

use device::{CudaWith, Device};

/// The allocator of the driver that serves segments of the device's own memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Alloc {
    /// `cuMemAlloc` and `cuMemFree`, which waits for the whole device.
    #[default]
    Sync,
    /// `cuMemAllocAsync` and `cuMemFreeAsync`: the driver's own pool, with the pool's settings as they are. For
    /// comparing a driver's pool with Millpond's policies.
    Async,
}

/// The builder of a device. [`Cuda::builder`](crate::Cuda::builder) starts one, and [`build`](CudaBuilder::build) opens
/// the device.
#[derive(Clone, Debug)]
#[must_use = "nothing is opened until build is called"]
pub struct CudaBuilder<G = Plain> {
    ordinal: usize,
    peers: Vec<usize>,
    alloc: Alloc,
    pages: bool,
    blocking: bool,
    gear: PhantomData<G>,
}

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
        CudaBuilder {
            ordinal: 0,
            peers: Vec::new(),
            alloc: Alloc::Sync,
            pages: true,
            blocking: false,
            gear: PhantomData,
        }
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
    /// Sets the device, by its place in [`Cuda::devices`](crate::Cuda::devices). The default is 0.
    pub fn device(mut self, ordinal: usize) -> CudaBuilder<G> {
        self.ordinal = ordinal;
        self
    }

    /// Sets the devices whose kernels may touch this one's memory, by their places. Copies between devices do not need
    /// this. The primary context of each is held.
    pub fn peers(mut self, ordinals: &[usize]) -> CudaBuilder<G> {
        self.peers = ordinals.to_vec();
        self
    }

    /// Sets which of the driver's allocators serves segments. The default is [`Alloc::Sync`].
    pub fn alloc(mut self, alloc: Alloc) -> CudaBuilder<G> {
        self.alloc = alloc;
        self
    }

    /// Sets whether to offer virtual memory, where the device has it. On by default.
    pub fn pages(mut self, pages: bool) -> CudaBuilder<G> {
        self.pages = pages;
        self
    }

    /// Sets whether the host sleeps while it waits for the device, which takes a few microseconds longer and keeps no
    /// core busy, or spins. It spins by default.
    pub fn blocking_waits(mut self, blocking: bool) -> CudaBuilder<G> {
        self.blocking = blocking;
        self
    }

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
        let pages =
            if self.pages && info.virtual_memory { Some(PageFacts::new(driver, raw, &peer_devices)?) } else { None };
        let pool_stream = match self.alloc {
            Alloc::Sync => None,
            Alloc::Async => Some(pool_stream(driver, &context, &info)?),
        };
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        let caps = caps(&info, pages.as_ref(), self.alloc);
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        let link = Link::new(number, info, driver, Shared::new(driver, context));
        let memory = Memory::new(Streams::new(Time::new(link, self.blocking)), caps, pool_stream);
        let device = Device { transfers: Transfers::new(Pages::new(memory, pages)), peers };
        Ok(CudaWith { device: Arc::new(device) })
    }

    /// Gives each peer access to this device's memory.
    fn open_peers(&self, driver: &'static Driver, own: &CudaContext) -> Result<Vec<Shared>, CudaError> {
        let mut peers = Vec::new();
        for &ordinal in self.peers.iter().filter(|&&ordinal| ordinal != own.ordinal()) {
            let peer = driver.device(ordinal)?;
            if !driver.can_reach(peer, own.cu_device())? {
                return Err(CudaError::NoPeerAccess { own: own.ordinal(), peer: ordinal });
            }
            let context = Shared::new(driver, retain(driver, ordinal)?);
            let _bound = bind(driver, context.cu_ctx())?;
            // SAFETY: both contexts are held, and the peer's is current.
            let code = Code(unsafe { (driver.cuCtxEnablePeerAccess)(own.cu_ctx(), 0) });
            if code != Code::PEER_ACCESS_ALREADY_ENABLED {
                code.check("cuCtxEnablePeerAccess")?;
            }
            peers.push(context);
        }
        Ok(peers)
    }
}

fn bind(driver: &'static Driver, context: CUcontext) -> Result<Bound, CudaError> {
    Bound::new(driver, context).map_err(|(call, code)| CudaError::Driver { call, code })
}

/// Returns a function for `map_err` on a call of cudarc's.
fn told(call: &'static str) -> impl Fn(DriverError) -> CudaError {
    move |error| CudaError::Driver { call, code: Code(error.0 as u32) }
}

/// Returns the primary context of a device.
fn retain(driver: &'static Driver, ordinal: usize) -> Result<Arc<CudaContext>, CudaError> {
    driver.device(ordinal)?;
    // cudarc makes the context current; the thread keeps the one that it had.
    let current = context::current(driver).map_err(|code| CudaError::Driver { call: "cuCtxGetCurrent", code })?;
    let context = CudaContext::new(ordinal).map_err(told("cuDevicePrimaryCtxRetain"))?;
    context::restore(driver, current);
    untracked(&context);
    Ok(context)
}

/// Keeps cudarc from recording two events for every use of memory in our segments.
fn untracked(context: &CudaContext) {
    // SAFETY: code that uses memory of this context orders its streams by points, as the allocator's contract requires.
    unsafe { context.disable_event_tracking() };
}

/// Creates a stream for `cuMemAllocAsync`, if the device has memory pools.
fn pool_stream(driver: &'static Driver, context: &CudaContext, info: &DeviceInfo) -> Result<Handle, CudaError> {
    if !info.memory_pools || driver.cuMemAllocAsync.is_none() || driver.cuMemFreeAsync.is_none() {
        return Err(Misuse::Unsupported { call: "cuMemAllocAsync", missing: Some("no memory pools") }.into());
    }
    let _bound = bind(driver, context.cu_ctx())?;
    let mut stream = ptr::null_mut();
    // SAFETY: the pointer is to a local pointer; the context is current. 1 is CU_STREAM_NON_BLOCKING.
    Code(unsafe { (driver.cuStreamCreate)(&raw mut stream, 1) }).check("cuStreamCreate")?;
    Ok(Handle(stream))
}

fn caps(info: &DeviceInfo, pages: Option<&PageFacts>, alloc: Alloc) -> Caps {
    let class = |name: &str, kind, total_bytes| Class {
        name: name.to_owned(),
        kind,
        alignment: ALIGNMENT,
        max_segment_bytes: u64::MAX,
        total_bytes,
    };
    let host_bytes = host::memory().map_or(u64::MAX, |(total, _)| total);
    Caps {
        name: info.name.clone(),
        classes: vec![
            class("device", ClassKind::Device, info.total_bytes),
            class("pinned", ClassKind::Host, host_bytes),
        ],
        reuse: Reuse::InOrder,
        needs_barrier: false,
        closing: Closing::Backend,
        release_waits: alloc == Alloc::Sync,
        oversubscribes: false,
        pages: pages.map(|facts| facts.caps),
        stream_wait: true,
        host_memory: true,
        transfer: true,
        budget: true,
    }
}
