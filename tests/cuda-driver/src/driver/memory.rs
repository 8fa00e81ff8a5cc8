//! The table of memory: what is at which address, and which work may touch it.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use parking_lot::RwLock;

use crate::driver::code::{Answer, Code};
use crate::driver::gaps::Gaps;
use crate::driver::pages::{Mapping, Page};
use crate::ffi::reserve::{HOST_PAGE, Pages, Reserve};
use crate::{DEVICES, DmaBuf, PAGE_BYTES};

/// The unit in bytes that `cuMemAlloc` rounds up to.
const ALLOCATION_UNIT: u64 = 512;
/// The memory of a device in bytes, unless a test sets another size.
const DEVICE_BYTES: u64 = 8 << 30;
/// The number of offsets in the memory file of a device.
const FILE_BYTES: u64 = 1 << 40;

pub(crate) struct Memory {
    pub(crate) reserve: Reserve,
    pub(crate) addresses: Gaps,
    pub(crate) allocations: BTreeMap<u64, Allocation>,
    pub(crate) hosts: BTreeMap<u64, Host>,
    /// Reserved ranges: start to bytes.
    pub(crate) ranges: BTreeMap<u64, u64>,
    pub(crate) mappings: BTreeMap<u64, Mapping>,
    pub(crate) pages: BTreeMap<u64, Page>,
    /// The handle of the next page. Handles of pages are never used again.
    pub(crate) next_page: u64,
    pub(crate) devices: [DeviceMemory; DEVICES],
}

/// The memory of one device.
pub(crate) struct DeviceMemory {
    pub(crate) bytes: u64,
    pub(crate) others: u64,
    pub(crate) held: u64,
    /// Whether its pages can be made so that network cards reach them.
    pub(crate) rdma: bool,
    pub(crate) dma_buf: DmaBuf,
    /// The part of `held` that came from `cuMemAllocAsync`.
    pub(crate) pooled: u64,
    pub(crate) file: Pages,
    pub(crate) offsets: Gaps,
}

pub(crate) struct Allocation {
    pub(crate) device: usize,
    pub(crate) bytes: u64,
    /// Whether it came from `cuMemAllocAsync`.
    pub(crate) pooled: bool,
    /// Whether its free is queued. Noted here, as another allocation may have the address before the queue counts the
    /// free as done.
    pub(crate) freeing: bool,
}

pub(crate) struct Host {
    pub(crate) device: usize,
    pub(crate) bytes: u64,
    /// Whether it is the program's own memory, registered.
    pub(crate) registered: bool,
}

/// The memory that an operation may touch.
#[derive(Clone, Copy)]
pub(crate) struct Reach {
    /// The devices to which mapped memory may be open, one bit each: any of them suffices.
    pub(crate) devices: u8,
    /// Whether addresses that the driver does not know are the program's own memory.
    pub(crate) pageable: bool,
}

/// The kind of memory at a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// Memory of `cuMemAlloc`, of this device.
    Allocation(usize),
    /// Mapped pages, the first of this device.
    Mapped(usize),
    /// Memory of the host that the driver knows.
    Host,
    /// Anything else outside the reserve.
    Pageable,
}

static MEMORY: LazyLock<RwLock<Memory>> = LazyLock::new(|| RwLock::new(Memory::new()));

/// Returns the table. Work holds it for reading while it touches memory, so that nothing is unmapped meanwhile.
pub(crate) fn memory() -> &'static RwLock<Memory> {
    &MEMORY
}

impl Memory {
    fn new() -> Memory {
        let reserve = Reserve::new();
        let start = reserve.start().next_multiple_of(PAGE_BYTES);
        let devices = std::array::from_fn(|_| DeviceMemory {
            bytes: DEVICE_BYTES,
            others: 0,
            held: 0,
            rdma: true,
            dma_buf: DmaBuf::Any,
            pooled: 0,
            file: Pages::new(FILE_BYTES),
            offsets: Gaps::new(0, FILE_BYTES),
        });
        Memory {
            addresses: Gaps::new(start, reserve.end()),
            reserve,
            allocations: BTreeMap::new(),
            hosts: BTreeMap::new(),
            ranges: BTreeMap::new(),
            mappings: BTreeMap::new(),
            pages: BTreeMap::new(),
            next_page: 1,
            devices,
        }
    }

    /// Removes caps, and what other processes hold.
    pub(crate) fn reset(&mut self) {
        for device in &mut self.devices {
            (device.bytes, device.others) = (DEVICE_BYTES, 0);
            (device.rdma, device.dma_buf) = (true, DmaBuf::Any);
        }
    }

    pub(crate) fn allocate(&mut self, device: usize, bytes: u64, pooled: bool) -> Result<u64, Code> {
        if bytes == 0 {
            return Err(Code::INVALID_VALUE);
        }
        let rounded = bytes.checked_next_multiple_of(ALLOCATION_UNIT).ok_or(Code::OUT_OF_MEMORY)?;
        if rounded > self.devices[device].free() {
            return Err(Code::OUT_OF_MEMORY);
        }
        let address = self.commit(bytes)?;
        self.devices[device].held += rounded;
        if pooled {
            self.devices[device].pooled += rounded;
        }
        self.allocations.insert(address, Allocation { device, bytes, pooled, freeing: false });
        Ok(address)
    }

    /// Frees the allocation that starts at exactly this address.
    pub(crate) fn free(&mut self, address: u64) -> Answer {
        let allocation = self.allocations.remove(&address).ok_or(Code::INVALID_VALUE)?;
        self.uncommit(address, allocation.bytes);
        let rounded = allocation.bytes.next_multiple_of(ALLOCATION_UNIT);
        let device = &mut self.devices[allocation.device];
        device.held -= rounded;
        if allocation.pooled {
            device.pooled -= rounded;
        }
        Ok(())
    }

    pub(crate) fn allocate_host(&mut self, device: usize, bytes: u64) -> Result<u64, Code> {
        if bytes == 0 {
            return Err(Code::INVALID_VALUE);
        }
        let address = self.commit(bytes)?;
        self.hosts.insert(address, Host { device, bytes, registered: false });
        Ok(address)
    }

    pub(crate) fn free_host(&mut self, address: u64) -> Answer {
        let host = self.hosts.get(&address).filter(|host| !host.registered).ok_or(Code::INVALID_VALUE)?;
        let bytes = host.bytes;
        self.hosts.remove(&address);
        self.uncommit(address, bytes);
        Ok(())
    }

    pub(crate) fn register(&mut self, device: usize, address: u64, bytes: u64) -> Answer {
        let end = address.checked_add(bytes).filter(|_| bytes > 0 && address > 0).ok_or(Code::INVALID_VALUE)?;
        let before = self.hosts.range(..end).next_back();
        if before.is_some_and(|(start, host)| start + host.bytes > address) {
            return Err(Code::HOST_MEMORY_ALREADY_REGISTERED);
        }
        if self.reserve.contains(address) {
            return Err(Code::INVALID_VALUE);
        }
        self.hosts.insert(address, Host { device, bytes, registered: true });
        Ok(())
    }

    pub(crate) fn unregister(&mut self, address: u64) -> Answer {
        self.hosts.get(&address).filter(|host| host.registered).ok_or(Code::HOST_MEMORY_NOT_REGISTERED)?;
        self.hosts.remove(&address);
        Ok(())
    }

    /// Frees what a context had: its allocations, and host memory. Pages and ranges belong to no context.
    pub(crate) fn end_context(&mut self, device: usize) {
        let allocations = self.allocations.iter().filter(|(_, allocation)| allocation.device == device);
        for address in allocations.map(|(&address, _)| address).collect::<Vec<_>>() {
            let _ = self.free(address); // It is there: it was just listed.
        }
        let hosts = self.hosts.iter().filter(|(_, host)| host.device == device);
        for (address, registered) in hosts.map(|(&address, host)| (address, host.registered)).collect::<Vec<_>>() {
            let _ = if registered { self.unregister(address) } else { self.free_host(address) }; // As above.
        }
    }

    fn commit(&mut self, bytes: u64) -> Result<u64, Code> {
        let align = if bytes < PAGE_BYTES { HOST_PAGE } else { PAGE_BYTES };
        let whole = bytes.checked_next_multiple_of(HOST_PAGE).ok_or(Code::OUT_OF_MEMORY)?;
        let address = self.addresses.take(whole, align, 0).ok_or(Code::OUT_OF_MEMORY)?;
        if !self.reserve.commit(address, whole) {
            self.addresses.give(address, whole);
            return Err(Code::OUT_OF_MEMORY);
        }
        Ok(address)
    }

    fn uncommit(&mut self, address: u64, bytes: u64) {
        let whole = bytes.next_multiple_of(HOST_PAGE);
        self.reserve.decommit(address, whole);
        self.addresses.give(address, whole);
    }

    /// Returns the start of the allocation that an address is in, and the allocation.
    pub(crate) fn allocation(&self, address: u64) -> Option<(u64, &Allocation)> {
        let (&start, allocation) = self.allocations.range(..=address).next_back()?;
        (address - start < allocation.bytes).then_some((start, allocation))
    }

    /// Returns the start of the host memory that an address is in, and the memory.
    pub(crate) fn host(&self, address: u64) -> Option<(u64, &Host)> {
        let (&start, host) = self.hosts.range(..=address).next_back()?;
        (address - start < host.bytes).then_some((start, host))
    }

    /// Returns what is at a whole range. An address in the reserve where nothing is any more is an invalid value.
    pub(crate) fn place(&self, address: u64, bytes: u64) -> Result<Place, Code> {
        let inside = |start: u64, length: u64| bytes <= length - (address - start);
        if let Some((start, host)) = self.host(address) {
            return inside(start, host.bytes).then_some(Place::Host).ok_or(Code::INVALID_VALUE);
        }
        if !self.reserve.contains(address) {
            return Ok(Place::Pageable);
        }
        if let Some((start, allocation)) = self.allocation(address) {
            let place = Place::Allocation(allocation.device);
            return inside(start, allocation.bytes).then_some(place).ok_or(Code::INVALID_VALUE);
        }
        let mapped = self.mapped(address, bytes).ok_or(Code::INVALID_VALUE)?;
        Ok(Place::Mapped(mapped[0].1.device))
    }

    /// Checks that work may touch a range now.
    pub(crate) fn admits(&self, address: u64, bytes: u64, reach: Reach, write: bool) -> Answer {
        if bytes == 0 {
            return Ok(());
        }
        let open = match self.place(address, bytes) {
            Ok(Place::Allocation(_) | Place::Host) => true,
            Ok(Place::Pageable) => reach.pageable,
            Ok(Place::Mapped(_)) => {
                let mapped = self.mapped(address, bytes).unwrap_or_default();
                mapped.iter().all(|(_, mapping)| mapping.admits(reach.devices, write))
            }
            Err(_) => false,
        };
        if open { Ok(()) } else { Err(Code::ILLEGAL_ADDRESS) }
    }
}

impl DeviceMemory {
    pub(crate) fn free(&self) -> u64 {
        self.bytes.saturating_sub(self.others).saturating_sub(self.held)
    }
}
