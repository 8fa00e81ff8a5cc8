//! A whole buffer as elements.

use std::fmt;
use std::marker::PhantomData;
use std::ops::RangeBounds;

use bytemuck::Pod;

use super::memory::Memory;
use super::slice::{Elements, Slice, Span};
use super::view::View;
use crate::buffer::Buffer;
use crate::error::view::ViewError;

/// A whole buffer as elements, which owns it. It has the size of the buffer, and dropping it drops the buffer.
///
/// [`TypedBuffer`] is the form over a [`Buffer`];
/// [`Stream::allocate_elements`](crate::Stream::allocate_elements) and
/// [`allocate_from`](crate::Stream::allocate_from) allocate one.
///
/// ```
/// use millpond::Allocator;
/// use millpond::typed::Typed;
/// use millpond_sim::Sim;
///
/// let stream = Allocator::new(Sim::new()).create_stream()?;
/// let bytes = stream.allocate(1024)?;
/// let numbers = Typed::<f32, _>::new(bytes).map_err(|(error, _)| error)?;
/// assert_eq!((numbers.len(), numbers.buffer().len()), (256, 1024));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a buffer that is not kept goes straight back to the pool"]
pub struct Typed<T, M> {
    buffer: M,
    element: PhantomData<fn() -> T>,
}

/// A buffer of elements of a device of the backend `B`.
pub type TypedBuffer<T, B> = Typed<T, Buffer<B>>;

impl<T: Pod, M: Memory> Typed<T, M> {
    /// Takes the requested bytes of a buffer as elements.
    ///
    /// # Errors
    ///
    /// [`ViewError::Size`] or [`ViewError::Alignment`] with the buffer, if its bytes are not a whole number of
    /// elements, or start at an address where no element can.
    pub fn new(buffer: M) -> Result<Self, (ViewError, M)> {
        match Span::of(&buffer).expect_elements::<T, M>(&buffer) {
            Ok(()) => Ok(Self { buffer, element: PhantomData }),
            Err(error) => Err((error, buffer)),
        }
    }

    /// Returns the buffer, for everything that is not about elements: its stream, its readiness, its uses.
    pub fn buffer(&self) -> &M {
        &self.buffer
    }

    pub(crate) fn buffer_mut(&mut self) -> &mut M {
        &mut self.buffer
    }

    /// Returns the untyped buffer.
    pub fn into_buffer(self) -> M {
        self.buffer
    }

    /// Returns the number of elements.
    pub fn len(&self) -> u64 {
        self.as_slice().len()
    }

    /// Returns whether it has no elements at all.
    pub fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    /// Returns the device address of the first element, on devices that have addresses. `None` without elements.
    pub fn address(&self) -> Option<u64> {
        self.buffer.address()
    }

    /// Returns all elements, borrowed.
    pub fn as_slice(&self) -> Slice<'_, T, M> {
        Slice::new(&self.buffer, Span::of(&self.buffer))
    }

    /// Returns some of the elements, borrowed.
    ///
    /// # Errors
    ///
    /// [`ViewError::Range`] for a range that leaves it.
    pub fn slice(&self, range: impl RangeBounds<u64>) -> Result<Slice<'_, T, M>, ViewError> {
        self.as_slice().slice(range)
    }

    /// Returns the same bytes as elements of another type.
    ///
    /// # Errors
    ///
    /// [`ViewError::Size`] or [`ViewError::Alignment`] with the buffer, unchanged.
    pub fn cast<U: Pod>(self) -> Result<Typed<U, M>, (ViewError, Self)> {
        Typed::new(self.buffer).map_err(|(error, buffer)| (error, Self { buffer, element: PhantomData }))
    }

    /// Makes a view of all elements, from which you can make others. The buffer is then reference counted, and dropped
    /// with the last view.
    pub fn share(self) -> View<T, M> {
        View::whole(self.buffer)
    }
}

impl<T: Pod, M: Memory> Elements<M> for Typed<T, M> {
    type Item = T;

    fn elements(&self) -> Slice<'_, T, M> {
        self.as_slice()
    }
}

impl<T, M: fmt::Debug> fmt::Debug for Typed<T, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = std::any::type_name::<T>();
        f.debug_struct("TypedBuffer").field("of", &format_args!("{of}")).field("buffer", &self.buffer).finish()
    }
}
