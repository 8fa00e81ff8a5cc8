//! The byte store behind physical memory: sparse device bytes, host bytes with a fixed address, or nothing.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, Ordering};

use super::sparse::Sparse;

/// The value that bytes take when the device detects a breach of the contract on them.
pub const POISON: u8 = 0xDB;

/// The alignment of host segments in bytes, which the class promises for device addresses.
const HOST_ALIGNMENT: usize = 512;

/// The bytes of one piece of physical memory.
pub(crate) enum Store {
    /// Device bytes.
    Sparse(Sparse),
    /// Host bytes, made at first use because a pinned segment that is never touched should cost nothing.
    Host { bytes: usize, made: Option<HostBytes> },
    /// No bytes: what is written is forgotten, and what would read is refused before it is queued.
    Nothing,
}

impl Store {
    /// Creates device bytes that all have that value.
    pub(crate) fn sparse(bytes: u64, value: u8) -> Store {
        let mut store = Sparse::default();
        store.fill(0, bytes, value);
        Store::Sparse(store)
    }

    pub(crate) fn host(bytes: u64) -> Store {
        let bytes = usize::try_from(bytes).expect("a host segment fits the host's address space");
        Store::Host { bytes, made: None }
    }

    pub(crate) fn host_bytes(&mut self) -> Option<&HostBytes> {
        match self {
            Store::Host { bytes, made } => Some(made.get_or_insert_with(|| HostBytes::new(*bytes))),
            _ => None,
        }
    }

    pub(crate) fn write(&mut self, offset: u64, from: &[u8]) {
        match self {
            Store::Sparse(bytes) => bytes.write(offset, from),
            Store::Nothing => {}
            Store::Host { .. } => {
                for (cell, value) in self.host_cells(offset, from.len()).iter().zip(from) {
                    cell.store(*value, Ordering::Relaxed);
                }
            }
        }
    }

    pub(crate) fn read(&mut self, offset: u64, to: &mut [u8]) {
        match self {
            Store::Sparse(bytes) => bytes.read(offset, to),
            Store::Nothing => unreachable!("nothing is read where nothing is kept"),
            Store::Host { .. } => {
                for (cell, value) in self.host_cells(offset, to.len()).iter().zip(to) {
                    *value = cell.load(Ordering::Relaxed);
                }
            }
        }
    }

    pub(crate) fn fill(&mut self, offset: u64, bytes: u64, value: u8) {
        match self {
            Store::Sparse(store) => store.fill(offset, bytes, value),
            Store::Nothing => {}
            Store::Host { .. } => {
                for cell in self.host_cells(offset, bytes as usize) {
                    cell.store(value, Ordering::Relaxed);
                }
            }
        }
    }

    fn host_cells(&mut self, offset: u64, bytes: usize) -> &[AtomicU8] {
        let host = self.host_bytes().expect("only host memory has host cells");
        let offset = offset as usize;
        &host.cells()[offset..offset + bytes]
    }
}

/// Host bytes that stay at their address until dropped. The cells are atomic because the application writes them
/// through its pointer while the device holds a reference.
pub(crate) struct HostBytes {
    cells: Box<[AtomicU8]>,
    /// The index in `cells` at which the aligned part begins.
    start: usize,
    bytes: usize,
}

impl HostBytes {
    fn new(bytes: usize) -> HostBytes {
        // The zeroed allocation stays untouched, so that the system supplies memory only where a caller writes.
        let plain = vec![0_u8; bytes + HOST_ALIGNMENT].into_boxed_slice();
        // SAFETY: `AtomicU8` is documented to have the size, alignment and bit validity of `u8`, so the slice keeps its
        // layout and its contents; the pointer comes from `into_raw` of the same box, which gave up ownership.
        let cells = unsafe { Box::from_raw(Box::into_raw(plain) as *mut [AtomicU8]) };
        let start = cells.as_ptr().addr().next_multiple_of(HOST_ALIGNMENT) - cells.as_ptr().addr();
        HostBytes { cells, start, bytes }
    }

    fn cells(&self) -> &[AtomicU8] {
        &self.cells[self.start..self.start + self.bytes]
    }

    /// Returns the address at which the application sees the bytes. It is valid for all of them until the drop.
    pub(crate) fn pointer(&self) -> NonNull<u8> {
        NonNull::from(self.cells()).cast()
    }
}
