//! The live blocks of an allocator by their addresses: a tree of three levels, read without a lock.
//!
//! ```text
//! address   56 .......... 39 | 38 .......... 21 | 20 ..... 9 | 8 ... 0
//!           which middle      | which leaf        | which entry | always 0
//! ```
//!
//! An entry is a buffer as a number ([`RawBuffer`]), or 0. Each level is an array that is never moved nor dropped
//! before the tree, so readers follow pointers without a lock. Threads that work on different blocks write to a common
//! cache line only where the blocks begin within 4 KiB of device memory.
//!
//! The arrays come from the operating system as zeros that take memory only where they are written: 4 KiB of host
//! memory for 256 KiB of device memory in which a block ever began, so at most a 64th of the device's memory.
//!
//! The tree knows nothing of allocators and of the length of blocks.

use std::alloc::{Layout, alloc_zeroed, handle_alloc_error};
use std::num::NonZeroU64;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use millpond::RawBuffer;

/// Every block begins at a multiple of this number of bytes, which is that of PyTorch's allocator.
pub(crate) const GRAIN: u64 = 512;

const ENTRY_SHIFT: u32 = 9;
const LEAF_SHIFT: u32 = 21;
const MIDDLE_SHIFT: u32 = 39;
const END_SHIFT: u32 = 57;

const LEAF_ENTRIES: usize = 1 << (LEAF_SHIFT - ENTRY_SHIFT);
const MIDDLE_ENTRIES: usize = 1 << (MIDDLE_SHIFT - LEAF_SHIFT);
const ROOT_ENTRIES: usize = 1 << (END_SHIFT - MIDDLE_SHIFT);

/// A type whose value is valid if all of its bytes are 0.
///
/// # Safety
///
/// It is.
unsafe trait Zeroed {}

#[repr(transparent)]
struct Leaf([AtomicU64; LEAF_ENTRIES]);
#[repr(transparent)]
struct Level<T, const N: usize>([AtomicPtr<T>; N]);

// SAFETY: atomic integers of value 0.
unsafe impl Zeroed for Leaf {}
// SAFETY: null pointers, which have only zeros where Rust runs.
unsafe impl<T, const N: usize> Zeroed for Level<T, N> {}

type Middle = Level<Leaf, MIDDLE_ENTRIES>;
type Root = Level<Middle, ROOT_ENTRIES>;

/// The tree.
pub(crate) struct Addresses {
    root: Box<Root>,
    /// The start of the lowest leaf, where a search downwards ends.
    lowest: AtomicU64,
}

/// The place for the block at one address.
pub(crate) struct Entry<'a>(&'a AtomicU64);

fn zeroed<T: Zeroed>() -> Box<T> {
    let layout = Layout::new::<T>();
    // SAFETY: the types of this module have a size.
    let memory = unsafe { alloc_zeroed(layout) }.cast::<T>();
    if memory.is_null() {
        handle_alloc_error(layout);
    }
    // SAFETY: the memory has the layout of the type, comes from the global allocator, and is a valid value.
    unsafe { Box::from_raw(memory) }
}

/// Returns the place in an array that a part of an address names.
fn place(address: u64, shift: u32, entries: usize) -> usize {
    (address >> shift) as usize & (entries - 1)
}

/// Returns the last address before the part of this size in which an address lies.
fn before(address: u64, shift: u32) -> Option<u64> {
    (address >> shift << shift).checked_sub(1)
}

impl Leaf {
    /// Returns the last block that begins in this leaf, at an address or before it.
    fn at_or_before(&self, address: u64) -> Option<(u64, RawBuffer)> {
        let last = place(address, ENTRY_SHIFT, LEAF_ENTRIES);
        self.0[..=last].iter().enumerate().rev().find_map(|(at, entry)| {
            let block = NonZeroU64::new(entry.load(Ordering::Acquire)).map(RawBuffer::from_bits)?;
            Some(((address >> LEAF_SHIFT << LEAF_SHIFT) + ((at as u64) << ENTRY_SHIFT), block))
        })
    }
}

impl<T: Zeroed, const N: usize> Level<T, N> {
    fn get(&self, at: usize) -> Option<&T> {
        // SAFETY: a pointer that is not null is one of `get_or_make`'s, whose value lives as long as this array.
        unsafe { self.0[at].load(Ordering::Acquire).as_ref() }
    }

    fn get_or_make(&self, at: usize) -> &T {
        self.get(at).unwrap_or_else(|| self.make(at))
    }

    #[cold]
    fn make(&self, at: usize) -> &T {
        let made = Box::into_raw(zeroed::<T>());
        let raced = self.0[at].compare_exchange(ptr::null_mut(), made, Ordering::AcqRel, Ordering::Acquire);
        let kept = match raced {
            Ok(_) => made,
            Err(other) => {
                // SAFETY: it was made above, and no other thread has seen it.
                drop(unsafe { Box::from_raw(made) });
                other
            }
        };
        // SAFETY: it is in the array, and so lives as long as that.
        unsafe { &*kept }
    }
}

impl<T, const N: usize> Drop for Level<T, N> {
    fn drop(&mut self) {
        for pointer in &mut self.0 {
            if !pointer.get_mut().is_null() {
                // SAFETY: `make` made it of a box, and the array is its only owner.
                drop(unsafe { Box::from_raw(*pointer.get_mut()) });
            }
        }
    }
}

impl Addresses {
    pub(crate) fn new() -> Addresses {
        Addresses { root: zeroed(), lowest: AtomicU64::new(u64::MAX) }
    }

    /// Returns the place for a block at an address. Returns `None` if the tree has no such place: the address is not a
    /// multiple of [`GRAIN`], or is not below 2^57.
    #[inline]
    pub(crate) fn entry(&self, address: u64) -> Option<Entry<'_>> {
        if address >> END_SHIFT != 0 || !address.is_multiple_of(GRAIN) {
            return None;
        }
        let leaf = match self.leaf(address) {
            Some(leaf) => leaf,
            None => self.make_leaf(address),
        };
        Some(Entry(&leaf.0[place(address, ENTRY_SHIFT, LEAF_ENTRIES)]))
    }

    /// Returns the block at an address.
    #[inline]
    pub(crate) fn get(&self, address: u64) -> Option<RawBuffer> {
        let bits = self.existing(address)?.load(Ordering::Acquire);
        NonZeroU64::new(bits).map(RawBuffer::from_bits)
    }

    /// Takes the block at an address out. Of several threads that do this at once, one gets the block.
    #[inline]
    pub(crate) fn take(&self, address: u64) -> Option<RawBuffer> {
        let entry = self.existing(address)?;
        if entry.load(Ordering::Relaxed) == 0 {
            return None;
        }
        take_out(entry)
    }

    /// Returns the last block that begins at an address or before it, with its start. Looks at every entry in between,
    /// and at no more than a pointer for 2 MiB without a leaf or 512 GiB without any.
    pub(crate) fn at_or_before(&self, address: u64) -> Option<(u64, RawBuffer)> {
        let mut address = address.min((1 << END_SHIFT) - 1);
        let lowest = self.lowest.load(Ordering::Acquire);
        while address >= lowest {
            let Some(middle) = self.root.get(place(address, MIDDLE_SHIFT, ROOT_ENTRIES)) else {
                address = before(address, MIDDLE_SHIFT)?;
                continue;
            };
            if let Some(leaf) = middle.get(place(address, LEAF_SHIFT, MIDDLE_ENTRIES))
                && let Some(found) = leaf.at_or_before(address)
            {
                return Some(found);
            }
            address = before(address, LEAF_SHIFT)?;
        }
        None
    }

    /// Takes all blocks out, in the order of their addresses, and passes each to a function.
    pub(crate) fn drain(&mut self, mut each: impl FnMut(RawBuffer)) {
        let middles = (0..ROOT_ENTRIES).filter_map(|at| self.root.get(at));
        let leaves = middles.flat_map(|middle| (0..MIDDLE_ENTRIES).filter_map(|at| middle.get(at)));
        for entry in leaves.flat_map(|leaf| &leaf.0) {
            if let Some(bits) = NonZeroU64::new(entry.swap(0, Ordering::AcqRel)) {
                each(RawBuffer::from_bits(bits));
            }
        }
    }

    #[inline]
    fn leaf(&self, address: u64) -> Option<&Leaf> {
        let middle = self.root.get(place(address, MIDDLE_SHIFT, ROOT_ENTRIES))?;
        middle.get(place(address, LEAF_SHIFT, MIDDLE_ENTRIES))
    }

    #[cold]
    fn make_leaf(&self, address: u64) -> &Leaf {
        let middle = self.root.get_or_make(place(address, MIDDLE_SHIFT, ROOT_ENTRIES));
        self.lowest.fetch_min(address >> LEAF_SHIFT << LEAF_SHIFT, Ordering::AcqRel);
        middle.get_or_make(place(address, LEAF_SHIFT, MIDDLE_ENTRIES))
    }

    /// Returns the entry of an address where its leaf exists.
    #[inline]
    fn existing(&self, address: u64) -> Option<&AtomicU64> {
        if address >> END_SHIFT != 0 || !address.is_multiple_of(GRAIN) {
            return None;
        }
        Some(&self.leaf(address)?.0[place(address, ENTRY_SHIFT, LEAF_ENTRIES)])
    }
}

/// Takes out the block of an entry, by the entry's [`place`](Entry::place). Of several threads that do this at once,
/// one gets it.
///
/// # Safety
///
/// The place is that of an entry of a tree that lives.
#[inline]
pub(crate) unsafe fn take_at(place: usize) -> Option<RawBuffer> {
    // SAFETY: as the caller promises; entries are never moved.
    take_out(unsafe { &*ptr::with_exposed_provenance::<AtomicU64>(place) })
}

/// Takes the block out of an entry. Of several threads that do this at once, one gets it.
#[inline]
fn take_out(entry: &AtomicU64) -> Option<RawBuffer> {
    NonZeroU64::new(entry.swap(0, Ordering::AcqRel)).map(RawBuffer::from_bits)
}

/// Returns the block of an entry, by the entry's [`place`](Entry::place).
///
/// # Safety
///
/// As for [`take_at`].
pub(crate) unsafe fn get_at(place: usize) -> Option<RawBuffer> {
    // SAFETY: as in `take_at`.
    let entry = unsafe { &*ptr::with_exposed_provenance::<AtomicU64>(place) };
    NonZeroU64::new(entry.load(Ordering::Acquire)).map(RawBuffer::from_bits)
}

impl Entry<'_> {
    /// Returns where the entry is: a multiple of 8, which stays as it is as long as the tree lives.
    #[inline]
    pub(crate) fn place(&self) -> usize {
        ptr::from_ref(self.0).expose_provenance()
    }

    /// Puts the block there that was just granted at this address. No other block is there: what was there before was
    /// taken out before the allocator got it back, and the allocator grants memory to one at a time.
    #[inline]
    pub(crate) fn put(self, block: RawBuffer) {
        debug_assert_eq!(self.0.load(Ordering::Relaxed), 0, "two blocks begin at one address");
        self.0.store(block.to_bits().get(), Ordering::Release);
    }
}

#[cfg(test)]
mod tests;
