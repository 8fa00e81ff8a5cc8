//! Work that is under way while a replay continues, so that freed memory is not done with at once.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use millpond::{Buffer, Error, Stream};
use millpond_backend::{Backend, Point, StreamId, Tick};

use crate::submits::failed;
use crate::watch::Watch;

/// Device work of a program that a replay queues.
pub trait Flight<B: Backend> {
    /// Queues a piece of work on a stream.
    ///
    /// # Errors
    ///
    /// Returns the driver's error.
    fn begin(&mut self, stream: StreamId) -> Result<(), B::Error>;

    /// Notes that an event of the trace comes next.
    fn event(&mut self) {}

    /// Returns whether a piece of work is queued before the free of a block as well: on the other streams that use it,
    /// and if there are none, on its own.
    fn has_last_uses(&self) -> bool {
        false
    }

    /// Notes that the device of the recorded run was asked how far it was, at a time of its clock in nanoseconds.
    fn looked(&mut self, _nanos: u64) {}

    /// Notes that a stream is about to be told to wait.
    fn waits(&mut self, _stream: StreamId) {}

    /// Notes that a point of the trace was taken.
    fn marked(&mut self, _point: Point) {}

    /// Notes that the device of the recorded run was seen to have reached a point.
    fn reached(&mut self, _point: Point) {}

    /// Notes that a pass is over.
    fn over(&mut self) {}

    /// Returns the time on the clock of the work, if it has one of its own. The time of a pass is taken from it.
    fn clock(&self) -> Option<Duration> {
        None
    }

    /// Ends the work, as the replay is over.
    fn land(&mut self) {}
}

/// A device on which work stays in progress until a test completes it, or the host waits for it.
pub trait Hold {
    /// Queues a piece of work and returns the tick that covers it and nothing that is queued later.
    fn begin(&self, stream: StreamId) -> Tick;

    /// Completes the work that a point covers, up to the first device-side wait that is not over. Returns whether the
    /// point is reached, whoever completed it.
    fn finish(&self, point: Point) -> bool;

    /// From now on closes ticks only where a stream is asked or waited for, and where it is told to.
    fn close_late(&self);

    /// Closes the tick of a point if it is open and the device closes ticks.
    fn close(&self, point: Point);

    /// Queues a piece of work, without marking the tick that covers it.
    fn queue(&self, stream: StreamId);

    /// Completes the work that a point covers, past device-side waits that are not over. Returns what these wait for.
    fn force(&self, point: Point) -> Vec<Point>;

    /// Returns what the driver's calls have cost so far, in nanoseconds of the device's own clock.
    fn driver_clock(&self) -> u64;

    /// Sets the time by which the device's work proceeds, in nanoseconds.
    fn set_time(&self, nanos: u64);
}

/// Work that is complete a number of events after it was queued, and not before, unless the host waits for it.
///
/// Work after a device-side wait is complete no earlier than the work that it waits for.
pub struct HeldFor<'a> {
    device: Box<dyn Hold + 'a>,
    events: u64,
    now: u64,
    /// The pieces in the order in which they are due.
    queued: VecDeque<(u64, Point)>,
    /// The newest due tick of each stream that is not reached yet.
    due: Vec<Point>,
}

impl<'a> HeldFor<'a> {
    /// Creates the work of a device, which completes after this number of events.
    pub fn new(device: Box<dyn Hold + 'a>, events: u64) -> Self {
        Self { device, events, now: 0, queued: VecDeque::new(), due: Vec::new() }
    }

    /// Completes what is due. One stream may wait for another, so this goes on until nothing more completes.
    fn finish_due(&mut self) {
        loop {
            let before = self.due.len();
            let device = &self.device;
            self.due.retain(|point| !device.finish(*point));
            if self.due.is_empty() || self.due.len() == before {
                break;
            }
        }
    }
}

impl<B: Backend> Flight<B> for HeldFor<'_> {
    fn begin(&mut self, stream: StreamId) -> Result<(), B::Error> {
        let tick = self.device.begin(stream);
        self.queued.push_back((self.now.saturating_add(self.events), Point { stream, tick }));
        Ok(())
    }

    fn event(&mut self) {
        self.now += 1;
        while self.queued.front().is_some_and(|(due, _)| *due < self.now) {
            let Some((_, point)) = self.queued.pop_front() else { break };
            match self.due.iter_mut().find(|due| due.stream == point.stream) {
                Some(due) => due.tick = due.tick.max(point.tick),
                None => self.due.push(point),
            }
        }
        if !self.due.is_empty() {
            self.finish_due();
        }
    }

    fn land(&mut self) {
        for (_, point) in self.queued.drain(..) {
            self.due.push(point);
        }
        self.finish_due();
    }
}

/// An observer that queues work for what another observes.
pub(crate) struct Flying<'a, B: Backend, W> {
    watch: W,
    flight: Option<Box<dyn Flight<B> + 'a>>,
    /// For each live block that other streams use, those streams, if last uses are queued.
    used: HashMap<u32, Vec<StreamId>>,
}

impl<'a, B: Backend, W> Flying<'a, B, W> {
    pub(crate) fn new(watch: W, flight: Option<Box<dyn Flight<B> + 'a>>) -> Self {
        Self { watch, flight, used: HashMap::new() }
    }

    pub(crate) fn watch(&self) -> &W {
        &self.watch
    }

    /// Returns the time on the clock of the work in flight, if it has one.
    pub(crate) fn clock(&self) -> Option<Duration> {
        self.flight.as_ref()?.clock()
    }

    /// Ends the work in flight.
    pub(crate) fn land(&mut self) {
        if let Some(flight) = &mut self.flight {
            flight.land();
        }
    }

    fn has_last_uses(&self) -> bool {
        self.flight.as_ref().is_some_and(|flight| flight.has_last_uses())
    }

    fn begin(&mut self, stream: StreamId) -> Result<(), Error<B::Error>> {
        let Some(flight) = &mut self.flight else { return Ok(()) };
        flight.begin(stream).map_err(|error| failed("fill", error))
    }
}

impl<B: Backend, W: Watch<B>> Watch<B> for Flying<'_, B, W> {
    type Error = W::Error;

    fn event(&mut self) -> Result<(), Self::Error> {
        if let Some(flight) = &mut self.flight {
            flight.event();
        }
        self.watch.event()
    }

    /// The work comes before what the other observer queues, so that this is in progress as long.
    fn granted(&mut self, id: u32, buffer: &Buffer<B>, stream: &Stream<B>) -> Result<(), Self::Error> {
        self.begin(stream.id())?;
        self.watch.granted(id, buffer, stream)
    }

    fn used(&mut self, id: u32, buffer: &Buffer<B>, stream: &Stream<B>) -> Result<(), Self::Error> {
        self.watch.used(id, buffer, stream)?;
        if self.has_last_uses() {
            self.used.entry(id).or_default().push(stream.id());
        }
        self.begin(stream.id())?;
        Ok(())
    }

    fn freeing(&mut self, event: usize, id: u32, buffer: &Buffer<B>) -> Result<(), Self::Error> {
        if self.has_last_uses() {
            let users = self.used.remove(&id).unwrap_or_else(|| vec![buffer.stream()]);
            users.into_iter().try_for_each(|stream| self.begin(stream))?;
        }
        self.watch.freeing(event, id, buffer)
    }

    fn looked(&mut self, nanos: u64) {
        if let Some(flight) = &mut self.flight {
            flight.looked(nanos);
        }
        self.watch.looked(nanos);
    }

    fn waits(&mut self, stream: StreamId) {
        if let Some(flight) = &mut self.flight {
            flight.waits(stream);
        }
        self.watch.waits(stream);
    }

    fn marked(&mut self, point: Point) {
        if let Some(flight) = &mut self.flight {
            flight.marked(point);
        }
        self.watch.marked(point);
    }

    fn reached(&mut self, point: Point) {
        if let Some(flight) = &mut self.flight {
            flight.reached(point);
        }
        self.watch.reached(point);
    }

    fn refused(&mut self, id: u32, error: &Error<B::Error>) {
        self.watch.refused(id, error);
    }

    fn done(&mut self, event: usize) {
        self.watch.done(event);
    }

    fn over(&mut self) -> Result<(), Self::Error> {
        if let Some(flight) = &mut self.flight {
            flight.over();
        }
        self.watch.over()
    }
}
