//! Virtual memory: ranges of addresses, pages, and the mappings between them.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use cudarc::driver::sys::{CUdevice, CUdeviceptr, CUmemGenericAllocationHandle};
use millpond_backend::{ClassId, PageCaps, StreamId};
use millpond_kit::{Misuse, Named, is_inside};
use parking_lot::{Mutex, RwLock};

use crate::driver::{Driver, PageAccess, PageProperties};
use crate::error::{Code, CudaError};
use crate::gear::Gear;
use crate::memory::segment::{Mapping, Range, Segment};
use crate::memory::{Live, Memory, Physical, size};

#[cfg(unix)]
pub(crate) mod share;

const MAP: &str = "cuMemMap";

/// `CU_MEM_ALLOC_GRANULARITY_RECOMMENDED`.
const RECOMMENDED: u32 = 1;

/// How pages of this device are created and opened for access.
pub(crate) struct PageFacts {
    pub(crate) caps: PageCaps,
    /// The device on which the memory lies, and who else can have it: other processes, network cards.
    properties: PageProperties,
    /// The devices that may touch it: this device and its peers. Read under the lock of the table that a mapping
    /// enters.
    access: RwLock<Vec<PageAccess>>,
}

impl PageFacts {
    /// Returns the facts for pages of `device` that `peers` may touch too. The context need not be current.
    /// If they are `shareable`, other processes can have them as file descriptors. If `rdma` is set, network cards can
    /// be given access to them, which the driver refuses for pages that were made without it.
    pub(crate) fn new(
        driver: &Driver,
        device: CUdevice,
        peers: &[CUdevice],
        shareable: bool,
        rdma: bool,
    ) -> Result<PageFacts, CudaError> {
        let properties = PageProperties::new(device, shareable, rdma);
        let mut granularity = 0;
        // SAFETY: both pointers are to local values of the header's layout.
        let code =
            unsafe { (driver.cuMemGetAllocationGranularity)(&raw mut granularity, &raw const properties, RECOMMENDED) };
        Code(code).check("cuMemGetAllocationGranularity")?;
        assert!(granularity.is_power_of_two(), "the driver's granularity is {granularity}, no power of two");
        let access = std::iter::once(&device).chain(peers).map(|&id| PageAccess::of(id)).collect();
        Ok(PageFacts { caps: PageCaps::new(granularity as u64), properties, access: RwLock::new(access) })
    }
}

/// The pages: the storey above memory.
pub(crate) struct Pages<G> {
    memory: Memory<G>,
    /// How pages are made, where the device has virtual memory.
    facts: Option<PageFacts>,
}

impl<G> Deref for Pages<G> {
    type Target = Memory<G>;

    #[inline]
    fn deref(&self) -> &Memory<G> {
        &self.memory
    }
}

impl<G> DerefMut for Pages<G> {
    fn deref_mut(&mut self) -> &mut Memory<G> {
        &mut self.memory
    }
}

impl<G: Gear> Pages<G> {
    pub(crate) fn new(memory: Memory<G>, facts: Option<PageFacts>) -> Pages<G> {
        Pages { memory, facts }
    }

    /// Returns whether the device has virtual memory.
    pub(crate) fn has_pages(&self) -> bool {
        self.facts.is_some()
    }

    /// Checks a request for pages or addresses, and returns the facts.
    fn page_facts(&self, call: &'static str, class: ClassId, bytes: u64) -> Result<&PageFacts, CudaError> {
        self.caps.class(class);
        let facts = self.some_pages(call)?;
        if class != ClassId::DEVICE {
            return Err(Misuse::NoPages { class }.into());
        }
        Misuse::if_empty(call, bytes)?;
        aligned(call, bytes, facts)?;
        Ok(facts)
    }

    fn some_pages(&self, call: &'static str) -> Result<&PageFacts, CudaError> {
        let missing = Misuse::Unsupported { call, missing: Some("no virtual memory") };
        self.facts.as_ref().ok_or(missing.into())
    }

    /// Opens a mapping for access by this device and its peers.
    fn open_access(&self, facts: &PageFacts, address: CUdeviceptr, bytes: u64) -> Result<(), CudaError> {
        const CALL: &str = "cuMemSetAccess";
        self.enter(CALL)?;
        let access = facts.access.read();
        // SAFETY: the callers hold the lock of the table in which the mapping is, or is about to be; the pointer is to
        // `access.len()` descriptions of the header's layout, which do not change while they are read.
        let code = unsafe { (self.driver.cuMemSetAccess)(address, size(bytes)?, access.as_ptr(), access.len()) };
        self.check(CALL, code)
    }

    /// Opens the pages for one more device: those that are mapped, and those that will be. A driver call for each
    /// mapping.
    pub(crate) fn open_pages_to(&self, peer: CUdevice) -> Result<(), CudaError> {
        let Some(facts) = &self.facts else { return Ok(()) };
        {
            let mut access = facts.access.write();
            let wanted = PageAccess::of(peer);
            if !access.contains(&wanted) {
                access.push(wanted);
            }
        }
        // A mapping that is made from now on is opened for the peer by `map`, which reads the list under the lock of
        // its table. One that was made with the list as it was has entered its table before this gets the lock.
        let ranges: Vec<_> = self.live.lock().ranges.values().map(Arc::clone).collect();
        let _bound = self.bind_relaxed()?;
        for range in ranges {
            for (offset, mapping) in range.table.lock().iter() {
                self.open_access(facts, range.address + offset, mapping.bytes)?;
            }
        }
        Ok(())
    }

    /// Unmaps the addresses that one `cuMemMap` has mapped.
    fn unmap_at(&self, address: CUdeviceptr, bytes: u64) {
        let Ok(_bound) = self.bind_relaxed() else { return };
        // SAFETY: the callers have found the mapping in its range's table and removed it there.
        self.keep("cuMemUnmap", unsafe { (self.driver.cuMemUnmap)(address, bytes as usize) });
    }

    /// Gives addresses back. No page may be mapped there.
    fn free_range(&self, range: &Range) {
        let Ok(_bound) = self.bind_relaxed() else { return };
        // SAFETY: the range was reserved with these bytes and is given back once.
        self.keep("cuMemAddressFree", unsafe { (self.driver.cuMemAddressFree)(range.address, range.bytes as usize) });
    }

    /// Gives physical memory back. It may be mapped nowhere.
    fn destroy_page(&self, Physical { handle, descriptor, .. }: Physical) {
        // An open descriptor would keep the memory.
        drop(descriptor);
        let Ok(_bound) = self.bind_relaxed() else { return };
        // SAFETY: the handle was made by `cuMemCreate` and is given back once.
        self.keep("cuMemRelease", unsafe { (self.driver.cuMemRelease)(handle) });
    }

    /// Gives back memory that was dropped without a release. No work may be running.
    pub(crate) fn release_all(&self, live: Live) {
        for range in live.ranges.values() {
            let table = std::mem::take(&mut *range.table.lock());
            for (offset, mapping) in table {
                self.unmap_at(range.address + offset, mapping.bytes);
            }
            self.free_range(range);
        }
        for page in live.pages.into_values() {
            self.destroy_page(page);
        }
        live.segments.into_values().for_each(|taken| self.give(taken));
    }
}

/// What the contract asks of pages.
impl<G: Gear> Pages<G> {
    /// Implements `reserve_range`.
    pub(crate) fn reserve_range(&self, class: ClassId, bytes: u64) -> Result<Segment, CudaError> {
        const CALL: &str = "cuMemAddressReserve";
        self.page_facts(CALL, class, bytes)?;
        self.enter(CALL)?;
        let _bound = self.bind_relaxed()?;
        let mut address = 0;
        // SAFETY: the pointer is to a local number.
        let code = unsafe { (self.driver.cuMemAddressReserve)(&raw mut address, size(bytes)?, 0, 0, 0) };
        self.check_memory(CALL, code, class, bytes)?;
        let id = self.number();
        let range = Arc::new(Range { address, bytes, table: Mutex::new(BTreeMap::new()) });
        self.live.lock().ranges.insert(id, Arc::clone(&range));
        Ok(self.segment(id, address, bytes, class, None, Some(range)))
    }

    /// Implements `release_range`.
    ///
    /// # Safety
    ///
    /// The contract's.
    pub(crate) unsafe fn release_range(&self, range: Segment) {
        self.own(range.device, "release_range", range.ordinal);
        assert!(range.is_range(), "release_range of the segment at {:#x}: use release", range.address);
        let Some(reserved) = self.live.lock().ranges.remove(&range.id) else {
            panic!("the range at {:#x} is released, and the device does not have it", range.address);
        };
        let left = reserved.table.lock().len();
        assert!(left == 0, "the range at {:#x} is released with {left} pages mapped", range.address);
        self.free_range(&reserved);
    }

    /// Implements `create_page`.
    pub(crate) fn create_page(&self, class: ClassId, bytes: u64) -> Result<Page, CudaError> {
        const CALL: &str = "cuMemCreate";
        let facts = self.page_facts(CALL, class, bytes)?;
        self.enter(CALL)?;
        let _bound = self.bind_relaxed()?;
        let mut handle = 0;
        // SAFETY: both pointers are to values of the header's layout that outlive the call.
        let code = unsafe { (self.driver.cuMemCreate)(&raw mut handle, size(bytes)?, &raw const facts.properties, 0) };
        self.check_memory(CALL, code, class, bytes)?;
        let id = self.number();
        self.live.lock().pages.insert(id, Physical { handle, descriptor: None, has_dma_buf: false });
        self.held.fetch_add(bytes, Ordering::AcqRel);
        Ok(Page { device: self.id, id, handle, bytes })
    }

    /// Implements `release_page`.
    ///
    /// # Safety
    ///
    /// The contract's.
    pub(crate) unsafe fn release_page(&self, page: Page) {
        self.own(page.device, "release_page", self.ordinal);
        let Some(physical) = self.live.lock().pages.remove(&page.id) else {
            panic!("a page of {} bytes is released, and the device does not have it", page.bytes);
        };
        self.held.fetch_sub(page.bytes, Ordering::AcqRel);
        self.destroy_page(physical);
    }

    /// Implements `map`. If the mapping cannot be opened for access, it is undone.
    ///
    /// # Safety
    ///
    /// The contract's.
    pub(crate) unsafe fn map(
        &self,
        range: &Segment,
        offset: u64,
        page: &Page,
        stream: StreamId,
    ) -> Result<(), CudaError> {
        self.own(range.device, MAP, range.ordinal);
        self.own(page.device, MAP, range.ordinal);
        self.lane(stream);
        let facts = self.some_pages(MAP)?;
        aligned(MAP, offset, facts)?;
        self.map_memory(facts, range, offset, (page.handle, Mapping { page: page.id, bytes: page.bytes }))
    }

    /// Maps memory by its handle, and opens it for access. If that cannot be, the mapping is undone.
    fn map_memory(
        &self,
        facts: &PageFacts,
        range: &Segment,
        offset: u64,
        (handle, mapping): (CUmemGenericAllocationHandle, Mapping),
    ) -> Result<(), CudaError> {
        let (address, bytes) = (range.address, mapping.bytes);
        let reserved = range.range.as_ref().ok_or(Misuse::NotARange { segment: Named::Address(address) })?;
        if !is_inside(offset, bytes, range.bytes) {
            return Err(range.out_of_range("range", offset, bytes).into());
        }
        let address = address + offset;
        self.enter(MAP)?;
        let _bound = self.bind_relaxed()?;
        let mut table = reserved.table.lock();
        if Range::is_taken(&table, offset, bytes) {
            return Err(Misuse::AlreadyMapped { address, bytes }.into());
        }
        // SAFETY: the addresses are reserved and unmapped, as the table says; the callers have the handle.
        let code = unsafe { (self.driver.cuMemMap)(address, size(bytes)?, 0, handle, 0) };
        self.check_memory(MAP, code, range.class, bytes)?;
        if let Err(error) = self.open_access(facts, address, bytes) {
            self.unmap_at(address, bytes);
            return Err(error);
        }
        table.insert(offset, mapping);
        Ok(())
    }

    /// Returns whether the page was exported.
    pub(crate) fn is_shared(&self, page: &Page) -> bool {
        let is_shared = |physical: &Physical| physical.descriptor.is_some() || physical.has_dma_buf;
        self.live.lock().pages.get(&page.id).is_some_and(is_shared)
    }

    /// Implements `unmap`.
    ///
    /// # Safety
    ///
    /// The contract's.
    pub(crate) unsafe fn unmap(&self, range: &Segment, offset: u64, page: &Page, stream: StreamId) {
        self.own(range.device, "cuMemUnmap", range.ordinal);
        self.lane(stream);
        let mapping = range.range.as_ref().and_then(|reserved| reserved.table.lock().remove(&offset));
        let Some(mapping) = mapping.filter(|mapping| mapping.page == page.id) else {
            panic!("unmap at offset {offset} of the range at {:#x}: the page is not mapped there", range.address);
        };
        self.unmap_at(range.address + offset, mapping.bytes);
    }
}

/// A handle of physical memory of a CUDA device. A page that is dropped without `release_page` stays with the device
/// until the device's last handle is dropped.
pub struct Page {
    device: u64,
    id: u64,
    handle: CUmemGenericAllocationHandle,
    bytes: u64,
}

impl Page {
    /// Returns its size in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the driver's handle.
    pub fn handle(&self) -> CUmemGenericAllocationHandle {
        self.handle
    }
}

impl fmt::Debug for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Page").field("handle", &self.handle).field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

fn aligned(call: &'static str, value: u64, facts: &PageFacts) -> Result<(), Misuse> {
    Misuse::if_misaligned(call, value, facts.caps.granularity, None)
}
