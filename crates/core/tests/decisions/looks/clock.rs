//! The actual time of a device: what each stream has done, and what it waits for.

use millpond_backend::{Point, StreamId, Tick};

/// The time of one stream.
#[derive(Clone, Debug)]
struct Stream {
    /// The tick that the next mark returns.
    open: u64,
    /// The newest complete tick.
    done: u64,
    /// The device-side waits: work behind the tick begins only after the point.
    waits: Vec<(u64, Point)>,
}

/// All streams of a device.
#[derive(Clone, Debug)]
pub(crate) struct Clock {
    streams: Vec<Stream>,
    /// Whether ticks are closed by the application. An open one cannot be waited for then.
    pub(crate) submits: bool,
}

impl Clock {
    pub(crate) fn new(streams: usize, submits: bool) -> Self {
        Self { streams: vec![Stream { open: 1, done: 0, waits: Vec::new() }; streams], submits }
    }

    pub(crate) fn len(&self) -> usize {
        self.streams.len()
    }

    pub(crate) fn mark(&self, stream: StreamId) -> Tick {
        Tick(self.streams[stream.0 as usize].open)
    }

    pub(crate) fn done(&self, stream: StreamId) -> Tick {
        Tick(self.streams[stream.0 as usize].done)
    }

    pub(crate) fn is_done(&self, point: Point) -> bool {
        self.done(point.stream) >= point.tick
    }

    /// Ends the open tick.
    pub(crate) fn close(&mut self, stream: StreamId) {
        self.streams[stream.0 as usize].open += 1;
    }

    /// Does everything up to a point, and first what that waits for, as far as it was submitted.
    pub(crate) fn complete(&mut self, point: Point) {
        let at = point.stream.0 as usize;
        if !self.submits && point.tick.0 >= self.streams[at].open {
            self.close(point.stream);
        }
        let tick = point.tick.0.min(self.streams[at].open - 1);
        let first: Vec<Point> = self.streams[at].waits.iter().filter(|w| w.0 <= tick).map(|w| w.1).collect();
        for earlier in first {
            if !self.is_done(earlier) {
                self.complete(earlier);
            }
        }
        let stream = &mut self.streams[at];
        stream.done = stream.done.max(tick);
    }

    /// Submits and does everything.
    pub(crate) fn finish(&mut self) {
        for at in 0..self.len() {
            let stream = StreamId(at as u32);
            self.close(stream);
            let tick = Tick(self.mark(stream).0 - 1);
            self.complete(Point { stream, tick });
        }
    }

    /// Makes a stream wait for a point, whose tick ends if it is open.
    ///
    /// # Panics
    ///
    /// If only the application can end it.
    pub(crate) fn wait(&mut self, stream: StreamId, point: Point) {
        if point.tick >= self.mark(point.stream) {
            assert!(!self.submits, "stream {} waits for {point:?}, which may never be submitted", stream.0);
            self.close(point.stream);
        }
        let open = self.mark(stream).0;
        self.streams[stream.0 as usize].waits.push((open, point));
    }

    /// Returns whether work of a stream behind its tick `behind` is certain to come after a point.
    pub(crate) fn comes_after(&self, stream: StreamId, behind: Tick, point: Point) -> bool {
        let waits = &self.streams[stream.0 as usize].waits;
        self.is_done(point)
            || (stream == point.stream && point.tick <= behind)
            || waits.iter().any(|&(at, wait)| at <= behind.0 && self.comes_after(wait.stream, wait.tick, point))
    }
}
