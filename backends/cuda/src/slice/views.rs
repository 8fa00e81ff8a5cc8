//! Parts of a slice.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds};

use cudarc::driver::sys::CUdeviceptr;

use super::owned::Slice;
use super::uses::Core;

/// Elements of a [`Slice`], to be read. Uses are ordered and recorded as those of the slice.
pub struct SliceView<'a, T> {
    pub(super) core: &'a Core,
    pub(super) address: CUdeviceptr,
    pub(super) len: usize,
    elements: PhantomData<&'a [T]>,
}

/// Elements of a [`Slice`], to be written. Uses are ordered and recorded as those of the slice. Writes to parts of one
/// slice on different streams wait for each other.
pub struct SliceViewMut<'a, T> {
    pub(super) core: &'a Core,
    pub(super) address: CUdeviceptr,
    pub(super) len: usize,
    elements: PhantomData<&'a mut [T]>,
}

impl<T> Slice<T> {
    /// Returns a view of all elements. Views cost nothing.
    pub fn as_view(&self) -> SliceView<'_, T> {
        SliceView { core: &self.core, address: self.address, len: self.len, elements: PhantomData }
    }

    /// Returns a view of all elements, to be written.
    pub fn as_view_mut(&mut self) -> SliceViewMut<'_, T> {
        SliceViewMut { core: &self.core, address: self.address, len: self.len, elements: PhantomData }
    }

    /// Returns a view of a range of elements.
    ///
    /// # Panics
    ///
    /// If the range is not within the slice. [`try_slice`](Slice::try_slice) returns `None` then.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> SliceView<'_, T> {
        self.try_slice(range).unwrap_or_else(|| outside(self.len))
    }

    /// Returns a view of a range of elements, or `None` if the range is not within the slice.
    pub fn try_slice(&self, range: impl RangeBounds<usize>) -> Option<SliceView<'_, T>> {
        self.as_view().try_slice(range)
    }

    /// Returns a view of a range of elements, to be written.
    ///
    /// # Panics
    ///
    /// If the range is not within the slice. [`try_slice_mut`](Slice::try_slice_mut) returns `None` then.
    pub fn slice_mut(&mut self, range: impl RangeBounds<usize>) -> SliceViewMut<'_, T> {
        let len = self.len;
        self.try_slice_mut(range).unwrap_or_else(|| outside(len))
    }

    /// Returns a view of a range of elements, to be written, or `None` if the range is not within the slice.
    pub fn try_slice_mut(&mut self, range: impl RangeBounds<usize>) -> Option<SliceViewMut<'_, T>> {
        self.as_view_mut().into_part(range)
    }

    /// Returns views of the elements before `middle` and of those from it on.
    ///
    /// # Panics
    ///
    /// If `middle` is beyond the end.
    pub fn split_at(&self, middle: usize) -> (SliceView<'_, T>, SliceView<'_, T>) {
        self.as_view().split_at(middle)
    }

    /// Returns views of the elements before `middle` and of those from it on, to be written.
    ///
    /// # Panics
    ///
    /// If `middle` is beyond the end.
    pub fn split_at_mut(&mut self, middle: usize) -> (SliceViewMut<'_, T>, SliceViewMut<'_, T>) {
        self.as_view_mut().into_halves(middle)
    }
}

impl<T> Clone for SliceView<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for SliceView<'_, T> {}

impl<'a, T> SliceView<'a, T> {
    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns a view of a range of these elements.
    ///
    /// # Panics
    ///
    /// If the range is not within them. [`try_slice`](SliceView::try_slice) returns `None` then.
    pub fn slice(self, range: impl RangeBounds<usize>) -> SliceView<'a, T> {
        self.try_slice(range).unwrap_or_else(|| outside(self.len))
    }

    /// Returns a view of a range of these elements, or `None` if the range is not within them.
    pub fn try_slice(self, range: impl RangeBounds<usize>) -> Option<SliceView<'a, T>> {
        let (start, len) = within(range, self.len)?;
        Some(SliceView { address: at::<T>(self.address, start), len, ..self })
    }

    /// Returns views of the elements before `middle` and of those from it on.
    ///
    /// # Panics
    ///
    /// If `middle` is beyond the end.
    pub fn split_at(self, middle: usize) -> (SliceView<'a, T>, SliceView<'a, T>) {
        let parts = self.try_slice(..middle).zip(self.try_slice(middle..));
        parts.unwrap_or_else(|| outside(self.len))
    }
}

impl<'a, T> SliceViewMut<'a, T> {
    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns a view of these elements, to be read.
    pub fn as_view(&self) -> SliceView<'_, T> {
        SliceView { core: self.core, address: self.address, len: self.len, elements: PhantomData }
    }

    /// Returns a view of these elements, to be written, that lives as long as this one is borrowed.
    pub fn as_view_mut(&mut self) -> SliceViewMut<'_, T> {
        SliceViewMut { core: self.core, address: self.address, len: self.len, elements: PhantomData }
    }

    /// Returns a view of a range of these elements, to be read.
    ///
    /// # Panics
    ///
    /// If the range is not within them. [`try_slice`](SliceViewMut::try_slice) returns `None` then.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> SliceView<'_, T> {
        self.as_view().slice(range)
    }

    /// Returns a view of a range of these elements, to be read, or `None` if the range is not within them.
    pub fn try_slice(&self, range: impl RangeBounds<usize>) -> Option<SliceView<'_, T>> {
        self.as_view().try_slice(range)
    }

    /// Returns a view of a range of these elements, to be written.
    ///
    /// # Panics
    ///
    /// If the range is not within them. [`try_slice_mut`](SliceViewMut::try_slice_mut) returns `None` then.
    pub fn slice_mut(&mut self, range: impl RangeBounds<usize>) -> SliceViewMut<'_, T> {
        let len = self.len;
        self.try_slice_mut(range).unwrap_or_else(|| outside(len))
    }

    /// Returns a view of a range of these elements, to be written, or `None` if the range is not within them.
    pub fn try_slice_mut(&mut self, range: impl RangeBounds<usize>) -> Option<SliceViewMut<'_, T>> {
        self.as_view_mut().into_part(range)
    }

    /// Returns views of the elements before `middle` and of those from it on, to be written.
    ///
    /// # Panics
    ///
    /// If `middle` is beyond the end.
    pub fn split_at_mut(&mut self, middle: usize) -> (SliceViewMut<'_, T>, SliceViewMut<'_, T>) {
        self.as_view_mut().into_halves(middle)
    }

    fn into_part(self, range: impl RangeBounds<usize>) -> Option<SliceViewMut<'a, T>> {
        let (start, len) = within(range, self.len)?;
        Some(SliceViewMut { address: at::<T>(self.address, start), len, ..self })
    }

    fn into_halves(self, middle: usize) -> (SliceViewMut<'a, T>, SliceViewMut<'a, T>) {
        let (core, address, len) = (self.core, self.address, self.len);
        let Some(rest) = len.checked_sub(middle) else { outside(len) };
        let part = |start, len| SliceViewMut { core, address: at::<T>(address, start), len, elements: PhantomData };
        (part(0, middle), part(middle, rest))
    }
}

/// Returns the start and the length of a range that lies within `len` elements.
fn within(range: impl RangeBounds<usize>, len: usize) -> Option<(usize, usize)> {
    let start = match range.start_bound() {
        Bound::Included(&start) => start,
        Bound::Excluded(&before) => before.checked_add(1)?,
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(&last) => last.checked_add(1)?,
        Bound::Excluded(&end) => end,
        Bound::Unbounded => len,
    };
    (end <= len).then(|| Some((start, end.checked_sub(start)?)))?
}

fn at<T>(address: CUdeviceptr, start: usize) -> CUdeviceptr {
    address + (start * size_of::<T>()) as u64
}

#[cold]
fn outside(len: usize) -> ! {
    panic!("the range is not within a slice of {len} elements");
}

impl<T> fmt::Debug for SliceView<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SliceView").field("len", &self.len).finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for SliceViewMut<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SliceViewMut").field("len", &self.len).finish_non_exhaustive()
    }
}
