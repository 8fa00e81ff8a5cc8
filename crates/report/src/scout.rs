//! The first look at a replay: every event of the first pass, and the peaks of all passes.

use millpond::{Allocator, Buffer, DriverActivity, Error, SlackStats};
use millpond_backend::Backend;
use millpond_replay::{Observer, Replay};

use crate::columns::{Column, Columns};
use crate::spans::Spans;

/// How many times in a pass it is looked at what is pinned.
const LOOKS: usize = 24;

/// An event of the first pass, and how much there was behind it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Peak {
    /// The event.
    pub at: usize,
    /// The bytes.
    pub bytes: u64,
}

impl Peak {
    fn offer(&mut self, at: usize, bytes: u64) {
        if bytes > self.bytes {
            *self = Self { at, bytes };
        }
    }
}

/// What was seen of one pass.
#[derive(Clone, Debug, Default)]
pub struct PassSeen {
    /// The most requested bytes that were live at one time.
    pub live_peak: u64,
    /// The most bytes that were reserved at one time.
    pub reserved_peak: u64,
    /// What work in flight pinned when that was the most, of some moments of the pass; nothing where none is in flight.
    pub slack: SlackStats,
}

/// What was seen of a replay.
#[derive(Clone, Debug)]
pub struct Scouted {
    /// The division of the first pass.
    pub spans: Spans,
    /// The columns of the first pass.
    pub columns: Vec<Column>,
    /// When the most was live.
    pub most_live: Peak,
    /// When the most was reserved.
    pub most_reserved: Peak,
    /// When the most was reserved and not live.
    pub most_unused: Peak,
    /// The first event at which a request was refused.
    pub first_refused: Option<usize>,
    /// All passes.
    pub passes: Vec<PassSeen>,
}

/// An observer that looks at every event, cheaply, and at what is pinned a few times in each pass.
pub struct Scout<'a, B: Backend> {
    allocator: &'a Allocator<B>,
    spans: Spans,
    in_flight: bool,
    columns: Columns,
    live: u64,
    /// The events of the pass that are done.
    events: usize,
    refused: bool,
    most: [Peak; 3],
    first_refused: Option<usize>,
    pass: PassSeen,
    passes: Vec<PassSeen>,
}

impl<'a, B: Backend> Scout<'a, B> {
    /// Creates an observer of a replay on an allocator. `in_flight` is whether the replay keeps work in flight: without
    /// it nothing is pinned, though the allocator may not have seen yet how far its streams are.
    pub fn new(allocator: &'a Allocator<B>, replay: &Replay, in_flight: bool) -> Self {
        let spans = Spans::new(replay.events());
        Self {
            allocator,
            spans,
            in_flight,
            columns: Columns::new(spans, allocator.driver_activity()),
            live: 0,
            events: 0,
            refused: false,
            most: [Peak::default(); 3],
            first_refused: None,
            pass: PassSeen::default(),
            passes: Vec::new(),
        }
    }

    /// Returns what was seen.
    pub fn finish(self) -> Scouted {
        let [most_live, most_reserved, most_unused] = self.most;
        Scouted {
            spans: self.spans,
            columns: self.columns.finish(),
            most_live,
            most_reserved,
            most_unused,
            first_refused: self.first_refused,
            passes: self.passes,
        }
    }

    fn first_pass(&mut self, at: usize, reserved: u64) {
        let driver: DriverActivity = self.allocator.driver_activity();
        if std::mem::take(&mut self.refused) {
            self.columns.refused();
            self.first_refused.get_or_insert(at);
        }
        self.columns.add(at, self.live, reserved, driver);
        let [live, most, unused] = &mut self.most;
        live.offer(at, self.live);
        most.offer(at, reserved);
        unused.offer(at, reserved.saturating_sub(self.live));
    }
}

impl<B: Backend> Observer<B> for Scout<'_, B> {
    fn granted(&mut self, _: u32, buffer: &Buffer<B>) {
        self.live += buffer.len();
    }

    fn freeing(&mut self, _: u32, buffer: &Buffer<B>) {
        self.live -= buffer.len();
    }

    fn refused(&mut self, _: u32, _: &Error<B::Error>) {
        self.refused = true;
    }

    fn done(&mut self, at: usize) {
        let reserved = self.allocator.memory_reserved();
        self.pass.live_peak = self.pass.live_peak.max(self.live);
        self.pass.reserved_peak = self.pass.reserved_peak.max(reserved);
        if self.passes.is_empty() {
            self.first_pass(at, reserved);
        }
        self.events += 1;
        if self.in_flight && self.events.is_multiple_of((self.spans.events() / LOOKS).max(1)) {
            let slack = self.allocator.slack_stats_as_seen();
            if slack.pinned_bytes >= self.pass.slack.pinned_bytes {
                self.pass.slack = slack;
            }
        }
    }

    fn over(&mut self) {
        self.events = 0;
        self.refused = false;
        self.passes.push(std::mem::take(&mut self.pass));
    }
}
