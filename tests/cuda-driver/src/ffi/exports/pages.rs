//! Virtual memory.

use std::ffi::{c_int, c_uint, c_void};

use crate::PAGE_BYTES;
use crate::driver::code::Code;
use crate::driver::memory::memory;
use crate::driver::pages::Traits;
use crate::driver::world;
use crate::ffi::pointers::{In, Out};

use super::device::at;

/// `CUmemLocation`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Location {
    kind: c_uint,
    id: c_int,
}

/// `CUmemAllocationProp`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Properties {
    kind: c_uint,
    handle_kinds: c_uint,
    location: Location,
    metadata: *mut c_void,
    compression: u8,
    /// `gpuDirectRDMACapable`.
    rdma: u8,
    rest: [u8; 6],
}

/// `CUmemAccessDesc`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Access {
    location: Location,
    flags: c_uint,
}

/// `CU_MEM_ALLOCATION_TYPE_PINNED` and `CU_MEM_LOCATION_TYPE_DEVICE`.
const PINNED: c_uint = 1;
const DEVICE: c_uint = 1;
/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`, the only kind of handle that other processes can have here.
const DESCRIPTOR: c_uint = 1;
/// `CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD`.
const DMA_BUF: c_uint = 1;

exported! {
    Pages fn cuMemGetAllocationGranularity(bytes: Out<u64>, properties: In<Properties>, option: c_uint) |_device| {
        properties.get()?.device()?;
        if option > 1 {
            return Err(Code::INVALID_VALUE);
        }
        bytes.put(PAGE_BYTES)
    }

    Pages fn cuMemAddressReserve(start: Out<u64>, bytes: u64, align: u64, wish: u64, flags: u64) |_device| {
        if flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        let start = start.must()?;
        let reserved = memory().write().reserve_range(bytes, align, wish)?;
        start.put(reserved)
    }

    Pages fn cuMemAddressFree(start: u64, bytes: u64) |_device| { memory().write().free_range(start, bytes) }

    Pages fn cuMemCreate(handle: Out<u64>, bytes: u64, properties: In<Properties>, flags: u64) |_device| {
        let properties = properties.get()?;
        let device = properties.device()?;
        if flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        let handle = handle.must()?;
        let traits = Traits { shareable: properties.handle_kinds == DESCRIPTOR, rdma: properties.rdma != 0 };
        let created = memory().write().create_page(device, bytes, traits)?;
        handle.put(created)
    }

    Pages fn cuMemExportToShareableHandle(descriptor: Out<c_int>, handle: u64, kind: c_uint, flags: u64) |_device| {
        if kind != DESCRIPTOR || flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        let descriptor = descriptor.must()?;
        let exported = memory().write().export_page(handle)?;
        descriptor.put(exported)
    }

    // A descriptor comes in the place of a pointer.
    Pages fn cuMemImportFromShareableHandle(handle: Out<u64>, descriptor: u64, kind: c_uint) |_device| {
        if kind != DESCRIPTOR {
            return Err(Code::INVALID_VALUE);
        }
        let handle = handle.must()?;
        let imported = memory().write().import_page(descriptor as i32)?;
        handle.put(imported)
    }

    Pages fn cuMemGetHandleForAddressRange(
        descriptor: Out<c_int>, address: u64, bytes: u64, kind: c_uint, flags: u64,
    ) |_device| {
        if kind != DMA_BUF || flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        let descriptor = descriptor.must()?;
        let made = memory().write().dma_buf(address, bytes)?;
        descriptor.put(made)
    }

    Pages fn cuMemRelease(handle: u64) |_device| { memory().write().release_page(handle) }

    Pages fn cuMemRetainAllocationHandle(handle: Out<u64>, address: u64) |_device| {
        let handle = handle.must()?;
        let retained = memory().write().retain_page(address)?;
        handle.put(retained)
    }

    Pages fn cuMemGetAllocationPropertiesFromHandle(properties: Out<Properties>, handle: u64) |_device| {
        let (device, traits) = {
            let mut memory = memory().write();
            let page = memory.page(handle)?;
            (page.device, page.traits)
        };
        let location = Location { kind: DEVICE, id: device as c_int };
        properties.put(Properties {
            kind: PINNED,
            handle_kinds: if traits.shareable { DESCRIPTOR } else { 0 },
            location,
            metadata: std::ptr::null_mut(),
            compression: 0,
            rdma: u8::from(traits.rdma),
            rest: [0; 6],
        })
    }

    Pages fn cuMemMap(address: u64, bytes: u64, offset: u64, handle: u64, flags: u64) |_device| {
        if flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        memory().write().map(address, bytes, offset, handle)
    }

    // It does not wait for work, as the real one does not.
    Pages fn cuMemUnmap(address: u64, bytes: u64) |_device| {
        let mut world = world::lock();
        let mapping = memory().read().mapping(address).map(|(_, mapping)| mapping.device);
        let result = memory().write().unmap(address, bytes);
        if let (Ok(()), Some(device)) = (result, mapping) {
            world.note_use(device, address, bytes);
        }
        result
    }

    Pages fn cuMemSetAccess(address: u64, bytes: u64, accesses: In<Access>, count: u64) |_device| {
        let accesses = accesses.list(count as usize)?;
        let bad = |access: &Access| access.location.kind != DEVICE || !matches!(access.flags, 0 | 1 | 3);
        if accesses.is_empty() || accesses.iter().any(bad) {
            return Err(Code::INVALID_VALUE);
        }
        let mut memory = memory().write();
        accesses.iter().try_for_each(|access| {
            memory.set_access(address, bytes, at(access.location.id)?, access.flags as u8)
        })
    }

    Pages fn cuMemGetAccess(flags: Out<u64>, location: In<Location>, address: u64) |_device| {
        let location = location.get()?;
        if location.kind != DEVICE {
            return Err(Code::INVALID_VALUE);
        }
        let device = at(location.id)?;
        let memory = memory().read();
        let (_, mapping) = memory.mapping(address).ok_or(Code::INVALID_VALUE)?;
        flags.put(u64::from(mapping.access(device)))
    }
}

impl Properties {
    /// Returns the device that the memory is requested on. Other kinds of memory are not simulated.
    fn device(self) -> Result<usize, Code> {
        if self.kind != PINNED || self.location.kind != DEVICE {
            return Err(Code::INVALID_VALUE);
        }
        if !matches!(self.handle_kinds, 0 | DESCRIPTOR) {
            return Err(Code::NOT_SUPPORTED);
        }
        at(self.location.id)
    }
}
