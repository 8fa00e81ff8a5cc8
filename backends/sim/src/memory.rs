//! The byte store behind physical memory: nothing at all, sparse device bytes, or host bytes with a fixed address.

use std::collections::HashMap;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, Ordering};

/// What bytes become when the device catches a breach of the contract on them.
pub const POISON: u8 = 0xDB;

/// Device bytes are kept in leaves of this size, made when first written unevenly: small, because a few bytes in every
/// page of a large device shall not cost much of the page.
const LEAF_BYTES: u64 = 4 << 10;

/// Host segments start at a multiple of this, as the class promises for device addresses.
const HOST_ALIGNMENT: usize = 512;

/// The bytes of one piece of physical memory. Fresh memory reads as zeros.
pub(crate) enum Store {
    /// Addresses only: writes vanish, reads give zeros.
    Nothing,
    /// Device bytes by leaf; a leaf that is not there is all zeros.
    Sparse(HashMap<u64, Leaf>),
    /// Host bytes, made at first use because a pinned segment that nobody touches shall cost nothing.
    Host { bytes: usize, made: Option<HostBytes> },
}

/// 4 KiB of device memory.
pub(crate) enum Leaf {
    /// All bytes are the same, as after a fill: costs no memory.
    Even(u8),
    /// Bytes of their own.
    Bytes(Box<[u8]>),
}

impl Leaf {
    fn bytes_mut(&mut self) -> &mut [u8] {
        if let Leaf::Even(value) = *self {
            *self = Leaf::Bytes(vec![value; LEAF_BYTES as usize].into_boxed_slice());
        }
        match self {
            Leaf::Bytes(bytes) => bytes,
            Leaf::Even(value) => unreachable!("a leaf of {value} was just given bytes of its own"),
        }
    }
}

/// Splits `bytes` bytes at `offset` at leaf borders: (leaf, start in the leaf, start in the caller's bytes, length).
fn leaves(offset: u64, bytes: u64) -> impl Iterator<Item = (u64, usize, usize, usize)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == bytes {
            return None;
        }
        let at = offset + done;
        let start = at % LEAF_BYTES;
        let length = (LEAF_BYTES - start).min(bytes - done);
        let part = (at / LEAF_BYTES, start as usize, done as usize, length as usize);
        done += length;
        Some(part)
    })
}

impl Store {
    pub(crate) fn sparse() -> Store {
        Store::Sparse(HashMap::new())
    }

    pub(crate) fn host(bytes: u64) -> Store {
        let bytes = usize::try_from(bytes).expect("a host segment fits the host's address space");
        Store::Host { bytes, made: None }
    }

    /// Whether writes are kept.
    pub(crate) fn is_real(&self) -> bool {
        !matches!(self, Store::Nothing)
    }

    pub(crate) fn host_bytes(&mut self) -> Option<&HostBytes> {
        match self {
            Store::Host { bytes, made } => Some(made.get_or_insert_with(|| HostBytes::new(*bytes))),
            _ => None,
        }
    }

    pub(crate) fn write(&mut self, offset: u64, from: &[u8]) {
        match self {
            Store::Nothing => {}
            Store::Sparse(map) => {
                for (leaf, start, done, length) in leaves(offset, from.len() as u64) {
                    let leaf = map.entry(leaf).or_insert(Leaf::Even(0));
                    leaf.bytes_mut()[start..start + length].copy_from_slice(&from[done..done + length]);
                }
            }
            Store::Host { .. } => {
                for (cell, value) in self.host_cells(offset, from.len()).iter().zip(from) {
                    cell.store(*value, Ordering::Relaxed);
                }
            }
        }
    }

    pub(crate) fn read(&mut self, offset: u64, to: &mut [u8]) {
        match self {
            Store::Nothing => to.fill(0),
            Store::Sparse(map) => {
                for (leaf, start, done, length) in leaves(offset, to.len() as u64) {
                    let to = &mut to[done..done + length];
                    match map.get(&leaf) {
                        None => to.fill(0),
                        Some(Leaf::Even(value)) => to.fill(*value),
                        Some(Leaf::Bytes(bytes)) => to.copy_from_slice(&bytes[start..start + length]),
                    }
                }
            }
            Store::Host { .. } => {
                for (cell, value) in self.host_cells(offset, to.len()).iter().zip(to) {
                    *value = cell.load(Ordering::Relaxed);
                }
            }
        }
    }

    pub(crate) fn fill(&mut self, offset: u64, bytes: u64, value: u8) {
        match self {
            Store::Nothing => {}
            Store::Sparse(map) => {
                for (leaf, start, _, length) in leaves(offset, bytes) {
                    if length as u64 == LEAF_BYTES {
                        map.insert(leaf, Leaf::Even(value));
                    } else {
                        map.entry(leaf).or_insert(Leaf::Even(0)).bytes_mut()[start..start + length].fill(value);
                    }
                }
            }
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

/// Host bytes that stay where they are until dropped. Cells are atomic because the application writes them through
/// its pointer while the device holds a reference.
pub(crate) struct HostBytes {
    cells: Box<[AtomicU8]>,
    /// Where the aligned part begins in `cells`.
    start: usize,
    bytes: usize,
}

impl HostBytes {
    fn new(bytes: usize) -> HostBytes {
        // The zeroed allocation stays untouched, so that the system supplies memory only where somebody writes.
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

    /// Where the application sees the bytes. Valid for all of them until the drop.
    pub(crate) fn pointer(&self) -> NonNull<u8> {
        NonNull::from(self.cells()).cast()
    }
}
