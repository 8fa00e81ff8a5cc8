//! A rehearsal of a request: its plan runs on copies of the books and of the shards, with a driver that is imagined.
//!
//! So the rules by which a request is served have one home, and a forecast is what they lead to. Nothing of the
//! allocator changes, and no driver is called.

use alloc::boxed::Box;
use alloc::vec::Vec;

use millpond_backend::{Point, StreamId, Tick};

use super::step::{Outcome, Report, Step};
use super::{Allocation, Plan, Run};
use crate::books::{PageCall, Polled, Turns};
use crate::coordinator::{Coordinator, Shards};
use crate::ids::ShardId;
use crate::shard::Shard;

/// What is known of the device when a request is rehearsed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Conditions {
    /// How far streams are: at least those of [`Coordinator::streams_to_ask`].
    pub polled: Vec<Polled>,
    /// The time at which that was so, as [`Outcome::Polled`] has it.
    pub time: Option<u64>,
    /// The last tick of each stream that was submitted, where the application closes ticks. A wait gets no further.
    pub submitted: Vec<Point>,
    /// The bytes that the driver has left, if it says so. Otherwise it is taken to have all that is not reserved.
    pub left: Option<u64>,
}

/// What would become of a request, if nothing else happens and the driver gives what it has. Sizes are in bytes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Forecast {
    /// Whether it would be served.
    pub is_served: bool,
    /// The report of its refusal, if it would be refused.
    pub report: Option<Box<Report>>,
    /// What the driver would be asked for and give.
    pub reserves_bytes: u64,
    /// What would go back to the driver first.
    pub releases_bytes: u64,
    /// The number of pages that would be mapped a second time, in a window.
    pub gathered_pages: u64,
    /// Whether the host would wait for the device.
    pub waits: bool,
    /// What the driver has left now.
    pub had_bytes: u64,
    /// What it would have left at the end.
    pub left_bytes: u64,
}

/// Copies of shards, made where one is looked at.
struct Copies<'a> {
    of: &'a mut dyn Shards,
    made: Vec<Option<Box<Shard>>>,
}

impl Shards for Copies<'_> {
    fn visit(&mut self, shard: ShardId, f: &mut dyn FnMut(&mut Shard)) {
        let at = shard.0 as usize;
        if self.made.len() <= at {
            self.made.resize_with(at + 1, || None);
        }
        let (of, copy) = (&mut *self.of, &mut self.made[at]);
        f(copy.get_or_insert_with(|| Box::new(of.with(shard, |shard| shard.clone()))).tidied());
    }
}

impl Coordinator {
    /// Returns the streams whose progress decides how a request of a shard is served: those that are asked before its
    /// plan [begins](Self::answer), or else all that may be asked.
    pub fn streams_to_ask(&self, shard: ShardId, shards: &mut dyn Shards) -> Vec<StreamId> {
        if self.asks_first() {
            return shards.with(shard, |shard| shard.memory.guards.seen.next_to_ask());
        }
        let streams = self.streams().into_iter();
        streams.filter(|&stream| !self.pending.is_captured(stream)).collect()
    }

    /// Returns what would become of the request of a plan that has not begun. Changes nothing.
    ///
    /// Other plans in progress count as if they stopped where they are: what they hold serves nothing. A pool with a
    /// source gets nothing from it, as the source would have to be asked.
    ///
    /// Copies the books, and each shard that the plan looks at: that of the request, and all of them once the request
    /// would have to wait for its turn.
    ///
    /// # Panics
    ///
    /// If the plan is for no request.
    pub fn rehearse(&self, mut plan: Plan, conditions: &Conditions, shards: &mut dyn Shards) -> Forecast {
        let mut core = self.clone();
        // The copy has no other plans, so there is no queue to wait in.
        core.turns = Turns::default();
        let mut copies = Copies { of: shards, made: Vec::new() };
        let asks_first = core.asks_first();
        let unreserved = core.headroom.total_bytes.saturating_sub(core.headroom.with_asked());
        let left = conditions.left.unwrap_or(unreserved);
        let mut driver = Imagined { conditions, left, forecast: Forecast::default() };
        if !asks_first {
            conditions.polled.iter().for_each(|polled| core.pending.note_polled(polled));
            core.retire(plan.request.clocks, &mut copies);
        }
        let Allocation { shard, want } = plan.request.allocation();
        let by = Run { core: &mut core, shards: &mut copies, plan: &mut plan }.requester_of();
        let all: &mut dyn Shards = &mut copies;
        let hit = all.with(shard, |shard| shard.allocate(&want, plan.request.clock(), by));
        let hit = hit.or_else(|| {
            let polled = Outcome::Polled { streams: conditions.polled.clone(), time: conditions.time };
            asks_first.then(|| core.answer(&mut plan, polled, &mut copies)).flatten()
        });
        driver.forecast.is_served = hit.is_some();
        while !driver.forecast.is_served {
            let step = core.next(&mut plan, &mut copies);
            match step {
                Step::Grant(_) | Step::Lend { .. } => driver.forecast.is_served = true,
                Step::Refuse(report) => {
                    driver.forecast.report = Some(report);
                    break;
                }
                Step::Denied(_) | Step::Done => break,
                step => {
                    let outcome = driver.perform(&core, &step);
                    core.learn(&mut plan, outcome, &mut copies);
                }
            }
        }
        Forecast { had_bytes: left, left_bytes: driver.left, ..driver.forecast }
    }
}

/// A driver that gives what it has left, and whose streams do all that was submitted.
struct Imagined<'a> {
    conditions: &'a Conditions,
    left: u64,
    forecast: Forecast,
}

impl Imagined<'_> {
    fn perform(&mut self, core: &Coordinator, step: &Step) -> Outcome {
        match step {
            Step::Poll(streams) => {
                let streams = streams.iter().map(|&stream| self.polled(core, stream)).collect();
                Outcome::Polled { streams, time: self.conditions.time }
            }
            Step::Budget => Outcome::Left(self.conditions.left.map(|_| self.left)),
            Step::Wait(points) => {
                self.forecast.waits = true;
                let reached = |point: &Point| Point { tick: point.tick.min(self.submitted(point.stream)), ..*point };
                Outcome::Reached(points.iter().map(reached).collect())
            }
            &Step::Synchronize(stream) => {
                self.forecast.waits = true;
                Outcome::Reached(alloc::vec![Point { stream, tick: self.submitted(stream) }])
            }
            Step::StreamWait { .. } => Outcome::Waits(Tick::ZERO),
            &Step::Reserve { shard, bytes, .. } => {
                let is_given = !core.has_source(core.pool_of(shard)) && self.gives(bytes);
                if is_given { Outcome::Reserved { address: 0 } } else { Outcome::Refused }
            }
            Step::ReserveRange { .. } => Outcome::Reserved { address: 0 },
            Step::Pages(calls) => self.page_calls(core, calls),
            &Step::Release { shard, bytes, .. } => {
                self.forecast.releases_bytes += bytes;
                // A source has it then, and not the driver.
                self.left += if core.has_source(core.pool_of(shard)) { 0 } else { bytes };
                Outcome::Done
            }
            Step::ReleaseRange { .. } => Outcome::Done,
            // No other plan is known, and the plan does not appeal.
            Step::Pause { .. } => Outcome::Failed,
            Step::Grant(_) | Step::Lend { .. } | Step::Grown(_) | Step::Stuck(_) | Step::Appeal(_) => {
                panic!("{step:?} has no outcome in a rehearsal")
            }
            Step::Refuse(_) | Step::Denied(_) | Step::Done => panic!("{step:?} has no outcome in a rehearsal"),
        }
    }

    /// Makes page calls up to the first that asks for more than there is.
    fn page_calls(&mut self, core: &Coordinator, calls: &[PageCall]) -> Outcome {
        for (done, call) in calls.iter().enumerate() {
            match *call {
                PageCall::Create { bytes, .. } if !self.gives(bytes) => {
                    return Outcome::Stopped { done, refused: true };
                }
                PageCall::Map { page, .. } if core.pages[page].home.is_some() => self.forecast.gathered_pages += 1,
                PageCall::Release { page } => {
                    self.forecast.releases_bytes += core.pages[page].bytes;
                    self.left += core.pages[page].bytes;
                }
                PageCall::Create { .. } | PageCall::Map { .. } | PageCall::Unmap { .. } => {}
            }
        }
        Outcome::Done
    }

    fn gives(&mut self, bytes: u64) -> bool {
        let is_there = bytes <= self.left;
        if is_there {
            self.left -= bytes;
            self.forecast.reserves_bytes += bytes;
        }
        is_there
    }

    fn told(&self, stream: StreamId) -> Option<&Polled> {
        self.conditions.polled.iter().find(|polled| polled.stream == stream)
    }

    /// Returns how far a stream is: as far as it was told, or as it was waited for meanwhile.
    fn polled(&self, core: &Coordinator, stream: StreamId) -> Polled {
        let reached = core.pending.reached(stream);
        match self.told(stream) {
            Some(&polled) => Polled { reached: polled.reached.max(reached), closed: None, ..polled },
            None => Polled { stream, reached, asked: reached, open: None, closed: None },
        }
    }

    /// Returns the tick up to which a stream gets with what was submitted.
    fn submitted(&self, stream: StreamId) -> Tick {
        let submitted = self.conditions.submitted.iter().find(|point| point.stream == stream);
        submitted.map_or(Tick(u64::MAX - 1), |point| point.tick)
    }
}
