//! Buffers, slices and views with a type of element: those of [`millpond::typed`], over erased buffers.

use millpond::Error;
use millpond::typed::{Elements, Memory, Pod, Slice, Typed, View, ViewError};

use crate::buffer::AnyBuffer;
use crate::error::AnyError;
use crate::stream::AnyStream;

/// A buffer of elements: [`TypedBuffer`](millpond::typed::TypedBuffer) over an erased buffer.
pub type AnyTypedBuffer<T> = Typed<T, AnyBuffer>;

/// A range of a buffer, borrowed from it: [`Slice`] over an erased buffer.
pub type AnySlice<'b, T> = Slice<'b, T, AnyBuffer>;

/// A range of a buffer that keeps the buffer alive: [`View`] over an erased buffer.
pub type AnyView<T> = View<T, AnyBuffer>;

impl Memory for AnyBuffer {
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

impl Elements<Self> for AnyBuffer {
    type Item = u8;

    fn elements(&self) -> Slice<'_, u8, Self> {
        Slice::of(self)
    }
}

/// Elements of plain types. Each call does what the one for bytes does, with its order, its costs and its errors. The
/// host has exactly as many elements as the range: [`ViewError::Length`] says otherwise.
impl AnyStream {
    /// Allocates `len` elements. Their content is unspecified.
    ///
    /// # Errors
    ///
    /// The errors of [`allocate`](Self::allocate).
    #[track_caller]
    pub fn allocate_elements<T: Pod>(&self, len: u64) -> Result<AnyTypedBuffer<T>, AnyError> {
        let buffer = self.allocate(len.saturating_mul(size_of::<T>() as u64))?;
        Typed::new(buffer).map_err(|(error, _)| wrong(error))
    }

    /// Allocates as many elements as the host gives, and copies them there. Does not wait for the device.
    ///
    /// # Errors
    ///
    /// The errors of [`allocate`](Self::allocate) and [`upload`](Self::upload).
    #[track_caller]
    pub fn allocate_from<T: Pod>(&self, from: &[T]) -> Result<AnyTypedBuffer<T>, AnyError> {
        let buffer = self.allocate_elements(from.len() as u64)?;
        self.upload_elements(&buffer, from)?;
        Ok(buffer)
    }

    /// Copies elements of the host to the device. They are read before the call returns.
    ///
    /// # Errors
    ///
    /// The errors of [`upload`](Self::upload), and [`ViewError::Length`].
    pub fn upload_elements<E: Elements<AnyBuffer>>(&self, to: &E, from: &[E::Item]) -> Result<(), AnyError> {
        let to = to.elements();
        expect_as_many(from.len() as u64, to.len())?;
        self.upload(to.buffer(), to.byte_start(), bytemuck::cast_slice(from))
    }

    /// Copies elements of the device to the host. Submits the stream and **blocks** until they are there.
    ///
    /// # Errors
    ///
    /// The errors of [`download`](Self::download), and [`ViewError::Length`].
    pub fn download_elements<E: Elements<AnyBuffer>>(&self, from: &E, to: &mut [E::Item]) -> Result<(), AnyError> {
        let from = from.elements();
        expect_as_many(to.len() as u64, from.len())?;
        self.download(from.buffer(), from.byte_start(), bytemuck::cast_slice_mut(to))
    }

    /// Returns elements of the device in new memory of the host. Submits the stream and **blocks** until they are
    /// there.
    ///
    /// # Errors
    ///
    /// The errors of [`download`](Self::download).
    pub fn download_vec<E: Elements<AnyBuffer>>(&self, from: &E) -> Result<Vec<E::Item>, AnyError> {
        let mut to = vec![bytemuck::Zeroable::zeroed(); from.elements().len() as usize];
        self.download_elements(from, &mut to)?;
        Ok(to)
    }

    /// Copies elements from one range to another. Does not block.
    ///
    /// # Errors
    ///
    /// The errors of [`copy`](Self::copy), and [`ViewError::Length`].
    pub fn copy_elements<E: Elements<AnyBuffer>>(
        &self,
        from: &E,
        to: &impl Elements<AnyBuffer, Item = E::Item>,
    ) -> Result<(), AnyError> {
        let (from, to) = (from.elements(), to.elements());
        expect_as_many(from.len(), to.len())?;
        self.copy((from.buffer(), from.byte_start()), (to.buffer(), to.byte_start()), to.byte_len())
    }

    /// Sets every byte of the elements to 0. Does not block.
    ///
    /// # Errors
    ///
    /// The errors of [`fill`](Self::fill).
    pub fn clear_elements<E: Elements<AnyBuffer>>(&self, of: &E) -> Result<(), AnyError> {
        let of = of.elements();
        self.fill(of.buffer(), of.byte_start(), of.byte_len(), 0)
    }
}

/// Refuses another number of elements than those of the range.
fn expect_as_many(given: u64, len: u64) -> Result<(), AnyError> {
    if given == len { Ok(()) } else { Err(wrong(ViewError::Length { given, len })) }
}

fn wrong(error: ViewError) -> AnyError {
    AnyError::Allocator(Error::View(error))
}

impl From<ViewError> for AnyError {
    fn from(error: ViewError) -> Self {
        wrong(error)
    }
}
