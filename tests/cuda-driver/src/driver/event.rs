//! Events: places in the work of streams.

use std::collections::BTreeMap;
use std::time::Instant;

use crate::driver::code::{Answer, Code};
use crate::driver::lane::{LaneId, Position};
use crate::driver::work::Op;
use crate::driver::world::World;

/// `CU_EVENT_DISABLE_TIMING`.
const NO_TIMING: u32 = 2;

pub(crate) struct Event {
    pub(crate) device: usize,
    flags: u32,
    recorded: Recorded,
}

/// The place where the event was recorded last.
enum Recorded {
    Never,
    At {
        position: Position,
        record: u64,
        time: Option<Instant>,
    },
    /// In a capture, with the number of operations of each stream that come before it.
    Captured {
        capture: u64,
        clock: BTreeMap<LaneId, u64>,
    },
}

impl Event {
    pub(crate) fn new(device: usize, flags: u32) -> Event {
        Event { device, flags, recorded: Recorded::Never }
    }

    /// Notes the time at which a record was reached, unless a later record has replaced it.
    pub(crate) fn stamp(&mut self, reached: u64, now: Instant) {
        if let Recorded::At { record, time, .. } = &mut self.recorded
            && *record == reached
        {
            *time = Some(now);
        }
    }
}

impl World {
    pub(crate) fn event(&self, handle: u64) -> Result<&Event, Code> {
        self.events.get(handle).ok_or(Code::INVALID_HANDLE)
    }

    /// Records an event at the end of a stream's work.
    pub(crate) fn record_event(&mut self, handle: u64, lane: LaneId) -> Answer {
        if self.event(handle)?.device != self.lanes[lane].device {
            return Err(Code::INVALID_HANDLE);
        }
        let recorded = if let Some(capture) = self.lanes[lane].capture {
            Recorded::Captured { capture, clock: self.clock(capture, lane)? }
        } else {
            let record = self.number();
            self.push(lane, Op::Stamp { event: handle, record })?;
            Recorded::At { position: self.end(lane), record, time: None }
        };
        if let Some(event) = self.events.get_mut(handle) {
            event.recorded = recorded;
        }
        Ok(())
    }

    /// Returns the place of an event's last record, or `None` if it was never recorded. Asking for a captured event
    /// spoils the capture; once that is over, the event is an invalid value, as real drivers report it.
    pub(crate) fn position(&mut self, handle: u64) -> Result<Option<Position>, Code> {
        match &self.event(handle)?.recorded {
            Recorded::Never => Ok(None),
            Recorded::At { position, .. } => Ok(Some(*position)),
            Recorded::Captured { capture, .. } => {
                let capture = *capture;
                if !self.captures.contains_key(&capture) {
                    return Err(Code::INVALID_VALUE);
                }
                self.spoil(capture);
                Err(Code::CAPTURED_EVENT)
            }
        }
    }

    /// Makes a stream wait for an event.
    pub(crate) fn wait_event(&mut self, lane: LaneId, handle: u64) -> Answer {
        match &self.event(handle)?.recorded {
            Recorded::Never => Ok(()),
            Recorded::At { position, .. } => {
                let position = *position;
                if let Some(capture) = self.lanes[lane].capture {
                    self.spoil(capture);
                    return Err(Code::STREAM_CAPTURE_ISOLATION);
                }
                self.push(lane, Op::After(vec![position]))
            }
            Recorded::Captured { capture, clock } => {
                let (capture, clock) = (*capture, clock.clone());
                self.join(capture, lane, clock)
            }
        }
    }

    /// Returns the milliseconds between two events.
    pub(crate) fn elapsed(&mut self, start: u64, end: u64) -> Result<f32, Code> {
        let times = [start, end].map(|handle| {
            let position = self.position(handle)?;
            let event = self.event(handle)?;
            match event.recorded {
                Recorded::At { time, .. } if event.flags & NO_TIMING == 0 => {
                    let reached = position.is_some_and(|position| self.reached(position));
                    time.filter(|_| reached).ok_or(Code::NOT_READY)
                }
                _ => Err(Code::INVALID_HANDLE),
            }
        });
        let (start, end) = (times[0]?, times[1]?);
        let forward = end.checked_duration_since(start);
        let seconds = forward.map_or_else(|| -start.duration_since(end).as_secs_f32(), |time| time.as_secs_f32());
        Ok(seconds * 1e3)
    }
}
