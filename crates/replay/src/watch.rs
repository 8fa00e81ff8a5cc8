//! Observers of a pass.

use millpond::{Buffer, Error, Stream};
use millpond_backend::{Backend, Point, StreamId};

/// An observer of the blocks of a pass while it runs. The time of its work is part of the time of the pass.
pub(crate) trait Watch<B: Backend> {
    type Error: From<Error<B::Error>>;

    /// Observes that an event comes next.
    #[inline]
    fn event(&mut self) -> Result<(), Self::Error> {
        Ok(())
    }

    /// Observes that a block was granted. No work was queued on it yet.
    fn granted(&mut self, id: u32, buffer: &Buffer<B>, stream: &Stream<B>) -> Result<(), Self::Error>;

    /// Observes that a block is used on a stream from now to its free.
    fn used(&mut self, id: u32, buffer: &Buffer<B>, stream: &Stream<B>) -> Result<(), Self::Error>;

    /// Observes that a block is about to be freed by the event at that place of the pass.
    fn freeing(&mut self, event: usize, id: u32, buffer: &Buffer<B>) -> Result<(), Self::Error>;

    /// Observes that the device of the recorded run was asked how far it was, at a time of its clock in nanoseconds.
    #[inline]
    fn looked(&mut self, _nanos: u64) {}

    /// Observes that a stream is about to be told to wait.
    #[inline]
    fn waits(&mut self, _stream: StreamId) {}

    /// Observes that a point of the trace was taken.
    #[inline]
    fn marked(&mut self, _point: Point) {}

    /// Observes that the device of the recorded run was seen to have reached a point.
    #[inline]
    fn reached(&mut self, _point: Point) {}

    /// Observes that a request was refused for lack of memory. The replay continues without the block.
    #[inline]
    fn refused(&mut self, _id: u32, _error: &Error<B::Error>) {}

    /// Observes that the event at that place of the pass is done.
    #[inline]
    fn done(&mut self, _event: usize) {}

    /// Observes that the pass is over: every block was freed that does not outlive it.
    fn over(&mut self) -> Result<(), Self::Error>;
}

/// An observer that does nothing.
pub(crate) struct Unwatched;

impl<B: Backend> Watch<B> for Unwatched {
    type Error = Error<B::Error>;

    #[inline]
    fn granted(&mut self, _: u32, _: &Buffer<B>, _: &Stream<B>) -> Result<(), Self::Error> {
        Ok(())
    }

    #[inline]
    fn used(&mut self, _: u32, _: &Buffer<B>, _: &Stream<B>) -> Result<(), Self::Error> {
        Ok(())
    }

    #[inline]
    fn freeing(&mut self, _: usize, _: u32, _: &Buffer<B>) -> Result<(), Self::Error> {
        Ok(())
    }

    fn over(&mut self) -> Result<(), Self::Error> {
        Ok(())
    }
}
