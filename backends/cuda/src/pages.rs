//! Virtual memory: ranges of addresses, pages, and the mappings between them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use cudarc::driver::sys::{
    CUdevice, CUdeviceptr, CUmemAccess_flags, CUmemAccessDesc, CUmemAllocationHandleType, CUmemAllocationProp,
    CUmemAllocationProp_st__bindgen_ty_1, CUmemAllocationType, CUmemGenericAllocationHandle, CUmemLocation,
    CUmemLocationType,
};
use millpond_backend::{ClassId, PageCaps, StreamId, VirtualMemory};
use parking_lot::Mutex;

use crate::code::Code;
use crate::device::Device;
use crate::driver::Driver;
use crate::memory::size;
use crate::segment::{Mapping, Range};
use crate::{Cuda, CudaError, Page, Segment};

/// `CU_MEM_ALLOC_GRANULARITY_RECOMMENDED`.
const RECOMMENDED: u32 = 1;

/// How pages of this device are created and opened for access.
pub(crate) struct PageFacts {
    pub(crate) caps: PageCaps,
    /// The device on which the memory lies.
    properties: CUmemAllocationProp,
    /// The devices that may touch it: this device and its peers.
    access: Vec<CUmemAccessDesc>,
}

// SAFETY: the only pointer in it is null. It describes handles for sharing, which are not asked for.
unsafe impl Send for PageFacts {}
// SAFETY: as for `Send`.
unsafe impl Sync for PageFacts {}

impl PageFacts {
    /// Returns the facts for pages of `device` that `peers` may touch too. The context need not be current.
    pub(crate) fn new(driver: &Driver, device: CUdevice, peers: &[CUdevice]) -> Result<PageFacts, CudaError> {
        let location = |id| CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id };
        let properties = CUmemAllocationProp {
            type_: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
            requestedHandleTypes: CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE,
            location: location(device),
            win32HandleMetaData: std::ptr::null_mut(),
            allocFlags: CUmemAllocationProp_st__bindgen_ty_1 {
                compressionType: 0,
                gpuDirectRDMACapable: 0,
                usage: 0,
                reserved: [0; 4],
            },
        };
        let mut granularity = 0;
        // SAFETY: both pointers are to local values of the header's layout.
        let code =
            unsafe { (driver.cuMemGetAllocationGranularity)(&raw mut granularity, &raw const properties, RECOMMENDED) };
        Code(code).check("cuMemGetAllocationGranularity")?;
        assert!(granularity.is_power_of_two(), "the driver's granularity is {granularity}, no power of two");
        let flags = CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        let devices = std::iter::once(&device).chain(peers);
        let access = devices.map(|&id| CUmemAccessDesc { location: location(id), flags }).collect();
        Ok(PageFacts { caps: PageCaps::new(granularity as u64), properties, access })
    }
}

impl Device {
    /// Checks a request for pages or addresses, and returns the facts.
    fn page_facts(&self, call: &'static str, class: ClassId, bytes: u64) -> Result<&PageFacts, CudaError> {
        self.caps.class(class);
        let facts = self.some_pages(call)?;
        if class != ClassId::DEVICE {
            return Err(CudaError::NoPages { class });
        }
        if bytes == 0 {
            return Err(CudaError::Empty { call });
        }
        aligned(call, bytes, facts)?;
        Ok(facts)
    }

    fn some_pages(&self, call: &'static str) -> Result<&PageFacts, CudaError> {
        self.pages.as_ref().ok_or(CudaError::Unsupported { call, missing: "no virtual memory" })
    }

    /// Opens a mapping for access by this device and its peers.
    fn open_access(&self, facts: &PageFacts, address: CUdeviceptr, bytes: u64) -> Result<(), CudaError> {
        const CALL: &str = "cuMemSetAccess";
        self.enter(CALL)?;
        // SAFETY: the addresses were just mapped; the pointer is to `access.len()` descriptions of the header's layout.
        let code =
            unsafe { (self.driver.cuMemSetAccess)(address, size(bytes)?, facts.access.as_ptr(), facts.access.len()) };
        self.check(CALL, code)
    }

    /// Unmaps the addresses that one `cuMemMap` has mapped.
    pub(crate) fn unmap_at(&self, address: CUdeviceptr, bytes: u64) {
        let Ok(_bound) = self.bind_relaxed() else { return };
        // SAFETY: the callers have found the mapping in its range's table and removed it there.
        self.keep("cuMemUnmap", unsafe { (self.driver.cuMemUnmap)(address, bytes as usize) });
    }

    /// Gives addresses back. No page may be mapped there.
    pub(crate) fn free_range(&self, range: &Range) {
        let Ok(_bound) = self.bind_relaxed() else { return };
        // SAFETY: the range was reserved with these bytes and is given back once.
        self.keep("cuMemAddressFree", unsafe { (self.driver.cuMemAddressFree)(range.address, range.bytes as usize) });
    }

    /// Gives physical memory back. It may be mapped nowhere.
    pub(crate) fn destroy_page(&self, handle: CUmemGenericAllocationHandle) {
        let Ok(_bound) = self.bind_relaxed() else { return };
        // SAFETY: the handle was made by `cuMemCreate` and is given back once.
        self.keep("cuMemRelease", unsafe { (self.driver.cuMemRelease)(handle) });
    }
}

fn aligned(call: &'static str, value: u64, facts: &PageFacts) -> Result<(), CudaError> {
    let granularity = facts.caps.granularity;
    if value.is_multiple_of(granularity) { Ok(()) } else { Err(CudaError::Misaligned { call, value, granularity }) }
}

impl VirtualMemory for Cuda {
    type Segment = Segment;
    type Page = Page;
    type Error = CudaError;

    fn reserve_range(&self, class: ClassId, bytes: u64) -> Result<Segment, CudaError> {
        const CALL: &str = "cuMemAddressReserve";
        let device = &*self.device;
        device.page_facts(CALL, class, bytes)?;
        device.enter(CALL)?;
        let _bound = device.bind_relaxed()?;
        let mut address = 0;
        // SAFETY: the pointer is to a local number.
        let code = unsafe { (device.driver.cuMemAddressReserve)(&raw mut address, size(bytes)?, 0, 0, 0) };
        device.check_memory(CALL, code, class, bytes)?;
        let id = device.number();
        let range = Arc::new(Range { address, bytes, table: Mutex::new(BTreeMap::new()) });
        device.live.lock().ranges.insert(id, Arc::clone(&range));
        Ok(device.segment(id, address, bytes, class, None, Some(range)))
    }

    unsafe fn release_range(&self, range: Segment) {
        let device = &*self.device;
        device.own(range.device, "release_range", range.ordinal);
        assert!(range.is_range(), "release_range of the segment at {:#x}: use release", range.address);
        let Some(reserved) = device.live.lock().ranges.remove(&range.id) else {
            panic!("the range at {:#x} is released, and the device does not have it", range.address);
        };
        let left = reserved.table.lock().len();
        assert!(left == 0, "the range at {:#x} is released with {left} pages mapped", range.address);
        device.free_range(&reserved);
    }

    fn create_page(&self, class: ClassId, bytes: u64) -> Result<Page, CudaError> {
        const CALL: &str = "cuMemCreate";
        let device = &*self.device;
        let facts = device.page_facts(CALL, class, bytes)?;
        device.enter(CALL)?;
        let _bound = device.bind_relaxed()?;
        let mut handle = 0;
        // SAFETY: both pointers are to values of the header's layout that outlive the call.
        let code =
            unsafe { (device.driver.cuMemCreate)(&raw mut handle, size(bytes)?, &raw const facts.properties, 0) };
        device.check_memory(CALL, code, class, bytes)?;
        let id = device.number();
        device.live.lock().pages.insert(id, handle);
        device.held.fetch_add(bytes, Ordering::AcqRel);
        Ok(Page { device: device.id, id, handle, bytes })
    }

    unsafe fn release_page(&self, page: Page) {
        let device = &*self.device;
        device.own(page.device, "release_page", device.ordinal);
        if device.live.lock().pages.remove(&page.id).is_none() {
            panic!("a page of {} bytes is released, and the device does not have it", page.bytes);
        }
        device.held.fetch_sub(page.bytes, Ordering::AcqRel);
        device.destroy_page(page.handle);
    }

    /// Maps the page immediately, on no stream. If the mapping cannot be opened for access, it is undone.
    unsafe fn map(&self, range: &Segment, offset: u64, page: &Page, stream: StreamId) -> Result<(), CudaError> {
        const CALL: &str = "cuMemMap";
        let device = &*self.device;
        device.own(range.device, CALL, range.ordinal);
        device.own(page.device, CALL, range.ordinal);
        device.lane(stream);
        let facts = device.some_pages(CALL)?;
        let (address, bytes) = (range.address, page.bytes);
        let reserved = range.range.as_ref().ok_or(CudaError::NotARange { address })?;
        aligned(CALL, offset, facts)?;
        if offset.checked_add(bytes).is_none_or(|end| end > range.bytes) {
            return Err(range.out_of_range("range", offset, bytes));
        }
        let address = address + offset;
        device.enter(CALL)?;
        let _bound = device.bind_relaxed()?;
        let mut table = reserved.table.lock();
        if Range::is_taken(&table, offset, bytes) {
            return Err(CudaError::AlreadyMapped { address, bytes });
        }
        // SAFETY: the addresses are reserved and unmapped, as the table says; the handle is alive with its page.
        let code = unsafe { (device.driver.cuMemMap)(address, size(bytes)?, 0, page.handle, 0) };
        device.check_memory(CALL, code, range.class, bytes)?;
        if let Err(error) = device.open_access(facts, address, bytes) {
            device.unmap_at(address, bytes);
            return Err(error);
        }
        table.insert(offset, Mapping { page: page.id, bytes });
        Ok(())
    }

    /// Unmaps the page immediately, on no stream, and waits for none.
    unsafe fn unmap(&self, range: &Segment, offset: u64, page: &Page, stream: StreamId) {
        let device = &*self.device;
        device.own(range.device, "cuMemUnmap", range.ordinal);
        device.lane(stream);
        let mapping = range.range.as_ref().and_then(|reserved| reserved.table.lock().remove(&offset));
        let Some(mapping) = mapping.filter(|mapping| mapping.page == page.id) else {
            panic!("unmap at offset {offset} of the range at {:#x}: the page is not mapped there", range.address);
        };
        device.unmap_at(range.address + offset, mapping.bytes);
    }
}
