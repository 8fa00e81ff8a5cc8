//! Virtual memory: ranges of addresses, pages, and which page is mapped where.

use crate::driver::code::{Answer, Code};
use crate::driver::memory::Memory;
use crate::ffi::reserve::Pages;
use crate::{DEVICES, PAGE_BYTES};

/// The lowest bits, in the position of an exported descriptor, of the device, of whether other devices can reach the
/// page, and of the number of pages. Below is the offset in the memory file.
const DEVICE_BIT: u32 = 40;
const RDMA_BIT: u32 = 43;
const LENGTH_BIT: u32 = 44;

/// Physical memory.
pub(crate) struct Page {
    pub(crate) device: usize,
    pub(crate) bytes: u64,
    /// The offset in the device's memory file, or in that of the process that it came from.
    offset: u64,
    /// The memory file of the process that it came from, for a page that was imported.
    file: Option<Pages>,
    /// How it was created.
    pub(crate) traits: Traits,
    /// Whether another process may have it, so that its memory must stay what it is.
    exported: bool,
    /// The number of handles that were not released.
    references: u64,
    mappings: u64,
}

/// How a page is created.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Traits {
    /// Whether other processes can have it.
    pub(crate) shareable: bool,
    /// Whether network cards and other devices can be given access to it (`gpuDirectRDMACapable`).
    pub(crate) rdma: bool,
}

/// A page at an address.
pub(crate) struct Mapping {
    pub(crate) device: usize,
    pub(crate) bytes: u64,
    pub(crate) page: u64,
    /// The access of each device: 0 none, 1 read, 3 read and write.
    access: [u8; DEVICES],
}

impl Mapping {
    /// Returns whether one of the devices may read, or write if `write` is set.
    pub(crate) fn admits(&self, devices: u8, write: bool) -> bool {
        let needed = if write { 3 } else { 1 };
        (0..DEVICES).any(|device| devices & (1 << device) != 0 && self.access[device] & needed == needed)
    }

    /// Returns the access of a device.
    pub(crate) fn access(&self, device: usize) -> u8 {
        self.access[device]
    }
}

impl Memory {
    pub(crate) fn reserve_range(&mut self, bytes: u64, align: u64, wish: u64) -> Result<u64, Code> {
        let align = align.max(PAGE_BYTES);
        if bytes == 0 || !bytes.is_multiple_of(PAGE_BYTES) || !align.is_power_of_two() {
            return Err(Code::INVALID_VALUE);
        }
        let address = self.addresses.take(bytes, align, wish).ok_or(Code::OUT_OF_MEMORY)?;
        self.ranges.insert(address, bytes);
        Ok(address)
    }

    /// Frees a range: exactly as it was reserved, with nothing mapped.
    pub(crate) fn free_range(&mut self, address: u64, bytes: u64) -> Answer {
        if self.ranges.get(&address) != Some(&bytes) || self.overlaps(address, bytes) {
            return Err(Code::INVALID_VALUE);
        }
        self.ranges.remove(&address);
        self.addresses.give(address, bytes);
        Ok(())
    }

    pub(crate) fn create_page(&mut self, device: usize, bytes: u64, traits: Traits) -> Result<u64, Code> {
        if bytes == 0 || !bytes.is_multiple_of(PAGE_BYTES) {
            return Err(Code::INVALID_VALUE);
        }
        if traits.rdma && !self.devices[device].rdma {
            return Err(Code::NOT_SUPPORTED);
        }
        if bytes > self.devices[device].free() {
            return Err(Code::OUT_OF_MEMORY);
        }
        let offset = self.devices[device].offsets.take(bytes, PAGE_BYTES, 0).ok_or(Code::OUT_OF_MEMORY)?;
        self.devices[device].held += bytes;
        let handle = self.next_page;
        self.next_page += 1;
        self.pages.insert(
            handle,
            Page { device, bytes, offset, file: None, traits, exported: false, references: 1, mappings: 0 },
        );
        Ok(handle)
    }

    /// Returns a new file descriptor of a page. Its position in the memory file says which page it is.
    pub(crate) fn export_page(&mut self, handle: u64) -> Result<i32, Code> {
        let page = self.page(handle)?;
        if !page.traits.shareable {
            return Err(Code::INVALID_VALUE);
        }
        page.exported = true;
        let device = page.device;
        let facts = (device as u64) << DEVICE_BIT | u64::from(page.traits.rdma) << RDMA_BIT;
        let position = page.offset | facts | (page.bytes / PAGE_BYTES) << LENGTH_BIT;
        let file = self.pages[&handle].file.as_ref().unwrap_or(&self.devices[device].file);
        file.export(position).ok_or(Code::OPERATING_SYSTEM)
    }

    /// Returns the offset of a page of this process in the memory file of its device. Its part of the file is kept from
    /// now on, as others may have it.
    pub(crate) fn page_for_others(&mut self, handle: u64) -> Result<u64, Code> {
        let page = self.pages.get_mut(&handle).filter(|page| page.file.is_none()).ok_or(Code::INVALID_VALUE)?;
        page.exported = true;
        Ok(page.offset)
    }

    /// Returns a handle of the page that a file descriptor stands for. The descriptor stays the caller's.
    pub(crate) fn import_page(&mut self, descriptor: i32) -> Result<u64, Code> {
        let (file, position) = Pages::import(descriptor).ok_or(Code::INVALID_VALUE)?;
        let (device, bytes) = ((position >> DEVICE_BIT & 0x7) as usize, (position >> LENGTH_BIT) * PAGE_BYTES);
        if device >= DEVICES || bytes == 0 {
            return Err(Code::INVALID_VALUE);
        }
        let offset = position & ((1 << DEVICE_BIT) - 1);
        let handle = self.next_page;
        self.next_page += 1;
        let file = Some(file);
        let traits = Traits { shareable: true, rdma: position >> RDMA_BIT & 1 != 0 };
        let page = Page { device, bytes, offset, file, traits, exported: true, references: 1, mappings: 0 };
        self.pages.insert(handle, page);
        Ok(handle)
    }

    /// Returns the page of a handle that was not released.
    pub(crate) fn page(&mut self, handle: u64) -> Result<&mut Page, Code> {
        self.pages.get_mut(&handle).filter(|page| page.references > 0).ok_or(Code::INVALID_VALUE)
    }

    /// Returns one more handle for the page that is mapped at an address.
    pub(crate) fn retain_page(&mut self, address: u64) -> Result<u64, Code> {
        let (_, mapping) = self.mapping(address).ok_or(Code::INVALID_VALUE)?;
        let handle = mapping.page;
        let page = self.pages.get_mut(&handle).ok_or(Code::INVALID_VALUE)?;
        page.references += 1;
        Ok(handle)
    }

    pub(crate) fn release_page(&mut self, handle: u64) -> Answer {
        self.page(handle)?.references -= 1;
        self.drop_page(handle);
        Ok(())
    }

    /// Frees the page if it has neither a handle nor a mapping left.
    fn drop_page(&mut self, handle: u64) {
        let unused = |page: &Page| page.references == 0 && page.mappings == 0;
        if !self.pages.get(&handle).is_some_and(unused) {
            return;
        }
        if let Some(page) = self.pages.remove(&handle).filter(|page| page.file.is_none()) {
            let device = &mut self.devices[page.device];
            device.held -= page.bytes;
            // What was exported may still be mapped elsewhere: its part of the file is never used again.
            if !page.exported {
                device.file.empty(page.offset, page.bytes);
                device.offsets.give(page.offset, page.bytes);
            }
        }
    }

    /// Maps a whole page, without access, into one reserved range where nothing is mapped.
    pub(crate) fn map(&mut self, address: u64, bytes: u64, offset: u64, handle: u64) -> Answer {
        let page = self.page(handle)?;
        let (device, at, whole) = (page.device, page.offset, page.bytes);
        let aligned = address.is_multiple_of(PAGE_BYTES);
        if offset != 0 || bytes != whole || !aligned || !self.reserved(address, bytes) || self.overlaps(address, bytes)
        {
            return Err(Code::INVALID_VALUE);
        }
        let file = self.pages[&handle].file.as_ref().unwrap_or(&self.devices[device].file);
        if !self.reserve.attach(address, bytes, file, at) {
            return Err(Code::OUT_OF_MEMORY);
        }
        self.page(handle)?.mappings += 1;
        self.mappings.insert(address, Mapping { device, bytes, page: handle, access: [0; DEVICES] });
        Ok(())
    }

    /// Unmaps a range that is made of whole mappings.
    pub(crate) fn unmap(&mut self, address: u64, bytes: u64) -> Answer {
        for start in self.whole(address, bytes)? {
            let Some(mapping) = self.mappings.remove(&start) else { continue };
            self.reserve.decommit(start, mapping.bytes);
            if let Some(page) = self.pages.get_mut(&mapping.page) {
                page.mappings -= 1;
            }
            self.drop_page(mapping.page);
        }
        Ok(())
    }

    /// Sets the access of a device to a range that is made of whole mappings.
    pub(crate) fn set_access(&mut self, address: u64, bytes: u64, device: usize, access: u8) -> Answer {
        for start in self.whole(address, bytes)? {
            let Some(mapping) = self.mappings.get_mut(&start) else { continue };
            mapping.access[device] = access;
            let open = mapping.access.iter().any(|access| *access != 0);
            self.reserve.protect(start, mapping.bytes, open);
        }
        Ok(())
    }

    /// Returns the start of the mapping that an address is in, and the mapping.
    pub(crate) fn mapping(&self, address: u64) -> Option<(u64, &Mapping)> {
        let (&start, mapping) = self.mappings.range(..=address).next_back()?;
        (address - start < mapping.bytes).then_some((start, mapping))
    }

    /// Returns the mappings that cover a range without a gap, in order of address, or `None` if there is a gap.
    pub(crate) fn mapped(&self, address: u64, bytes: u64) -> Option<Vec<(u64, &Mapping)>> {
        let end = address.checked_add(bytes)?;
        let mut found = vec![self.mapping(address)?];
        while let Some((start, mapping)) = found.last().copied().filter(|(start, mapping)| start + mapping.bytes < end)
        {
            found.push(self.mapping(start + mapping.bytes)?);
        }
        Some(found)
    }

    /// Returns the starts of the mappings that make up a range, no more and no less.
    fn whole(&self, address: u64, bytes: u64) -> Result<Vec<u64>, Code> {
        let mapped = self.mapped(address, bytes).filter(|_| bytes > 0).ok_or(Code::INVALID_VALUE)?;
        let starts: Vec<u64> = mapped.iter().map(|(start, _)| *start).collect();
        let total: u64 = mapped.iter().map(|(_, mapping)| mapping.bytes).sum();
        if starts.first() == Some(&address) && total == bytes { Ok(starts) } else { Err(Code::INVALID_VALUE) }
    }

    fn reserved(&self, address: u64, bytes: u64) -> bool {
        let range = self.ranges.range(..=address).next_back();
        range.is_some_and(|(start, length)| address - start < *length && bytes <= length - (address - start))
    }

    fn overlaps(&self, address: u64, bytes: u64) -> bool {
        let before = self.mappings.range(..address + bytes).next_back();
        before.is_some_and(|(start, mapping)| start + mapping.bytes > address)
    }
}
