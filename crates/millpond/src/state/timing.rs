//! What is told and noted of how far the device is: submits, waits, and points that are reached.
//!
//! A recording needs them, because memory that other streams have used is free only when they are done. These paths
//! call the device anyway. While nothing records, each of them costs one relaxed load.

use millpond_backend::{Backend, Closing, Point, StreamId, Tick};

use super::State;
use crate::error::Error;
use crate::events::Event;
use crate::notes::ring::Mark;
use crate::sync::lock_soon;

impl<B: Backend> State<B> {
    /// Notes that the program has taken a point.
    pub(crate) fn note_point(&self, point: Point) {
        if self.sinks.is_on() {
            self.note_tick(point.stream);
            self.timing(Event::Mark { point }, || (Mark::Point(point), point));
        }
    }

    /// Notes that the program has submitted a stream.
    pub(crate) fn note_submit(&self, point: Point) {
        if !self.sinks.is_on() {
            return;
        }
        if self.backend.caps().closing == Closing::Backend {
            self.note_point(point);
        } else {
            // The submit before this one is no news.
            self.sinks.is_new(Point { tick: Tick(point.tick.0 + 1), ..point });
            self.timing(Event::Mark { point }, || (Mark::Point(point), point));
            self.timing(Event::Submit { point }, || (Mark::Submit(point), point));
            self.look_at(point.stream);
        }
    }

    /// Notes that the program has had a stream wait for a point.
    pub(crate) fn note_stream_wait(&self, stream: StreamId, point: Point) {
        self.note_tick(stream);
        self.sinks.tell_if_told(&Event::StreamWait { stream, point });
        self.mark_event(|| Mark::StreamWait(stream, point));
        self.look_at(point.stream);
    }

    /// Asks how far a stream is whose tick was closed just now, for the recording alone. An allocator asks only where
    /// it needs memory back. So a program that it never has to wait for would seem to be in flight until its end, and
    /// other policies, which would have asked, would seem to reserve far more than they do.
    ///
    /// A stream that is being captured is left alone, as nothing is recorded on it or asked of it.
    fn look_at(&self, stream: StreamId) {
        if !self.sinks.records() || lock_soon(&self.coordinator).is_captured(stream) {
            return;
        }
        if let Ok(tick) = self.closing(stream, |backend| backend.reached(stream)) {
            self.note_reached(Point { stream, tick });
        }
    }

    /// Notes that the program has waited for a point.
    pub(crate) fn note_host_wait(&self, point: Point) {
        if self.sinks.is_on() {
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
            self.timing(Event::Reached { point }, || (Mark::Reached(point), point));
        }
    }

    /// Makes a call that may close the open tick of a stream, by asking or waiting, and notes that. The tick covers all
    /// that is queued by then.
    pub(crate) fn closing<T>(&self, stream: StreamId, call: impl FnOnce(&B) -> T) -> T {
        if !self.sinks.records() {
            return call(&self.backend);
        }
        self.note_tick(stream);
        let before = self.backend.open_tick(stream);
        let result = call(&self.backend);
        if let Some(tick) = before.filter(|_| self.backend.open_tick(stream) > before) {
            let point = Point { stream, tick };
            self.timing(Event::Mark { point }, || (Mark::Point(point), point));
        }
        result
    }

    /// Notes that streams are being asked how far they are, on a device that closes ticks.
    pub(crate) fn note_look(&self, nanos: u64) {
        if self.sinks.is_on() && self.sinks.is_new_time(nanos) {
            self.sinks.tell_if_told(&Event::Look { nanos });
            self.mark_event(|| Mark::Look(nanos));
        }
    }

    /// Notes which tick of a stream is open, if that is a new one, whoever has closed the last one.
    ///
    /// It is called before the stream is given memory, frees some or waits. So a recording knows which frees a tick
    /// covers: a stream may be seen to be done with some of them only.
    pub(crate) fn note_tick(&self, stream: StreamId) {
        if !self.sinks.records() {
            return;
        }
        let is_submitted = self.backend.caps().closing == Closing::Submit;
        let open = if is_submitted { Some(self.backend.mark(stream)) } else { self.backend.open_tick(stream) };
        let Some(tick) = open.filter(|tick| self.sinks.is_new(Point { stream, tick: *tick })) else { return };
        // The first tick of a stream is 1.
        if tick == Tick(1) {
            return;
        }
        if is_submitted {
            let point = Point { stream, tick: Tick(tick.0 - 1) };
            self.timing(Event::Submit { point }, || (Mark::Submit(point), point));
        } else {
            let point = Point { stream, tick };
            self.timing(Event::Mark { point }, || (Mark::Point(point), point));
        }
    }

    fn timing(&self, event: Event, mark: impl FnOnce() -> (Mark, Point)) {
        self.sinks.tell_if_told(&event);
        let noting = &self.sinks.noting;
        if noting.records()
            && let Some(marks) = &mut noting.inner.lock().marks
        {
            let (mark, point) = mark();
            marks.push_newer(mark, point);
        }
    }
}
