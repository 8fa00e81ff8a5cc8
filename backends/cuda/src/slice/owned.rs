//! The slice itself: allocating it, and what it is.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use cudarc::driver::sys::CUdeviceptr;
use cudarc::driver::{DeviceRepr, ValidAsZeroBits};
use millpond::{Buffer, Error};
use millpond_kit::Misuse;

use super::streams::{SliceStream, failed};
use super::uses::Core;
use crate::device::Cuda;
use crate::error::CudaError;
use crate::open::told;

/// An owned array of elements in device memory from an [allocator](super::SliceAllocator), for use with cudarc: an
/// argument of kernels, of cudarc's copies and fills, and of its libraries such as cuBLAS.
///
/// It is allocated on a stream, its home. Uses through cudarc's traits [`DevicePtr`](cudarc::driver::DevicePtr) and
/// [`DevicePtrMut`](cudarc::driver::DevicePtrMut) are ordered as the borrow checker sees them, on all streams of the
/// context: a use waits on the device for earlier writes on other streams, and a write for earlier uses. The memory is
/// kept until streams that used it have passed their last use. While only the home stream uses a slice, a use costs
/// one lock of the slice and no driver call. A use on another stream costs a lookup of that stream, and a wait of the
/// device where another stream wrote since.
///
/// cudarc does not say on which stream a kernel is launched. So `arg(&slice)` and `arg(&mut slice)` count as a use of
/// the home stream, or, if that is a per-thread default stream, of the calling thread's. For a launch on another stream
/// pass [`on`](Slice::on) or [`on_mut`](Slice::on_mut).
///
/// # Streams that are not registered
///
/// [`DevicePtr`](cudarc::driver::DevicePtr) cannot fail. A stream that the allocator does not know, or one of another
/// context, is made to wait for the slice's streams, and **the host waits for it** after the use. Register streams with
/// [`SliceAllocator::stream`](super::SliceAllocator::stream) to avoid that. The default streams are registered at
/// their first use.
///
/// If a driver call fails, the error is left with the context, where cudarc's own are: its next call returns
/// `CUDA_ERROR_UNKNOWN`, or the driver's error.
///
/// # Captures
///
/// While a stream is captured, no wait is added from or to it: order the streams of the capture as CUDA requires, by
/// `join`. A stream that is not registered leaves `CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED` with the context if it is
/// captured, or if a stream of the slice is.
///
/// A graph uses its memory when it is launched: take a buffer of a private pool, keep the pool as long as the graph,
/// and make a slice of the buffer with [`SliceStream::slice_of`].
///
/// # Drop
///
/// Dropping makes no driver call and never waits. The memory goes to later work of the home stream at once, and to
/// other streams once the work is done. cudarc's `memcpy_dtod` from a slice to memory of **another device** names only
/// the slice's home stream, although the copy runs on the other: synchronize that stream before you drop the slice.
pub struct Slice<T> {
    pub(super) core: Core,
    pub(super) address: CUdeviceptr,
    pub(super) len: usize,
    elements: PhantomData<T>,
}

impl SliceStream {
    /// Allocates `len` elements that hold whatever the memory held before. A cached block costs tens of nanoseconds and
    /// no driver call. A slice without elements takes the smallest block, so that its address is valid everywhere.
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`] if the size in bytes is beyond any device, with `u64::MAX` where it is no number. Else the
    /// errors of [`Stream::allocate`](millpond::Stream::allocate).
    ///
    /// # Safety
    ///
    /// The elements are written before they are read, unless every bit pattern is a valid `T`.
    #[track_caller]
    pub unsafe fn allocate<T: DeviceRepr>(&self, len: usize) -> Result<Slice<T>, Error<CudaError>> {
        let bytes = (len as u64).checked_mul(size_of::<T>() as u64);
        let bytes = bytes.ok_or(Error::TooLarge { requested: u64::MAX })?;
        Slice::new(self, self.stream().allocate(bytes.max(1))?, len)
    }

    /// Makes a slice of `len` elements of a buffer that was allocated on this stream, for example in a private pool.
    /// Makes no driver call.
    ///
    /// # Errors
    ///
    /// [`Misuse::OutOfRange`] as the source if the buffer has fewer bytes or none, [`Error::UnknownStream`] if it was
    /// allocated on another stream, and [`Error::WrongDevice`] if it is another allocator's. The buffer is freed then.
    ///
    /// # Safety
    ///
    /// As for [`allocate`](SliceStream::allocate). Earlier uses of the buffer on other streams come before what is
    /// queued on this stream from now on: a slice knows the uses that are made of it, and orders no others.
    pub unsafe fn slice_of<T: DeviceRepr>(
        &self,
        buffer: Buffer<Cuda>,
        len: usize,
    ) -> Result<Slice<T>, Error<CudaError>> {
        const CALL: &str = "slice_of";
        buffer.record_stream(self.stream())?;
        if buffer.stream() != self.stream().id() {
            return Err(Error::UnknownStream { stream: buffer.stream() });
        }
        let bytes = (len as u64).saturating_mul(size_of::<T>() as u64);
        if buffer.is_empty() || bytes > buffer.len() {
            let (role, segment_bytes) = (None, buffer.len());
            let misuse = Misuse::OutOfRange { call: Some(CALL), role, offset: 0, bytes, segment_bytes };
            return Err(failed(CALL)(misuse.into()));
        }
        Slice::new(self, buffer, len)
    }

    /// Allocates `len` elements of zeros. Queues a fill on the stream.
    ///
    /// # Errors
    ///
    /// The errors of [`allocate`](SliceStream::allocate), and the driver's errors of the fill.
    #[track_caller]
    pub fn zeros<T: DeviceRepr + ValidAsZeroBits>(&self, len: usize) -> Result<Slice<T>, Error<CudaError>> {
        // SAFETY: the next call writes every element. If it fails, the slice is dropped before anybody can read it.
        let mut slice = unsafe { self.allocate(len) }?;
        if len > 0 {
            let filled = self.cudarc().memset_zeros(&mut slice);
            filled.map_err(|error| failed("zeros")(told("cuMemsetD8Async")(error)))?;
        }
        Ok(slice)
    }

    /// Allocates a copy of the host's elements. Queues a copy on the stream, as cudarc's `clone_htod` does.
    ///
    /// # Errors
    ///
    /// The errors of [`allocate`](SliceStream::allocate), and the driver's errors of the copy.
    #[track_caller]
    pub fn upload<T: DeviceRepr>(&self, from: &[T]) -> Result<Slice<T>, Error<CudaError>> {
        // SAFETY: the next call writes every element. If it fails, the slice is dropped before anybody can read it.
        let mut slice = unsafe { self.allocate(from.len()) }?;
        if !from.is_empty() {
            let copied = self.cudarc().memcpy_htod(from, &mut slice);
            copied.map_err(|error| failed("upload")(told("cuMemcpyHtoDAsync")(error)))?;
        }
        Ok(slice)
    }
}

impl<T> Slice<T> {
    fn new(home: &SliceStream, buffer: Buffer<Cuda>, len: usize) -> Result<Slice<T>, Error<CudaError>> {
        let address = buffer.address().expect("a buffer with bytes has an address");
        let aligned = Misuse::if_misaligned("allocate", address, align_of::<T>() as u64, None);
        aligned.map_err(|misuse| failed("allocate")(misuse.into()))?;
        let core = Core::new(buffer, Arc::clone(&home.known), home.allocator().clone());
        Ok(Slice { core, address, len, elements: PhantomData })
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the device address of the first element. Uses by address alone are neither ordered nor recorded: the
    /// caller does both, with [`buffer`](Slice::buffer).
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Returns the memory as Millpond's buffer, for statistics and for
    /// [`record_stream`](millpond::Buffer::record_stream).
    pub fn buffer(&self) -> &Buffer<Cuda> {
        self.core.buffer()
    }
}

impl<T> fmt::Debug for Slice<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slice").field("len", &self.len).field("buffer", self.core.buffer()).finish_non_exhaustive()
    }
}
