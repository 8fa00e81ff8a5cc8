//! How a group goes to sleep and comes back: it is closed, its pages go to the driver, and later it gets as many anew.
//!
//! A plan closes a group while no other plan holds anything, so that no half-done job has its pages. Then the shell
//! waits for the streams that use the group, and may copy its contents, before a second plan gives the pages back. That
//! one cannot fail: neither unmapping nor releasing does. A third plan creates and maps all of them again, or takes
//! back what it has made. Each costs a look at every page and block of the group.

use alloc::vec::Vec;

use millpond_backend::StreamId;

use super::phase::{Phase, Purpose, Rung, Stopped, Turned};
use super::step::{Denied, Step};
use super::{Goal, Run};
use crate::books::{GroupState, PageCall};
use crate::ids::{GroupId, PageId, ShardId};

impl Run<'_> {
    /// Climbs one rung of a plan about a group.
    pub(crate) fn climb_group(&mut self, rung: Rung) -> Turned {
        let (Goal::Close(group) | Goal::Pause(group) | Goal::Resume(group)) = self.plan.request.goal else {
            panic!("{rung:?} is no rung of a plan for {:?}", self.plan.request.goal)
        };
        match rung {
            Rung::Close => self.close_group(group),
            Rung::Vacate => self.vacate_group(group),
            Rung::RefillAlone if !self.is_alone() => self.pause(rung),
            Rung::RefillAlone => Rung::FlushAll.turn(),
            _ => self.refill_group(group, rung == Rung::RefillLast),
        }
    }

    /// Returns the answer to a request of a pool whose group is not running.
    pub(crate) fn deny_closed(&self) -> Option<Turned> {
        let Goal::Allocate(allocation) = self.plan.request.goal else { return None };
        let group = self.core.pools.group_of(self.core.pool_of(allocation.shard));
        let closed = group.filter(|_| self.core.groups.is_closed(group))?;
        Some(Phase::end(Step::Denied(Denied::Closed(closed))))
    }

    /// Closes a running group once no other plan holds anything.
    fn close_group(&mut self, group: GroupId) -> Turned {
        if self.core.groups.state(group) != GroupState::Running {
            return Phase::Over.turn();
        }
        if !self.is_alone() {
            return self.pause(Rung::Close);
        }
        if let Some(stream) = self.captured_user(group) {
            return Phase::end(Step::Denied(Denied::Capturing(stream)));
        }
        for id in self.core.shards_of_group(group) {
            self.shards.with(id, |shard| shard.close());
        }
        self.core.groups.set(group, GroupState::Closed);
        Phase::Over.turn()
    }

    /// Takes the plan's turn. Returns whether it has it, and no other plan holds anything.
    fn is_alone(&mut self) -> bool {
        self.core.turns.keep_turn(&mut self.plan.standing);
        if !self.core.turns.has_turn(&self.plan.standing) {
            return false;
        }
        self.shards.hold();
        !self.core.turns.others_hold(&self.plan.standing)
    }

    /// Returns a stream that uses the group and is being captured, or one that is while a stream is captured in a pool
    /// of the group.
    fn captured_user(&mut self, group: GroupId) -> Option<StreamId> {
        if !self.core.pending.has_captures() {
            return None;
        }
        if self.core.pools.of_group(group).any(|pool| self.core.pools.is_capturing(pool)) {
            return self.core.pending.first_captured();
        }
        let mut users = self.core.users_of(group, self.shards).into_iter();
        users.find(|&stream| self.core.pending.is_captured(stream))
    }

    /// Gives the pages of a closed group back.
    fn vacate_group(&mut self, group: GroupId) -> Turned {
        if self.core.groups.state(group) != GroupState::Closed {
            return Phase::Over.turn();
        }
        let mut calls = Vec::new();
        for page in self.core.pages_of(group, self.shards) {
            let places = self.core.pages[page].places();
            calls.extend(places.into_iter().map(|at| PageCall::Unmap { page, at }));
            calls.push(PageCall::Release { page });
        }
        Phase::call(calls, Purpose::Vacate(group))
    }

    /// Notes that the pages of a group are with the driver.
    pub(crate) fn group_vacated(&mut self, group: GroupId, calls: &[PageCall]) -> Phase {
        for page in calls.iter().filter_map(released) {
            let (pool, entry) = (self.core.home_pool(page), &mut self.core.pages[page]);
            entry.paused = true;
            let (side, bytes) = (entry.side, entry.bytes);
            self.core.pools.pause(pool, side, bytes);
            self.core.headroom.lose(side, bytes);
        }
        self.core.groups.set(group, GroupState::Paused);
        self.note_paused(group, true);
        self.core.turns.note_progress(&mut self.plan.standing);
        Phase::Over
    }

    /// Creates and maps the pages of a paused group.
    fn refill_group(&mut self, group: GroupId, alone: bool) -> Turned {
        if self.core.groups.state(group) != GroupState::Paused {
            return Phase::Over.turn();
        }
        let pages = self.core.pages_of(group, self.shards);
        let bytes = pages.iter().map(|&page| self.core.pages[page].bytes).sum();
        if !self.core.headroom.admits(bytes, None) {
            let denied = Denied::NoRoom { bytes, created: None };
            return if alone { Rung::Deny(denied) } else { Rung::RefillAlone }.turn();
        }
        self.core.headroom.ask(bytes);
        let mut calls = Vec::new();
        for page in pages {
            calls.push(PageCall::Create { page, bytes: self.core.pages[page].bytes });
            calls.extend(self.core.pages[page].places().into_iter().map(|at| PageCall::Map { page, at }));
        }
        Phase::call(calls, Purpose::Refill(Refill { group, bytes, alone }))
    }

    /// Takes in that the pages of a group are there again, or what was made of them before a call failed.
    pub(crate) fn group_refilled(&mut self, refill: Refill, made: &[PageCall], stopped: Option<Stopped>) -> Phase {
        let Refill { group, bytes, .. } = refill;
        let Some(Stopped { refused, .. }) = stopped else {
            self.core.headroom.end_ask(bytes);
            for page in made.iter().filter_map(created) {
                let (pool, entry) = (self.core.home_pool(page), &mut self.core.pages[page]);
                entry.paused = false;
                let (side, bytes) = (entry.side, entry.bytes);
                self.core.pools.resume(pool, side, bytes);
                self.core.headroom.gain(side, bytes);
            }
            self.core.groups.set(group, GroupState::Closed);
            self.note_paused(group, false);
            return Phase::Over;
        };
        let undo = |call: &PageCall| match *call {
            PageCall::Create { page, .. } => PageCall::Release { page },
            PageCall::Map { page, at } => PageCall::Unmap { page, at },
            other => panic!("{other:?} makes no page of a group"),
        };
        Phase::Unfill(made.iter().rev().map(undo).collect(), refill, refused)
    }

    /// Notes that what was made of the pages of a group is taken back: the group is paused as before. `refused` if the
    /// driver had no room for more; otherwise it failed, and the plan ends.
    pub(crate) fn group_unfilled(&mut self, refill: Refill, refused: bool, undone: &[PageCall]) -> Phase {
        let Refill { bytes, alone, .. } = refill;
        self.core.headroom.end_ask(bytes);
        self.core.turns.note_progress(&mut self.plan.standing);
        if !refused {
            return Phase::Over;
        }
        let created = undone.iter().filter_map(released).map(|page| self.core.pages[page].bytes).sum();
        let denied = Denied::NoRoom { bytes, created: Some(created) };
        Phase::Climb(if alone { Rung::Deny(denied) } else { Rung::RefillAlone })
    }

    fn note_paused(&mut self, group: GroupId, paused: bool) {
        let ids: Vec<ShardId> = self.core.shards_of_group(group);
        ids.into_iter().for_each(|id| self.shards.with(id, |shard| shard.set_paused(paused)));
    }
}

/// The pages of a group that are being made anew.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refill {
    pub(crate) group: GroupId,
    /// The bytes of all of them.
    pub(crate) bytes: u64,
    /// Whether everything cached was released for them.
    pub(crate) alone: bool,
}

fn released(call: &PageCall) -> Option<PageId> {
    if let PageCall::Release { page } = *call { Some(page) } else { None }
}

fn created(call: &PageCall) -> Option<PageId> {
    if let PageCall::Create { page, .. } = *call { Some(page) } else { None }
}
