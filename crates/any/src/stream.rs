//! A stream of an allocator.

use millpond::{Error, Stream};
use millpond_backend::{Point, StreamId};

use crate::buffer::AnyBuffer;
use crate::error::AnyError;
use crate::macros::{erase, erased, on, on_both, on_three};
use crate::pinned::AnyPinnedBuffer;

erased! {
    /// A stream to allocate on: the erased form of [`Stream`]. Cheap to clone; clones are the same stream.
    ///
    /// Threads that work on different streams do not wait for each other in the allocator.
    #[derive(Clone, Debug)]
    AnyStream:
    Stream<millpond_sim::Sim>, Stream<millpond_cuda::Cuda>,
    Stream<millpond_vulkan::Vulkan>, Stream<millpond_wgpu::Wgpu>
}

/// Returns the error for two things of different backends.
#[cold]
pub(crate) fn other_backend(what: &'static str, belongs_to: &'static str, given_to: &'static str) -> AnyError {
    AnyError::OtherBackend { what, belongs_to, given_to }
}

/// Allocating, and the order of the stream's work.
impl AnyStream {
    /// Returns its number with the device.
    pub fn id(&self) -> StreamId {
        on!(self, AnyStream(stream) => stream.id())
    }

    /// Returns the point that covers everything queued on the stream so far, for [`AnyBuffer::used_until`]. Makes no
    /// driver call.
    pub fn point(&self) -> Point {
        on!(self, AnyStream(stream) => stream.point())
    }

    /// Allocates at least `bytes` bytes, for use on this stream. A hit makes no driver call. 0 bytes give an empty
    /// buffer, which is not counted.
    ///
    /// # Errors
    ///
    /// The errors of [`Stream::allocate`]: [`AnyError::out_of_memory`] has the report of the most frequent one.
    #[inline]
    #[track_caller]
    pub fn allocate(&self, bytes: u64) -> Result<AnyBuffer, AnyError> {
        // Each arm returns on its own, so that the buffer is written to its final place: a buffer that is passed on is
        // copied.
        macro_rules! of {
            ($stream:expr, $kind:ident) => {
                match $stream.allocate(bytes) {
                    Ok(buffer) => Ok(AnyBuffer::$kind(buffer)),
                    Err(error) => Err(AnyError::from(error)),
                }
            };
        }
        match self {
            #[cfg(feature = "sim")]
            AnyStream::Sim(stream) => of!(stream, Sim),
            #[cfg(feature = "cuda")]
            AnyStream::Cuda(stream) => of!(stream, Cuda),
            #[cfg(feature = "vulkan")]
            AnyStream::Vulkan(stream) => of!(stream, Vulkan),
            #[cfg(feature = "wgpu")]
            AnyStream::Wgpu(stream) => of!(stream, Wgpu),
            #[cfg(not(any(feature = "sim", feature = "cuda", feature = "vulkan", feature = "wgpu")))]
            _ => crate::macros::nothing_is_built_in(),
        }
    }

    /// Does the same as [`allocate`](Self::allocate), but calls `prepare` first if more is needed than to hand out a
    /// cached block, at most once. Where the application closes ticks (Vulkan, wgpu), it can [submit](Self::submit)
    /// there: [`Stream::allocate_prepared`] has an example.
    ///
    /// # Errors
    ///
    /// Returns the error of `prepare`, after which nothing is allocated, and the errors of
    /// [`allocate`](Self::allocate).
    #[track_caller]
    pub fn allocate_prepared(
        &self,
        bytes: u64,
        prepare: impl FnOnce() -> Result<(), AnyError>,
    ) -> Result<AnyBuffer, AnyError> {
        let mut failed = None;
        // The typed form can only return an error of its own: any, as the one of `prepare` takes its place.
        let allocated = erase_prepared(self, bytes, || match prepare() {
            Ok(()) => true,
            Err(error) => {
                failed = Some(error);
                false
            }
        });
        match failed {
            Some(error) => Err(error),
            None => allocated,
        }
    }

    /// Submits what was recorded on the stream so far and returns the point that covers it. Does not block. Where the
    /// application closes ticks (Vulkan, wgpu) this costs a driver call; elsewhere it is the same as
    /// [`point`](Self::point).
    ///
    /// # Errors
    ///
    /// [`Error::Driver`] if a driver call fails.
    pub fn submit(&self) -> Result<Point, AnyError> {
        on!(self, AnyStream(stream) => Ok(stream.submit()?))
    }

    /// Makes work that is queued on this stream from now on begin only after the point is reached. The device waits,
    /// not the host. It orders work and does not inform the allocator: a buffer that is used on another stream than its
    /// own still needs [`record_stream`](AnyBuffer::record_stream) or [`used_until`](AnyBuffer::used_until).
    ///
    /// # Errors
    ///
    /// The errors of [`Stream::wait_for`].
    pub fn wait_for(&self, point: Point) -> Result<(), AnyError> {
        on!(self, AnyStream(stream) => Ok(stream.wait_for(point)?))
    }

    /// Submits the stream and blocks until everything queued on it so far is complete.
    ///
    /// # Errors
    ///
    /// [`Error::Driver`] if a driver call fails; [`Error::NotReached`] if the stream waits for work that was never
    /// submitted.
    pub fn synchronize(&self) -> Result<(), AnyError> {
        on!(self, AnyStream(stream) => Ok(stream.synchronize()?))
    }
}

/// Allocates; `prepare` returns whether to go on.
#[track_caller]
fn erase_prepared(stream: &AnyStream, bytes: u64, prepare: impl FnOnce() -> bool) -> Result<AnyBuffer, AnyError> {
    Ok(erase!(stream, AnyStream(stream) => AnyBuffer(
        stream.allocate_prepared(bytes, || if prepare() { Ok(()) } else { Err(Error::NoStreams) })?
    )))
}

/// Transfers of bytes, in the order of the stream. [`Stream`] says what holds for all of them: offsets and lengths are
/// in bytes, and end at the buffer's [`len`](AnyBuffer::len). All return [`AnyError::OtherBackend`] for a buffer of
/// another backend, beside the errors of the typed form.
impl AnyStream {
    /// Sets `bytes` bytes of the buffer to `value`, beginning at `offset`. Does not block.
    ///
    /// # Errors
    ///
    /// The errors of [`Stream::fill`].
    pub fn fill(&self, buffer: &AnyBuffer, offset: u64, bytes: u64, value: u8) -> Result<(), AnyError> {
        on_both!(
            (self, buffer), (AnyStream(stream), AnyBuffer(buffer)) => Ok(stream.fill(buffer, offset, bytes, value)?),
            else Err(self.other("buffer", buffer.backend_name()))
        )
    }

    /// Copies host bytes into the buffer, beginning at `offset`. They are read before the call returns.
    ///
    /// # Errors
    ///
    /// The errors of [`Stream::upload`].
    pub fn upload(&self, buffer: &AnyBuffer, offset: u64, from: &[u8]) -> Result<(), AnyError> {
        on_both!(
            (self, buffer), (AnyStream(stream), AnyBuffer(buffer)) => Ok(stream.upload(buffer, offset, from)?),
            else Err(self.other("buffer", buffer.backend_name()))
        )
    }

    /// Copies bytes of the buffer to the host, beginning at `offset`. Submits the stream and **blocks** until the bytes
    /// are there.
    ///
    /// # Errors
    ///
    /// The errors of [`Stream::download`], after which the contents of `to` are unspecified.
    pub fn download(&self, buffer: &AnyBuffer, offset: u64, to: &mut [u8]) -> Result<(), AnyError> {
        on_both!(
            (self, buffer), (AnyStream(stream), AnyBuffer(buffer)) => Ok(stream.download(buffer, offset, to)?),
            else Err(self.other("buffer", buffer.backend_name()))
        )
    }

    /// Copies `bytes` bytes from one place to another, each a buffer and an offset in it. Does not block.
    /// [`Stream::copy`] says when one of the two may be another allocator's buffer.
    ///
    /// # Errors
    ///
    /// The errors of [`Stream::copy`].
    pub fn copy(&self, from: (&AnyBuffer, u64), to: (&AnyBuffer, u64), bytes: u64) -> Result<(), AnyError> {
        on_three!(
            (self, from.0, to.0),
            (AnyStream(stream), AnyBuffer(source), AnyBuffer(target)) => {
                Ok(stream.copy((source, from.1), (target, to.1), bytes)?)
            },
            else Err(self.other_of("buffer", [from.0.backend_name(), to.0.backend_name()]))
        )
    }

    /// Copies `bytes` bytes from page-locked memory to the device. Does not block; the pinned buffer can be dropped at
    /// once.
    ///
    /// # Errors
    ///
    /// The errors of [`Stream::upload_pinned`].
    pub fn upload_pinned(
        &self,
        from: (&AnyPinnedBuffer, u64),
        to: (&AnyBuffer, u64),
        bytes: u64,
    ) -> Result<(), AnyError> {
        on_three!(
            (self, from.0, to.0),
            (AnyStream(stream), AnyPinnedBuffer(source), AnyBuffer(target)) => {
                Ok(stream.upload_pinned((source, from.1), (target, to.1), bytes)?)
            },
            else Err(self.other_of("buffer", [from.0.backend_name(), to.0.backend_name()]))
        )
    }

    /// Copies `bytes` bytes from the device to page-locked memory. Does not block: the bytes are there once
    /// [`AnyPinnedBuffer::wait`] has returned.
    ///
    /// # Errors
    ///
    /// The errors of [`Stream::download_pinned`].
    pub fn download_pinned(
        &self,
        from: (&AnyBuffer, u64),
        to: (&mut AnyPinnedBuffer, u64),
        bytes: u64,
    ) -> Result<(), AnyError> {
        on_three!(
            (self, from.0, &mut *to.0),
            (AnyStream(stream), AnyBuffer(source), AnyPinnedBuffer(target)) => {
                Ok(stream.download_pinned((source, from.1), (target, to.1), bytes)?)
            },
            else Err(self.other_of("buffer", [from.0.backend_name(), to.0.backend_name()]))
        )
    }

    /// Returns the error for a thing of another backend.
    #[cold]
    pub(crate) fn other(&self, what: &'static str, belongs_to: &'static str) -> AnyError {
        other_backend(what, belongs_to, self.backend_name())
    }

    /// Returns the same for the first of two things that is of another backend.
    #[cold]
    fn other_of(&self, what: &'static str, names: [&'static str; 2]) -> AnyError {
        let own = self.backend_name();
        self.other(what, if names[0] == own { names[1] } else { names[0] })
    }
}
