//! Describing the device to open, and opening it, or standing on a context that somebody else has.

use std::mem;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use cudarc::driver::sys::{CUcontext, CUdevice};
use cudarc::driver::{CudaContext, DriverError};
use millpond_backend::{Caps, Class, ClassKind, Closing, FaultPlan, Reuse};
use parking_lot::Mutex;

use crate::code::Code;
use crate::context::{self, Bound, Shared};
use crate::device::Device;
use crate::driver::Driver;
use crate::lane::Handle;
use crate::memory::{ALIGNMENT, Live};
use crate::pages::PageFacts;
use crate::streams::Registry;
use crate::{Cuda, CudaError, DeviceInfo, host};

/// Which of the driver's allocators serves segments of the device's own memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Alloc {
    /// `cuMemAlloc` and `cuMemFree`, which waits for the whole device.
    #[default]
    Sync,
    /// `cuMemAllocAsync` and `cuMemFreeAsync`: the driver's own pool, with the pool's settings as they are. For
    /// comparison of a driver's pool with Millpond's policies.
    Async,
}

/// A device to be opened. Start with [`Cuda::builder`], end with [`build`](CudaBuilder::build).
#[derive(Clone, Debug)]
#[must_use = "nothing is opened until build is called"]
pub struct CudaBuilder {
    ordinal: usize,
    peers: Vec<usize>,
    alloc: Alloc,
    pages: bool,
    blocking: bool,
}

impl Cuda {
    /// Opens a device by its place in [`devices`](Cuda::devices), in its primary context, which is shared with
    /// everybody in the process who uses that: the CUDA runtime, cudarc, PyTorch.
    ///
    /// # Errors
    ///
    /// As [`CudaBuilder::build`].
    pub fn open(ordinal: usize) -> Result<Cuda, CudaError> {
        Cuda::builder().device(ordinal).build()
    }

    /// A device to be described; what is left unsaid is device 0 with all it has, and no peers.
    pub fn builder() -> CudaBuilder {
        CudaBuilder { ordinal: 0, peers: Vec::new(), alloc: Alloc::Sync, pages: true, blocking: false }
    }

    /// Stands on a context of cudarc's.
    ///
    /// # Errors
    ///
    /// As [`CudaBuilder::build`].
    pub fn adopt(context: Arc<CudaContext>) -> Result<Cuda, CudaError> {
        Cuda::builder().adopt(context)
    }

    /// Stands on a context that somebody else owns, and does not destroy it. What cudarc keeps about it, some hundred
    /// bytes, stays for the life of the process.
    ///
    /// # Errors
    ///
    /// As [`CudaBuilder::build`].
    ///
    /// # Safety
    ///
    /// The context is alive, is of the device at that place, and outlives every handle of the answer, its segments, and
    /// whatever was made through [`Cuda::context`].
    pub unsafe fn adopt_raw(context: CUcontext, ordinal: usize) -> Result<Cuda, CudaError> {
        let driver = Driver::load()?;
        let device = driver.device(ordinal)?;
        let _bound = bind(driver, context)?;
        // SAFETY: the context is alive and of that device, as the caller promises.
        let shared = unsafe { CudaContext::from_raw_context(ordinal, device, context) };
        let shared = shared.map_err(told("cuDeviceGetAttribute"))?;
        // Dropped for the last time it would destroy the context, which is not ours: so there is one more of it for
        // ever.
        mem::forget(Arc::clone(&shared));
        untracked(&shared);
        Cuda::builder().adopt(shared)
    }
}

impl CudaBuilder {
    /// Which device, by its place in [`Cuda::devices`]. 0 unless set.
    pub fn device(mut self, ordinal: usize) -> CudaBuilder {
        self.ordinal = ordinal;
        self
    }

    /// The devices whose kernels may touch this one's memory, by their places. Copies between devices need none. Each
    /// holds its primary context.
    pub fn peers(mut self, ordinals: &[usize]) -> CudaBuilder {
        self.peers = ordinals.to_vec();
        self
    }

    /// Which of the driver's allocators serves segments. [`Alloc::Sync`] unless set.
    pub fn alloc(mut self, alloc: Alloc) -> CudaBuilder {
        self.alloc = alloc;
        self
    }

    /// Whether to offer virtual memory, where the device has it. Yes unless set.
    pub fn pages(mut self, pages: bool) -> CudaBuilder {
        self.pages = pages;
        self
    }

    /// Whether a host that waits for the device sleeps (a few microseconds later, and no core is busy) or spins. Spins
    /// unless set.
    pub fn blocking_waits(mut self, blocking: bool) -> CudaBuilder {
        self.blocking = blocking;
        self
    }

    /// Opens the device in its primary context. Costs hundreds of milliseconds where the process has not used it yet.
    ///
    /// # Errors
    ///
    /// [`CudaError::NoDriver`], [`CudaError::MissingSymbol`], [`CudaError::DriverTooOld`], [`CudaError::NoDevice`],
    /// [`CudaError::NoPeerAccess`] and [`CudaError::Unsupported`] say what is missing; else the driver's.
    pub fn build(self) -> Result<Cuda, CudaError> {
        let driver = Driver::load()?;
        let context = retain(driver, self.ordinal)?;
        self.adopt(context)
    }

    /// Stands on a context of cudarc's, with what was described. The context says which device it is.
    ///
    /// # Errors
    ///
    /// As [`build`](CudaBuilder::build).
    pub fn adopt(self, context: Arc<CudaContext>) -> Result<Cuda, CudaError> {
        let driver = Driver::load()?;
        let (ordinal, raw) = (context.ordinal(), context.cu_device());
        // Even calls that need no context fail where the thread's has been destroyed, as that of a closed device is.
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
        let device = Device {
            id: NUMBERS.fetch_add(1, Ordering::Relaxed),
            ordinal,
            caps: caps(&info, pages.as_ref(), self.alloc),
            info,
            driver,
            context: Shared::new(driver, context),
            peers,
            pages,
            pool_stream,
            blocking: self.blocking,
            lanes: boxcar::Vec::new(),
            registry: Mutex::new(Registry::default()),
            spare: Mutex::new(Vec::new()),
            gates: Mutex::new(Vec::new()),
            closed: AtomicUsize::new(0),
            ids: AtomicU64::new(0),
            live: Mutex::new(Live::default()),
            deferred: Mutex::new(Vec::new()),
            held: AtomicU64::new(0),
            faults: FaultPlan::default(),
            lost: AtomicBool::new(false),
            cause: Mutex::new(None),
        };
        Ok(Cuda { device: Arc::new(device) })
    }

    /// Lets each peer into this device's memory.
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

/// For `map_err` on a call of cudarc's.
fn told(call: &'static str) -> impl Fn(DriverError) -> CudaError {
    move |error| CudaError::Driver { call, code: Code(error.0 as u32) }
}

/// The primary context of a device.
fn retain(driver: &'static Driver, ordinal: usize) -> Result<Arc<CudaContext>, CudaError> {
    driver.device(ordinal)?;
    // cudarc makes the context current; the thread keeps the one that it had.
    let current = context::current(driver).map_err(|code| CudaError::Driver { call: "cuCtxGetCurrent", code })?;
    let context = CudaContext::new(ordinal).map_err(told("cuDevicePrimaryCtxRetain"))?;
    context::restore(driver, current);
    untracked(&context);
    Ok(context)
}

/// Keeps cudarc from recording two events for every use of what lies in our segments.
fn untracked(context: &CudaContext) {
    // SAFETY: who uses what is made in this context orders its streams by points, as the allocator's contract asks.
    unsafe { context.disable_event_tracking() };
}

/// A stream for `cuMemAllocAsync`, where the device has memory pools.
fn pool_stream(driver: &'static Driver, context: &CudaContext, info: &DeviceInfo) -> Result<Handle, CudaError> {
    if !info.memory_pools || driver.cuMemAllocAsync.is_none() || driver.cuMemFreeAsync.is_none() {
        return Err(CudaError::Unsupported { call: "cuMemAllocAsync", missing: "no memory pools" });
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
