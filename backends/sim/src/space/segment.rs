//! The handles that the device hands out: segments, ranges of addresses, and pages.

use std::fmt;
use std::sync::Arc;

use millpond_backend::ClassId;
use millpond_kit::Misuse;

use super::{Memory, Piece};
use crate::error::SimError;

/// A segment of the simulated device, or a range of its addresses.
///
/// It is owned, as the contract requires. Dropping it without `release` leaks its bytes on the simulated device, as it
/// would on a real one.
pub struct Segment {
    pub(crate) memory: Arc<Memory>,
    /// Unique on its device, never reused.
    pub(crate) id: u64,
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    pub(crate) class: ClassId,
    /// The memory behind a segment. `None` for a range, whose pages are in the device's page table.
    pub(crate) physical: Option<u64>,
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

    /// Returns the class it was taken from.
    pub fn class(&self) -> ClassId {
        self.class
    }

    /// Returns whether what is written to it is kept, so that it can be read.
    pub fn is_kept(&self) -> bool {
        self.memory.keeps(self.class)
    }

    /// Returns whether it is a range of addresses with no memory of its own.
    pub fn is_range(&self) -> bool {
        self.physical.is_none()
    }
}

impl Segment {
    /// Returns the physical bytes behind a part of the segment.
    ///
    /// # Errors
    ///
    /// If the part leaves the segment, or touches unmapped addresses.
    pub(crate) fn pieces(&self, offset: u64, bytes: u64) -> Result<Vec<Piece>, SimError> {
        Misuse::if_outside(offset, bytes, self.bytes)?;
        let piece = |physical, start, at, bytes| {
            let memory = Arc::clone(&self.memory);
            Piece { memory, physical, start, bytes, segment: self.id, at, address: self.address + at }
        };
        if bytes == 0 {
            return Ok(Vec::new());
        }
        if let Some(physical) = self.physical {
            return Ok(vec![piece(physical, offset, offset, bytes)]);
        }
        let space = self.memory.space();
        let (mut pieces, mut at, end) = (Vec::new(), offset, offset + bytes);
        while at < end {
            let Some((start, mapping)) = space.mapping_at(self.id, at) else {
                return Err(Misuse::Unmapped { address: self.address + offset, bytes }.into());
            };
            let stop = end.min(start + mapping.bytes);
            pieces.push(piece(mapping.physical, at - start, at, stop - at));
            at = stop;
        }
        Ok(pieces)
    }
}

impl fmt::Debug for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = if self.is_range() { "Range" } else { "Segment" };
        f.debug_struct(name)
            .field("address", &format_args!("{:#x}", self.address))
            .field("bytes", &self.bytes)
            .field("class", &self.class.0)
            .finish()
    }
}

/// A handle of physical memory of the simulated device. Dropping it without `release_page` leaks its bytes there.
pub struct Page {
    pub(crate) memory: Arc<Memory>,
    pub(crate) physical: u64,
    pub(crate) bytes: u64,
}

impl Page {
    /// Returns its size in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl fmt::Debug for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Page").field("number", &self.physical).field("bytes", &self.bytes).finish()
    }
}
