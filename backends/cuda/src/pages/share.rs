//! Memory that goes to other processes and other drivers, and pages that come from other processes, as file
//! descriptors. How a descriptor gets from one process to another is left to the program.

use std::ffi::{c_uint, c_void};
use std::fmt;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;
use std::sync::Arc;

use cudarc::driver::sys::{CUdeviceptr, CUmemGenericAllocationHandle};
use millpond_backend::ClassId;
use millpond_kit::Misuse;

use super::{PageFacts, Pages, aligned};
use crate::driver::FILE_DESCRIPTOR;
use crate::error::CudaError;
use crate::gear::Gear;
use crate::memory::segment::{Mapping, Range, Segment};
use crate::memory::size;

const EXPORT: &str = "cuMemExportToShareableHandle";
const IMPORT: &str = "cuMemImportFromShareableHandle";
const DMA_BUF: &str = "cuMemGetHandleForAddressRange";

/// `CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD`.
const DMA_BUF_DESCRIPTOR: c_uint = 1;

/// DMA buffers are made of whole pages of the host. This is the largest that CUDA's hosts have, and a multiple of the
/// others.
const HOST_PAGE: u64 = 64 << 10;

/// A page for another process.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SharedPage {
    /// The driver's file descriptor of the page. The device keeps it open until the page goes back to the driver. While
    /// it is open the memory is not free, even if the page was released.
    pub descriptor: Arc<OwnedFd>,
    /// The address at which the exported memory has the page.
    pub address: u64,
    /// The size of the page in bytes.
    pub bytes: u64,
    /// The page's number on this device. Numbers are never used again, as those of descriptors are.
    pub number: u64,
}

/// Pages that lie one after another.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SharedRun {
    /// The pages in the order of their addresses.
    pub pages: Vec<SharedPage>,
    /// The offset in the first page of what was exported.
    pub offset: u64,
}

/// Memory as a file that other drivers of the machine import, such as that of a network card.
#[derive(Debug)]
#[non_exhaustive]
pub struct DmaBuf {
    /// The file descriptor, which is the program's. While it is open, or imported somewhere, the memory is not free,
    /// even if the allocator has given its pages back.
    pub descriptor: OwnedFd,
    /// The size of the file in bytes.
    pub bytes: u64,
    /// The offset in the file of what was exported.
    pub offset: u64,
}

/// Memory of another process at addresses of this one. If it is dropped without
/// [`end_import`](crate::Cuda::end_import) it stays with the device until the device's last handle is dropped.
pub struct Imported {
    segment: Segment,
}

impl Imported {
    /// Returns the address of the first page.
    pub fn address(&self) -> u64 {
        self.segment.address()
    }

    /// Returns the bytes of all pages.
    pub fn bytes(&self) -> u64 {
        self.segment.bytes()
    }

    /// Returns the memory as a range in which all pages are mapped, for transfers and views.
    pub fn segment(&self) -> &Segment {
        &self.segment
    }
}

impl fmt::Debug for Imported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Imported").field("segment", &self.segment).finish()
    }
}

impl PageFacts {
    /// Returns whether pages are created so that other processes can have them.
    fn are_shareable(&self) -> bool {
        self.properties.is_shareable()
    }
}

impl<G: Gear> Pages<G> {
    /// Implements [`Cuda::export`](crate::Cuda::export).
    pub(crate) fn export(&self, address: u64, bytes: u64) -> Result<SharedRun, CudaError> {
        Misuse::if_empty(EXPORT, bytes)?;
        let facts = self.some_pages(EXPORT)?;
        if !facts.are_shareable() {
            return Err(CudaError::NotShareable { device: self.ordinal, supported: self.info.shareable_pages });
        }
        let mapped = self.mapped_at(address, bytes)?;
        let (first, mappings) = mapped.ok_or(CudaError::NotInPages { device: self.ordinal, address })?;
        let mut at = first;
        let mut pages = Vec::with_capacity(mappings.len());
        for mapping in mappings {
            pages.push(self.export_page(mapping, at)?);
            at += mapping.bytes;
        }
        Ok(SharedRun { pages, offset: address - first })
    }

    /// Returns the mappings that hold bytes of a range, in order, with the address of the first; `None` if the address
    /// is in no range.
    fn mapped_at(&self, address: u64, bytes: u64) -> Result<Option<(u64, Vec<Mapping>)>, Misuse> {
        let around = |range: &Range| range.address <= address && address - range.address < range.bytes;
        let range = self.live.lock().ranges.values().find(|range| around(range)).map(Arc::clone);
        let Some(range) = range else { return Ok(None) };
        let offset = address - range.address;
        let mapped = if bytes <= range.bytes - offset { range.mappings(offset, bytes) } else { None };
        let (first, mappings) = mapped.ok_or(Misuse::Unmapped { address, bytes })?;
        Ok(Some((range.address + first, mappings)))
    }

    /// Implements [`Cuda::export_dma_buf`](crate::Cuda::export_dma_buf).
    pub(crate) fn export_dma_buf(&self, address: u64, bytes: u64) -> Result<DmaBuf, CudaError> {
        Misuse::if_empty(DMA_BUF, bytes)?;
        if !self.info.dma_buf {
            return Err(CudaError::NoDmaBuf { device: self.ordinal });
        }
        let first = address - address % HOST_PAGE;
        let end = address.checked_add(bytes).and_then(|end| end.checked_next_multiple_of(HOST_PAGE));
        let whole = end.ok_or(Misuse::Unmapped { address, bytes })? - first;
        let mappings = self.mapped_at(first, whole)?.map_or_else(Vec::new, |(_, mappings)| mappings);
        // Held across the call, so that no page is released meanwhile.
        let mut live = self.live.lock();
        if !mappings.iter().all(|mapping| live.pages.contains_key(&mapping.page)) {
            // Pages that were imported belong to another process, which exports them.
            return Err(CudaError::NotInPages { device: self.ordinal, address });
        }
        let descriptor = self.dma_buf_of(first, whole, mappings.len())?;
        for mapping in mappings {
            live.pages.entry(mapping.page).and_modify(|page| page.has_dma_buf = true);
        }
        Ok(DmaBuf { descriptor, bytes: whole, offset: address - first })
    }

    fn dma_buf_of(&self, address: CUdeviceptr, bytes: u64, pages: usize) -> Result<OwnedFd, CudaError> {
        let make = self.driver.cuMemGetHandleForAddressRange.ok_or(CudaError::MissingSymbol { symbol: DMA_BUF })?;
        self.enter(DMA_BUF)?;
        let _bound = self.bind_relaxed()?;
        let mut descriptor: i32 = -1;
        let to = (&raw mut descriptor).cast::<c_void>();
        // SAFETY: the pointer is to a local number, which is what this kind of handle is. The driver checks the range.
        let code = unsafe { make(to, address, size(bytes)?, DMA_BUF_DESCRIPTOR, 0) };
        self.check(DMA_BUF, code).map_err(|error| match error {
            CudaError::Driver { call, code } => CudaError::DmaBufRefused { call, address, bytes, pages, code },
            other => other,
        })?;
        // SAFETY: the call returned a descriptor, which is the caller's to close.
        Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
    }

    /// Exports the page that is mapped at an address, or returns what it was exported as before.
    fn export_page(&self, mapping: Mapping, address: CUdeviceptr) -> Result<SharedPage, CudaError> {
        let Mapping { page: number, bytes } = mapping;
        // Held across the call, so that the page is not released meanwhile.
        let mut live = self.live.lock();
        // Pages that were imported belong to another process, which exports them.
        let page = live.pages.get_mut(&number).ok_or(CudaError::NotInPages { device: self.ordinal, address })?;
        let descriptor = match &page.descriptor {
            Some(descriptor) => Arc::clone(descriptor),
            None => Arc::clone(page.descriptor.insert(Arc::new(self.descriptor_of(page.handle, address, bytes)?))),
        };
        Ok(SharedPage { descriptor, address, bytes, number })
    }

    fn descriptor_of(
        &self,
        handle: CUmemGenericAllocationHandle,
        address: CUdeviceptr,
        bytes: u64,
    ) -> Result<OwnedFd, CudaError> {
        let export = self.driver.cuMemExportToShareableHandle.ok_or(CudaError::MissingSymbol { symbol: EXPORT })?;
        self.enter(EXPORT)?;
        let _bound = self.bind_relaxed()?;
        let mut descriptor: i32 = -1;
        let to = (&raw mut descriptor).cast::<c_void>();
        // SAFETY: the pointer is to a local number, which is what this kind of handle is; the page is alive, as the
        // table that the caller has locked says.
        let code = unsafe { export(to, handle, FILE_DESCRIPTOR, 0) };
        self.check(EXPORT, code).map_err(|error| match error {
            CudaError::Driver { call, code } => CudaError::NotExported { call, address, bytes, code },
            other => other,
        })?;
        // SAFETY: the call returned a descriptor, which is the caller's to close.
        Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
    }

    /// Implements [`Cuda::import`](crate::Cuda::import).
    pub(crate) fn import(&self, pages: &[(BorrowedFd<'_>, u64)]) -> Result<Imported, CudaError> {
        let facts = self.some_pages(IMPORT)?;
        for &(_, bytes) in pages {
            Misuse::if_empty(IMPORT, bytes)?;
            aligned(IMPORT, bytes, facts)?;
        }
        let most = CudaError::TooLarge { asked: u64::MAX, max: usize::MAX as u64 };
        let bytes = pages.iter().try_fold(0_u64, |sum, &(_, bytes)| sum.checked_add(bytes)).ok_or(most)?;
        let segment = self.reserve_range(ClassId::DEVICE, bytes)?;
        let imported = Imported { segment };
        let mut offset = 0;
        for &(descriptor, bytes) in pages {
            if let Err(error) = self.import_page(facts, &imported.segment, offset, (descriptor, bytes)) {
                // SAFETY: nothing has been done with the memory yet.
                unsafe { self.end_import(imported) };
                return Err(error);
            }
            offset += bytes;
        }
        Ok(imported)
    }

    /// Maps a page of another process. The mapping keeps the memory, so the handle goes back at once.
    fn import_page(
        &self,
        facts: &PageFacts,
        range: &Segment,
        offset: u64,
        (descriptor, bytes): (BorrowedFd<'_>, u64),
    ) -> Result<(), CudaError> {
        let import = self.driver.cuMemImportFromShareableHandle.ok_or(CudaError::MissingSymbol { symbol: IMPORT })?;
        let refused = |error| match error {
            CudaError::Driver { call, code } => {
                CudaError::NotImported { call, device: self.ordinal, descriptor: descriptor.as_raw_fd(), bytes, code }
            }
            other => other,
        };
        self.enter(IMPORT)?;
        let _bound = self.bind_relaxed()?;
        let mut handle = 0;
        let from = ptr::without_provenance_mut(descriptor.as_raw_fd() as usize);
        // SAFETY: the first pointer is to a local number. In the place of the second one this kind of handle has its
        // number; the descriptor is open, as its type says.
        let code = unsafe { import(&raw mut handle, from, FILE_DESCRIPTOR) };
        self.check(IMPORT, code).map_err(refused)?;
        let mapping = Mapping { page: self.number(), bytes };
        let mapped = self.map_memory(facts, range, offset, (handle, mapping)).map_err(refused);
        // SAFETY: the handle was made by the call above and is given back once.
        self.keep("cuMemRelease", unsafe { (self.driver.cuMemRelease)(handle) });
        mapped
    }

    /// Implements [`Cuda::end_import`](crate::Cuda::end_import).
    ///
    /// # Safety
    ///
    /// No work uses the memory any more.
    pub(crate) unsafe fn end_import(&self, imported: Imported) {
        let segment = imported.segment;
        self.own(segment.device, "end_import", segment.ordinal);
        let Some(range) = self.live.lock().ranges.remove(&segment.id) else {
            panic!("the import at {:#x} is ended, and the device does not have it", segment.address);
        };
        let table = std::mem::take(&mut *range.table.lock());
        for (offset, mapping) in table {
            self.unmap_at(range.address + offset, mapping.bytes);
        }
        self.free_range(&range);
    }
}
