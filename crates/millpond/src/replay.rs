//! Replaying a trace through an allocator.
//!
//! A replay repeats what the recorded program did, in the same order: the same sizes, streams, uses and frees. Where
//! the trace says that the device was done with a block only after its free, the replay frees the block at that later
//! event.
//!
//! Where the application closes ticks the replay submits, as `submits` describes, so that a plain replay gives the same
//! results on every device. A checked replay also writes to every block and reads it back, as `check` describes.

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

/// A trace that is prepared for any number of replays.
pub struct Replay {
    events: Vec<Event>,
    /// The places in the trace of the events that became part of others, in order.
    left_out: Vec<usize>,
    /// For each block, the streams besides its own on which it is used.
    elsewhere: Elsewhere,
    allocations: usize,
    points: usize,
    streams: u32,
    live_peak: u64,
}

/// The result of one pass over a trace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pass {
    /// The time that it took on the host, including the driver's work.
    pub time: Duration,
    /// The number of its events: fewer than the trace has where the replay's time was over before the pass was. With
    /// several threads, the least number that one of them reached.
    pub events: usize,
    /// The number of allocations refused for lack of memory. The replay continues without those blocks.
    pub ooms: u64,
    /// The message of the first of them.
    pub first_oom: Option<String>,
}

/// The result of replaying a trace on one allocator: a cold pass, then warm ones.
#[derive(Clone, PartialEq, Debug)]
pub struct Replayed {
    /// The number of events of the trace; completions are part of their frees.
    pub events: usize,
    /// The number of threads that replayed it at the same time.
    pub threads: usize,
    /// The first pass, in which the cache is empty and every growth happens.
    pub cold: Pass,
    /// The passes after it, on the same allocator. The last may be cut short.
    pub warm: Vec<Pass>,
    /// The largest sum of requested bytes that were live at one time: that of the trace, or what was measured with
    /// several threads or with a first pass that was cut short.
    pub live_peak: u64,
    /// The statistics at the end of the first pass.
    pub stats: MemoryStats,
    /// The page statistics of the `paged` policy at the end of the first pass; all 0 under other policies.
    pub pages: PageStats,
    /// The driver's activity in the first pass.
    pub driver: DriverActivity,
    /// The driver's activity in all the passes after it.
    pub warm_driver: DriverActivity,
    /// The number of blocks that were found to hold what was written to them, over all passes; 0 without a check.
    pub checked_blocks: u64,
}

/// An observer of the blocks of a pass while it runs. The time of its work is part of the time of the pass.
trait Watch<B: Backend> {
    type Error: From<Error<B::Error>>;

    /// Observes that a block was granted. No work was queued on it yet.
    fn granted(&mut self, id: u32, buffer: &Buffer<B>, stream: &Stream<B>) -> Result<(), Self::Error>;

    /// Observes that a block is used on a stream from now to its free.
    fn used(&mut self, id: u32, buffer: &Buffer<B>, stream: &Stream<B>) -> Result<(), Self::Error>;

    /// Observes that a block is about to be freed by the event at that place of the pass.
    fn freeing(&mut self, event: usize, id: u32, buffer: &Buffer<B>) -> Result<(), Self::Error>;

    /// Observes that the pass is over: every block was freed.
    fn over(&mut self) -> Result<(), Self::Error>;
}

/// An observer that does nothing.
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
    /// Returns the nanoseconds per event of the first pass.
    pub fn cold_ns_per_event(&self) -> f64 {
        per_event(self.cold.time, self.cold.events)
    }

    /// Returns the nanoseconds per event, the median over the whole warm passes; `None` if there were none.
    pub fn warm_ns_per_event(&self) -> Option<f64> {
        let mut times: Vec<_> = self.whole_warm_passes().map(|pass| pass.time).collect();
        times.sort_unstable();
        let middle = times.len().checked_sub(1)? / 2;
        let median =
            if times.len().is_multiple_of(2) { (times[middle] + times[middle + 1]) / 2 } else { times[middle] };
        Some(per_event(median, self.events))
    }

    /// Returns the warm passes that were not cut short.
    pub fn whole_warm_passes(&self) -> impl Iterator<Item = &Pass> {
        self.warm.iter().filter(|pass| pass.events == self.events)
    }

    /// Returns the number of events of all passes together, for one thread.
    pub fn events_replayed(&self) -> u64 {
        std::iter::once(&self.cold).chain(&self.warm).map(|pass| pass.events as u64).sum()
    }

    /// Returns the peak of reserved bytes over the peak of live bytes, which is 1 at best.
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
            // The block is freed when the device is done with it.
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

    /// Returns the number of streams that the trace uses. A replay needs that many, in the order of their numbers in
    /// the trace.
    pub fn streams(&self) -> u32 {
        self.streams
    }

    /// Returns the number of events of a pass.
    pub fn events(&self) -> usize {
        self.events.len()
    }

    /// Returns the largest sum of requested bytes that are live at one time.
    pub fn live_peak(&self) -> u64 {
        self.live_peak
    }

    /// Replays the trace once. Blocks that the trace never frees are freed at the end, after the time was measured.
    ///
    /// Where the application closes ticks, this submits what a free leaves open before the allocator asks for it, and
    /// waits for it. Such a submit covers no work, and counts neither in the time of the pass nor in the driver's
    /// activity.
    ///
    /// # Errors
    ///
    /// Returns every error except out of memory, which is counted.
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

    /// Returns the error with its event numbered as in the trace.
    fn located<E: BackendError>(&self, error: CheckError<E>) -> CheckError<E> {
        match error {
            CheckError::WrongByte(wrong) => WrongByte { event: self.place_in_trace(wrong.event), ..wrong }.into(),
            error => error,
        }
    }

    /// Returns the place in the trace of an event of a pass.
    fn place_in_trace(&self, at: usize) -> usize {
        self.left_out.iter().fold(at, |place, &left_out| if left_out <= place { place + 1 } else { place })
    }

    /// Runs a cold pass and `warm` more on an allocator that has served nothing yet, on streams that it opens.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`pass`](Self::pass), and an error of opening a stream.
    pub fn run<B: Backend>(&self, allocator: &Allocator<B>, warm: usize) -> Result<Replayed, Error<B::Error>> {
        let streams: Vec<_> = (0..self.streams).map(|_| allocator.create_stream()).collect::<Result<_, _>>()?;
        self.run_on(allocator, &streams, warm, |_| ())
    }

    /// Does the same as [`run`](Self::run) on given streams, for a number of warm passes or for a time. `progress` is
    /// called after each pass with the number of passes that are done.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`pass`](Self::pass).
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

    /// Does the same as [`run_on`](Self::run_on), with checked bytes: device work writes marks to each block when it is
    /// granted, and reads them back before it is freed. The marks are the first and the last 64 bytes and 16 bytes at
    /// the start of every page (2 MiB, or what the device says if that is less), drawn from a table of 1 MiB by block
    /// and place. Every stream that used a block writes them once more when it is freed, so that reuse before that work
    /// is done shows in the next owner's bytes. What was read stays on the device until there are 64 KiB of it on a
    /// stream, or until the pass is over, and is compared then, so that the replay continues while work is in progress.
    /// Where the application closes ticks, streams are submitted where one waits for another and where the allocator
    /// may ask for what was reached.
    ///
    /// Costs at least three copies on the device for each mark, all in the time of the passes, and memory that the
    /// allocator does not manage: that table, and 64 KiB for each stream. Where work is always complete when the host
    /// continues (the simulated device by default), only the order of the calls is checked.
    ///
    /// # Errors
    ///
    /// Returns the first [`WrongByte`]; an error for a device that cannot move bytes; and the errors of
    /// [`run_on`](Self::run_on).
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
