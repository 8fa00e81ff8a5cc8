//! Bytes that come from the device without blocking the host.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytemuck::Pod;
use millpond_backend::{Backend, ClassId, ClassKind, Point, Readback};
use millpond_core::settings::{Policy, Segments, Settings};

use super::Reached;
use crate::allocator::Allocator;
use crate::buffer::Buffer;
use crate::error::Error;
use crate::pinned::{Pinned, PinnedBuffer};
use crate::stream::Stream;
use crate::typed::Elements;

/// The share of the most live bytes that the cache behind downloads may have beyond them, so that it rarely gives
/// memory back, which waits for the device on CUDA.
const SLACK: f64 = 1.0;

/// A future of elements that are being copied from the device, returned by [`Stream::download_async`].
///
/// You may drop it at any time: the copy still completes, and its memory is reused afterwards.
#[must_use = "a future does nothing unless it is awaited"]
pub struct Download<T, B: Backend> {
    /// `None` where there is nothing to wait for.
    reached: Option<Reached<B>>,
    arrives: Option<Arrives<B>>,
    len: usize,
    element: PhantomData<fn() -> T>,
}

/// Where the bytes arrive.
enum Arrives<B: Backend> {
    /// In page-locked memory of a cache.
    Pinned(PinnedBuffer<B>),
    /// In memory that the backend itself has for it.
    Own(Box<dyn Readback<Error = B::Error>>),
}

impl<B: Backend + Clone> Stream<B> {
    /// Starts to copy elements to the host, after all earlier work of the stream, and returns a future of them. Submits
    /// the stream, and **does not wait** for it: the buffer may be dropped at once.
    ///
    /// The bytes go through page-locked memory, or through buffers that can be mapped (wgpu). The first such download
    /// creates a cache of that memory for the allocator, which holds at most twice the peak of bytes in transfer. The
    /// last poll copies them from there. If the cache has no memory for a download, reserving it takes about as long as
    /// the copy itself.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`download`](Self::download), and those of the allocation of page-locked memory. The
    /// future ends with the errors of [`Allocator::when_reached`].
    pub fn download_async<E: Elements<Buffer<B>>>(&self, from: &E) -> Result<Download<E::Item, B>, Error<B::Error>> {
        let from = from.elements();
        let (buffer, start, bytes) = (from.buffer(), from.byte_start(), from.byte_len());
        let mut download = Download { reached: None, arrives: None, len: from.len() as usize, element: PhantomData };
        let device = self.mover()?;
        let Some((segment, at)) = self.place(buffer, start, bytes)? else { return Ok(download) };
        let own = device.begin_download(self.id(), segment, at, bytes);
        let (arrives, point) = match own.map_err(|e| Error::of_driver("begin_download", e))? {
            Some((tick, readback)) => (Arrives::Own(readback), Point { stream: self.id(), tick }),
            None => {
                let mut host = self.landing()?.allocate(bytes)?;
                self.download_pinned((buffer, start), (&mut host, 0), bytes)?;
                (Arrives::Pinned(host), self.submit()?)
            }
        };
        download.reached = Some(Reached::new(self.shared_state(), point));
        download.arrives = Some(arrives);
        Ok(download)
    }

    /// Returns the cache of page-locked memory that downloads arrive in, which the first of them creates. It is of the
    /// last class of host memory: on Vulkan that is the one which the host reads fast.
    fn landing(&self) -> Result<Pinned<B>, Error<B::Error>> {
        let state = self.shared_state();
        Pinned::kept_in(&state.landing, || {
            let classes = &state.backend.caps().classes;
            let at = classes.iter().rposition(|class| class.kind == ClassKind::Host);
            let policy = Policy::Classic(Segments::Snug(SLACK));
            let settings = Settings { scrub: state.scrub, policy, ..Settings::for_host() };
            let class = at.ok_or_else(|| state.no_pinned())?;
            Allocator::of(self.handle()).pinned_with(ClassId(class as u16), settings)
        })
    }
}

impl<T: Pod, B: Backend> Future for Download<T, B> {
    type Output = Result<Vec<T>, Error<B::Error>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(reached) = &mut self.reached {
            let answer = ready!(Pin::new(reached).poll(context));
            self.reached = None;
            if let Err(error) = answer {
                self.arrives = None;
                return Poll::Ready(Err(error));
            }
        }
        let len = std::mem::take(&mut self.len);
        let mut elements = vec![T::zeroed(); len];
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut elements);
        let taken = match self.arrives.take() {
            None => Ok(()),
            Some(Arrives::Pinned(host)) => host.bytes().map(|from| bytes.copy_from_slice(from)),
            Some(Arrives::Own(readback)) => readback.read(bytes).map_err(|e| Error::of_driver("read", e)),
        };
        Poll::Ready(taken.map(|()| elements))
    }
}

impl<T, B: Backend> fmt::Debug for Download<T, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Download").field("reached", &self.reached).field("len", &self.len).finish_non_exhaustive()
    }
}
