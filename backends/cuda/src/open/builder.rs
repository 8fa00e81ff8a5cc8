//! The description of a device that is to be opened, and the contexts that this takes.

use std::marker::PhantomData;
use std::ptr;
use std::sync::Arc;

use cudarc::driver::sys::{CUcontext, CUstream};
use cudarc::driver::{CudaContext, DriverError};
use millpond_kit::Misuse;

use super::context::{self, Bound, Shared};
use crate::driver::Driver;
use crate::error::{Code, CudaError};
use crate::gear::{Gear, Plain};
use crate::probe::DeviceInfo;

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
    pub(crate) ordinal: usize,
    peers: Vec<usize>,
    pub(crate) alloc: Alloc,
    pub(crate) pages: bool,
    pub(crate) shareable_pages: bool,
    pub(crate) blocking: bool,
    gear: PhantomData<G>,
}

impl<G: Gear> CudaBuilder<G> {
    /// Returns the defaults.
    pub(crate) fn new() -> CudaBuilder<G> {
        CudaBuilder {
            ordinal: 0,
            peers: Vec::new(),
            alloc: Alloc::Sync,
            pages: true,
            shareable_pages: false,
            blocking: false,
            gear: PhantomData,
        }
    }

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

    /// Sets whether pages are created so that [`export`](crate::Cuda::export) can give them to other processes, where
    /// the device has that ([`DeviceInfo::shareable_pages`]). Off by default: a page that is not exported costs nothing
    /// more with current drivers, but drivers of the 525 series were reported to be much slower with such pages.
    pub fn shareable_pages(mut self, shareable: bool) -> CudaBuilder<G> {
        self.shareable_pages = shareable;
        self
    }

    /// Sets whether the host sleeps while it waits for the device, which takes a few microseconds longer and keeps no
    /// core busy, or spins. It spins by default.
    pub fn blocking_waits(mut self, blocking: bool) -> CudaBuilder<G> {
        self.blocking = blocking;
        self
    }

    /// Gives each peer access to this device's memory.
    pub(crate) fn open_peers(&self, driver: &'static Driver, own: &CudaContext) -> Result<Vec<Shared>, CudaError> {
        let others = self.peers.iter().filter(|&&ordinal| ordinal != own.ordinal());
        others.map(|&ordinal| open_peer(driver, own, ordinal)).collect()
    }
}

/// Gives a peer access to the memory of a device that the driver allocates. Returns the peer's context.
pub(crate) fn open_peer(driver: &'static Driver, own: &CudaContext, ordinal: usize) -> Result<Shared, CudaError> {
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
    Ok(context)
}

pub(crate) fn bind(driver: &'static Driver, context: CUcontext) -> Result<Bound, CudaError> {
    Bound::new(driver, context).map_err(|(call, code)| CudaError::Driver { call, code })
}

/// Returns a function for `map_err` on a call of cudarc's.
pub(crate) fn told(call: &'static str) -> impl Fn(DriverError) -> CudaError {
    move |error| CudaError::Driver { call, code: Code(error.0 as u32) }
}

/// Returns the primary context of a device.
pub(crate) fn retain(driver: &'static Driver, ordinal: usize) -> Result<Arc<CudaContext>, CudaError> {
    driver.device(ordinal)?;
    // cudarc makes the context current; the thread keeps the one that it had.
    let current = context::current(driver).map_err(|code| CudaError::Driver { call: "cuCtxGetCurrent", code })?;
    let context = CudaContext::new(ordinal).map_err(told("cuDevicePrimaryCtxRetain"))?;
    context::restore(driver, current);
    untracked(&context);
    Ok(context)
}

/// Keeps cudarc from recording two events for every use of memory in our segments.
pub(crate) fn untracked(context: &CudaContext) {
    // SAFETY: code that uses memory of this context orders its streams by points, as the allocator's contract requires.
    unsafe { context.disable_event_tracking() };
}

/// Creates a stream for `cuMemAllocAsync`, if the device has memory pools.
pub(crate) fn pool_stream(
    driver: &'static Driver,
    context: &CudaContext,
    info: &DeviceInfo,
) -> Result<CUstream, CudaError> {
    if !info.memory_pools || driver.cuMemAllocAsync.is_none() || driver.cuMemFreeAsync.is_none() {
        return Err(Misuse::Unsupported { call: "cuMemAllocAsync", missing: Some("no memory pools") }.into());
    }
    let _bound = bind(driver, context.cu_ctx())?;
    let mut stream = ptr::null_mut();
    // SAFETY: the pointer is to a local pointer; the context is current. 1 is CU_STREAM_NON_BLOCKING.
    Code(unsafe { (driver.cuStreamCreate)(&raw mut stream, 1) }).check("cuStreamCreate")?;
    Ok(stream)
}
