//! Segments: taking memory from the driver, giving it back, and giving back memory that was never released.

use std::collections::{HashMap, HashSet};
use std::ffi::c_void;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cudarc::driver::sys::{CUdeviceptr, CUmemGenericAllocationHandle};
use millpond_backend::{Caps, ClassId};
use millpond_kit::Misuse;
use parking_lot::Mutex;

use crate::error::{Code, CudaError};
use crate::gear::Gear;
use crate::streams::handle::{Handle, HostPointer};
use crate::time::Time;

pub(crate) mod host;
pub(crate) mod segment;
mod view;

use segment::Range;
pub use segment::Segment;
pub use view::View;

/// The class of page-locked host memory.
pub(crate) const PINNED: ClassId = ClassId(1);

/// `CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP`: memory for all contexts, and with an address for devices.
const PORTABLE_MAPPED: u32 = 1 | 2;

/// The alignment of every segment in bytes. Drivers keep it, and it is verified for each segment.
pub(crate) const ALIGNMENT: u64 = 512;

/// The memory that was taken from the driver and not given back.
#[derive(Default)]
pub(crate) struct Live {
    pub(crate) segments: HashMap<u64, Taken>,
    /// The segments that other code has allocated, which gives them back itself.
    adopted: HashSet<u64>,
    pub(crate) ranges: HashMap<u64, Arc<Range>>,
    pub(crate) pages: HashMap<u64, Physical>,
}

/// A file descriptor by which another process can have a page.
#[cfg(unix)]
pub(crate) type Descriptor = std::os::fd::OwnedFd;
#[cfg(not(unix))]
pub(crate) type Descriptor = std::convert::Infallible;

/// The memory of a page.
pub(crate) struct Physical {
    pub(crate) handle: CUmemGenericAllocationHandle,
    /// Its descriptor, once it was exported.
    pub(crate) descriptor: Option<Arc<Descriptor>>,
    /// Whether a DMA buffer of it was exported, whose descriptor is the program's.
    pub(crate) has_dma_buf: bool,
}

/// How a segment was taken, which determines how it is given back.
#[derive(Clone, Copy)]
pub(crate) enum Taken {
    Device { address: CUdeviceptr },
    Pooled { address: CUdeviceptr },
    Host { pointer: HostPointer },
}

impl Live {
    pub(crate) fn is_empty(&self) -> bool {
        self.segments.is_empty() && self.ranges.is_empty() && self.pages.is_empty()
    }
}

/// Returns a size in the driver's type.
pub(crate) fn size(bytes: u64) -> Result<usize, CudaError> {
    usize::try_from(bytes).map_err(|_| CudaError::TooLarge { asked: bytes, max: usize::MAX as u64 })
}

/// The memory: the storey above time.
pub(crate) struct Memory<G> {
    time: Time<G>,
    pub(crate) caps: Caps,
    /// The stream for `cuMemAllocAsync`, where that is used.
    pool_stream: Option<Handle>,
    /// The number of the next segment, range or page.
    ids: AtomicU64,
    /// The memory that was handed out and not given back.
    pub(crate) live: Mutex<Live>,
    /// Memory that was released while a capture forbade freeing it. It is freed when no capture does.
    deferred: Mutex<Vec<Taken>>,
    /// Bytes of class 0 that were handed out and not given back.
    pub(crate) held: AtomicU64,
}

impl<G> Deref for Memory<G> {
    type Target = Time<G>;

    #[inline]
    fn deref(&self) -> &Time<G> {
        &self.time
    }
}

impl<G> DerefMut for Memory<G> {
    fn deref_mut(&mut self) -> &mut Time<G> {
        &mut self.time
    }
}

impl<G: Gear> Memory<G> {
    pub(crate) fn new(time: Time<G>, caps: Caps, pool_stream: Option<Handle>) -> Memory<G> {
        Memory {
            time,
            caps,
            pool_stream,
            ids: AtomicU64::new(0),
            live: Mutex::new(Live::default()),
            deferred: Mutex::new(Vec::new()),
            held: AtomicU64::new(0),
        }
    }

    /// Implements [`Cuda::adopt_memory`](crate::Cuda::adopt_memory).
    pub(crate) fn adopt(&self, address: CUdeviceptr, bytes: u64) -> Result<Segment, CudaError> {
        const CALL: &str = "adopt_memory";
        Misuse::if_empty(CALL, bytes)?;
        Misuse::if_misaligned(CALL, address, ALIGNMENT, None)?;
        let id = self.number();
        self.live.lock().adopted.insert(id);
        Ok(self.segment(id, address, bytes, ClassId::DEVICE, None, None))
    }

    /// Returns the next number for a segment, range or page.
    pub(crate) fn number(&self) -> u64 {
        self.ids.fetch_add(1, Ordering::Relaxed)
    }

    /// Implements [`Cuda::allocate_and_free`](crate::Cuda::allocate_and_free).
    pub(crate) fn allocate_and_free(&self, bytes: u64) -> Result<(), CudaError> {
        Misuse::if_empty("allocate_and_free", bytes)?;
        let taken = match self.pool_stream {
            Some(pool) => Taken::Pooled { address: self.queue_pooled(pool, ClassId::DEVICE, bytes)? },
            None => Taken::Device { address: self.take_device(ClassId::DEVICE, bytes)? },
        };
        self.give(taken);
        self.alive()
    }

    /// Destroys the stream for `cuMemAllocAsync`, where there is one, when the device is dropped.
    pub(crate) fn destroy_pool_stream(&mut self) {
        if let Some(Handle(stream)) = self.pool_stream.take() {
            // SAFETY: this device made the stream, and no other code has its handle.
            unsafe { (self.driver.cuStreamDestroy_v2)(stream) };
        }
    }

    /// Checks the result of a call that takes memory.
    pub(crate) fn check_memory(
        &self,
        call: &'static str,
        code: u32,
        class: ClassId,
        asked: u64,
    ) -> Result<(), CudaError> {
        if Code(code) == Code::OUT_OF_MEMORY {
            return Err(CudaError::OutOfMemory { call, asked, class });
        }
        self.check(call, code)
    }

    /// Implements `reserve`.
    pub(crate) fn reserve(&self, class: ClassId, bytes: u64) -> Result<Segment, CudaError> {
        self.caps.class(class);
        Misuse::if_empty("reserve", bytes)?;
        self.give_deferred();
        let (address, taken) = match (class, self.pool_stream) {
            (PINNED, _) => {
                let (pointer, address) = self.take_host(bytes)?;
                (address, Taken::Host { pointer })
            }
            (_, Some(pool)) => {
                let address = self.take_pooled(pool, class, bytes)?;
                (address, Taken::Pooled { address })
            }
            (_, None) => {
                let address = self.take_device(class, bytes)?;
                (address, Taken::Device { address })
            }
        };
        if let Err(misaligned) = Misuse::if_misaligned("reserve", address, ALIGNMENT, None) {
            self.give(taken);
            return Err(misaligned.into());
        }
        let id = self.number();
        self.live.lock().segments.insert(id, taken);
        if class == ClassId::DEVICE {
            self.held.fetch_add(bytes, Ordering::AcqRel);
        }
        let host = if let Taken::Host { pointer } = taken { Some(pointer) } else { None };
        Ok(self.segment(id, address, bytes, class, host, None))
    }

    pub(crate) fn segment(
        &self,
        id: u64,
        address: CUdeviceptr,
        bytes: u64,
        class: ClassId,
        host: Option<HostPointer>,
        range: Option<Arc<Range>>,
    ) -> Segment {
        let context = self.context.clone();
        Segment { device: self.id, id, ordinal: self.ordinal, context, address, bytes, class, host, range }
    }

    fn take_device(&self, class: ClassId, bytes: u64) -> Result<CUdeviceptr, CudaError> {
        const CALL: &str = "cuMemAlloc";
        self.enter(CALL)?;
        let _bound = self.bind_relaxed()?;
        let mut address = 0;
        // SAFETY: the pointer is to a local number; the context is current.
        let code = unsafe { (self.driver.cuMemAlloc_v2)(&raw mut address, size(bytes)?) };
        self.check_memory(CALL, code, class, bytes)?;
        Ok(address)
    }

    /// Takes memory from the driver's own pool. The pool hands memory out in the order of a stream, so other streams
    /// may use it only once that stream has reached the allocation.
    fn take_pooled(&self, pool: Handle, class: ClassId, bytes: u64) -> Result<CUdeviceptr, CudaError> {
        let _bound = self.bind_relaxed()?;
        let address = self.queue_pooled(pool, class, bytes)?;
        // SAFETY: the stream belongs to this device.
        let synchronized = unsafe { (self.driver.cuStreamSynchronize)(pool.0) };
        if let Err(error) = self.check("cuStreamSynchronize", synchronized) {
            self.give(Taken::Pooled { address });
            return Err(error);
        }
        Ok(address)
    }

    /// Takes memory from the driver's own pool. Only that stream may use it until the host has waited for the stream.
    fn queue_pooled(&self, pool: Handle, class: ClassId, bytes: u64) -> Result<CUdeviceptr, CudaError> {
        const CALL: &str = "cuMemAllocAsync";
        let Some(take) = self.driver.cuMemAllocAsync else {
            panic!("a device was opened for cuMemAllocAsync, and its driver has none");
        };
        self.enter(CALL)?;
        let _bound = self.bind_relaxed()?;
        let mut address = 0;
        // SAFETY: the pointer is to a local number; the stream belongs to this device.
        let code = unsafe { take(&raw mut address, size(bytes)?, pool.0) };
        self.check_memory(CALL, code, class, bytes)?;
        Ok(address)
    }

    /// Takes page-locked host memory. Returns its address on the host and on devices.
    pub(crate) fn take_host(&self, bytes: u64) -> Result<(HostPointer, CUdeviceptr), CudaError> {
        const CALL: &str = "cuMemHostAlloc";
        self.enter(CALL)?;
        let _bound = self.bind_relaxed()?;
        let mut pointer: *mut c_void = std::ptr::null_mut();
        // SAFETY: the pointer is to a local pointer; the context is current.
        let code = unsafe { (self.driver.cuMemHostAlloc)(&raw mut pointer, size(bytes)?, PORTABLE_MAPPED) };
        self.check_memory(CALL, code, PINNED, bytes)?;
        let host = NonNull::new(pointer.cast::<u8>()).map(HostPointer);
        let Some(host) = host else { panic!("{CALL} of {bytes} bytes answered a null pointer with success") };
        let mut address = 0;
        // SAFETY: the memory was just allocated, mapped for devices.
        let code = unsafe { (self.driver.cuMemHostGetDevicePointer_v2)(&raw mut address, pointer, 0) };
        if let Err(error) = self.check("cuMemHostGetDevicePointer", code) {
            self.give(Taken::Host { pointer: host });
            return Err(error);
        }
        Ok((host, address))
    }

    /// Implements `release`.
    pub(crate) fn release(&self, segment: Segment) {
        self.own(segment.device, "release", segment.ordinal);
        assert!(!segment.is_range(), "release of the range at {:#x}: use release_range", segment.address);
        let taken = {
            let mut live = self.live.lock();
            if live.adopted.remove(&segment.id) {
                return;
            }
            live.segments.remove(&segment.id)
        };
        let Some(taken) = taken else {
            panic!("the segment at {:#x} is released, and the device does not have it", segment.address);
        };
        if segment.class == ClassId::DEVICE {
            self.held.fetch_sub(segment.bytes, Ordering::AcqRel);
        }
        self.give(taken);
    }

    /// Gives memory back to the driver. No work may touch it. If a capture forbids this, it is tried again later.
    pub(crate) fn give(&self, taken: Taken) {
        self.give_deferred();
        self.give_once(taken);
    }

    /// Tries again to give back the memory that a capture kept from being given back.
    pub(crate) fn give_deferred(&self) {
        let deferred = std::mem::take(&mut *self.deferred.lock());
        deferred.into_iter().for_each(|taken| self.give_once(taken));
    }

    fn give_once(&self, taken: Taken) {
        // The driver's own frees wait for the whole device.
        self.gear.before_waiting_for_all();
        let Ok(_bound) = self.bind_relaxed() else { return };
        let (call, code) = match (taken, self.driver.cuMemFreeAsync, self.pool_stream) {
            (Taken::Host { pointer }, ..) => {
                // SAFETY: it was taken by the matching call and is given back once: it was just removed from the list
                // of live memory, or of memory that could not be given back yet.
                ("cuMemFreeHost", unsafe { (self.driver.cuMemFreeHost)(pointer.0.as_ptr().cast()) })
            }
            (Taken::Pooled { address }, Some(free), Some(pool)) => {
                // SAFETY: as above; the stream belongs to this device.
                ("cuMemFreeAsync", unsafe { free(address, pool.0) })
            }
            (Taken::Device { address } | Taken::Pooled { address }, ..) => {
                // SAFETY: as above. Memory from a pool may be given back this way too.
                ("cuMemFree", unsafe { (self.driver.cuMemFree_v2)(address) })
            }
        };
        if Code(code).is_capture() {
            self.deferred.lock().push(taken);
        } else {
            self.keep(call, code);
        }
    }

    /// Panics if a segment or page belongs to another device.
    pub(crate) fn own(&self, device: u64, call: &'static str, ordinal: usize) {
        assert!(
            device == self.id,
            "{call}: what is given back was taken through another handle, on device {ordinal}, than this, on device {}",
            self.ordinal
        );
    }
}
