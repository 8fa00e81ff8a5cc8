//! The memory that typed buffers, slices and views are made over.

use millpond_backend::Backend;

use crate::buffer::Buffer;

/// Memory for typed buffers, slices and views. Buffers implement it; a program does not need to.
pub trait Memory {
    /// Returns the requested size in bytes, at which every range ends.
    fn len(&self) -> u64;

    /// Returns whether it has no bytes at all.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns its offset in its segment, in bytes.
    fn offset(&self) -> u64;

    /// Returns its device address, where there is one.
    fn address(&self) -> Option<u64>;
}

impl<B: Backend> Memory for Buffer<B> {
    fn len(&self) -> u64 {
        self.len()
    }

    fn offset(&self) -> u64 {
        self.offset()
    }

    fn address(&self) -> Option<u64> {
        self.address()
    }
}

/// Returns the size of an element in bytes. Elements without bytes do not compile, because a length in bytes would say
/// nothing about their number.
pub(super) const fn size_of_element<T>() -> u64 {
    const { assert!(size_of::<T>() > 0, "an element has at least one byte") };
    size_of::<T>() as u64
}
