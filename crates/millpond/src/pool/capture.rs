//! Captures: the time in which the work of streams is recorded into a graph, and does not run.

use std::fmt;

use millpond_backend::{Backend, Reuse, StreamId};
use millpond_core::PoolId;

use super::Pool;
use crate::error::Error;
use crate::state::{Handle, State};
use crate::stream::Stream;
use crate::sync::{Arc, Mutex};

/// The capture of one or more streams, which lasts as long as this value: see [`Stream::begin_capture`].
///
/// ```
/// use millpond::Allocator;
/// use millpond_sim::Sim;
///
/// let allocator = Allocator::new(Sim::new());
/// let (first, second) = (allocator.create_stream()?, allocator.create_stream()?);
/// let pool = allocator.create_pool()?; // Keep it for as long as the graph exists.
/// let graph = pool.stream(first.id())?;
///
/// let capture = graph.begin_capture()?; // Next to the driver's own call.
/// capture.join(&second)?; // Where the graph forks.
/// drop(graph.allocate(1 << 20)?);
/// assert_eq!(capture.pool_id(), pool.id());
/// capture.end(); // After the driver's own call.
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a capture that is not kept has ended"]
pub struct Capture<B: Backend> {
    handle: Arc<Handle<B>>,
    /// The reference to the private pool in which the streams are captured, if it is one.
    pool: Option<Pool<B>>,
    streams: Mutex<Vec<StreamId>>,
}

impl<B: Backend> Stream<B> {
    /// Announces that work queued on this stream is now captured into a graph. The program itself calls CUDA's
    /// `cudaStreamBeginCapture`, before or after this. Makes no driver call. The capture has ended when the returned
    /// value is dropped; drop it once the driver has ended the capture.
    ///
    /// Until then
    ///
    /// - the allocator queues nothing on the stream, and neither asks how far it is nor waits for it;
    /// - memory that is freed on the stream is reused there in the order of its work, as always, and by no other
    ///   stream;
    /// - a buffer that is freed, and was used on the stream by [`record_stream`](crate::Buffer::record_stream), waits
    ///   until the capture has ended, and then for what is queued on the stream by then;
    /// - in a private pool, on whatever stream, no memory is taken that another stream may still use.
    ///
    /// In a private pool the capture is a reference to the pool. The graph runs again later: keep a [`Pool`] for as
    /// long as it exists. Memory of the default pool may go back to the driver, or to another request, once it is
    /// freed.
    ///
    /// ```
    /// use millpond::Allocator;
    /// use millpond_sim::Sim;
    ///
    /// let allocator = Allocator::new(Sim::new());
    /// let stream = allocator.create_stream()?;
    /// let pool = allocator.create_pool()?;
    /// let graph = pool.stream(stream.id())?;
    /// let capture = graph.begin_capture()?;
    /// drop(graph.allocate(1 << 20)?);
    /// capture.end();
    /// allocator.empty_cache()?;
    /// assert!(allocator.memory_reserved() > 0, "the graph runs again");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Capturing`] if the stream is being captured already; [`Error::Paused`] in a paused group;
    /// [`Error::Unsupported`] on a device that does not reuse memory in the order of a stream, which has no captures.
    pub fn begin_capture(&self) -> Result<Capture<B>, Error<B::Error>> {
        let handle = self.handle();
        let capture = Capture {
            handle: Arc::clone(handle),
            pool: self.bond().map(|bond| Pool::held(handle, bond.clone())),
            streams: Mutex::new(Vec::new()),
        };
        capture.join(self)?;
        Ok(capture)
    }
}

impl<B: Backend> Capture<B> {
    /// Announces that another stream joins the capture, because it waits for an event of a captured stream. Its capture
    /// ends with this one. The pool that the given stream allocates in does not matter.
    ///
    /// # Errors
    ///
    /// [`Error::WrongDevice`] if the stream is another allocator's, and the errors of [`Stream::begin_capture`].
    pub fn join(&self, stream: &Stream<B>) -> Result<(), Error<B::Error>> {
        let state = &self.handle.state;
        state.expect_own("stream", stream.lane().owner())?;
        state.begin_capture(stream.id(), self.pool_id())?;
        self.streams.lock().push(stream.id());
        Ok(())
    }

    /// Returns the pool in which the streams are captured: that of the stream that the capture began with.
    pub fn pool_id(&self) -> PoolId {
        self.pool.as_ref().map_or(PoolId::DEFAULT, Pool::id)
    }

    /// Ends the capture, as dropping it does.
    pub fn end(self) {}
}

impl<B: Backend> Drop for Capture<B> {
    fn drop(&mut self) {
        let state = &self.handle.state;
        let mut coordinator = state.coordinator.lock();
        for &stream in self.streams.lock().iter() {
            coordinator.end_capture(stream, self.pool_id());
        }
        state.publish(&coordinator);
    }
}

impl<B: Backend> fmt::Debug for Capture<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Capture").field("pool", &self.pool_id()).field("streams", &*self.streams.lock()).finish()
    }
}

impl<B: Backend> State<B> {
    fn begin_capture(&self, stream: StreamId, pool: PoolId) -> Result<(), Error<B::Error>> {
        if self.reuse != Reuse::InOrder {
            return Err(Error::Unsupported {
                what: "captures",
                device: self.backend.caps().name.clone(),
                advice: "use its streams without telling the allocator of a capture",
            });
        }
        let open = self.backend.mark(stream);
        let mut coordinator = self.coordinator.lock();
        if let Some(group) = coordinator.closed_group_of(pool) {
            return Err(self.paused(group));
        }
        let began = coordinator.begin_capture(stream, pool, open);
        self.publish(&coordinator);
        drop(coordinator);
        self.await_release();
        if began { Ok(()) } else { Err(Error::Capturing { stream }) }
    }
}
