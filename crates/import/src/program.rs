//! A trace in progress: events, blocks by address, streams by handle, and what is left out.

use std::collections::HashMap;
use std::ops::Range;

use millpond_trace::{BYTES_MAX, Details, Event, Header, Limits, Trace};
use serde_json::{Map, Value};

use crate::counts::Counts;
use crate::error::TextProblem;
use crate::part::{Happened, Part};
use crate::places::{Places, Spot};
use crate::{Format, Imported, Options};

/// What stands for a last line without a line break. Programs that are killed leave such lines, with part of a number.
const CUT_OFF: &str = "last lines without a line break, which may be cut off";

/// The most notes on a recording.
const NOTES_MAX: usize = 20;

/// The highest number of a stream, and one more.
const STREAMS_MAX: u64 = 1 << 16;

/// The most refused requests that a header names, the newest ones.
const REFUSED_MAX: usize = 1000;

/// What a recording has and its trace has not, or what is doubtful about it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Left {
    /// What it is, for people: a noun in the plural.
    pub what: String,
    /// How often it occurs.
    pub count: u64,
}

/// A block that was allocated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Live {
    pub(crate) id: u32,
    pub(crate) bytes: u64,
    pub(crate) stream: u32,
}

/// The most bytes of a text in a header. A byte takes at most six there, and the line of all of it has at most 1 MiB.
/// To cut a configuration would give it another meaning.
const TEXT_BYTES_MAX: usize = 16 << 10;

/// What a recording says beyond its events.
#[derive(Default)]
pub(crate) struct Recorded {
    /// The device, where the format says it.
    pub(crate) device: Option<usize>,
    /// What the header of the trace has of it.
    pub(crate) header: Map<String, Value>,
    /// The number of its events.
    pub(crate) events: u64,
}

/// A trace in progress.
pub(crate) struct Program {
    events: Vec<Event>,
    /// The number of events, where they are counted and not kept.
    counted: Option<u64>,
    blocks: u32,
    /// The numbers of streams by their handles. The default stream, whose handle is 0, is stream 0; others are numbered
    /// from 1 as they come.
    streams: HashMap<u64, u32>,
    streams_end: u32,
    /// The blocks that are allocated, by address.
    pub(crate) live: HashMap<u64, Live>,
    left: Vec<Left>,
    notes: Vec<String>,
    /// The refused requests that became allocations, by the numbers of their blocks.
    refused: Vec<u32>,
    /// The number of blocks that were allocated before the recording or the part of it.
    before: u64,
    limits: Limits,
    /// The part of the recording that the trace is of, unless it is the whole.
    part: Option<Part>,
    /// The number of the recording's event that is being added.
    number: u64,
    /// Where it happened.
    spot: Spot,
    /// The places of the events, unless they are left out.
    places: Option<Places>,
}

impl Program {
    pub(crate) fn new(options: &Options) -> Self {
        let places = (!options.without_details).then(|| Places::new(options.limits.details));
        Self { places, ..Self::without_places(&options.limits) }
    }

    fn without_places(limits: &Limits) -> Self {
        let (streams, live) = (HashMap::new(), HashMap::new());
        let (events, left, limits) = (Vec::new(), Vec::new(), *limits);
        let (counted, part, notes) = (None, None, Vec::new());
        let (streams_end, refused, before, blocks, number) = (0, Vec::new(), 0, 0, 0);
        let (spot, places) = (Spot::default(), None);
        Self {
            events,
            counted,
            blocks,
            streams,
            streams_end,
            live,
            left,
            notes,
            refused,
            before,
            limits,
            part,
            number,
            spot,
            places,
        }
    }

    /// Creates one that counts what a recording has, whatever the limits, and keeps no event.
    pub(crate) fn counting() -> Self {
        Self { counted: Some(0), ..Self::without_places(&Limits::NONE) }
    }

    /// Returns whether events are counted and not kept.
    pub(crate) fn is_counting(&self) -> bool {
        self.counted.is_some()
    }

    /// Counts events that are not kept.
    pub(crate) fn count(&mut self, events: u64) {
        self.counted = self.counted.map(|counted| counted + events);
    }

    /// Returns how much the recording has.
    pub(crate) fn counts(&self) -> Counts {
        let streams = self.streams.len() as u64;
        let events = self.counted.unwrap_or(self.events.len() as u64);
        Counts { events, streams: Some(streams).filter(|streams| *streams < STREAMS_MAX) }
    }

    /// Checks that the limits allow a trace with this number of events.
    pub(crate) fn expect_room(&self, events: u64) -> Result<(), TextProblem> {
        let most = self.limits.events;
        if events <= most { Ok(()) } else { Err(TextProblem::Events { most, enough: None }) }
    }

    /// Has the trace be of a part of the recording: of the events with these numbers.
    pub(crate) fn select(&mut self, range: Range<u64>) {
        self.part = (range != (0..u64::MAX)).then(|| Part::new(range));
    }

    /// Returns the numbers of the events that are in the part, if it is one.
    pub(crate) fn range(&self) -> Option<Range<u64>> {
        self.part.as_ref().map(Part::range)
    }

    /// Returns whether the part of the recording has an event.
    pub(crate) fn has(&self, number: u64) -> bool {
        self.part.as_ref().is_none_or(|part| part.has(number))
    }

    /// Notes that what is added next is of an event of the recording, whose numbers rise, and where it happened.
    pub(crate) fn at(&mut self, number: u64, spot: Spot) {
        self.number = number;
        self.spot = spot;
    }

    /// Returns whether it is of use where events happened.
    pub(crate) fn has_places(&self) -> bool {
        self.places.is_some()
    }

    /// Ends the part, if the trace is of one. `events` is the number of events of the whole recording.
    pub(crate) fn end_part(&mut self, events: u64) -> Result<(), TextProblem> {
        let Some(mut part) = self.part.take() else { return Ok(()) };
        let Range { start, end } = part.range();
        let outside = events - end.min(events).saturating_sub(start);
        part.finish(&mut |event, spot| self.keep(event, spot))?;
        self.leave_many("events outside of the part", outside);
        self.leave_many("blocks from before the part, which are allocated at its beginning", part.live);
        self.before += part.live;
        Ok(())
    }

    /// Notes that an event is left out, if the part has it.
    pub(crate) fn leave(&mut self, what: &str) {
        self.leave_many(what, u64::from(self.has(self.number)));
    }

    /// Notes that blocks were allocated before the recording, in an order that is not known.
    pub(crate) fn begin_with(&mut self, blocks: u64) {
        self.leave_many("blocks that were allocated before the history, whose order is not known", blocks);
        self.before += blocks;
    }

    /// Notes that something is left out several times, or not at all.
    pub(crate) fn leave_many(&mut self, what: &str, count: u64) {
        match self.left.iter_mut().find(|left| left.what == what) {
            Some(left) => left.count += count,
            None if count > 0 => self.left.push(Left { what: what.into(), count }),
            None => {}
        }
    }

    /// Notes that the last line was left out, if it was.
    pub(crate) fn leave_cut_off(&mut self, is_cut_off: bool) {
        self.leave_many(CUT_OFF, u64::from(is_cut_off));
        if is_cut_off {
            self.note("the last line has no line break, as if it was cut off; the lines before it were read".into());
        }
    }

    /// Notes that a line with a line break is cut off, and is left out.
    pub(crate) fn cut_off(&mut self, which: &str) {
        self.leave_many("lines that break off", 1);
        self.note(format!("{which}; it is left out"));
    }

    /// Adds a note for people on what is special about the recording.
    pub(crate) fn note(&mut self, note: String) {
        if self.notes.len() < NOTES_MAX {
            self.notes.push(note);
        }
    }

    /// Adds an event.
    pub(crate) fn push(&mut self, event: Event) -> Result<(), TextProblem> {
        self.add(event, false)
    }

    /// Adds the free of a block that completes later.
    pub(crate) fn free_until_complete(&mut self, id: u32) -> Result<(), TextProblem> {
        self.add(Event::Free { id }, true)
    }

    fn add(&mut self, event: Event, completes_later: bool) -> Result<(), TextProblem> {
        let spot = std::mem::take(&mut self.spot);
        let result = match self.part.take() {
            None => self.keep(event, &spot),
            Some(mut part) => {
                let happened = Happened { event, spot: spot.clone(), number: self.number, completes_later };
                let result = part.push(happened, &mut |event, spot| self.keep(event, spot));
                self.part = Some(part);
                result
            }
        };
        self.spot = spot;
        result
    }

    /// Adds an event to the trace.
    fn keep(&mut self, event: Event, spot: &Spot) -> Result<(), TextProblem> {
        if self.is_counting() {
            self.count(1);
            return Ok(());
        }
        self.expect_room(self.events.len() as u64 + 1)?;
        if let Event::Allocate { stream, .. } | Event::Use { stream, .. } = event {
            self.streams_end = self.streams_end.max(stream + 1);
        }
        if let Some(places) = &mut self.places {
            places.push(self.events.len(), spot);
        }
        self.events.push(event);
        Ok(())
    }

    /// Returns the number of a stream by its handle.
    pub(crate) fn stream(&mut self, handle: u64) -> Result<u32, TextProblem> {
        if let Some(number) = self.streams.get(&handle) {
            return Ok(*number);
        }
        let most = if self.is_counting() { u64::MAX } else { self.limits.streams.min(STREAMS_MAX - 1) };
        if self.streams.len() as u64 >= most {
            return Err(TextProblem::Streams { most, enough: None });
        }
        let has_default = self.streams.contains_key(&0);
        let number = if handle == 0 { 0 } else { self.streams.len() as u32 + u32::from(!has_default) };
        self.streams.insert(handle, number);
        Ok(number)
    }

    /// Adds a request that was refused: an allocation that is freed at once.
    pub(crate) fn refuse(&mut self, bytes: u64, stream: u32) -> Result<(), TextProblem> {
        let id = self.allocate(bytes, stream)?.id;
        if self.has(self.number) {
            // The trace of a part numbers its blocks anew.
            self.refused.extend(self.events.last().and_then(|event| match event {
                Event::Allocate { id, .. } => Some(*id),
                _ => None,
            }));
        }
        self.push(Event::Free { id })
    }

    /// Adds an allocation.
    pub(crate) fn allocate(&mut self, bytes: u64, stream: u32) -> Result<Live, TextProblem> {
        if bytes > BYTES_MAX {
            return Err(TextProblem::Size { bytes });
        }
        let id = self.blocks;
        self.push(Event::Allocate { id, bytes, stream })?;
        self.blocks = id.checked_add(1).ok_or(TextProblem::Events { most: u32::MAX.into(), enough: None })?;
        Ok(Live { id, bytes, stream })
    }

    /// Ends the trace.
    pub(crate) fn finish(mut self, format: Format, recorded: Recorded, options: &Options) -> Imported {
        let Recorded { device, mut header, .. } = recorded;
        header.insert("imported_from".into(), format.name().into());
        if let Some(name) = &options.name {
            header.insert("workload".into(), name.as_str().into());
        }
        if let Some(device) = device {
            header.insert("device".into(), device.into());
        }
        if self.before > 0 {
            header.insert("blocks_before".into(), self.before.into());
        }
        if !self.refused.is_empty() {
            let newest = &self.refused[self.refused.len().saturating_sub(REFUSED_MAX)..];
            header.insert("refused_blocks".into(), newest.into());
        }
        let beyond = self.places.as_ref().map_or(0, |places| places.beyond);
        self.leave_many("call stacks or labels of events, beyond the most that `details` of the limits allows", beyond);
        for key in ["workload", "conf"] {
            let text = header.get(key).and_then(Value::as_str);
            if text.is_some_and(|text| text.len() > TEXT_BYTES_MAX) {
                header.remove(key);
                self.leave(&format!("`{key}` of more than {TEXT_BYTES_MAX} bytes, which the header does not have"));
            }
        }
        let header = Header::new(header).unwrap_or_else(|problem| panic!("a header of our own: {problem}"));
        let details = self.places.take().map_or(Details::default(), Places::finish);
        let trace = Trace { header, events: std::mem::take(&mut self.events), streams: self.streams_end, details };
        let Program { left, notes, refused, .. } = self;
        Imported { trace, format, device, left, notes, refused: refused.len() as u64 }
    }
}
