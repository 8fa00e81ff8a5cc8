//! Sinks of an allocator's events: the program's requests as a trace, and the core's decisions as a log.

use std::time::Instant;

use millpond::Allocator;
use millpond::events::{Event as Told, Sink};
use millpond_backend::Backend;
use millpond_trace::{Header, Trace};

use crate::building::Building;

/// Records what a program asks of its allocator, as a trace.
///
/// The trace has the time of each event, and the [tag](millpond::tag()) under which the program allocated. A trace of a
/// [history](crate::trace_of) also has the place in the program.
///
/// What a buffer [grows](millpond::Buffer::grow) by is another allocation there, which is freed with the buffer.
///
/// Costs 40 bytes of host memory for each event and some more for each live block, a look at the clock, and a lock that
/// all streams of the allocator share.
pub struct Recorder {
    building: Building,
    began: Instant,
}

impl Default for Recorder {
    /// Returns a recorder that counts time from now on.
    fn default() -> Self {
        Self { building: Building::default(), began: Instant::now() }
    }
}

impl Recorder {
    /// Starts to record an allocator. A recording in progress is dropped.
    pub fn start<B: Backend>(allocator: &Allocator<B>) {
        drop(allocator.set_sink(Self::default()));
    }

    /// Ends the recording and returns the trace; `None` if there was no recording. Blocks that were handed out before
    /// the start do not appear in it.
    pub fn finish<B: Backend>(allocator: &Allocator<B>) -> Option<Trace> {
        let addresses = allocator.backend().caps().pages.map(|pages| pages.address_bytes);
        let limited = addresses.filter(|bytes| *bytes != u64::MAX);
        let header =
            limited.map(|bytes| Header::new([("address_bytes".to_owned(), bytes.into())].into_iter().collect()));
        let header = header.and_then(Result::ok).unwrap_or_default();
        allocator.take_sink::<Self>().map(|recorder| Trace { header, ..recorder.building.into_trace() })
    }
}

impl Sink for Recorder {
    fn event(&mut self, event: &Told) {
        let Self { building, began } = self;
        // The thread that causes the event makes this call, so the tag in force is that of the event.
        let tag = millpond::current_tag();
        building.at(None, tag.as_deref(), began.elapsed());
        match *event {
            Told::Grant { stream, requested, segment, offset, .. } => {
                building.allocate((segment, offset), requested, stream);
            }
            Told::Grow { stream, added, segment, offset, .. } => {
                building.grow((segment, offset), added, stream);
            }
            Told::Free { segment, offset } => building.free((segment, offset)),
            Told::Use { segment, offset, stream } => building.used_on((segment, offset), stream),
            Told::Mark { point } => building.open(point),
            Told::Submit { point } => building.submitted(point),
            Told::StreamWait { stream, point } => building.stream_waits(stream, point),
            Told::HostWait { point } => building.host_waits(point),
            Told::Reached { point } => building.reached(point),
            Told::Look { nanos } => building.look(nanos),
            Told::Until { segment, offset, point } => building.used_until((segment, offset), point),
            Told::EmptyCache => building.empty_cache(),
            Told::Trim { bytes } => building.trim(bytes),
            _ => {}
        }
    }
}

/// A log of decisions, so that runs can be compared: the events [`Grant`](Told::Grant), [`Grow`](Told::Grow),
/// [`Free`](Told::Free) and [`Step`](Told::Step), which do not depend on the device's time. The same trace gives the
/// same ones on every device that reuses in order.
///
/// Takes 40 bytes of host memory for each decision.
#[derive(Default)]
pub struct DecisionLog(Vec<Told>);

impl DecisionLog {
    /// Starts to log the decisions of an allocator. A log in progress is dropped.
    pub fn start<B: Backend>(allocator: &Allocator<B>) {
        drop(allocator.set_sink(Self::default()));
    }

    /// Ends the log and returns it; empty if there was none.
    pub fn finish<B: Backend>(allocator: &Allocator<B>) -> Vec<Told> {
        allocator.take_sink::<Self>().unwrap_or_default().0
    }
}

impl Sink for DecisionLog {
    fn event(&mut self, event: &Told) {
        if matches!(event, Told::Grant { .. } | Told::Grow { .. } | Told::Free { .. } | Told::Step { .. }) {
            self.0.push(*event);
        }
    }
}
