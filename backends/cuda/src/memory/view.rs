//! A view of part of a segment for use with cudarc.

use std::marker::PhantomData;
use std::mem::{ManuallyDrop, align_of, size_of};
use std::ops::Deref;
use std::sync::Arc;

use cudarc::driver::{CudaSlice, CudaStream, CudaViewMut, DeviceRepr};
use millpond_kit::Misuse;

use super::segment::Segment;
use crate::error::CudaError;

/// Elements in a segment, for use with cudarc: an argument of kernels, and the source or target of its copies. Dropping
/// it does not free anything.
pub struct View<'segment, T> {
    slice: ManuallyDrop<CudaSlice<T>>,
    segment: PhantomData<&'segment Segment>,
}

impl Segment {
    /// Returns a view of `len` elements at `offset` bytes for cudarc, to be used on `stream`. Makes no driver call,
    /// unless the context tracks events (contexts that this backend opened do not).
    ///
    /// # Errors
    ///
    /// [`Misuse::OutOfRange`], [`Misuse::Unmapped`], [`Misuse::Misaligned`], and [`CudaError::ForeignStream`] if the
    /// stream is of another context.
    ///
    /// # Safety
    ///
    /// The bytes belong to the caller for as long as work uses the view, they are valid for `T` when they are read, and
    /// the caller orders work on different streams: nothing is tracked. The view checks only against the segment, which
    /// holds other buffers too. All of a buffer's `capacity` belongs to the caller, and the bytes behind its `len` hold
    /// what the previous user of the memory left there.
    pub unsafe fn view<T: DeviceRepr>(
        &self,
        stream: &Arc<CudaStream>,
        offset: u64,
        len: usize,
    ) -> Result<View<'_, T>, CudaError> {
        if stream.context().cu_ctx() != self.context.cu_ctx() {
            return Err(CudaError::ForeignStream { ordinal: self.ordinal });
        }
        let bytes = (len as u64).checked_mul(size_of::<T>() as u64);
        let address = match bytes {
            Some(bytes) => self.place("segment", offset, bytes)?,
            None => return Err(self.out_of_range("segment", offset, u64::MAX).into()),
        };
        Misuse::if_misaligned("view", address, align_of::<T>() as u64, None)?;
        // SAFETY: the bytes lie in the segment, and the caller promises the rest. The slice must not be dropped,
        // because that would free the address: `View::drop` gives it up with `leak`.
        let slice = unsafe { stream.upgrade_device_ptr(address, len) };
        Ok(View { slice: ManuallyDrop::new(slice), segment: PhantomData })
    }
}

impl<T> View<'_, T> {
    /// Returns a view of all elements, to be written.
    pub fn as_view_mut(&mut self) -> CudaViewMut<'_, T> {
        self.slice.as_view_mut()
    }
}

impl<T> Deref for View<'_, T> {
    type Target = CudaSlice<T>;

    fn deref(&self) -> &CudaSlice<T> {
        &self.slice
    }
}

impl<T> Drop for View<'_, T> {
    fn drop(&mut self) {
        // SAFETY: the slice is taken once, here, and not used again.
        let slice = unsafe { ManuallyDrop::take(&mut self.slice) };
        slice.leak();
    }
}

impl<T> std::fmt::Debug for View<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("View").field("len", &self.slice.len()).finish_non_exhaustive()
    }
}
