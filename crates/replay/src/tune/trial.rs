//! A trace that is prepared once, to be replayed under many settings.

use millpond::{Allocator, Buffer, Error};
use millpond_backend::{Backend, Closing, Fault, StreamId};
use millpond_trace::{Event, Trace};

use super::{Ended, Measured};
use crate::flight::Flight;
use crate::replay::Replay;
use crate::submits::failed;
use crate::vary::Vary;

/// The number of events between two looks at what the trial has come to.
const LOOK_EVERY: usize = 32;

/// An event, with the place of its block among those that are live at the same time.
#[derive(Clone, Copy, Debug)]
enum Step {
    Allocate { slot: u32, bytes: u64, stream: u32 },
    Free { slot: u32 },
    Use { slot: u32, stream: u32 },
    Mark { stream: u32 },
    Until { slot: u32, point: u32 },
    Submit { stream: u32 },
    StreamWait { stream: u32, point: u32 },
    HostWait { point: u32 },
    Reached { point: u32 },
    Look { nanos: u64 },
    EmptyCache,
    Trim { bytes: u64 },
}

/// A program to be tried under many settings: the same events as those of a [`Replay`], which lead to the same
/// decisions, without what only its results need.
#[derive(Clone)]
pub struct Trial {
    steps: Vec<Step>,
    /// The slots that are in use at the end of a pass, in the order of their blocks' numbers.
    left: Vec<u32>,
    slots: usize,
    points: usize,
    streams: u32,
    has_submits: bool,
    told: Vec<u32>,
    address_bytes: Option<u64>,
    allocations: usize,
    live_peak: u64,
    largest: u64,
}

impl Trial {
    /// Prepares a trace.
    pub fn new(trace: &Trace) -> Self {
        let replay = Replay::new(trace);
        let mut slot_of = vec![0_u32; replay.allocations];
        let (mut free, mut slots) = (Vec::new(), 0_u32);
        let mut is_live = vec![false; replay.allocations];
        let mut largest = 0;
        let mut step = |event: &Event| match *event {
            Event::Allocate { id, bytes, stream } => {
                let slot = free.pop().unwrap_or_else(|| {
                    slots += 1;
                    slots - 1
                });
                (slot_of[id as usize], is_live[id as usize]) = (slot, true);
                largest = bytes.max(largest);
                Step::Allocate { slot, bytes, stream }
            }
            Event::Free { id } | Event::Complete { id } => {
                is_live[id as usize] = false;
                free.push(slot_of[id as usize]);
                Step::Free { slot: slot_of[id as usize] }
            }
            Event::Use { id, stream } => Step::Use { slot: slot_of[id as usize], stream },
            Event::Mark { stream, .. } => Step::Mark { stream },
            Event::Until { id, point } => Step::Until { slot: slot_of[id as usize], point },
            Event::Submit { stream } => Step::Submit { stream },
            Event::StreamWait { stream, point } => Step::StreamWait { stream, point },
            Event::HostWait { point } => Step::HostWait { point },
            Event::Reached { point } => Step::Reached { point },
            Event::Look { nanos } => Step::Look { nanos },
            Event::EmptyCache => Step::EmptyCache,
            Event::Trim { bytes } => Step::Trim { bytes },
        };
        let steps: Vec<Step> = replay.events.iter().map(&mut step).collect();
        let left = (0..replay.allocations).filter(|&id| is_live[id]).map(|id| slot_of[id]).collect();
        Self {
            steps,
            left,
            slots: slots as usize,
            points: replay.points,
            streams: replay.streams,
            has_submits: replay.has_submits,
            told: replay.streams_told(),
            address_bytes: replay.address_bytes,
            allocations: replay.allocations,
            live_peak: replay.live_peak,
            largest,
        }
    }

    /// Returns the number of events of a pass.
    pub fn events(&self) -> usize {
        self.steps.len()
    }

    /// Returns the number of blocks that a pass allocates.
    pub fn allocations(&self) -> usize {
        self.allocations
    }

    /// Returns what [`Replay::has_submits`] does.
    pub fn has_submits(&self) -> bool {
        self.has_submits
    }

    /// Returns what [`Replay::streams_told`] does.
    pub fn streams_told(&self) -> &[u32] {
        &self.told
    }

    /// Returns what [`Replay::address_bytes`] does.
    pub fn address_bytes(&self) -> Option<u64> {
        self.address_bytes
    }

    /// Returns the number of streams that the program uses.
    pub fn streams(&self) -> u32 {
        self.streams
    }

    /// Returns the largest sum of requested bytes that are live at one time.
    pub fn live_peak(&self) -> u64 {
        self.live_peak
    }

    /// Returns the largest request in bytes.
    pub fn largest(&self) -> u64 {
        self.largest
    }

    /// Returns the program with other sizes: those that the pass of that number has in a life that varies. Costs a copy
    /// of the events.
    #[must_use]
    pub fn varied(&self, vary: Vary, pass: usize) -> Self {
        let mut sizes = vec![0_u64; self.slots];
        let (mut live, mut live_peak, mut largest) = (0_u64, 0, 0);
        let mut varied = |step: &Step| match *step {
            Step::Allocate { slot, bytes, stream } => {
                let bytes = vary.bytes(pass, bytes);
                sizes[slot as usize] = bytes;
                live = live.saturating_add(bytes);
                (live_peak, largest) = (live.max(live_peak), bytes.max(largest));
                Step::Allocate { slot, bytes, stream }
            }
            Step::Free { slot } => {
                live -= sizes[slot as usize];
                *step
            }
            step => step,
        };
        let steps = self.steps.iter().map(&mut varied).collect();
        Self { steps, live_peak, largest, ..self.clone() }
    }

    /// Replays the program on an allocator that has served nothing yet: a first pass and `warm` more. It ends early at
    /// the first refused allocation, and where `is_beaten` returns true for the most bytes that were seen reserved and
    /// the driver's time in nanoseconds so far. Neither of the two ever falls. A program that reserves more than the
    /// allocator's limit does not fit either: segments of a size that is no whole number of pages can exceed it by less
    /// than a page.
    ///
    /// `flight` is the work that each allocation, and each first use on another stream, queues.
    ///
    /// # Errors
    ///
    /// Returns every error except out of memory.
    ///
    /// # Panics
    ///
    /// If the application closes the device's ticks, and the program has no submits of its own: a trial adds none.
    pub fn run<B: Backend>(
        &self,
        allocator: &Allocator<B>,
        warm: usize,
        mut flight: Option<Box<dyn Flight<B> + '_>>,
        is_beaten: &dyn Fn(u64, u64) -> bool,
    ) -> Result<Ended, Error<B::Error>> {
        let is_closed = allocator.backend().caps().closing == Closing::Backend || self.has_submits;
        assert!(is_closed, "a trial adds no submits");
        let streams = (0..self.streams).map(|_| allocator.create_stream()).collect::<Result<Vec<_>, _>>()?;
        let begin = allocator.driver_activity();
        let (mut seen, mut reserved) = (begin.calls, 0);
        let mut beaten = || {
            let now = allocator.driver_activity();
            if now.calls == seen {
                return false;
            }
            seen = now.calls;
            reserved = allocator.memory_reserved().max(reserved);
            is_beaten(reserved, nanos(now.since(begin).time))
        };
        for _ in 0..=warm {
            match self.pass(allocator, &streams, &mut flight, &mut beaten)? {
                None => {}
                Some(ended) => return Ok(ended),
            }
        }
        if let Some(flight) = &mut flight {
            flight.land();
        }
        let driver = allocator.driver_activity().since(begin);
        let reserved_bytes = allocator.max_memory_reserved();
        if allocator.limit().is_some_and(|limit| reserved_bytes > limit) {
            return Ok(Ended::OutOfMemory);
        }
        Ok(Ended::Whole(Measured {
            reserved_bytes,
            driver_calls: driver.calls,
            driver_time: driver.time,
            stalls: driver.stalls,
            stream_waits: driver.stream_waits,
        }))
    }

    /// Makes one pass. Returns how the trial ended, if it did.
    fn pass<B: Backend>(
        &self,
        allocator: &Allocator<B>,
        streams: &[millpond::Stream<B>],
        flight: &mut Option<Box<dyn Flight<B> + '_>>,
        beaten: &mut dyn FnMut() -> bool,
    ) -> Result<Option<Ended>, Error<B::Error>> {
        let mut blocks: Vec<Option<Buffer<B>>> = Vec::new();
        blocks.resize_with(self.slots, || None);
        let mut points = Vec::with_capacity(self.points);
        let has_last_uses = flight.as_ref().is_some_and(|flight| flight.has_last_uses());
        // The streams that use the block in each slot.
        let mut used: Vec<Vec<u32>> = vec![Vec::new(); if has_last_uses { self.slots } else { 0 }];
        let backend = allocator.backend();
        for steps in self.steps.chunks(LOOK_EVERY) {
            for step in steps {
                if let Some(flight) = flight {
                    flight.event();
                }
                match *step {
                    Step::Allocate { slot, bytes, stream } => {
                        let stream = &streams[stream as usize];
                        let block = match stream.allocate(bytes) {
                            Ok(block) => block,
                            Err(error) if error.fault() == Fault::OutOfMemory => return Ok(Some(Ended::OutOfMemory)),
                            Err(error) => return Err(error),
                        };
                        begin(flight, stream.id())?;
                        if has_last_uses {
                            used[slot as usize].clear();
                        }
                        blocks[slot as usize] = Some(block);
                    }
                    Step::Free { slot } => {
                        if let Some(block) = blocks[slot as usize].take()
                            && has_last_uses
                        {
                            let users = &used[slot as usize];
                            if users.is_empty() {
                                begin(flight, block.stream())?;
                            }
                            users.iter().try_for_each(|&stream| begin(flight, streams[stream as usize].id()))?;
                        }
                    }
                    Step::Use { slot, stream } => {
                        if let Some(block) = &blocks[slot as usize] {
                            block.record_stream(&streams[stream as usize])?;
                            begin(flight, streams[stream as usize].id())?;
                            if has_last_uses {
                                used[slot as usize].push(stream);
                            }
                        }
                    }
                    Step::Mark { stream } => {
                        let point = streams[stream as usize].point();
                        points.push(point);
                        tell(flight, |flight| flight.marked(point));
                    }
                    Step::Until { slot, point } => {
                        if let Some(block) = &blocks[slot as usize] {
                            block.used_until(points[point as usize])?;
                        }
                    }
                    Step::Submit { stream } => drop(streams[stream as usize].submit()?),
                    Step::StreamWait { stream, point } => {
                        if backend.caps().stream_wait {
                            tell(flight, |flight| flight.waits(streams[stream as usize].id()));
                            streams[stream as usize].wait_for(points[point as usize])?;
                        }
                    }
                    Step::HostWait { point } => {
                        backend.wait(points[point as usize]).map_err(|error| failed("wait", error))?;
                    }
                    Step::Reached { point } => tell(flight, |flight| flight.reached(points[point as usize])),
                    Step::Look { nanos } => tell(flight, |flight| flight.looked(nanos)),
                    Step::EmptyCache => allocator.empty_cache()?,
                    Step::Trim { bytes } => drop(allocator.trim(bytes)?),
                }
            }
            if beaten() {
                return Ok(Some(Ended::Beaten));
            }
        }
        self.left.iter().for_each(|&slot| blocks[slot as usize] = None);
        if let Some(flight) = flight {
            flight.over();
        }
        Ok(None)
    }
}

/// Passes something on to the work, if there is any.
fn tell<'a, B: Backend>(flight: &mut Option<Box<dyn Flight<B> + 'a>>, tell: impl FnOnce(&mut (dyn Flight<B> + 'a))) {
    if let Some(flight) = flight {
        tell(&mut **flight);
    }
}

fn begin<B: Backend>(flight: &mut Option<Box<dyn Flight<B> + '_>>, stream: StreamId) -> Result<(), Error<B::Error>> {
    let Some(flight) = flight else { return Ok(()) };
    flight.begin(stream).map_err(|error| failed("fill", error))
}

fn nanos(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
