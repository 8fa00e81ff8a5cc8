//! Segments, and ranges of addresses with the table of what is mapped there.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use cudarc::driver::sys::CUdeviceptr;
use millpond_backend::ClassId;
use millpond_kit::{Misuse, Role, is_inside};
use parking_lot::Mutex;

use crate::open::context::Shared;
use crate::streams::handle::HostPointer;

/// A segment of a CUDA device, or a range of its addresses.
///
/// It is owned, as the contract requires. A segment that is dropped without `release` stays with the device until the
/// device's last handle is dropped. The memory is freed with the device, even if the segment still exists.
pub struct Segment {
    /// The device's number within the process.
    pub(crate) device: u64,
    /// Unique on its device, never reused.
    pub(crate) id: u64,
    pub(crate) ordinal: usize,
    /// The context that the memory belongs to. Held, so that it can be passed to the driver for as long as the segment
    /// lives.
    pub(crate) context: Shared,
    pub(crate) address: CUdeviceptr,
    pub(crate) bytes: u64,
    pub(crate) class: ClassId,
    pub(crate) host: Option<HostPointer>,
    /// The mappings, for a range.
    pub(crate) range: Option<Arc<Range>>,
}

/// Reserved addresses, and the pages that are mapped there.
pub(crate) struct Range {
    pub(crate) address: CUdeviceptr,
    pub(crate) bytes: u64,
    /// The mappings by offset.
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
    /// Returns whether anything is mapped among those bytes.
    pub(crate) fn is_taken(table: &BTreeMap<u64, Mapping>, offset: u64, bytes: u64) -> bool {
        let before = table.range(..offset + bytes).next_back();
        before.is_some_and(|(&start, mapping)| start + mapping.bytes > offset)
    }

    /// Returns whether all of those bytes are mapped.
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

#[cfg(unix)]
impl Range {
    /// Returns the mappings that hold those bytes, in order, with the offset of the first; `None` if some of the bytes
    /// are not mapped.
    pub(crate) fn mappings(&self, offset: u64, bytes: u64) -> Option<(u64, Vec<Mapping>)> {
        let table = self.table.lock();
        let (&first, _) = table.range(..=offset).next_back()?;
        let (mut end, mut found) = (first, Vec::new());
        for (&start, &mapping) in table.range(first..) {
            if start != end || end >= offset + bytes {
                break;
            }
            end = start + mapping.bytes;
            found.push(mapping);
        }
        (end >= offset + bytes && end > offset).then_some((first, found))
    }
}

impl Segment {
    /// Returns the address at which it starts in the device's address space.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Returns its length in bytes (for a range: of addresses).
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the class that it was taken from.
    pub fn class(&self) -> ClassId {
        self.class
    }

    /// Returns the place of the device that it is on.
    pub fn ordinal(&self) -> usize {
        self.ordinal
    }

    /// Returns whether it is a range of addresses with no memory of its own.
    pub fn is_range(&self) -> bool {
        self.range.is_some()
    }

    /// Returns the error for bytes that leave the segment. `end` says which segment of the operation it is.
    pub(crate) fn out_of_range(&self, end: &'static str, offset: u64, bytes: u64) -> Misuse {
        let role = Some(Role { name: end, device: self.ordinal });
        Misuse::OutOfRange { call: None, role, offset, bytes, segment_bytes: self.bytes }
    }

    /// Returns the address of bytes that work may touch, or an error if they leave the segment or are not mapped.
    pub(crate) fn place(&self, end: &'static str, offset: u64, bytes: u64) -> Result<CUdeviceptr, Misuse> {
        if !is_inside(offset, bytes, self.bytes) {
            return Err(self.out_of_range(end, offset, bytes));
        }
        let address = self.address + offset;
        match &self.range {
            Some(range) if !range.is_mapped(offset, bytes) => Err(Misuse::Unmapped { address, bytes }),
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
    #[cfg(unix)]
    fn the_mappings_of_bytes_are_those_that_hold_some_of_them() {
        let range = range(&[(10, 10), (20, 5), (25, 10), (40, 10)]);
        let of = |offset, bytes| {
            let found = range.mappings(offset, bytes);
            found.map(|(first, mappings)| (first, mappings.iter().map(|mapping| mapping.page).collect::<Vec<_>>()))
        };
        assert_eq!(of(10, 10), Some((10, vec![10])));
        assert_eq!(of(19, 1), Some((10, vec![10])));
        assert_eq!(of(19, 2), Some((10, vec![10, 20])));
        assert_eq!(of(22, 10), Some((20, vec![20, 25])));
        assert_eq!(of(10, 25), Some((10, vec![10, 20, 25])));
        for (offset, bytes) in [(5, 1), (9, 2), (10, 26), (35, 1), (38, 4), (50, 1), (45, 6)] {
            assert_eq!(of(offset, bytes), None, "{bytes} at {offset}");
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
