//! Futures: a point that is reached, and bytes that have come from the device. Any executor can poll them.
//!
//! # Who wakes them
//!
//! A driver reports no point by itself, so a thread waits for it. The first future of a stream that has to wait starts
//! a thread for that stream, which waits for the lowest tick that is awaited there, and wakes all futures up to the
//! tick that was reached. As each stream has its own, a long wait for one stream does not hold up the others. After ten
//! seconds without a future to wake, a thread ends. So a stream on which nothing is awaited, or on which all is reached
//! when it is asked for, has no thread, and nothing else in the library starts one.
//!
//! The thread sleeps in the backend's own wait ([`Backend::wait_asleep`]): for a semaphore on Vulkan, and on wgpu over
//! Vulkan; in a poll for a submission on wgpu elsewhere. On CUDA the driver's wait spins, so the thread sleeps between
//! questions, half a millisecond at most, unless the device was opened with `blocking_waits`: then it sleeps in the
//! driver, and is woken without delay. A wake itself costs the switch to that thread and from it to the executor's:
//! some ten microseconds.
//!
//! # Dropping
//!
//! A future may be dropped at any time. It keeps what it needs of the allocator alive until it is over or dropped; a
//! thread that is in the middle of a wait keeps it until that wait is over. So the memory of an allocator may go back
//! to the driver on that thread.

mod download;

pub use download::Download;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use millpond_backend::{Backend, Point};

use crate::allocator::Allocator;
use crate::error::Error;
use crate::state::State;
use crate::stream::Stream;
use crate::sync::Arc;
use crate::waiters::Place;

/// A future that completes once a point is reached, returned by [`Allocator::when_reached`] and [`Stream::when_done`].
///
/// It does nothing until it is polled. [The module](self) explains how it is woken, and what that costs.
#[must_use = "a future does nothing unless it is awaited"]
pub struct Reached<B: Backend> {
    state: Arc<State<B>>,
    point: Point,
    /// Where the answer will be, once it waits.
    place: Option<Arc<Place<B>>>,
}

impl<B: Backend> Allocator<B> {
    /// Returns a future that completes once everything up to a point is done. Makes no driver call before it is polled.
    ///
    /// Where the application closes ticks (Vulkan, wgpu), take the point with [`Stream::submit`]: work that was not
    /// submitted is never reached.
    ///
    /// ```
    /// use millpond::Allocator;
    /// use millpond_sim::Sim;
    ///
    /// let allocator = Allocator::new(Sim::new());
    /// let stream = allocator.create_stream()?;
    /// let buffer = stream.allocate_from(&[1.0f32, 2.0])?;
    /// let point = stream.submit()?;
    /// pollster::block_on(async {
    ///     allocator.when_reached(point).await?;
    ///     assert_eq!(stream.download_async(&buffer)?.await?, [1.0, 2.0]);
    ///     Ok::<(), millpond::Error<_>>(())
    /// })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The future ends with [`Error::UnknownStream`] if the allocator has no such stream, with [`Error::NotMarked`] if
    /// the tick covers no work yet, with [`Error::NotReached`] if all submitted work of the stream is complete and the
    /// point is not reached, and with [`Error::Driver`] if a driver call fails.
    pub fn when_reached(&self, point: Point) -> Reached<B> {
        Reached::new(self.shared_state(), point)
    }
}

impl<B: Backend> Stream<B> {
    /// Submits the stream and returns a future that completes once everything queued on it so far is done: a
    /// [`synchronize`](Self::synchronize) that can be awaited.
    ///
    /// # Errors
    ///
    /// [`Error::Driver`] if the submit fails. The future ends with the errors of [`Allocator::when_reached`].
    pub fn when_done(&self) -> Result<Reached<B>, Error<B::Error>> {
        let point = self.submit()?;
        Ok(Reached::new(self.shared_state(), point))
    }
}

impl<B: Backend> Reached<B> {
    pub(crate) fn new(state: &Arc<State<B>>, point: Point) -> Self {
        Self { state: Arc::clone(state), point, place: None }
    }

    /// Returns the point.
    pub fn point(&self) -> Point {
        self.point
    }

    /// Asks the backend, without blocking.
    fn is_reached(&self) -> Result<bool, Error<B::Error>> {
        self.state.expect_marked(self.point)?;
        let reached = self.state.reached(self.point.stream)?.tick;
        Ok(reached >= self.point.tick)
    }
}

impl<B: Backend> Future for Reached<B> {
    type Output = Result<(), Error<B::Error>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(place) = &self.place {
            let answer = place.poll(context);
            if let Poll::Ready(answer) = &answer {
                if answer.is_ok() {
                    self.state.note_host_wait(self.point);
                }
                self.place = None;
            }
            return answer;
        }
        match self.is_reached() {
            Ok(true) => Poll::Ready(Ok(())),
            Err(error) => Poll::Ready(Err(error)),
            Ok(false) => {
                // Should the answer be there already, the waker has been called as well.
                self.place = Some(self.state.later.wait_for(&self.state, self.point, context.waker()));
                Poll::Pending
            }
        }
    }
}

impl<B: Backend> Drop for Reached<B> {
    fn drop(&mut self) {
        if let Some(place) = self.place.take() {
            self.state.later.forget(self.point.stream, &place);
        }
    }
}

impl<B: Backend> fmt::Debug for Reached<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reached").field("point", &self.point).finish_non_exhaustive()
    }
}
