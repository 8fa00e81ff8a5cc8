//! What a device offers beyond the contract: the machine's devices, the device's own facts and memory, peers.

#[cfg(unix)]
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use cudarc::driver::CudaContext;
use millpond_backend::{Point, StreamId};
#[cfg(doc)]
use millpond_kit::Misuse;

use super::{CudaWith, Device};
#[cfg(feature = "nvml")]
use crate::budget::nvml;
use crate::error::CudaError;
use crate::gear::Gear;
use crate::memory::Segment;
use crate::memory::host::RegisteredHost;
use crate::open::open_peer;
#[cfg(unix)]
use crate::pages::share::{DmaBuf, Imported, SharedRun};
use crate::probe::{self, DeviceInfo};
use crate::streams::handle::HostPointer;

/// The devices of the machine.
impl<G: Gear> CudaWith<G> {
    /// Lists the devices of this machine. The first call of a process loads the driver, which takes hundreds of
    /// milliseconds.
    ///
    /// # Errors
    ///
    /// [`CudaError::NoDriver`], [`CudaError::MissingSymbol`], [`CudaError::DriverTooOld`] and [`CudaError::NoDevice`]
    /// say what to do; else the driver's errors.
    pub fn devices() -> Result<Vec<DeviceInfo>, CudaError> {
        probe::devices()
    }

    /// Returns the version of the installed driver, major and minor, as CUDA counts.
    ///
    /// # Errors
    ///
    /// The errors of [`devices`](crate::Cuda::devices).
    pub fn driver_version() -> Result<(u32, u32), CudaError> {
        probe::driver_version()
    }
}

/// The device and its memory.
impl<G: Gear> CudaWith<G> {
    /// Returns the context, for use with the rest of cudarc.
    pub fn context(&self) -> &Arc<CudaContext> {
        &self.device.context
    }

    /// Returns the device's place, by which it was opened.
    pub fn ordinal(&self) -> usize {
        self.device.ordinal
    }

    /// Returns the facts about the device.
    pub fn info(&self) -> &DeviceInfo {
        &self.device.info
    }

    /// Returns the places of the devices whose kernels may touch this one's memory.
    pub fn peers(&self) -> Vec<usize> {
        self.device.peers.lock().iter().map(|peer| peer.ordinal()).collect()
    }

    /// Lets the kernels of another device access this one's memory, both existing and future. Holds the primary context
    /// of the other device. Does nothing for this device itself. Makes a driver call for each mapped page.
    ///
    /// Devices that are named to [`CudaBuilder::peers`](crate::CudaBuilder::peers) have been given access already.
    ///
    /// # Errors
    ///
    /// [`CudaError::NoDevice`], [`CudaError::NoPeerAccess`] if the other device cannot reach it, and the driver's
    /// errors. After an error of the driver's some pages may be open to it.
    pub fn open_to(&self, ordinal: usize) -> Result<(), CudaError> {
        if ordinal == self.ordinal() {
            return Ok(());
        }
        let peer = open_peer(self.device.driver, &self.device.context, ordinal)?;
        let raw = peer.cu_device();
        {
            let mut peers = self.device.peers.lock();
            if peers.iter().all(|known| known.ordinal() != ordinal) {
                peers.push(peer);
            }
        }
        self.device.open_pages_to(raw)
    }

    /// Returns the bytes of the device's own memory that were handed out and not given back: segments of class 0, and
    /// pages.
    pub fn held_bytes(&self) -> u64 {
        self.device.held.load(Ordering::Acquire)
    }

    /// Returns memory that other code has allocated as a segment of class 0, for an allocator that takes its segments
    /// from that code. [`release`](millpond_backend::Backend::release) and the end of the device give nothing of it
    /// back: that is left to the code that allocated it. Makes no driver call.
    ///
    /// # Errors
    ///
    /// [`Misuse::Empty`], and [`Misuse::Misaligned`] for an address that is no multiple of 512.
    ///
    /// # Safety
    ///
    /// There are that many bytes at the address, which work of this device can use. They overlap no other segment, and
    /// stay until this one is released.
    pub unsafe fn adopt_memory(&self, address: u64, bytes: u64) -> Result<Segment, CudaError> {
        self.device.adopt(address, bytes)
    }

    /// Makes work recorded on `stream` from now on begin only after a point of another device's stream is reached. The
    /// devices wait, not the host. `peer` may also be another handle of this device.
    ///
    /// This orders a copy between devices on both: before the copy, the copying stream waits here for the other stream,
    /// and after the copy, the other stream waits for the copying one. Memory that is then freed or used on the other
    /// stream is freed or used after the copy. Costs as much as [`wait_for`](millpond_backend::StreamWait::wait_for).
    ///
    /// # Errors
    ///
    /// The errors of [`wait_for`](millpond_backend::StreamWait::wait_for), and [`CudaError::Lost`] if either device is
    /// lost.
    ///
    /// # Panics
    ///
    /// If `stream` is not this device's, or the point's stream is not the peer's.
    pub fn wait_for_peer(&self, stream: StreamId, peer: &CudaWith<G>, point: Point) -> Result<(), CudaError> {
        self.device.wait_for(stream, &peer.device, point)
    }

    /// Allocates and frees memory of the device through the driver, without any bookkeeping: the least that memory
    /// costs here, for measurements. With [`Alloc::Async`](crate::Alloc::Async) both calls are queued on one stream
    /// that is not waited for, as in programs that use the driver's pool alone; else the free waits for the whole
    /// device.
    ///
    /// # Errors
    ///
    /// [`Misuse::Empty`], [`CudaError::OutOfMemory`], [`CudaError::TooLarge`], [`CudaError::Lost`], and the driver's
    /// errors.
    pub fn allocate_and_free(&self, bytes: u64) -> Result<(), CudaError> {
        self.device.allocate_and_free(bytes)
    }

    /// Page-locks host memory in place, so that devices reach it directly. Costs time in proportion to the bytes.
    ///
    /// # Errors
    ///
    /// [`Misuse::Empty`], and the driver's errors: for example if some of the memory is registered already.
    ///
    /// # Safety
    ///
    /// The memory exists and is not unmapped while the returned value lives, and no work of a device touches it any
    /// more when the value is dropped.
    pub unsafe fn register_host(&self, pointer: NonNull<u8>, bytes: u64) -> Result<RegisteredHost, CudaError> {
        let pointer = HostPointer(pointer);
        // SAFETY: the caller promises that the memory stays until the value is dropped, which unregisters it.
        let address = unsafe { self.device.register_host(pointer, bytes) }?;
        let device: Arc<Device<G>> = Arc::clone(&self.device);
        Ok(RegisteredHost { device, pointer, bytes, address })
    }
}

/// Memory for other processes and other drivers.
#[cfg(unix)]
impl<G: Gear> CudaWith<G> {
    /// Returns the pages behind `bytes` bytes at an address, as file descriptors that another process can
    /// [`import`](crate::Cuda::import). The device must have been opened with
    /// [`CudaBuilder::shareable_pages`](crate::CudaBuilder::shareable_pages).
    ///
    /// A descriptor gives access to the whole page, including everything else in it. Do not free the memory before the
    /// other processes are done with it: freed memory is reused while they still see it. How the descriptors reach the
    /// other process is left to the program: through a Unix socket, by being inherited, or fetched with `pidfd_getfd`.
    ///
    /// The first export of a page costs a driver call and an open file, which stays with the page until it is released.
    ///
    /// # Errors
    ///
    /// [`CudaError::NotShareable`], [`CudaError::NotInPages`], [`CudaError::NotExported`], [`Misuse::Unmapped`] if some
    /// of the bytes are not mapped, [`Misuse::Empty`], [`Misuse::Unsupported`] without virtual memory, and
    /// [`CudaError::Lost`].
    pub fn export(&self, address: u64, bytes: u64) -> Result<SharedRun, CudaError> {
        self.device.export(address, bytes)
    }

    /// Returns a DMA buffer of `bytes` bytes at an address: one file descriptor that other drivers of the machine
    /// import, as for the registration with a network card (`ibv_reg_dmabuf_mr`). It takes pages and memory of
    /// `cuMemAlloc`, and a device with [`DeviceInfo::dma_buf`].
    ///
    /// The buffer is made of whole pages of the host, so it also shows what lies around the bytes. It stands for the
    /// memory and not for the addresses. Do not free the memory before the others are done with it: freed memory is
    /// reused while they still see it. The allocator may give the pages back then, but the driver keeps their memory
    /// until the descriptor is closed everywhere. Costs a driver call. The descriptor is the caller's.
    ///
    /// Some drivers make no buffer of several pages, and none makes one of pages with different properties.
    /// [`export`](crate::Cuda::export) returns where each page lies, so that each can have a buffer of its own.
    ///
    /// # Errors
    ///
    /// [`CudaError::NoDmaBuf`], [`CudaError::DmaBufRefused`], [`CudaError::NotInPages`] for pages of another process,
    /// [`Misuse::Unmapped`] if some of the bytes are not mapped, [`Misuse::Empty`], and [`CudaError::Lost`].
    pub fn export_dma_buf(&self, address: u64, bytes: u64) -> Result<DmaBuf, CudaError> {
        self.device.export_dma_buf(address, bytes)
    }

    /// Maps pages of another process one after another, each with its size in bytes, for access by this device and its
    /// peers. The descriptors may be closed afterwards.
    ///
    /// The memory exists at least until [`end_import`](crate::Cuda::end_import). It is not counted by
    /// [`held_bytes`](crate::Cuda::held_bytes). The two processes order their work by themselves.
    ///
    /// # Errors
    ///
    /// [`CudaError::NotImported`], [`Misuse::Empty`], [`Misuse::Misaligned`], [`Misuse::Unsupported`] without virtual
    /// memory, [`CudaError::OutOfMemory`] and [`CudaError::Lost`]. Nothing is mapped then.
    pub fn import(&self, pages: &[(BorrowedFd<'_>, u64)]) -> Result<Imported, CudaError> {
        self.device.import(pages)
    }

    /// Ends an import: the memory is no longer mapped here.
    ///
    /// # Safety
    ///
    /// No work uses the memory any more.
    ///
    /// # Panics
    ///
    /// If it is another device's.
    pub unsafe fn end_import(&self, imported: Imported) {
        // SAFETY: as the caller promises.
        unsafe { self.device.end_import(imported) }
    }
}

/// The memory of processes.
#[cfg(feature = "nvml")]
impl<G: Gear> CudaWith<G> {
    /// Returns the bytes of the device that this process holds, as NVML counts them. They include the context's own,
    /// which `cuMemGetInfo` does not report separately. Returns `None` where NVML does not report them, as in
    /// containers that number processes anew.
    ///
    /// # Errors
    ///
    /// [`CudaError::Nvml`] if NVML cannot be loaded or a call of it fails.
    pub fn process_bytes(&self) -> Result<Option<u64>, CudaError> {
        nvml::process_bytes(&self.device.info, self.held_bytes())
    }

    /// Returns the bytes of the device that are in use, as NVML counts them: the number that `nvidia-smi` shows.
    ///
    /// # Errors
    ///
    /// [`CudaError::Nvml`] if NVML cannot be loaded or a call of it fails.
    pub fn nvml_used_bytes(&self) -> Result<u64, CudaError> {
        nvml::used_bytes(&self.device.info)
    }
}
