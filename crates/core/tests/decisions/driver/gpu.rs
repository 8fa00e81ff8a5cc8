//! What the simulated GPU and its driver answer to a step.

use millpond_backend::{Point, StreamId, Tick};
use millpond_core::{Outcome, PageCall, Polled, Step};

/// The last tick of each stream that there is when it is asked how far it is: behind all that a test has freed by then.
pub(crate) const ASKED: u64 = 1 << 40;

/// Returns how far a stream is that had this last tick when it was asked, and closed none.
pub(crate) fn polled(at: Point, asked: u64) -> Polled {
    Polled { stream: at.stream, reached: at.tick, asked: Tick(asked), open: None, closed: None }
}

/// A GPU on which every call succeeds and all work is over when it is asked for, unless a test says otherwise.
pub(crate) struct Gpu {
    /// The ticks that are reported as reached when they are queried, by stream.
    pub(crate) reached: Vec<Tick>,
    /// Whether waits of the host come back with what is reached, as they do for work that is never submitted. Otherwise
    /// they end with what was waited for.
    pub(crate) waits_in_vain: bool,
    /// The open tick of each stream, which covers its waits for others.
    pub(crate) open: Vec<Tick>,
    /// The bytes that the device's budget leaves, for plans that ask.
    pub(crate) left: Option<u64>,
    /// The time that is told with a poll, if any is.
    pub(crate) time: Option<u64>,
    /// The last tick of each stream that is told with a poll: 0 leaves open how far the stream is, and so does
    /// `u64::MAX`, for a device that does not tell its ticks.
    pub(crate) asked: u64,
    /// The bytes that the driver can still hand out as segments.
    pub(crate) segment_bytes: u64,
    /// The number of calls that create or map a page that succeed before one fails.
    pub(crate) calls_left: usize,
    /// The answers that a test gives itself.
    pub(crate) answers: fn(&Step) -> Option<Outcome>,
    /// The address of the next segment or range.
    next_address: u64,
}

impl Gpu {
    pub(crate) fn new(streams: usize) -> Self {
        Self {
            reached: vec![Tick(100); streams],
            waits_in_vain: false,
            open: vec![Tick(50); streams],
            left: None,
            time: None,
            asked: ASKED,
            segment_bytes: 1 << 40,
            calls_left: usize::MAX,
            answers: |_| None,
            next_address: 1 << 40,
        }
    }

    /// Performs a step that is no end.
    pub(crate) fn perform(&mut self, step: &Step) -> Outcome {
        if let Some(outcome) = (self.answers)(step) {
            return outcome;
        }
        match step {
            Step::Reserve { bytes, .. } if *bytes > self.segment_bytes => Outcome::Refused,
            Step::Reserve { bytes, .. } => {
                self.segment_bytes -= bytes;
                self.reserve(*bytes)
            }
            Step::ReserveRange { bytes, .. } => self.reserve(*bytes),
            Step::Poll(streams) => {
                let reached = self.reached_by(streams.iter().copied());
                Outcome::Polled {
                    streams: reached.into_iter().map(|at| polled(at, self.asked)).collect(),
                    time: self.time,
                }
            }
            Step::Budget => Outcome::Left(self.left),
            Step::Wait(points) if self.waits_in_vain => {
                Outcome::Reached(self.reached_by(points.iter().map(|point| point.stream)))
            }
            Step::Wait(points) => Outcome::Reached(points.clone()),
            Step::Synchronize(stream) if self.waits_in_vain => Outcome::Reached(self.reached_by([*stream])),
            Step::Synchronize(stream) => {
                let at = stream.0 as usize;
                Outcome::Reached(vec![Point { stream: *stream, tick: self.reached[at].max(self.open[at]) }])
            }
            Step::StreamWait { stream, .. } => Outcome::Waits(self.open[stream.0 as usize]),
            Step::Pages(calls) => self.page_calls(calls),
            Step::Release { bytes, .. } => {
                self.segment_bytes += bytes;
                Outcome::Done
            }
            Step::ReleaseRange { .. } | Step::Pause { .. } | Step::Appeal(_) => Outcome::Done,
            Step::Grant(_) | Step::Lend { .. } | Step::Grown(_) | Step::Stuck(_) | Step::Done => {
                panic!("{step:?} has no outcome")
            }
            Step::Refuse(_) | Step::Denied(_) => panic!("{step:?} has no outcome"),
        }
    }

    fn reached_by(&self, streams: impl IntoIterator<Item = StreamId>) -> Vec<Point> {
        streams.into_iter().map(|stream| Point { stream, tick: self.reached[stream.0 as usize] }).collect()
    }

    fn reserve(&mut self, bytes: u64) -> Outcome {
        let address = self.next_address;
        self.next_address += bytes;
        Outcome::Reserved { address }
    }

    fn page_calls(&mut self, calls: &[PageCall]) -> Outcome {
        for (done, call) in calls.iter().enumerate() {
            if matches!(call, PageCall::Create { .. } | PageCall::Map { .. }) {
                let Some(left) = self.calls_left.checked_sub(1) else {
                    return Outcome::Stopped { done, refused: false };
                };
                self.calls_left = left;
            }
        }
        Outcome::Done
    }
}
