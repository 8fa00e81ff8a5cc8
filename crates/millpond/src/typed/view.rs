//! A range of a buffer that keeps the buffer alive.

use std::fmt;
use std::marker::PhantomData;
use std::ops::RangeBounds;
use std::sync::Arc;

use bytemuck::Pod;

use super::memory::Memory;
use super::slice::{Elements, Slice, Span};
use crate::error::view::ViewError;

/// A range of a buffer as elements that keeps the buffer alive: the buffer is dropped with the last view of it, on
/// whichever thread that is. Cloning it adds a reference.
///
/// [`Typed::share`](super::Typed::share) and [`View::new`] take a buffer and make its first view. Buffers without views
/// pay nothing for them.
///
/// ```
/// use millpond::Allocator;
/// use millpond_sim::Sim;
///
/// let stream = Allocator::new(Sim::new()).create_stream()?;
/// let whole = stream.allocate_from(&[1u32, 2, 3, 4])?.share();
/// let last = whole.slice(2..)?;
/// drop(whole);
/// assert_eq!(stream.download_vec(&last)?, [3, 4], "the buffer lives as long as a view of it");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct View<T, M> {
    owner: Arc<M>,
    span: Span,
    element: PhantomData<fn() -> T>,
}

impl<M: Memory> View<u8, M> {
    /// Makes a view of all requested bytes of a buffer.
    pub fn new(buffer: M) -> Self {
        Self::of(Arc::new(buffer))
    }

    /// Makes a view of all bytes of a buffer that the program itself shares.
    pub fn of(owner: Arc<M>) -> Self {
        let span = Span::of(&*owner);
        Self { owner, span, element: PhantomData }
    }
}

impl<T: Pod, M: Memory> View<T, M> {
    /// Makes a view of a whole buffer, whose bytes the caller has found to be such elements.
    pub(super) fn whole(buffer: M) -> Self {
        let span = Span::of(&buffer);
        Self { owner: Arc::new(buffer), span, element: PhantomData }
    }

    fn with<U>(&self, span: Span) -> View<U, M> {
        View { owner: Arc::clone(&self.owner), span, element: PhantomData }
    }

    /// Returns the buffer.
    pub fn buffer(&self) -> &M {
        &self.owner
    }

    /// Returns the range as a borrowed slice, which also has the place of its first byte.
    pub fn as_slice(&self) -> Slice<'_, T, M> {
        Slice::new(&*self.owner, self.span)
    }

    /// Returns the number of elements.
    pub fn len(&self) -> u64 {
        self.as_slice().len()
    }

    /// Returns whether it has no elements at all.
    pub fn is_empty(&self) -> bool {
        self.as_slice().is_empty()
    }

    /// Returns a part of it. The range is in elements, and the part keeps the buffer alive, too.
    ///
    /// # Errors
    ///
    /// [`ViewError::Range`] for a range that leaves it.
    pub fn slice(&self, range: impl RangeBounds<u64>) -> Result<Self, ViewError> {
        Ok(self.with(self.span.part::<T>(range)?))
    }

    /// Returns the same bytes as elements of another type.
    ///
    /// # Errors
    ///
    /// [`ViewError::Size`] if they are no whole number of elements; [`ViewError::Alignment`] if they begin where no
    /// element can.
    pub fn cast<U: Pod>(&self) -> Result<View<U, M>, ViewError> {
        self.span.expect_elements::<U, M>(&self.owner)?;
        Ok(self.with(self.span))
    }

    /// Returns the buffer, if this is its last view, and otherwise the view unchanged.
    ///
    /// # Errors
    ///
    /// Returns the view if there are others.
    pub fn try_into_buffer(self) -> Result<M, Self> {
        let Self { owner, span, element } = self;
        Arc::try_unwrap(owner).map_err(|owner| Self { owner, span, element })
    }
}

impl<T: Pod, M: Memory> Elements<M> for View<T, M> {
    type Item = T;

    fn elements(&self) -> Slice<'_, T, M> {
        self.as_slice()
    }
}

impl<T, M> Clone for View<T, M> {
    fn clone(&self) -> Self {
        Self { owner: Arc::clone(&self.owner), span: self.span, element: PhantomData }
    }
}

impl<T, M: fmt::Debug> fmt::Debug for View<T, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Span { start, bytes } = self.span;
        f.debug_struct("View").field("buffer", &self.owner).field("start", &start).field("bytes", &bytes).finish()
    }
}
