//! A loader that brings batches to the device ahead of the work that reads them, for every backend.
//!
//! A thread of the loader fills page-locked memory, copies it to the device on a stream for copies, and hands the batch
//! over with the point at which the copy is done. The stream that computes waits for that point on the device, so
//! neither the program nor the loader waits for a copy. The loader stays a given number of batches ahead.
//!
//! It needs from the allocator what is hard to do by hand: a page-locked buffer is dropped as soon as its copy is
//! queued, and a batch as soon as its work is queued. Both are granted again only when the device is done with them.

use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::JoinHandle;

use millpond::backend::{Backend, Point};
use millpond::{Allocator, Buffer, Error, Pinned, Stream};

/// What the loader returns: errors are those of the allocator.
pub type Result<T, B> = std::result::Result<T, Error<<B as Backend>::Error>>;

/// A batch on its way to the device, or there.
pub struct Batch<B: Backend> {
    number: u64,
    buffer: Buffer<B>,
    /// The copy is done at this point; `None` if it was done before the batch was handed over.
    there: Option<Point>,
}

impl<B: Backend> Batch<B> {
    /// Returns the number of the batch, counted from 0.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Returns the batch's memory for work that is queued on this stream: the work begins when the copy is done, and
    /// the memory is granted again only after it, even if the batch is dropped before.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Stream::wait_for`] and [`Buffer::record_stream`].
    pub fn on(&self, stream: &Stream<B>) -> Result<&Buffer<B>, B> {
        if let Some(point) = self.there {
            stream.wait_for(point)?;
        }
        self.buffer.record_stream(stream)?;
        Ok(&self.buffer)
    }
}

/// Loads batches on a thread of its own. An iterator over them: it ends with the last batch, or behind the first error.
pub struct Loader<B: Backend> {
    batches: Option<Receiver<Result<Batch<B>, B>>>,
    thread: Option<JoinHandle<()>>,
}

impl<B: Backend + Clone> Loader<B> {
    /// Starts to load `count` batches of `bytes` bytes on the stream `copies`, which should do nothing else: streams
    /// are never destroyed, so that a program keeps one for all its loaders. `ahead` batches at most wait to be taken;
    /// beside those one is being loaded. `read` fills a batch, on the loader's thread: from a file, or by decoding
    /// images.
    ///
    /// On a device without page-locked memory (wgpu) the bytes are read to plain memory, and the backend's own upload
    /// stages them. On one without device-side waits the loader's thread waits for the copy.
    ///
    /// # Errors
    ///
    /// Returns the error of the allocator, if it cannot create the page-locked cache.
    pub fn start(
        allocator: &Allocator<B>,
        copies: &Stream<B>,
        (count, bytes, ahead): (u64, u64, usize),
        read: impl FnMut(u64, &mut [u8]) + Send + 'static,
    ) -> Result<Loader<B>, B> {
        let host = match allocator.pinned() {
            Err(Error::Unsupported { .. }) => Host::Plain(vec![0; bytes as usize]),
            pinned => Host::Pinned(pinned?),
        };
        let waits = allocator.backend().stream_wait().is_some();
        let mut source = Source { copies: copies.clone(), host, waits, bytes, read };
        let (to, batches) = sync_channel(ahead.max(1));
        let thread = std::thread::spawn(move || {
            for number in 0..count {
                let batch = source.load(number);
                let failed = batch.is_err();
                // Sending fails once the loader is dropped, which ends this thread.
                if to.send(batch).is_err() || failed {
                    break;
                }
            }
        });
        Ok(Loader { batches: Some(batches), thread: Some(thread) })
    }
}

impl<B: Backend> Iterator for Loader<B> {
    type Item = Result<Batch<B>, B>;

    /// Returns the next batch, and blocks only while none is loaded.
    fn next(&mut self) -> Option<Self::Item> {
        self.batches.as_ref()?.recv().ok()
    }
}

impl<B: Backend> Drop for Loader<B> {
    /// Ends the loader's thread. Batches that were loaded and not taken are dropped.
    fn drop(&mut self) {
        self.batches = None;
        let ended = self.thread.take().map(JoinHandle::join);
        if let Some(Err(panic)) = ended
            && !std::thread::panicking()
        {
            std::panic::resume_unwind(panic);
        }
    }
}

/// Where a batch is read to.
enum Host<B: Backend> {
    Pinned(Pinned<B>),
    Plain(Vec<u8>),
}

/// What the loader's thread has.
struct Source<B: Backend, R> {
    copies: Stream<B>,
    host: Host<B>,
    waits: bool,
    bytes: u64,
    read: R,
}

impl<B: Backend, R: FnMut(u64, &mut [u8])> Source<B, R> {
    fn load(&mut self, number: u64) -> Result<Batch<B>, B> {
        let buffer = self.copies.allocate(self.bytes)?;
        match &mut self.host {
            Host::Pinned(pinned) => {
                let mut host = pinned.allocate(self.bytes)?;
                (self.read)(number, host.bytes_mut()?);
                // Its memory waits for the copy; this thread does not.
                self.copies.upload_pinned((&host, 0), (&buffer, 0), self.bytes)?;
            }
            Host::Plain(bytes) => {
                (self.read)(number, bytes);
                self.copies.upload(&buffer, 0, bytes)?;
            }
        }
        let there = Some(self.copies.submit()?).filter(|_| self.waits);
        if there.is_none() {
            self.copies.synchronize()?;
        }
        Ok(Batch { number, buffer, there })
    }
}
