//! Pages that go to other processes, and pages that come from them, as file descriptors. How a descriptor gets from one
//! process to another is left to the program.

use std::ffi::{c_uint, c_void};
use std::fmt;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;
use std::sync::Arc;

use cudarc::driver::sys::{CUdeviceptr, CUmemAllocationHandleType, CUmemGenericAllocationHandle};
use millpond_backend::ClassId;
use millpond_kit::Misuse;

use super::{PageFacts, Pages, aligned};
use crate::error::CudaError;
use crate::gear::Gear;
use crate::memory::segment::{Mapping, Range, Segment};

const EXPORT: &str = "cuMemExportToShareableHandle";
const IMPORT: &str = "cuMemImportFromShareableHandle";

/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`, as a number.
const DESCRIPTOR: c_uint = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR.0;

/// A page for another process.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SharedPage {
    /// The driver's file descriptor of the page. The device keeps it open until the page goes back to the driver. While
    /// it is open the memory is not free, even if the page was released.
    pub descriptor: Arc<OwnedFd>,
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
        self.properties.requestedHandleTypes == CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
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
        let around = |range: &Range| range.address <= address && address - range.address < range.bytes;
        let range = self.live.lock().ranges.values().find(|range| around(range)).map(Arc::clone);
        let range = range.ok_or(CudaError::NotInPages { device: self.ordinal, address })?;
        let offset = address - range.address;
        let mapped = if bytes <= range.bytes - offset { range.mappings(offset, bytes) } else { None };
        let (first, mappings) = mapped.ok_or(Misuse::Unmapped { address, bytes })?;
        let mut at = range.address + first;
        let mut pages = Vec::with_capacity(mappings.len());
        for mapping in mappings {
            pages.push(self.export_page(mapping, at)?);
            at += mapping.bytes;
        }
        Ok(SharedRun { pages, offset: offset - first })
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
        Ok(SharedPage { descriptor, bytes, number })
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
        let code = unsafe { export(to, handle, DESCRIPTOR, 0) };
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
        let code = unsafe { import(&raw mut handle, from, DESCRIPTOR) };
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
