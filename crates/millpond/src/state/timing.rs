//! What is told and noted of how far the device is: submits, waits, and points that are reached.
//!
//! A recording needs them, because memory that other streams have used is free only when they are done. These paths
//! call the device anyway. While nothing records, each of them costs one relaxed load.

use millpond_backend::{Backend, Closing, Point, StreamId, Tick};

use super::State;
use crate::error::Error;
use crate::events::Event;
use crate::notes::ring::Mark;

impl<B: Backend> State<B> {
    /// Notes that the program has taken a point.
    pub(crate) fn note_point(&self, point: Point) {
        if self.sinks.is_on() {
            self.timing(Event::Mark { point }, || (Mark::Point(point), point));
        }
    }

    /// Notes that the program has submitted a stream.
    pub(crate) fn note_submit(&self, point: Point) {
        if !self.sinks.is_on() {
            return;
        }
        self.note_point(point);
        if self.backend.caps().closing == Closing::Submit {
            self.timing(Event::Submit { point }, || (Mark::Submit(point), point));
            // A program that waits for nothing is looked at here, so that its recording says how far the device is.
            if let Ok(tick) = self.backend.reached(point.stream) {
                self.note_reached(Point { tick, ..point });
            }
        }
    }

    /// Notes that the program has had a stream wait for a point.
    pub(crate) fn note_stream_wait(&self, stream: StreamId, point: Point) {
        if self.sinks.is_told() {
            self.sinks.tell(&Event::StreamWait { stream, point });
        }
        self.mark_event(|| Mark::StreamWait(stream, point));
    }

    /// Notes that the program has waited for a point.
    pub(crate) fn note_host_wait(&self, point: Point) {
        if self.sinks.is_on() {
            self.note_closed(point.stream);
            self.timing(Event::HostWait { point }, || (Mark::HostWait(point), point));
        }
    }

    /// Notes that the program has waited for bytes of the device, and so for this point, which was taken before.
    #[cold]
    pub(crate) fn note_downloaded(&self, point: Point) {
        self.note_point(point);
        self.note_host_wait(point);
    }

    /// Returns whether the program's wait for a point has come to its end, and notes that if so.
    ///
    /// # Errors
    ///
    /// [`Error::NotReached`].
    pub(crate) fn waited_for(&self, point: Point, reached: Tick) -> Result<(), Error<B::Error>> {
        if reached < point.tick {
            return Err(Error::NotReached { point, reached });
        }
        self.note_host_wait(point);
        Ok(())
    }

    /// Notes that a stream is seen to have reached a point.
    pub(crate) fn note_reached(&self, point: Point) {
        if self.sinks.is_on() {
            self.note_closed(point.stream);
            self.timing(Event::Reached { point }, || (Mark::Reached(point), point));
        }
    }

    /// Notes which tick of a stream is closed, whoever has closed it: that is a point up to which work can be seen to
    /// be done.
    fn note_closed(&self, stream: StreamId) {
        let is_submitted = self.backend.caps().closing == Closing::Submit;
        let open = if is_submitted { Some(self.backend.mark(stream)) } else { self.backend.open_tick(stream) };
        let Some(closed) = open.and_then(|open| open.0.checked_sub(1)).filter(|closed| *closed > 0) else { return };
        let point = Point { stream, tick: Tick(closed) };
        if is_submitted {
            self.timing(Event::Submit { point }, || (Mark::Submit(point), point));
        } else {
            self.timing(Event::Mark { point }, || (Mark::Point(point), point));
        }
    }

    fn timing(&self, event: Event, mark: impl FnOnce() -> (Mark, Point)) {
        if self.sinks.is_told() {
            self.sinks.tell(&event);
        }
        let noting = &self.sinks.noting;
        if noting.records()
            && let Some(marks) = &mut noting.inner.lock().marks
        {
            let (mark, point) = mark();
            marks.push_newer(mark, point);
        }
    }
}
