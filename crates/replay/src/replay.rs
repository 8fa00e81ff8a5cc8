//! A replay: one pass over a trace, and the ways to make several.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use millpond::{Allocator, Buffer, DriverActivity, Error, Stream};
use millpond_backend::{Backend, BackendError, Fault, Point};
use millpond_trace::{Event, Trace};

use crate::check::{CheckError, Checker, WrongByte};
use crate::outcome::{Pass, Replayed};
use crate::submits::{self, Elsewhere, Submits};
use crate::until::{Deadline, Until};
use crate::used::Used;
use crate::watch::{Unwatched, Watch};

/// Blocks that are live, by number.
pub(crate) type Live<B> = Vec<(u32, Buffer<B>)>;

/// A trace that is prepared for any number of replays.
#[derive(Clone)]
pub struct Replay {
    pub(crate) events: Vec<Event>,
    /// The places in the trace of the events that became part of others or were left out, in order.
    pub(crate) left_out: Vec<usize>,
    /// For each block, the streams besides its own on which it is used.
    pub(crate) elsewhere: Arc<Elsewhere>,
    pub(crate) allocations: usize,
    pub(crate) points: usize,
    pub(crate) streams: u32,
    pub(crate) live_peak: u64,
    /// Whether the program submits its work.
    pub(crate) has_submits: bool,
    /// The bytes of addresses that the recorded device had, if they were limited.
    pub(crate) address_bytes: Option<u64>,
    /// The bytes and the addresses of the recorded program's segments, in order.
    pub(crate) segment_addresses: Arc<[(u64, u64)]>,
    /// What ends replays early.
    pub(crate) stop: Option<&'static AtomicBool>,
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
            elsewhere: Arc::new(submits::elsewhere(trace.events.iter().map(|&event| used.renumbered(event)))),
            allocations,
            points: trace.events.iter().filter(|event| matches!(event, Event::Mark { .. })).count(),
            streams: used.count(),
            live_peak: trace.live_peak(),
            has_submits: trace.events.iter().any(|event| matches!(event, Event::Submit { .. })),
            address_bytes: trace.header.address_bytes(),
            segment_addresses: trace.header.segment_addresses().into(),
            stop: None,
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

    /// Returns the bytes and the address of each segment that the recorded program's allocator took from the driver, in
    /// order; empty where the trace does not tell. A simulated device that is told them (`Sim::expect_segments`) before
    /// the allocator is built has segments where the program had them, which decides between free blocks of one size.
    pub fn segment_addresses(&self) -> &[(u64, u64)] {
        &self.segment_addresses
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

    /// Makes a pass up to a deadline and frees what is then live.
    pub(crate) fn watched_pass<B: Backend, W: Watch<B>>(
        &self,
        allocator: &Allocator<B>,
        streams: &[Stream<B>],
        submits: &mut Submits<'_, B>,
        watch: &mut W,
        deadline: Deadline,
    ) -> Result<Pass, W::Error> {
        let (pass, live) = self.open_pass(allocator, streams, submits, watch, deadline)?;
        self.end(pass.events, live, submits, watch)?;
        Ok(pass)
    }

    /// Frees these blocks behind `events` events, and ends the pass.
    pub(crate) fn end<B: Backend, W: Watch<B>>(
        &self,
        events: usize,
        live: Live<B>,
        submits: &mut Submits<'_, B>,
        watch: &mut W,
    ) -> Result<(), W::Error> {
        for (id, buffer) in live {
            watch.freeing(events, id, &buffer)?;
            submits.free(id, buffer)?;
        }
        submits.end()?;
        submits.take_spent();
        watch.over()
    }

    /// Makes a pass up to a deadline, without its end. Returns the blocks that are still live as well, in order.
    pub(crate) fn open_pass<B: Backend, W: Watch<B>>(
        &self,
        allocator: &Allocator<B>,
        streams: &[Stream<B>],
        submits: &mut Submits<'_, B>,
        watch: &mut W,
        deadline: Deadline,
    ) -> Result<(Pass, Live<B>), W::Error> {
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
            watch.event()?;
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
                            watch.refused(id, &error);
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
                    let point = streams[stream as usize].point();
                    points.push(point);
                    watch.marked(point);
                    submits.marked(point.stream);
                }
                Event::Until { id, point } => {
                    if let Some(buffer) = &blocks[id as usize] {
                        buffer.used_until(points[point as usize])?;
                    }
                }
                Event::Submit { stream } => submits.submit_as_recorded(streams[stream as usize].id())?,
                Event::StreamWait { stream, point } => {
                    have_wait(&streams[stream as usize], points[point as usize], submits, watch)?;
                }
                Event::HostWait { point } => {
                    submits.submit()?;
                    submits.wait(points[point as usize])?;
                }
                Event::Reached { point } => watch.reached(points[point as usize]),
                Event::Look { nanos } => watch.looked(nanos),
                Event::EmptyCache => {
                    submits.submit()?;
                    allocator.empty_cache()?;
                }
                Event::Trim { bytes } => {
                    submits.submit()?;
                    allocator.trim(bytes)?;
                }
            }
            watch.done(at);
        }
        let time = start.elapsed().saturating_sub(submits.take_spent());
        let live = (0..).zip(blocks).filter_map(|(id, block)| Some((id, block?))).collect();
        let (live_peak, driver) = (self.live_peak, DriverActivity::default());
        let pass = Pass { time, events, ooms, first_oom, live_peak, reserved_peak: 0, driver };
        Ok((pass, live))
    }

    pub(crate) fn submits<'a, B: Backend>(
        &'a self,
        allocator: &'a Allocator<B>,
        streams: &'a [Stream<B>],
        waits: bool,
    ) -> Submits<'a, B> {
        Submits::new(allocator, streams, &self.elsewhere, waits, self.has_submits)
    }

    /// Returns the error with its event numbered as in the trace.
    pub(crate) fn located<E: BackendError>(&self, error: CheckError<E>) -> CheckError<E> {
        match error {
            CheckError::WrongByte(wrong) => WrongByte { event: self.place_in_trace(wrong.event), ..wrong }.into(),
            error => error,
        }
    }

    /// Returns the place in the trace of an event of a pass.
    pub(crate) fn place_in_trace(&self, at: usize) -> usize {
        self.left_out.iter().fold(at, |place, &left_out| if left_out <= place { place + 1 } else { place })
    }

    /// Runs a cold pass and `warm` more on an allocator that has served nothing yet, on streams that it opens. Work of
    /// the recorded program is not in flight here: [`AsRecorded`](crate::AsRecorded) keeps it in flight as long as it
    /// was, which the command `millpond replay` does.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`pass`](Self::pass), and an error of opening a stream.
    pub fn run<B: Backend>(&self, allocator: &Allocator<B>, warm: usize) -> Result<Replayed, Error<B::Error>> {
        let streams: Vec<_> = (0..self.streams).map(|_| allocator.create_stream()).collect::<Result<_, _>>()?;
        self.run_on(allocator, &streams, warm, |_| ())
    }

    /// Works like [`run`](Self::run) on given streams, for a number of warm passes or for a time. `progress` is
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

    /// Works like [`run_on`](Self::run_on), with checked bytes: device work writes marks to each block when it is
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
        let mut checker = Checker::new(allocator, 0, 0)?;
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

/// Has a stream wait for a point, if the device can do that.
fn have_wait<B: Backend, W: Watch<B>>(
    stream: &Stream<B>,
    point: Point,
    submits: &mut Submits<'_, B>,
    watch: &mut W,
) -> Result<(), Error<B::Error>> {
    if submits.allocator().backend().caps().stream_wait {
        submits.submit()?;
        watch.waits(stream.id());
        stream.wait_for(point)?;
    }
    Ok(())
}
