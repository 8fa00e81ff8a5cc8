//! Futures: a point that is reached, and elements that have come from the device.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use millpond::later::Reached;
use millpond::typed::{Elements, Pod};
use millpond_backend::Point;

use crate::allocator::AnyAllocator;
use crate::buffer::AnyBuffer;
use crate::error::AnyError;
use crate::macros::{erase, erased, on, on_both};
use crate::stream::AnyStream;

erased! {
    /// A future that is over once a point is reached: the erased form of [`Reached`]. It may be dropped at any time.
    /// [`millpond::later`] says how it is woken, and what that costs.
    #[must_use = "a future does nothing unless it is awaited"]
    #[derive(Debug)]
    AnyReached:
    Reached<millpond_sim::Sim>, Reached<millpond_cuda::Cuda>,
    Reached<millpond_vulkan::Vulkan>, Reached<millpond_wgpu::Wgpu>
}

impl AnyReached {
    /// Returns the point.
    pub fn point(&self) -> Point {
        on!(self, AnyReached(reached) => reached.point())
    }
}

impl Future for AnyReached {
    type Output = Result<(), AnyError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        on!(self.get_mut(), AnyReached(reached) => Pin::new(reached).poll(context).map_err(AnyError::from))
    }
}

/// A future of elements that are on their way from the device. [`AnyStream::download_async`] returns it. It may be
/// dropped at any time.
#[must_use = "a future does nothing unless it is awaited"]
pub struct AnyDownload<T>(Pin<Box<dyn Future<Output = Result<Vec<T>, AnyError>> + Send>>);

impl AnyAllocator {
    /// Returns a future that is over once everything up to a point is complete. Makes no driver call before it is
    /// polled. Where the application closes ticks (Vulkan, wgpu), take the point with [`AnyStream::submit`].
    ///
    /// # Errors
    ///
    /// The future ends with the errors of [`Allocator::when_reached`](millpond::Allocator::when_reached).
    pub fn when_reached(&self, point: Point) -> AnyReached {
        erase!(self, AnyAllocator(allocator) => AnyReached(allocator.when_reached(point)))
    }
}

impl AnyStream {
    /// Submits the stream and returns a future that is over once everything queued on it so far is complete.
    ///
    /// # Errors
    ///
    /// The errors of [`Stream::when_done`](millpond::Stream::when_done).
    pub fn when_done(&self) -> Result<AnyReached, AnyError> {
        Ok(erase!(self, AnyStream(stream) => AnyReached(stream.when_done()?)))
    }

    /// Begins to copy elements to the host and returns a future of them. Submits the stream, and **does not wait** for
    /// it: the buffer may be dropped at once. [`Stream::download_async`](millpond::Stream::download_async) says where
    /// the bytes arrive.
    ///
    /// # Errors
    ///
    /// The errors of [`Stream::download_async`](millpond::Stream::download_async), and [`AnyError::OtherBackend`].
    pub fn download_async<E: Elements<AnyBuffer>>(&self, from: &E) -> Result<AnyDownload<E::Item>, AnyError> {
        let from = from.elements();
        let (start, end) = (from.byte_start(), from.byte_start() + from.byte_len());
        on_both!(
            (self, from.buffer()),
            (AnyStream(stream), AnyBuffer(buffer)) => {
                let bytes = millpond::typed::Slice::of(buffer).slice(start..end)?;
                let download = stream.download_async(&bytes.cast::<E::Item>()?)?;
                Ok(AnyDownload::of(async move { download.await.map_err(AnyError::from) }))
            },
            else Err(self.other("buffer", from.buffer().backend_name()))
        )
    }
}

impl<T: Pod> AnyDownload<T> {
    fn of(download: impl Future<Output = Result<Vec<T>, AnyError>> + Send + 'static) -> Self {
        Self(Box::pin(download))
    }
}

impl<T> Future for AnyDownload<T> {
    type Output = Result<Vec<T>, AnyError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(context)
    }
}

impl<T> fmt::Debug for AnyDownload<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnyDownload").finish_non_exhaustive()
    }
}
