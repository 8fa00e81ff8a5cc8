//! Captures: work is recorded and not run, and some calls are refused meanwhile.

use std::collections::BTreeMap;

use crate::driver::code::{Answer, Code};
use crate::driver::lane::LaneId;
use crate::driver::thread;
use crate::driver::work::Op;
use crate::driver::world::World;

/// `CU_STREAM_CAPTURE_MODE_GLOBAL` and `…_RELAXED`; the thread-local mode is between them.
const GLOBAL: u32 = 0;
const RELAXED: u32 = 2;

/// One capture, from `cuStreamBeginCapture` to `cuStreamEndCapture`.
pub(crate) struct Capture {
    origin: LaneId,
    mode: u32,
    thread: u64,
    /// Whether no call has invalidated the capture.
    valid: bool,
    ops: Vec<Op>,
    /// For each stream that takes part, the number of operations of each stream that come before its next operation.
    clocks: BTreeMap<LaneId, BTreeMap<LaneId, u64>>,
}

/// The status of a stream, with the values of `cuStreamIsCapturing`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Status {
    None = 0,
    Active = 1,
    Invalidated = 2,
}

impl World {
    pub(crate) fn begin_capture(&mut self, lane: LaneId, mode: u32) -> Answer {
        if mode > RELAXED {
            return Err(Code::INVALID_VALUE);
        }
        if self.is_legacy(lane) {
            return Err(Code::STREAM_CAPTURE_UNSUPPORTED);
        }
        if self.lanes[lane].capture.is_some() {
            return Err(Code::ILLEGAL_STATE);
        }
        let id = self.number();
        let clocks = BTreeMap::from([(lane, BTreeMap::new())]);
        let capture = Capture { origin: lane, mode, thread: thread::id(), valid: true, ops: Vec::new(), clocks };
        self.captures.insert(id, capture);
        self.lanes[lane].capture = Some(id);
        Ok(())
    }

    /// Ends a capture, and returns what it recorded.
    pub(crate) fn end_capture(&mut self, lane: LaneId) -> Result<Vec<Op>, Code> {
        let id = self.lanes[lane].capture.ok_or(Code::ILLEGAL_STATE)?;
        let Some(capture) = self.captures.get(&id) else {
            panic!("stream {lane} takes part in capture {id}, which does not exist");
        };
        if capture.origin != lane {
            return Err(Code::STREAM_CAPTURE_UNMATCHED);
        }
        if capture.mode != RELAXED && capture.thread != thread::id() {
            return Err(Code::STREAM_CAPTURE_WRONG_THREAD);
        }
        let Some(capture) = self.captures.remove(&id) else { return Err(Code::UNKNOWN) };
        for member in capture.clocks.keys() {
            self.lanes[*member].capture = None;
        }
        if !capture.valid {
            return Err(Code::STREAM_CAPTURE_INVALIDATED);
        }
        let joined = |member: &LaneId| capture.clocks[&lane].get(member).copied().unwrap_or(0);
        let forked =
            capture.clocks.iter().any(|(member, clock)| clock.get(member).copied().unwrap_or(0) > joined(member));
        if forked { Err(Code::STREAM_CAPTURE_UNJOINED) } else { Ok(capture.ops) }
    }

    /// Returns whether a stream is captured, and the capture's number.
    pub(crate) fn capture_status(&self, lane: LaneId) -> (Status, u64) {
        let Some(id) = self.lanes[lane].capture else { return (Status::None, 0) };
        let valid = self.captures.get(&id).is_some_and(|capture| capture.valid);
        (if valid { Status::Active } else { Status::Invalidated }, id)
    }

    /// Invalidates the capture, so that it can only be ended.
    pub(crate) fn spoil(&mut self, capture: u64) {
        if let Some(capture) = self.captures.get_mut(&capture) {
            capture.valid = false;
        }
    }

    fn valid(&mut self, capture: u64) -> Result<&mut Capture, Code> {
        let found = self.captures.get_mut(&capture).ok_or(Code::ILLEGAL_STATE)?;
        if found.valid { Ok(found) } else { Err(Code::STREAM_CAPTURE_INVALIDATED) }
    }

    /// Records an operation of a captured stream.
    pub(crate) fn record(&mut self, capture: u64, lane: LaneId, op: Op) -> Answer {
        let capture = self.valid(capture)?;
        capture.ops.push(op);
        *capture.clocks.entry(lane).or_default().entry(lane).or_default() += 1;
        Ok(())
    }

    /// Returns what is before the next operation of a captured stream.
    pub(crate) fn clock(&mut self, capture: u64, lane: LaneId) -> Result<BTreeMap<LaneId, u64>, Code> {
        Ok(self.valid(capture)?.clocks.get(&lane).cloned().unwrap_or_default())
    }

    /// Makes a stream wait for an event of a capture, in which the stream takes part from then on.
    pub(crate) fn join(&mut self, capture: u64, lane: LaneId, clock: BTreeMap<LaneId, u64>) -> Answer {
        if !self.captures.contains_key(&capture) {
            return Err(Code::INVALID_VALUE);
        }
        if self.is_legacy(lane) {
            self.spoil(capture);
            return Err(Code::STREAM_CAPTURE_IMPLICIT);
        }
        if let Some(other) = self.lanes[lane].capture.filter(|other| *other != capture) {
            self.spoil(capture);
            self.spoil(other);
            return Err(Code::STREAM_CAPTURE_MERGE);
        }
        let own = self.valid(capture)?.clocks.entry(lane).or_default();
        for (member, count) in clock {
            let before = own.entry(member).or_default();
            *before = count.max(*before);
        }
        self.lanes[lane].capture = Some(capture);
        Ok(())
    }

    /// Fails, and spoils the capture, if the stream is captured: for calls that ask how far a stream is.
    pub(crate) fn refuse_captured(&mut self, lane: LaneId) -> Answer {
        let Some(capture) = self.lanes[lane].capture else { return Ok(()) };
        self.spoil(capture);
        Err(Code::STREAM_CAPTURE_UNSUPPORTED)
    }

    /// Fails, and spoils the captures, if a call that is unsafe during captures is made while a capture forbids it to
    /// this thread.
    pub(crate) fn refuse_unsafe(&mut self) -> Answer {
        let (thread, mode) = (thread::id(), thread::mode());
        let forbids = |capture: &Capture| {
            let own = capture.thread == thread && capture.mode != RELAXED;
            own || (mode == GLOBAL && capture.mode == GLOBAL)
        };
        let mut refused = false;
        for capture in self.captures.values_mut().filter(|capture| mode != RELAXED && forbids(capture)) {
            capture.valid = false;
            refused = true;
        }
        if refused { Err(Code::STREAM_CAPTURE_UNSUPPORTED) } else { Ok(()) }
    }

    /// Fails, and spoils the captures, if any stream of the device is captured: for calls that wait for all of them.
    pub(crate) fn refuse_any_capture(&mut self, device: usize) -> Answer {
        let captures: Vec<u64> =
            self.lanes.iter().filter(|lane| lane.device == device).filter_map(|lane| lane.capture).collect();
        for capture in &captures {
            self.spoil(*capture);
        }
        if captures.is_empty() { Ok(()) } else { Err(Code::STREAM_CAPTURE_UNSUPPORTED) }
    }
}
