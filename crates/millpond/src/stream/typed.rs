//! Allocating elements and moving them, as queued work of a stream.

use bytemuck::Pod;
use millpond_backend::Backend;

use super::Stream;
use crate::buffer::Buffer;
use crate::error::Error;
use crate::error::view::ViewError;
use crate::typed::{Elements, Typed, TypedBuffer};

/// Elements of plain types. Each call does what the one for bytes does, with its order, its costs and its errors, on
/// the elements of a [`TypedBuffer`], a [`Slice`](crate::typed::Slice), a [`View`](crate::typed::View) or the bytes of
/// a [`Buffer`]. The host has exactly as many elements as the range: [`ViewError::Length`] says otherwise.
impl<B: Backend> Stream<B> {
    /// Allocates `len` elements, as [`allocate`](Self::allocate) does. Their content is unspecified.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`allocate`](Self::allocate).
    #[track_caller]
    pub fn allocate_elements<T: Pod>(&self, len: u64) -> Result<TypedBuffer<T, B>, Error<B::Error>> {
        let bytes = len.saturating_mul(size_of::<T>() as u64);
        Typed::new(self.allocate(bytes)?).map_err(|(error, _)| Error::View(error))
    }

    /// Allocates memory for elements of the host, and copies them there. Does not wait for the device.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`allocate`](Self::allocate) and [`upload`](Self::upload).
    #[track_caller]
    pub fn allocate_from<T: Pod>(&self, from: &[T]) -> Result<TypedBuffer<T, B>, Error<B::Error>> {
        let buffer = self.allocate_elements(from.len() as u64)?;
        self.upload_elements(&buffer, from)?;
        Ok(buffer)
    }

    /// Copies elements of the host to the device, as [`upload`](Self::upload) does.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`upload`](Self::upload), and [`ViewError::Length`].
    pub fn upload_elements<E: Elements<Buffer<B>>>(&self, to: &E, from: &[E::Item]) -> Result<(), Error<B::Error>> {
        let to = to.elements();
        expect_as_many(from.len() as u64, to.len())?;
        self.upload(to.buffer(), to.byte_start(), bytemuck::cast_slice(from))
    }

    /// Copies elements of the device to the host, as [`download`](Self::download) does. Submits the stream and
    /// **blocks** until they are there.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`download`](Self::download), and [`ViewError::Length`].
    pub fn download_elements<E: Elements<Buffer<B>>>(
        &self,
        from: &E,
        to: &mut [E::Item],
    ) -> Result<(), Error<B::Error>> {
        let from = from.elements();
        expect_as_many(to.len() as u64, from.len())?;
        self.download(from.buffer(), from.byte_start(), bytemuck::cast_slice_mut(to))
    }

    /// Returns elements of the device, as [`download_elements`](Self::download_elements) does, in new memory of the
    /// host.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`download`](Self::download).
    pub fn download_vec<E: Elements<Buffer<B>>>(&self, from: &E) -> Result<Vec<E::Item>, Error<B::Error>> {
        let mut to = vec![bytemuck::Zeroable::zeroed(); from.elements().len() as usize];
        self.download_elements(from, &mut to)?;
        Ok(to)
    }

    /// Copies elements from one range to another, as [`copy`](Self::copy) does.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`copy`](Self::copy), and [`ViewError::Length`].
    pub fn copy_elements<E: Elements<Buffer<B>>>(
        &self,
        from: &E,
        to: &impl Elements<Buffer<B>, Item = E::Item>,
    ) -> Result<(), Error<B::Error>> {
        let (from, to) = (from.elements(), to.elements());
        expect_as_many(from.len(), to.len())?;
        self.copy((from.buffer(), from.byte_start()), (to.buffer(), to.byte_start()), to.byte_len())
    }

    /// Sets every byte of the elements to 0, as [`fill`](Self::fill) does.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`fill`](Self::fill).
    pub fn clear_elements<E: Elements<Buffer<B>>>(&self, of: &E) -> Result<(), Error<B::Error>> {
        let of = of.elements();
        self.fill(of.buffer(), of.byte_start(), of.byte_len(), 0)
    }
}

/// Refuses another number of elements than those of the range.
fn expect_as_many(given: u64, len: u64) -> Result<(), ViewError> {
    if given == len { Ok(()) } else { Err(ViewError::Length { given, len }) }
}
