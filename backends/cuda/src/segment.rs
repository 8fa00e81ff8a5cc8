//! What the device hands out: segments, ranges of addresses, pages.

use std::collections::BTreeMap;
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use cudarc::driver::sys::{CUdeviceptr, CUmemGenericAllocationHandle};
use millpond_backend::{ClassId, HostMemory};
use parking_lot::Mutex;

use crate::context::Shared;
use crate::{Cuda, CudaError};

/// A segment of a CUDA device, or a range of its addresses.
///
/// Owned, as the contract wants. What is dropped without `release` stays with the device until its last handle goes;
/// the memory dies with the device, whoever still holds the segment.
pub struct Segment {
    /// The device's number within the process.
    pub(crate) device: u64,
    /// Unique on its device, never reused.
    pub(crate) id: u64,
    pub(crate) ordinal: usize,
    /// Where the memory is at home. Held, so that it can be named to the driver for as long as the segment is.
    pub(crate) context: Shared,
    pub(crate) address: CUdeviceptr,
    pub(crate) bytes: u64,
    pub(crate) class: ClassId,
    pub(crate) host: Option<HostPointer>,
    /// What is mapped, for a range.
    pub(crate) range: Option<Arc<Range>>,
}

/// Where the host sees the beginning of a segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostPointer(pub(crate) NonNull<u8>);

// SAFETY: it is an address of page-locked host memory, valid on every thread; whoever writes through it orders that.
unsafe impl Send for HostPointer {}
// SAFETY: as for `Send`: a shared reference gives the address away and nothing else.
unsafe impl Sync for HostPointer {}

/// Reserved addresses, and what is mapped there.
pub(crate) struct Range {
    pub(crate) address: CUdeviceptr,
    pub(crate) bytes: u64,
    /// By offset.
    pub(crate) table: Mutex<BTreeMap<u64, Mapping>>,
}

/// A page in a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Mapping {
    /// The page's number on its device.
    pub(crate) page: u64,
    pub(crate) bytes: u64,
}

impl Range {
    /// Whether anything is mapped among those bytes.
    pub(crate) fn is_taken(table: &BTreeMap<u64, Mapping>, offset: u64, bytes: u64) -> bool {
        let before = table.range(..offset + bytes).next_back();
        before.is_some_and(|(&start, mapping)| start + mapping.bytes > offset)
    }

    /// Whether all of those bytes are mapped.
    fn is_mapped(&self, offset: u64, bytes: u64) -> bool {
        let table = self.table.lock();
        let mut covered = match table.range(..=offset).next_back() {
            Some((&start, mapping)) if start + mapping.bytes > offset => start + mapping.bytes,
            _ => return bytes == 0,
        };
        for (&start, mapping) in table.range(offset + 1..) {
            if covered >= offset + bytes || start != covered {
                break;
            }
            covered = start + mapping.bytes;
        }
        covered >= offset + bytes
    }
}

impl Segment {
    /// Where it starts in the device's address space.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// How many bytes (for a range: of addresses) it has.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The class that it was taken from.
    pub fn class(&self) -> ClassId {
        self.class
    }

    /// The place of the device that it is on.
    pub fn ordinal(&self) -> usize {
        self.ordinal
    }

    /// Whether it is a range of addresses with no memory of its own.
    pub fn is_range(&self) -> bool {
        self.range.is_some()
    }

    /// The error for bytes that leave it. `end` says which segment of the operation it is.
    pub(crate) fn out_of_range(&self, end: &'static str, offset: u64, bytes: u64) -> CudaError {
        CudaError::OutOfRange { end, device: self.ordinal, offset, bytes, segment_bytes: self.bytes }
    }

    /// The address of bytes that work may touch; fails if they leave the segment or are not mapped.
    pub(crate) fn place(&self, end: &'static str, offset: u64, bytes: u64) -> Result<CUdeviceptr, CudaError> {
        if offset.checked_add(bytes).is_none_or(|behind| behind > self.bytes) {
            return Err(self.out_of_range(end, offset, bytes));
        }
        let address = self.address + offset;
        match &self.range {
            Some(range) if !range.is_mapped(offset, bytes) => Err(CudaError::Unmapped { address, bytes }),
            _ => Ok(address),
        }
    }
}

impl fmt::Debug for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct(if self.is_range() { "Range" } else { "Segment" })
            .field("ordinal", &self.ordinal)
            .field("address", &format_args!("{:#x}", self.address))
            .field("bytes", &self.bytes)
            .field("class", &self.class.0)
            .finish_non_exhaustive()
    }
}

/// A handle of physical memory of a CUDA device. What is dropped without `release_page` stays with the device until its
/// last handle goes.
pub struct Page {
    pub(crate) device: u64,
    pub(crate) id: u64,
    pub(crate) handle: CUmemGenericAllocationHandle,
    pub(crate) bytes: u64,
}

impl Page {
    /// How many bytes it has.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The driver's handle.
    pub fn handle(&self) -> CUmemGenericAllocationHandle {
        self.handle
    }
}

impl fmt::Debug for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Page").field("handle", &self.handle).field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl HostMemory for Cuda {
    type Segment = Segment;

    fn host_address(&self, segment: &Segment) -> Option<NonNull<u8>> {
        segment.host.map(|pointer| pointer.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(mappings: &[(u64, u64)]) -> Range {
        let table = mappings.iter().map(|&(offset, bytes)| (offset, Mapping { page: offset, bytes })).collect();
        Range { address: 0, bytes: 100, table: Mutex::new(table) }
    }

    #[test]
    fn bytes_are_mapped_if_every_one_of_them_is() {
        let range = range(&[(10, 10), (20, 10), (40, 10)]);
        for (offset, bytes) in [(10, 10), (12, 3), (10, 20), (15, 10), (29, 1), (40, 10), (60, 0)] {
            assert!(range.is_mapped(offset, bytes), "{bytes} at {offset}");
        }
        for (offset, bytes) in [(0, 1), (9, 2), (10, 21), (25, 20), (30, 1), (45, 6), (50, 1), (99, 1)] {
            assert!(!range.is_mapped(offset, bytes), "{bytes} at {offset}");
        }
    }

    #[test]
    fn a_place_is_taken_if_any_byte_of_it_is() {
        let range = range(&[(10, 10), (40, 10)]);
        let taken = |offset, bytes| Range::is_taken(&range.table.lock(), offset, bytes);
        assert!(taken(0, 11) && taken(10, 1) && taken(19, 1) && taken(0, 100) && taken(30, 11) && taken(45, 2));
        assert!(!taken(0, 10) && !taken(20, 20) && !taken(50, 50));
    }
}
