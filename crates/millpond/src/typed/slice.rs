//! A range of a buffer, borrowed from it.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds};

use bytemuck::Pod;
use millpond_backend::Backend;

use super::memory::{Memory, size_of_element};
use crate::buffer::Buffer;
use crate::error::view::ViewError;

/// What each segment's beginning is a multiple of, in bytes, on every device.
const SEGMENT_ALIGNMENT: u64 = 256;

/// A range of a buffer as elements, borrowed from the buffer. Copying it is free.
///
/// ```
/// use millpond::Allocator;
/// use millpond_sim::Sim;
///
/// let stream = Allocator::new(Sim::new()).create_stream()?;
/// let numbers = stream.allocate_from(&[1u32, 2, 3, 4])?;
/// let last = numbers.slice(2..)?;
/// assert_eq!(stream.download_vec(&last)?, [3, 4]);
/// assert!(last.slice(..3).is_err(), "it has two elements");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Slice<'m, T, M> {
    memory: &'m M,
    span: Span,
    element: PhantomData<fn() -> T>,
}

/// The place of a range in its buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Span {
    /// The offset of the first byte, from the start of the buffer.
    pub(super) start: u64,
    pub(super) bytes: u64,
}

impl Span {
    /// Returns the whole of a buffer.
    pub(super) fn of<M: Memory>(memory: &M) -> Self {
        Self { start: 0, bytes: memory.len() }
    }

    /// Returns the number of elements.
    pub(super) fn len<T>(self) -> u64 {
        self.bytes / size_of_element::<T>()
    }

    /// Returns a part, whose range is in elements.
    pub(super) fn part<T>(self, range: impl RangeBounds<u64>) -> Result<Self, ViewError> {
        let (len, most) = (self.len::<T>(), u64::MAX);
        let start = match range.start_bound() {
            Bound::Included(&start) => start,
            Bound::Excluded(&before) => before.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            // An end that is larger than any number is out of range, whatever the buffer's length.
            Bound::Included(&last) => last.checked_add(1).unwrap_or(most),
            Bound::Excluded(&end) => end,
            Bound::Unbounded => len,
        };
        if start > end || end > len {
            return Err(ViewError::Range { start, end, len });
        }
        let size = size_of_element::<T>();
        Ok(Self { start: self.start + start * size, bytes: (end - start) * size })
    }

    /// Checks that the bytes are whole, aligned elements.
    pub(super) fn expect_elements<T, M: Memory>(self, memory: &M) -> Result<(), ViewError> {
        let element_bytes = size_of_element::<T>();
        if !self.bytes.is_multiple_of(element_bytes) {
            return Err(ViewError::Size { bytes: self.bytes, element_bytes });
        }
        // Segments begin at multiples of 256 at least, so up to there, and where there are no addresses, the offset has
        // the answer. An address that is asked for counts as told to the caller.
        let alignment = align_of::<T>() as u64;
        let address = if alignment > SEGMENT_ALIGNMENT { memory.address() } else { None };
        let first = address.unwrap_or_else(|| memory.offset());
        match (first + self.start) % alignment {
            0 => Ok(()),
            over => Err(ViewError::Alignment { alignment, over }),
        }
    }
}

impl<'m, M: Memory> Slice<'m, u8, M> {
    /// Returns all requested bytes of a buffer.
    pub fn of(memory: &'m M) -> Self {
        Self::new(memory, Span::of(memory))
    }
}

impl<'m, T, M> Slice<'m, T, M> {
    pub(super) fn new(memory: &'m M, span: Span) -> Self {
        Self { memory, span, element: PhantomData }
    }
}

impl<'m, T: Pod, M: Memory> Slice<'m, T, M> {
    /// Returns the buffer.
    pub fn buffer(&self) -> &'m M {
        self.memory
    }

    /// Returns the number of elements.
    pub fn len(&self) -> u64 {
        self.span.len::<T>()
    }

    /// Returns whether it has no elements at all.
    pub fn is_empty(&self) -> bool {
        self.span.bytes == 0
    }

    /// Returns the number of bytes.
    pub fn byte_len(&self) -> u64 {
        self.span.bytes
    }

    /// Returns the offset of its first byte from the start of the buffer, in bytes, as the untyped transfers take it.
    pub fn byte_start(&self) -> u64 {
        self.span.start
    }

    /// Returns the offset of its first byte in the segment, in bytes: where a binding or a descriptor of it begins.
    pub fn offset(&self) -> u64 {
        self.memory.offset() + self.span.start
    }

    /// Returns the device address of its first byte, on devices that have addresses: on CUDA a `CUdeviceptr`. `None` in
    /// an empty buffer.
    pub fn address(&self) -> Option<u64> {
        self.memory.address().map(|address| address + self.span.start)
    }

    /// Returns a part of it. The range is in elements.
    ///
    /// # Errors
    ///
    /// [`ViewError::Range`] for a range that leaves it.
    pub fn slice(&self, range: impl RangeBounds<u64>) -> Result<Self, ViewError> {
        Ok(Self::new(self.memory, self.span.part::<T>(range)?))
    }

    /// Returns the same bytes as elements of another type.
    ///
    /// # Errors
    ///
    /// [`ViewError::Size`] if they are no whole number of elements; [`ViewError::Alignment`] if they begin where no
    /// element can.
    pub fn cast<U: Pod>(&self) -> Result<Slice<'m, U, M>, ViewError> {
        self.span.expect_elements::<U, M>(self.memory)?;
        Ok(Slice::new(self.memory, self.span))
    }
}

impl<'m, T: Pod, B: Backend> Slice<'m, T, Buffer<B>> {
    /// Returns the backend's segment in which it lies, at [`offset`](Self::offset); `None` in an empty buffer. A slice
    /// without elements in a buffer that has some lies in a segment as well. Takes the stream's lock briefly.
    pub fn segment(&self) -> Option<&'m B::Segment> {
        self.memory.segment()
    }
}

impl<T, M> Clone for Slice<'_, T, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T, M> Copy for Slice<'_, T, M> {}

impl<T, M: fmt::Debug> fmt::Debug for Slice<'_, T, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Span { start, bytes } = self.span;
        f.debug_struct("Slice").field("buffer", self.memory).field("start", &start).field("bytes", &bytes).finish()
    }
}

/// Something that has elements in the memory of a device: a [`TypedBuffer`](super::TypedBuffer), a [`Slice`], a
/// [`View`](super::View), a plain buffer with its bytes, and a reference to any of them.
pub trait Elements<M> {
    /// The type of the elements.
    type Item: Pod;

    /// Returns the elements, borrowed.
    fn elements(&self) -> Slice<'_, Self::Item, M>;
}

impl<M, E: Elements<M> + ?Sized> Elements<M> for &E {
    type Item = E::Item;

    fn elements(&self) -> Slice<'_, E::Item, M> {
        (**self).elements()
    }
}

impl<T: Pod, M> Elements<M> for Slice<'_, T, M> {
    type Item = T;

    fn elements(&self) -> Slice<'_, T, M> {
        *self
    }
}

impl<B: Backend> Elements<Self> for Buffer<B> {
    type Item = u8;

    fn elements(&self) -> Slice<'_, u8, Self> {
        Slice::of(self)
    }
}
