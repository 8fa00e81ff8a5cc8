//! Replaying a trace through an allocator.
//!
//! A replay does what the recorded program did, in the same order: the same sizes, streams, uses and frees. A block
//! that the device was done with later than its free is freed then, as the trace says when that was.
//!
//! Where the application closes ticks the replay submits, as `submits` says, so that a plain replay comes to the same
//! on every device. A checked replay also writes to every block and reads it back: `check` tells how.

mod check;
mod evidence;
mod marks;
mod submits;
mod threads;
mod until;
mod used;

#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

use millpond_backend::{Backend, BackendError, Fault};

use crate::activity::DriverActivity;
use crate::allocator::Allocator;
use crate::buffer::Buffer;
use crate::error::Error;
use crate::stats::{MemoryStats, PageStats};
use crate::stream::Stream;
use crate::trace::{Event, Trace};
use check::Checker;
use submits::{Elsewhere, Submits};
use until::Deadline;
use used::Used;

pub use check::{CheckError, WrongByte};
pub use until::Until;

/// A trace made ready to be replayed any number of times.
pub struct Replay {
    events: Vec<Event>,
    /// Where in the trace the events stood that became part of others, in order.
    left_out: Vec<usize>,
    /// The streams beside its own that a block is used on.
    elsewhere: Elsewhere,
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
    /// How many events it had: fewer than the trace where the replay's time was over before the pass was. Of several
    /// threads, what each of them got to at least.
    pub events: usize,
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
    /// How many threads replayed it at the same time.
    pub threads: usize,
    /// The first pass: the cache is empty, every growth happens.
    pub cold: Pass,
    /// The passes after it, on the same allocator. The last may be cut short.
    pub warm: Vec<Pass>,
    /// The largest sum of requested bytes alive at one time: the trace's own, or what several threads, or a first pass
    /// that was cut short, came to.
    pub live_peak: u64,
    /// The statistics at the end of the first pass.
    pub stats: MemoryStats,
    /// What the `paged` policy had done with pages by then; all 0 under other policies.
    pub pages: PageStats,
    /// What the driver was asked in the first pass.
    pub driver: DriverActivity,
    /// What the driver was asked in all the passes after it.
    pub warm_driver: DriverActivity,
    /// How many blocks were found to hold what was written to them, over all passes; 0 without a check.
    pub checked_blocks: u64,
}

/// Whoever hears of the blocks of a pass while it is under way. What it does is in the time of the pass.
trait Watch<B: Backend> {
    type Error: From<Error<B::Error>>;

    /// A block was granted. No work was queued on it yet.
    fn granted(&mut self, id: u32, buffer: &Buffer<B>, stream: &Stream<B>) -> Result<(), Self::Error>;

    /// A block is used on a stream from now to its free.
    fn used(&mut self, id: u32, buffer: &Buffer<B>, stream: &Stream<B>) -> Result<(), Self::Error>;

    /// A block is about to be freed by the event at that place of the pass.
    fn freeing(&mut self, event: usize, id: u32, buffer: &Buffer<B>) -> Result<(), Self::Error>;

    /// The pass is over: every block was freed.
    fn over(&mut self) -> Result<(), Self::Error>;
}

/// Nobody.
struct Unwatched;

impl<B: Backend> Watch<B> for Unwatched {
    type Error = Error<B::Error>;

    #[inline]
    fn granted(&mut self, _: u32, _: &Buffer<B>, _: &Stream<B>) -> Result<(), Self::Error> {
        Ok(())
    }

    #[inline]
    fn used(&mut self, _: u32, _: &Buffer<B>, _: &Stream<B>) -> Result<(), Self::Error> {
        Ok(())
    }

    #[inline]
    fn freeing(&mut self, _: usize, _: u32, _: &Buffer<B>) -> Result<(), Self::Error> {
        Ok(())
    }

    fn over(&mut self) -> Result<(), Self::Error> {
        Ok(())
    }
}

impl Replayed {
    /// Nanoseconds per event of the first pass.
    pub fn cold_ns_per_event(&self) -> f64 {
        per_event(self.cold.time, self.cold.events)
    }

    /// Nanoseconds per event, the median over the whole warm passes; `None` if there were none.
    pub fn warm_ns_per_event(&self) -> Option<f64> {
        let mut times: Vec<_> = self.whole_warm_passes().map(|pass| pass.time).collect();
        times.sort_unstable();
        let middle = times.len().checked_sub(1)? / 2;
        let median =
            if times.len().is_multiple_of(2) { (times[middle] + times[middle + 1]) / 2 } else { times[middle] };
        Some(per_event(median, self.events))
    }

    /// The warm passes that were not cut short.
    pub fn whole_warm_passes(&self) -> impl Iterator<Item = &Pass> {
        self.warm.iter().filter(|pass| pass.events == self.events)
    }

    /// How many events all passes had together, of one thread.
    pub fn events_replayed(&self) -> u64 {
        std::iter::once(&self.cold).chain(&self.warm).map(|pass| pass.events as u64).sum()
    }

    /// Peak reserved over peak live bytes: 1 is perfect.
    pub fn reserved_over_live(&self) -> f64 {
        self.stats.reserved_bytes.all.peak as f64 / self.live_peak.max(1) as f64
    }
}

fn per_event(time: Duration, events: usize) -> f64 {
    time.as_nanos() as f64 / events.max(1) as f64
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
        let mut left_out = Vec::new();
        let events = trace.events.iter().enumerate().filter_map(|(at, event)| match *event {
            // The block goes when the device is done with it.
            Event::Free { id } if completes[id as usize] => {
                left_out.push(at);
                None
            }
            Event::Complete { id } => Some(Event::Free { id }),
            other => Some(other),
        });
        let used = Used::of(trace);
        Self {
            events: events.map(|event| used.renumbered(event)).collect(),
            left_out,
            elsewhere: submits::elsewhere(trace.events.iter().map(|&event| used.renumbered(event))),
            allocations,
            points: trace.events.iter().filter(|event| matches!(event, Event::Mark { .. })).count(),
            streams: used.count(),
            live_peak: trace.live_peak(),
        }
    }

    /// How many streams the trace uses. A replay takes that many, in the order of their numbers in the trace.
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
    /// Where the application closes ticks, this submits what a free leaves open before anybody looks, and waits for it.
    /// Such a submit covers no work, and is in neither the time of the pass nor the driver's activity.
    ///
    /// # Errors
    ///
    /// Whatever the driver reports but out of memory, which is counted.
    ///
    /// # Panics
    ///
    /// If there are fewer streams than the trace needs.
    pub fn pass<B: Backend>(&self, allocator: &Allocator<B>, streams: &[Stream<B>]) -> Result<Pass, Error<B::Error>> {
        let mut submits = self.submits(allocator, streams, true);
        self.watched_pass(allocator, streams, &mut submits, &mut Unwatched, Deadline::NEVER)
    }

    fn watched_pass<B: Backend, W: Watch<B>>(
        &self,
        allocator: &Allocator<B>,
        streams: &[Stream<B>],
        submits: &mut Submits<'_, B>,
        watch: &mut W,
        deadline: Deadline,
    ) -> Result<Pass, W::Error> {
        assert!(streams.len() >= self.streams as usize, "{} streams for {}", streams.len(), self.streams);
        let mut blocks: Vec<Option<Buffer<B>>> = Vec::new();
        blocks.resize_with(self.allocations, || None);
        let mut points = Vec::with_capacity(self.points);
        let (mut ooms, mut first_oom) = (0, None);
        let (mut events, mut look_at) = (self.events.len(), deadline.first_look());
        let start = Instant::now();
        for (at, event) in self.events.iter().enumerate() {
            if at == look_at {
                let Some(next) = deadline.look(at) else {
                    events = at;
                    break;
                };
                look_at = next;
            }
            match *event {
                Event::Allocate { id, bytes, stream } => {
                    let stream = &streams[stream as usize];
                    match submits.allocate(stream, bytes) {
                        Ok(buffer) => {
                            watch.granted(id, &buffer, stream)?;
                            blocks[id as usize] = Some(buffer);
                        }
                        Err(error) if error.fault() == Fault::OutOfMemory => {
                            ooms += 1;
                            first_oom.get_or_insert_with(|| error.to_string());
                        }
                        Err(error) => return Err(error.into()),
                    }
                }
                Event::Free { id } | Event::Complete { id } => {
                    if let Some(buffer) = blocks[id as usize].take() {
                        watch.freeing(at, id, &buffer)?;
                        submits.free(id, buffer)?;
                    }
                }
                Event::Use { id, stream } => {
                    if let Some(buffer) = &blocks[id as usize] {
                        buffer.record_stream(&streams[stream as usize])?;
                        watch.used(id, buffer, &streams[stream as usize])?;
                    }
                }
                Event::Mark { stream, .. } => {
                    points.push(streams[stream as usize].point());
                    submits.marked(streams[stream as usize].id());
                }
                Event::Until { id, point } => {
                    if let Some(buffer) = &blocks[id as usize] {
                        buffer.used_until(points[point as usize])?;
                    }
                }
                Event::EmptyCache => {
                    submits.submit()?;
                    allocator.empty_cache()?;
                }
                Event::Trim { bytes } => {
                    submits.submit()?;
                    allocator.trim(bytes)?;
                }
            }
        }
        let time = start.elapsed().saturating_sub(submits.take_spent());
        for (id, block) in (0..).zip(blocks) {
            if let Some(buffer) = block {
                watch.freeing(events, id, &buffer)?;
                submits.free(id, buffer)?;
            }
        }
        submits.submit()?;
        submits.take_spent();
        watch.over()?;
        Ok(Pass { time, events, ooms, first_oom })
    }

    fn submits<'a, B: Backend>(
        &'a self,
        allocator: &'a Allocator<B>,
        streams: &'a [Stream<B>],
        waits: bool,
    ) -> Submits<'a, B> {
        Submits::new(allocator, streams, &self.elsewhere, waits)
    }

    /// An error whose event has the number that it has in the trace.
    fn located<E: BackendError>(&self, error: CheckError<E>) -> CheckError<E> {
        match error {
            CheckError::WrongByte(wrong) => WrongByte { event: self.place_in_trace(wrong.event), ..wrong }.into(),
            error => error,
        }
    }

    /// Where in the trace an event of a pass stands.
    fn place_in_trace(&self, at: usize) -> usize {
        self.left_out.iter().fold(at, |place, &left_out| if left_out <= place { place + 1 } else { place })
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

    /// [`run`](Self::run) on given streams, so many warm passes or for a time. `progress` hears after each pass how
    /// many are done.
    ///
    /// # Errors
    ///
    /// As [`pass`](Self::pass).
    pub fn run_on<B: Backend>(
        &self,
        allocator: &Allocator<B>,
        streams: &[Stream<B>],
        until: impl Into<Until>,
        progress: impl FnMut(usize),
    ) -> Result<Replayed, Error<B::Error>> {
        let mut submits = self.submits(allocator, streams, true);
        self.passes(allocator, until.into(), progress, |deadline| {
            self.watched_pass(allocator, streams, &mut submits, &mut Unwatched, deadline)
        })
    }

    /// As [`run_on`](Self::run_on), with checked bytes: device work writes marks to each block when it is granted, and
    /// reads them back before it is freed. The marks are the first and the last 64 bytes and 16 bytes at the start of
    /// every page (2 MiB, or what the device says if that is less), drawn from a table of 1 MiB by block and place.
    /// Every stream that used a block writes them once more when it is freed, so that reuse before that work is done
    /// shows in the next owner's bytes. What was read stays on the device until there are 64 KiB of it on a stream, or
    /// until the pass is over, and is judged then: the program goes on while work is under way. Where the application
    /// closes ticks, streams are submitted where they meet and where the allocator may look for what was reached.
    ///
    /// Costs at least three copies on the device for each mark, all in the time of the passes, and memory past the
    /// allocator: that table, and 64 KiB for each stream. Where work is never under way when the host goes on (the
    /// simulated device unless told otherwise), only the order of the calls is checked.
    ///
    /// # Errors
    ///
    /// The first [`WrongByte`]; a device that moves no bytes; as [`run_on`](Self::run_on).
    pub fn run_checked<B: Backend>(
        &self,
        allocator: &Allocator<B>,
        streams: &[Stream<B>],
        until: impl Into<Until>,
        progress: impl FnMut(usize),
    ) -> Result<Replayed, CheckError<B::Error>> {
        let mut checker = Checker::new(allocator, streams, 0, 0)?;
        let mut submits = self.submits(allocator, streams, false);
        let checked = self.passes(allocator, until.into(), progress, |deadline| {
            self.watched_pass(allocator, streams, &mut submits, &mut checker, deadline)
        });
        match checked {
            Ok(replayed) => Ok(Replayed { checked_blocks: checker.blocks(), ..replayed }),
            Err(error) => Err(self.located(error)),
        }
    }
}
