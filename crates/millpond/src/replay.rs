//! Replaying a trace through an allocator.
//!
//! A replay does what the recorded program did, in the same order: the same sizes, streams, uses and frees. A block
//! that the device was done with later than its free is freed then, as the trace says when that was.

use std::time::{Duration, Instant};

use millpond_backend::{Backend, Fault};

use crate::activity::DriverActivity;
use crate::allocator::Allocator;
use crate::buffer::Buffer;
use crate::error::Error;
use crate::stats::MemoryStats;
use crate::stream::Stream;
use crate::trace::{Event, Trace};

/// A trace made ready to be replayed any number of times.
pub struct Replay {
    events: Vec<Event>,
    allocations: usize,
    points: usize,
    streams: u32,
    live_peak: u64,
}

/// What one pass over a trace came to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pass {
    /// How long it took on the host, the driver's work included.
    pub time: Duration,
    /// Allocations refused for lack of memory. The replay goes on without those blocks.
    pub ooms: u64,
    /// What the first of them said.
    pub first_oom: Option<String>,
}

/// What a trace came to on one allocator: a cold pass, then warm ones.
#[derive(Clone, PartialEq, Debug)]
pub struct Replayed {
    /// How many events the trace has; completions are part of their frees.
    pub events: usize,
    /// The first pass: the cache is empty, every growth happens.
    pub cold: Pass,
    /// The passes after it, on the same allocator.
    pub warm: Vec<Pass>,
    /// The largest sum of requested bytes alive at one time.
    pub live_peak: u64,
    /// The statistics at the end of the first pass.
    pub stats: MemoryStats,
    /// What the driver was asked in the first pass.
    pub driver: DriverActivity,
    /// What the driver was asked in all the passes after it.
    pub warm_driver: DriverActivity,
}

impl Replayed {
    /// Nanoseconds per event of the first pass.
    pub fn cold_ns_per_event(&self) -> f64 {
        self.per_event(self.cold.time)
    }

    /// Nanoseconds per event, the median over the warm passes; `None` if there were none.
    pub fn warm_ns_per_event(&self) -> Option<f64> {
        let mut times: Vec<_> = self.warm.iter().map(|pass| pass.time).collect();
        times.sort_unstable();
        let middle = times.len().checked_sub(1)? / 2;
        let median =
            if times.len().is_multiple_of(2) { (times[middle] + times[middle + 1]) / 2 } else { times[middle] };
        Some(self.per_event(median))
    }

    /// Peak reserved over peak live bytes: 1 is perfect.
    pub fn reserved_over_live(&self) -> f64 {
        self.stats.reserved_bytes.all.peak as f64 / self.live_peak.max(1) as f64
    }

    fn per_event(&self, time: Duration) -> f64 {
        time.as_nanos() as f64 / self.events.max(1) as f64
    }
}

impl Replay {
    /// Prepares a trace.
    pub fn new(trace: &Trace) -> Self {
        let allocations = trace.allocations();
        let mut completes = vec![false; allocations];
        for event in &trace.events {
            if let Event::Complete { id } = event {
                completes[*id as usize] = true;
            }
        }
        let events = trace.events.iter().copied().filter_map(|event| match event {
            // The block goes when the device is done with it.
            Event::Free { id } if completes[id as usize] => None,
            Event::Complete { id } => Some(Event::Free { id }),
            other => Some(other),
        });
        Self {
            events: events.collect(),
            allocations,
            points: trace.events.iter().filter(|event| matches!(event, Event::Mark { .. })).count(),
            streams: trace.streams,
            live_peak: trace.live_peak(),
        }
    }

    /// How many streams the trace needs.
    pub fn streams(&self) -> u32 {
        self.streams
    }

    /// How many events a pass has.
    pub fn events(&self) -> usize {
        self.events.len()
    }

    /// The largest sum of requested bytes alive at one time.
    pub fn live_peak(&self) -> u64 {
        self.live_peak
    }

    /// Goes over the trace once. Blocks that the trace never frees are freed at the end, after the clock has stopped.
    ///
    /// # Errors
    ///
    /// Whatever the driver reports but out of memory, which is counted.
    ///
    /// # Panics
    ///
    /// If there are fewer streams than the trace needs.
    pub fn pass<B: Backend>(&self, allocator: &Allocator<B>, streams: &[Stream<B>]) -> Result<Pass, Error<B::Error>> {
        assert!(streams.len() >= self.streams as usize, "{} streams for {}", streams.len(), self.streams);
        let mut blocks: Vec<Option<Buffer<B>>> = Vec::new();
        blocks.resize_with(self.allocations, || None);
        let mut points = Vec::with_capacity(self.points);
        let (mut ooms, mut first_oom) = (0, None);
        let start = Instant::now();
        for event in &self.events {
            match *event {
                Event::Allocate { id, bytes, stream } => match streams[stream as usize].allocate(bytes) {
                    Ok(buffer) => blocks[id as usize] = Some(buffer),
                    Err(error) if error.fault() == Fault::OutOfMemory => {
                        ooms += 1;
                        first_oom.get_or_insert_with(|| error.to_string());
                    }
                    Err(error) => return Err(error),
                },
                Event::Free { id } | Event::Complete { id } => drop(blocks[id as usize].take()),
                Event::Use { id, stream } => {
                    if let Some(buffer) = &blocks[id as usize] {
                        buffer.record_stream(&streams[stream as usize])?;
                    }
                }
                Event::Mark { stream, .. } => points.push(streams[stream as usize].point()),
                Event::Until { id, point } => {
                    if let Some(buffer) = &blocks[id as usize] {
                        buffer.used_until(points[point as usize])?;
                    }
                }
                Event::EmptyCache => allocator.empty_cache()?,
                Event::Trim { bytes } => drop(allocator.trim(bytes)?),
            }
        }
        Ok(Pass { time: start.elapsed(), ooms, first_oom })
    }

    /// A cold pass and `warm` more on an allocator that has served nothing yet, on streams that it opens.
    ///
    /// # Errors
    ///
    /// As [`pass`](Self::pass), and what opening a stream reports.
    pub fn run<B: Backend>(&self, allocator: &Allocator<B>, warm: usize) -> Result<Replayed, Error<B::Error>> {
        let streams: Vec<_> = (0..self.streams).map(|_| allocator.create_stream()).collect::<Result<_, _>>()?;
        self.run_on(allocator, &streams, warm, |_| ())
    }

    /// [`run`](Self::run) on given streams. `progress` hears after each pass how many are done.
    ///
    /// # Errors
    ///
    /// As [`pass`](Self::pass).
    pub fn run_on<B: Backend>(
        &self,
        allocator: &Allocator<B>,
        streams: &[Stream<B>],
        warm: usize,
        mut progress: impl FnMut(usize),
    ) -> Result<Replayed, Error<B::Error>> {
        let before = allocator.driver_activity();
        let cold = self.pass(allocator, streams)?;
        progress(1);
        let (stats, after) = (allocator.stats(), allocator.driver_activity());
        let mut passes = Vec::with_capacity(warm);
        for done in 0..warm {
            passes.push(self.pass(allocator, streams)?);
            progress(done + 2);
        }
        Ok(Replayed {
            events: self.events.len(),
            cold,
            warm: passes,
            live_peak: self.live_peak,
            stats,
            driver: after.since(before),
            warm_driver: allocator.driver_activity().since(after),
        })
    }
}
