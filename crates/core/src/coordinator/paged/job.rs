//! The execution of a scheme: claims, driver calls, and what they change.

use alloc::vec::Vec;

use millpond_backend::{Point, StreamId, Tick};

use super::scheme::{Backing, Scheme, Source};
use super::survey::{Idle, When};
use crate::coordinator::calls::Purpose;
use crate::coordinator::pending::raise;
use crate::coordinator::plan::{Awaited, Plan, REPEATS_MAX};
use crate::coordinator::step::{PageCall, Step};
use crate::coordinator::{Coordinator, Shards, both};
use crate::ids::{BlockId, PageId, Place, ShardId, Side, Slot};
use crate::last_use::LastUse;
use crate::shard::Piece;

/// The memory that a plan of `paged` has claimed, and what is to be done with it.
#[derive(Debug)]
pub(in crate::coordinator) struct Job {
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
    waits: Vec<Point>,
    /// The tick of the stream that covers those waits.
    covered: Tick,
    /// The number of bytes that are being created.
    created: u64,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Claimed,
    Waits,
    Backed,
}

/// A claimed part of a window.
#[derive(Clone, Copy, Debug)]
struct Part {
    block: BlockId,
    begin: u64,
    end: u64,
    is_gap: bool,
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
    pub(super) fn begin_job(&mut self, plan: &mut Plan, scheme: Scheme, shards: &mut impl Shards) {
        let (shard, want) = plan.request();
        let window = &scheme.window;
        let clock = plan.clocks[want.side.index()];
        let Some(parts) = shards.with(shard, |s| {
            let blocks = s.claim_window(window, &scheme.ends)?;
            let part = |(block, piece): (BlockId, &Piece)| {
                let b = &s.blocks[block];
                Part { block, begin: b.offset, end: b.end(), is_gap: matches!(piece, Piece::Gap(_)) }
            };
            Some(blocks.into_iter().zip(&window.pieces).map(part).collect::<Vec<_>>())
        }) else {
            return self.try_again(plan);
        };
        let mut job = Job {
            shard,
            side: want.side,
            slot: window.slot,
            parts,
            pages: Vec::new(),
            clears: scheme.clears,
            waits: Vec::new(),
            // A tick that the stream has reached, for memory whose use on other streams is over. It may be 0, which is
            // always reached.
            covered: self.reached[self.stream_of(shard).0 as usize],
            created: scheme.created,
            state: State::Claimed,
        };
        let claimed = self.claim_sources(&mut job, &scheme.backings, shards);
        if !claimed {
            self.put_back(&mut job, clock, shards);
            return self.try_again(plan);
        }
        self.reserving += job.created;
        for &(_, offset) in &job.clears {
            self.shadow_leaves(Place { shard, slot: job.slot, offset }, shards);
        }
        plan.job = Some(job);
    }

    fn try_again(&mut self, plan: &mut Plan) {
        plan.repeats += 1;
        plan.refused = plan.repeats > REPEATS_MAX;
    }

    /// Claims the pages that move, from the highest address down, so that what is left of a block keeps its number.
    /// Returns whether all of them could be claimed. Those that could are in the job.
    fn claim_sources(&mut self, job: &mut Job, backings: &[Backing], shards: &mut impl Shards) -> bool {
        for backing in backings {
            let (page, idle, how) = match backing.source {
                Source::Back(idle) => (idle.page, Some(idle), How::Back),
                Source::Move(idle) if idle.when == When::BehindWait => (idle.page, Some(idle), How::MoveBehindWait),
                Source::Move(idle) => (idle.page, Some(idle), How::Move),
                Source::Spare(page) => (page, None, How::Spare),
                Source::New => (self.pages.insert(backing.bytes, job.side), None, How::New),
            };
            if how == How::Spare {
                self.pages.spare.retain(|&spare| spare != page);
            }
            let origin = |Idle { at: place, block, stream, last_use, .. }| Origin { place, block, stream, last_use };
            let from = idle.map(origin);
            job.pages.push(Incoming { page, offset: backing.offset, bytes: backing.bytes, from, how, arrived: false });
        }
        let mut order: Vec<usize> = (0..job.pages.len()).filter(|&at| job.pages[at].from.is_some()).collect();
        order.sort_by_key(|&at| core::cmp::Reverse(job.pages[at].from.map(|from| from.place)));
        for (done, &at) in order.iter().enumerate() {
            let Incoming { bytes, from: Some(from), .. } = job.pages[at] else { continue };
            let Origin { place, block, .. } = from;
            let claimed = shards.with(place.shard, |s| s.claim_page(block, (place.slot, place.offset), bytes));
            let Some(block) = claimed else {
                for &at in &order[done..] {
                    job.pages[at].from = None;
                }
                return false;
            };
            // If another thread used and freed the page since the survey, its last use is later than the survey saw.
            let now = shards.with(place.shard, |s| s.blocks[block].last_use);
            job.pages[at].from = Some(Origin { block, last_use: now, ..from });
            if now != from.last_use {
                for &at in &order[done + 1..] {
                    job.pages[at].from = None;
                }
                return false;
            }
            if job.pages[at].how == How::MoveBehindWait {
                raise(&mut job.waits, from.until());
            }
        }
        true
    }

    /// Returns the next step of the plan's job or, when all is done, the grant.
    pub(super) fn go_on(&mut self, plan: &mut Plan, shards: &mut impl Shards) -> Option<Step> {
        let job = plan.job.as_mut()?;
        match job.state {
            State::Claimed if !job.waits.is_empty() => {
                job.state = State::Waits;
                let (stream, points) = (self.stream_of(job.shard), job.waits.clone());
                Some(plan.awaits(Awaited::StreamWait, Step::StreamWait { stream, points }))
            }
            State::Claimed | State::Waits => {
                job.state = State::Backed;
                let calls = self.calls_of(plan.job.as_ref()?);
                if calls.is_empty() {
                    self.backed(plan, &calls, None, shards);
                    return None;
                }
                Some(self.make(plan, Purpose::Back, calls))
            }
            State::Backed => self.serve(plan, shards),
        }
    }

    /// Notes that the waits are queued on the stream.
    pub(in crate::coordinator) fn learn_waits(&mut self, plan: &mut Plan, tick: Tick) {
        match &mut plan.job {
            Some(job) => job.covered = job.covered.max(tick),
            None => panic!("waits are queued for no job"),
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
    pub(in crate::coordinator) fn backed(
        &mut self,
        plan: &mut Plan,
        made: &[PageCall],
        stopped: Option<bool>,
        shards: &mut impl Shards,
    ) {
        let clock = plan.clocks[plan.request().1.side.index()];
        let Some(mut job) = plan.job.take() else { panic!("page calls were made for no job") };
        self.reserving -= job.created;
        let here = |offset| Place { shard: job.shard, slot: job.slot, offset };
        let mut mapped = 0;
        for call in made {
            match *call {
                PageCall::Create { page, bytes } => {
                    self.book_reserved(job.side, bytes);
                    self.paging.stats.created += 1;
                    self.pages.spare.push(page);
                }
                PageCall::Unmap { page, at } if self.pages[page].home == Some(at) => {
                    self.moves_out(page, None, shards);
                    self.pages.spare.push(page);
                }
                PageCall::Unmap { page, at } => {
                    self.shadow_left(page, at, shards);
                    self.paging.stats.unmapped += 1;
                }
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
        match stopped {
            None => plan.job = Some(job),
            Some(refused) => {
                self.put_back(&mut job, clock, shards);
                if refused {
                    plan.no_new_pages = true;
                } else {
                    plan.not_grown(false);
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
            self.pages.spare.retain(|&spare| spare != page);
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

    /// Moves the bytes of a page from one side to the other. The device's sum keeps its value but counts the bytes as
    /// released and reserved too, so that the totals of the sides add up to its own.
    fn change_side(&mut self, page: PageId, side: Side) {
        let page = &mut self.pages[page];
        if page.side != side {
            both(&mut self.reserved, page.side, |stat| stat.decrease(page.bytes));
            both(&mut self.reserved, side, |stat| stat.increase(page.bytes));
            page.side = side;
        }
    }

    /// Hands out the window, now that everything is in place.
    fn serve(&mut self, plan: &mut Plan, shards: &mut impl Shards) -> Option<Step> {
        let job = plan.job.take()?;
        let (shard, want) = plan.request();
        let clock = plan.clocks[want.side.index()];
        let last_use = self.last_use_of(&job);
        let parts: Vec<_> = job.parts.iter().map(|part| part.block).collect();
        let grant = shards.with(shard, |s| {
            let whole = s.join_window(&parts);
            let block = &mut s.blocks[whole];
            block.last_use = block.last_use.max(last_use);
            s.hand_out(whole, &want, clock)
        });
        Some(Step::Grant(self.settled(shard, grant, shards)))
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
    fn put_back(&mut self, job: &mut Job, clock: u64, shards: &mut impl Shards) {
        let last_use = self.last_use_of(job);
        for incoming in job.pages.iter().filter(|incoming| !incoming.arrived) {
            self.stay(incoming, clock, shards);
        }
        let arrived = |part: &Part| {
            let inside = job.pages.iter().filter(|page| page.arrived && (part.begin..part.end).contains(&page.offset));
            inside.map(|page| page.bytes).sum::<u64>()
        };
        for part in &job.parts {
            let backed = arrived(part);
            shards.with(job.shard, |s| {
                if part.is_gap {
                    s.blocks[part.block].last_use = last_use;
                    s.keep_backed(part.block, backed, clock);
                } else {
                    s.unclaim(part.block, clock);
                }
            });
        }
    }

    /// Leaves a page that was not moved where it is.
    fn stay(&mut self, incoming: &Incoming, clock: u64, shards: &mut impl Shards) {
        match (incoming.how, incoming.from) {
            // If the page was created and then not mapped, it is spare. Otherwise it was never created.
            (How::New, _) => {
                if !self.pages.spare.contains(&incoming.page) {
                    self.pages.remove(incoming.page);
                }
            }
            (How::Spare, _) => {
                if !self.pages.spare.contains(&incoming.page) {
                    self.pages.spare.push(incoming.page);
                }
            }
            (_, Some(Origin { place, block, .. })) => {
                let is_home = self.pages[incoming.page].home == Some(place);
                shards.with(place.shard, |s| {
                    if is_home {
                        s.unclaim(block, clock);
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

    /// Gives up the job of a plan that ends early, and takes its bytes and shadows out of the books.
    pub(in crate::coordinator) fn abandon_job(&mut self, plan: &mut Plan, shards: &mut impl Shards) {
        if let Some(mut job) = plan.job.take() {
            let clock = plan.clocks[job.side.index()];
            self.reserving -= job.created;
            for &(_, offset) in &job.clears {
                let at = Place { shard: job.shard, slot: job.slot, offset };
                self.shadow_stays(at, shards);
            }
            self.put_back(&mut job, clock, shards);
        }
    }
}
