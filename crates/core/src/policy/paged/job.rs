//! The execution of a scheme: claims, driver calls, and what they change.

use alloc::boxed::Box;
use alloc::vec::Vec;

use millpond_backend::{Point, StreamId, Tick};

use super::climb::Climb;
use super::scheme::{Backing, Scheme, Source};
use super::survey::{FreePage, When};
use crate::books::Points;
use crate::coordinator::calls::{Batch, Purpose};
use crate::coordinator::phase::{Asked, Phase, Turned};
use crate::coordinator::plan::Plan;
use crate::coordinator::step::{Outcome, PageCall, Step};
use crate::coordinator::{Coordinator, Shards};
use crate::ids::{BlockId, PageId, Place, ShardId, Side, Slot};
use crate::last_use::LastUse;
use crate::policy;
use crate::shard::Part;

/// The memory that a plan of `paged` has claimed, and what is to be done with it.
#[derive(Debug)]
pub(crate) struct Job {
    shard: ShardId,
    side: Side,
    slot: Slot,
    /// The claimed blocks of the window, in order.
    parts: Vec<Part>,
    /// The pages that will back the window, in order of addresses.
    pages: Vec<Incoming>,
    /// Old mappings that have to be unmapped first.
    clears: Vec<(PageId, u64)>,
    /// Points that the stream must wait for on the device.
    waits: Points,
    /// The tick of the stream that covers those waits.
    covered: Tick,
    /// The number of bytes that are being created.
    created: u64,
}

/// What is to be done next for a job.
#[derive(Debug)]
pub(crate) enum Work {
    /// The device-side waits are to be queued.
    Order(Job),
    /// The page calls are to be made.
    Back(Job),
    /// The window is to be handed out.
    Serve(Job),
}

/// A page that is to be mapped in the window.
#[derive(Clone, Copy, Debug)]
struct Incoming {
    page: PageId,
    offset: u64,
    bytes: u64,
    from: Option<Origin>,
    how: How,
    /// Whether the page has its home in the window now.
    arrived: bool,
}

/// The present home of a page that is to move.
#[derive(Clone, Copy, Debug)]
struct Origin {
    place: Place,
    /// The claimed block that holds the bytes of this page and no others.
    block: BlockId,
    stream: StreamId,
    last_use: LastUse,
}

impl Origin {
    fn until(&self) -> Point {
        Point { stream: self.stream, tick: self.last_use.tick() }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum How {
    Back,
    Move,
    MoveBehindWait,
    Spare,
    New,
}

impl Coordinator {
    /// Claims what a scheme needs. If another thread has taken some of it since the survey, nothing is claimed and the
    /// attempt is made again.
    pub(super) fn begin_job(
        &mut self,
        scheme: Scheme,
        climb: Climb,
        plan: &mut Plan,
        shards: &mut impl Shards,
    ) -> Turned {
        let (shard, want) = plan.request.allocation();
        let window = &scheme.window;
        let Some(parts) = shards.with(shard, |s| s.claim_window(window, &scheme.ends)) else {
            return spoiled(climb, plan);
        };
        let mut job = Job {
            shard,
            side: want.side,
            slot: window.slot,
            parts,
            pages: Vec::new(),
            clears: scheme.clears,
            waits: Points::default(),
            // A tick that the stream has reached, for memory whose use on other streams is over. It may be 0, which is
            // always reached.
            covered: self.pending.reached(self.stream_of(shard)),
            created: scheme.created,
        };
        if !self.claim_sources(&mut job, &scheme.backings, shards) {
            self.put_back(&mut job, plan.request.clocks, shards);
            return spoiled(climb, plan);
        }
        self.headroom.ask(job.created);
        for &(_, offset) in &job.clears {
            self.shadow_leaves(Place { shard, slot: job.slot, offset }, shards);
        }
        Phase::Window(Work::Order(job), policy::Climb::Pages(climb)).turn()
    }

    /// Claims the pages that move, from the highest address down, so that what is left of a block keeps its number.
    /// Returns whether all of them could be claimed. Those that could are in the job.
    fn claim_sources(&mut self, job: &mut Job, backings: &[Backing], shards: &mut impl Shards) -> bool {
        for backing in backings {
            let (page, free, how) = match backing.source {
                Source::Back(free) => (free.page, Some(free), How::Back),
                Source::Move(free) if free.when == When::BehindWait => (free.page, Some(free), How::MoveBehindWait),
                Source::Move(free) => (free.page, Some(free), How::Move),
                Source::Spare(page) => (page, None, How::Spare),
                Source::New => (self.pages.insert(backing.bytes, job.side), None, How::New),
            };
            if how == How::Spare {
                self.pages.use_spare(page);
            }
            let origin =
                |FreePage { at: place, block, stream, last_use, .. }| Origin { place, block, stream, last_use };
            let from = free.map(origin);
            job.pages.push(Incoming { page, offset: backing.offset, bytes: backing.bytes, from, how, arrived: false });
        }
        let mut order: Vec<usize> = (0..job.pages.len()).filter(|&at| job.pages[at].from.is_some()).collect();
        order.sort_by_key(|&at| core::cmp::Reverse(job.pages[at].from.map(|from| from.place)));
        for (done, &at) in order.iter().enumerate() {
            let Incoming { bytes, from: Some(from), .. } = job.pages[at] else { continue };
            let Origin { place, block, .. } = from;
            let claimed = shards.with(place.shard, |s| s.claim_page(block, (place.slot, place.offset), bytes));
            let Some((block, now)) = claimed else {
                unclaimed(job, &order[done..]);
                return false;
            };
            // If another thread used and freed the page since the survey, its last use is later than the survey saw.
            job.pages[at].from = Some(Origin { block, last_use: now, ..from });
            if now != from.last_use {
                unclaimed(job, &order[done + 1..]);
                return false;
            }
            if job.pages[at].how == How::MoveBehindWait {
                job.waits.max(from.until());
            }
        }
        true
    }

    /// Has a job go on.
    pub(crate) fn back_window(
        &mut self,
        work: Work,
        climb: policy::Climb,
        plan: &mut Plan,
        shards: &mut impl Shards,
    ) -> Turned {
        match work {
            Work::Order(job) if job.waits.is_empty() => Phase::Window(Work::Back(job), climb).turn(),
            Work::Order(job) => {
                let step = Step::StreamWait { stream: self.stream_of(job.shard), points: job.waits.clone().into_vec() };
                (Phase::Asked(Asked::Waits(Box::new(Work::Order(job)), climb)), Some(step))
            }
            Work::Back(job) => {
                let calls = self.calls_of(&job);
                if calls.is_empty() {
                    return self.backed(job, climb, &calls, None, plan, shards).turn();
                }
                Phase::call(Batch::new(calls, Purpose::Back(Box::new(job), climb)))
            }
            Work::Serve(job) => self.serve_window(&job, plan, shards),
        }
    }

    /// Takes in whether the waits of a job are queued on the stream. If a stream cannot take part in one now, the
    /// attempt is made again without waits; those that were queued do no harm.
    pub(crate) fn waits_queued(
        &mut self,
        work: Work,
        climb: policy::Climb,
        outcome: Outcome,
        plan: &mut Plan,
        shards: &mut impl Shards,
    ) -> Phase {
        match (work, outcome, climb) {
            (Work::Order(mut job), Outcome::Waits(tick), climb) => {
                job.covered = job.covered.max(tick);
                Phase::Window(Work::Back(job), climb)
            }
            (work, Outcome::Refused, policy::Climb::Pages(mut climb)) => {
                self.give_up_window(work, plan, shards);
                climb.knows.lacks.waits = true;
                climb.again()
            }
            (work, Outcome::Failed, _) => {
                self.give_up_window(work, plan, shards);
                Phase::Over
            }
            (work, outcome, _) => panic!("{outcome:?} does not answer the waits of {work:?}"),
        }
    }

    fn calls_of(&self, job: &Job) -> Vec<PageCall> {
        let place = |offset| Place { shard: job.shard, slot: job.slot, offset };
        let mut calls: Vec<_> =
            job.clears.iter().map(|&(page, offset)| PageCall::Unmap { page, at: place(offset) }).collect();
        let aliases = self.facts.pages.is_some_and(|pages| pages.aliasing);
        for &Incoming { page, offset, bytes, from, how, .. } in &job.pages {
            match (how, from) {
                (How::Back, _) => continue,
                (How::New, _) => calls.push(PageCall::Create { page, bytes }),
                (How::Move, Some(from)) if !aliases => calls.push(PageCall::Unmap { page, at: from.place }),
                _ => {}
            }
            calls.push(PageCall::Map { page, at: place(offset) });
        }
        calls
    }

    /// Books what the calls of a job have changed. If one failed, what is backed becomes free memory and the rest goes
    /// back to where it was: nothing is undone without need.
    pub(crate) fn backed(
        &mut self,
        mut job: Job,
        climb: policy::Climb,
        made: &[PageCall],
        stopped: Option<bool>,
        plan: &mut Plan,
        shards: &mut impl Shards,
    ) -> Phase {
        // What was asked for and what was to be unmapped is settled by the calls, so giving the job up leaves it alone.
        self.headroom.end_ask(core::mem::take(&mut job.created));
        job.clears.clear();
        let here = |offset| Place { shard: job.shard, slot: job.slot, offset };
        let mut mapped = 0;
        for call in made {
            match *call {
                PageCall::Create { page, bytes } => {
                    self.headroom.gain(job.side, bytes);
                    self.paging.stats.created += 1;
                    self.pages.put_aside(page);
                }
                PageCall::Unmap { page, at } if self.pages[page].home == Some(at) => {
                    self.moves_out(page, None, shards);
                    self.pages.put_aside(page);
                }
                PageCall::Unmap { page, at } => self.shadow_left(page, at, shards),
                PageCall::Map { .. } => mapped += 1,
                PageCall::Release { .. } => panic!("{call:?} backs nothing"),
            }
        }
        // The pages arrive in order of addresses, up to the first page whose call was not made.
        for incoming in &mut job.pages {
            if incoming.how != How::Back {
                if mapped == 0 {
                    break;
                }
                mapped -= 1;
            }
            self.arrive(incoming, here(incoming.offset), job.side, shards);
        }
        match (stopped, climb) {
            (None, climb) => Phase::Window(Work::Serve(job), climb),
            (Some(refused), climb) => {
                self.put_back(&mut job, plan.request.clocks, shards);
                match climb {
                    policy::Climb::Pages(mut climb) if refused => {
                        climb.knows.lacks.new_pages = true;
                        climb.again()
                    }
                    _ => Phase::Over,
                }
            }
        }
    }

    fn arrive(&mut self, incoming: &mut Incoming, at: Place, side: Side, shards: &mut impl Shards) {
        let Incoming { page, how, from, .. } = *incoming;
        incoming.arrived = true;
        if self.pages[page].home.is_some() {
            let Some(from) = from else { panic!("page {} comes from nowhere", page.0) };
            self.moves_out(page, Some(from.until()), shards);
            self.paging.stats.retired += 1;
        } else {
            self.pages.use_spare(page);
        }
        if let Some(Origin { place, block, .. }) = from {
            shards.with(place.shard, |s| s.unmapped(block));
        }
        self.moves_in(page, at, shards);
        self.change_side(page, side);
        match how {
            How::Back => self.paging.stats.returned += 1,
            How::Move => self.paging.stats.moved += 1,
            How::MoveBehindWait => self.paging.stats.moved_behind_wait += 1,
            How::Spare | How::New => {}
        }
    }

    /// Counts the bytes of a page on the side of its new home.
    fn change_side(&mut self, page: PageId, side: Side) {
        let page = &mut self.pages[page];
        if page.side != side {
            self.headroom.change_side(page.side, side, page.bytes);
            page.side = side;
        }
    }

    /// Hands the window out: everything is in place.
    fn serve_window(&mut self, job: &Job, plan: &Plan, shards: &mut impl Shards) -> Turned {
        let (shard, want) = plan.request.allocation();
        let (clock, last_use) = (plan.request.clock(), self.last_use_of(job));
        let grant = shards.with(shard, |s| s.serve_window(&job.parts, last_use, &want, clock));
        Phase::end(Step::Grant(self.settled(shard, grant, shards)))
    }

    /// Returns the last use, on the stream, of the memory that the job brought. Pages of the stream itself keep theirs.
    /// What another stream used is covered by a wait, or over. A page that was never used may be next to one that was.
    fn last_use_of(&self, job: &Job) -> LastUse {
        let stream = self.stream_of(job.shard);
        let used = |incoming: &Incoming| match incoming.from {
            Some(from) if from.stream == stream || from.last_use.is_never() => from.last_use,
            Some(_) => LastUse::at(job.covered),
            // The last user of a spare page is not known, but its use is over.
            None if incoming.how == How::Spare => LastUse::at(job.covered),
            None => LastUse::NEVER,
        };
        job.pages.iter().map(used).max().unwrap_or(LastUse::NEVER)
    }

    /// Gives up a job: pages that have arrived stay as free memory, and claims go back.
    fn put_back(&mut self, job: &mut Job, clocks: [u64; 2], shards: &mut impl Shards) {
        let last_use = self.last_use_of(job);
        for incoming in job.pages.iter().filter(|incoming| !incoming.arrived) {
            self.stay(incoming, clocks, shards);
        }
        let arrived = |part: &Part| {
            let inside = job.pages.iter().filter(|page| page.arrived && (part.begin..part.end).contains(&page.offset));
            inside.map(|page| page.bytes).sum::<u64>()
        };
        for part in &job.parts {
            let backed = arrived(part);
            shards.with(job.shard, |s| {
                if part.is_gap {
                    s.keep_backed(part.block, backed, last_use, clocks);
                } else {
                    s.unclaim(part.block, clocks);
                }
            });
        }
    }

    /// Leaves a page that was not moved where it is.
    fn stay(&mut self, incoming: &Incoming, clocks: [u64; 2], shards: &mut impl Shards) {
        match (incoming.how, incoming.from) {
            // If the page was created and then not mapped, it is spare. Otherwise it was never created.
            (How::New, _) => {
                if !self.pages.is_spare(incoming.page) {
                    self.pages.remove(incoming.page);
                }
            }
            (How::Spare, _) => self.pages.put_aside(incoming.page),
            (_, Some(Origin { place, block, .. })) => {
                let is_home = self.pages[incoming.page].home == Some(place);
                shards.with(place.shard, |s| {
                    if is_home {
                        s.unclaim(block, clocks);
                    } else {
                        // The page was unmapped and not mapped again: it is spare, and its addresses are a hole.
                        s.unmapped(block);
                    }
                });
            }
            // The plan no longer has a claim on it.
            (_, None) => {}
        }
    }

    /// Gives up the job of a plan that ends early, or begins again, and takes its bytes and shadows out of the books.
    pub(crate) fn give_up_window(&mut self, work: Work, plan: &Plan, shards: &mut impl Shards) {
        let (Work::Order(mut job) | Work::Back(mut job) | Work::Serve(mut job)) = work;
        self.headroom.end_ask(job.created);
        for &(_, offset) in &job.clears {
            let at = Place { shard: job.shard, slot: job.slot, offset };
            shards.with(at.shard, |shard| shard.shadow_stays(at));
        }
        self.put_back(&mut job, plan.request.clocks, shards);
    }
}

/// Notes that these pages of a job were not claimed.
fn unclaimed(job: &mut Job, pages: &[usize]) {
    for &at in pages {
        job.pages[at].from = None;
    }
}

/// Makes an attempt once more that other threads have spoiled.
fn spoiled(climb: Climb, plan: &mut Plan) -> Turned {
    if plan.standing.may_repeat() { climb.again().turn() } else { climb.refused().again().turn() }
}
