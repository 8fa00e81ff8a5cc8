//! Observers that programs bring: they are told what a replay does, and may look at the allocator meanwhile.

use millpond::{Buffer, Error, Stream};
use millpond_backend::{Backend, Point, StreamId};

use crate::watch::Watch;

/// An observer of a replay, as [`Life::observer`](crate::Life::observer) takes one. By default every method does
/// nothing.
///
/// It must not change the allocator's decisions, or the replay is a different one. These calls only look:
/// [`ledger`](millpond::Allocator::ledger), [`layout`](millpond::Allocator::layout),
/// [`page_stats`](millpond::Allocator::page_stats) and
/// [`slack_stats_as_seen`](millpond::Allocator::slack_stats_as_seen).
pub trait Observer<B: Backend> {
    /// Observes that a block was granted.
    fn granted(&mut self, _id: u32, _buffer: &Buffer<B>) {}

    /// Observes that a request was refused for lack of memory. The replay continues without the block.
    fn refused(&mut self, _id: u32, _error: &Error<B::Error>) {}

    /// Observes that a block is about to be freed, by an event or at the end of a pass.
    fn freeing(&mut self, _id: u32, _buffer: &Buffer<B>) {}

    /// Observes that the event at that place of the pass is done.
    fn done(&mut self, _event: usize) {}

    /// Observes that a pass is over: every block was freed that does not outlive it. The release of kept blocks behind
    /// the last pass is no pass of its own.
    fn over(&mut self) {}
}

/// An observer inside of the crate together with one from outside of it.
pub(crate) struct Observed<'a, B: Backend, W> {
    watch: W,
    observer: Option<&'a mut dyn Observer<B>>,
    /// Whether an event of the pass under way was done.
    began: bool,
}

impl<'a, B: Backend, W> Observed<'a, B, W> {
    pub(crate) fn new(watch: W, observer: Option<&'a mut dyn Observer<B>>) -> Self {
        Self { watch, observer, began: false }
    }

    pub(crate) fn watch(&self) -> &W {
        &self.watch
    }
}

impl<B: Backend, W: Watch<B>> Watch<B> for Observed<'_, B, W> {
    type Error = W::Error;

    fn event(&mut self) -> Result<(), Self::Error> {
        self.watch.event()
    }

    fn granted(&mut self, id: u32, buffer: &Buffer<B>, stream: &Stream<B>) -> Result<(), Self::Error> {
        if let Some(observer) = &mut self.observer {
            observer.granted(id, buffer);
        }
        self.watch.granted(id, buffer, stream)
    }

    fn used(&mut self, id: u32, buffer: &Buffer<B>, stream: &Stream<B>) -> Result<(), Self::Error> {
        self.watch.used(id, buffer, stream)
    }

    fn freeing(&mut self, event: usize, id: u32, buffer: &Buffer<B>) -> Result<(), Self::Error> {
        self.watch.freeing(event, id, buffer)?;
        if let Some(observer) = &mut self.observer {
            observer.freeing(id, buffer);
        }
        Ok(())
    }

    fn looked(&mut self, nanos: u64) {
        self.watch.looked(nanos);
    }

    fn waits(&mut self, stream: StreamId) {
        self.watch.waits(stream);
    }

    fn marked(&mut self, point: Point) {
        self.watch.marked(point);
    }

    fn reached(&mut self, point: Point) {
        self.watch.reached(point);
    }

    fn refused(&mut self, id: u32, error: &Error<B::Error>) {
        if let Some(observer) = &mut self.observer {
            observer.refused(id, error);
        }
        self.watch.refused(id, error);
    }

    fn done(&mut self, event: usize) {
        self.began = true;
        if let Some(observer) = &mut self.observer {
            observer.done(event);
        }
        self.watch.done(event);
    }

    fn over(&mut self) -> Result<(), Self::Error> {
        self.watch.over()?;
        if std::mem::take(&mut self.began)
            && let Some(observer) = &mut self.observer
        {
            observer.over();
        }
        Ok(())
    }
}
