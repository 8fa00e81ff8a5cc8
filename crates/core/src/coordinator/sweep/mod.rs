//! The release of memory: what was chosen is waited for, and given to the driver one call at a time.

mod choose;
mod spare;

pub(crate) use choose::claim_releasable;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::calls::{Batch, Purpose};
use super::phase::{Asked, Phase, Turned};
use super::plan::Plan;
use super::step::Step;
use super::{Coordinator, Shards};
use crate::books::Points;
use crate::ids::{BlockId, PageId, SegmentId, ShardId, Slot};
use crate::plant::Plant;

/// A claimed free block that is to be released: a whole segment, or the pages inside a block of an expandable one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Candidate {
    shard: ShardId,
    block: BlockId,
}

/// A release in progress. Its candidates are claimed, so that no other plan can take them meanwhile.
#[derive(Debug)]
pub(crate) struct Sweep {
    candidates: VecDeque<Candidate>,
    scope: Scope,
    /// The sweep stops, though it has candidates left, once no more than this number of bytes are reserved.
    down_to: u64,
    stage: Stage,
}

/// What a sweep releases.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Scope {
    /// The candidates.
    Listed,
    /// The spare pages, and the candidates.
    WithSpare,
}

/// What a sweep does next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// It waits for the last uses of all that is to be released.
    Wait,
    /// It releases the spare pages, if they are in its scope.
    Spare,
    /// It releases the range that the last unmap left without memory, unless other plans have put memory there since.
    Emptied { shard: ShardId, slot: Slot, id: SegmentId },
    /// It releases the first candidate.
    Next,
    /// The stream of the first candidate was synchronised, as is required before its pages are unmapped.
    Synchronized,
}

impl Sweep {
    /// Returns the sweep of these claimed blocks, which first waits for their last uses.
    pub(crate) fn waiting(blocks: Vec<(ShardId, BlockId)>, scope: Scope, down_to: u64) -> Self {
        Self { stage: Stage::Wait, scope, down_to, ..Self::idle(blocks) }
    }

    /// Returns the sweep of these claimed blocks, of which those that are in use stay.
    pub(crate) fn idle(blocks: Vec<(ShardId, BlockId)>) -> Self {
        let candidates = blocks.into_iter().map(|(shard, block)| Candidate { shard, block }).collect();
        Self { candidates, scope: Scope::Listed, down_to: 0, stage: Stage::Next }
    }

    /// Returns the number of bytes that are still to be released, where this many are reserved.
    fn excess(&self, reserved: u64) -> u64 {
        reserved.saturating_sub(self.down_to)
    }

    /// Returns the phase that sweeps, or the one that follows if there is nothing to release.
    pub(crate) fn then(self, then: Phase) -> Phase {
        if self.candidates.is_empty() && self.scope == Scope::Listed {
            return then;
        }
        Phase::Sweep(self, Box::new(then))
    }

    /// Gives all claims back.
    pub(super) fn give_up(self, clocks: [u64; 2], shards: &mut dyn Shards) {
        for candidate in &self.candidates {
            shards.with(candidate.shard, |shard| shard.unclaim(candidate.block, clocks));
        }
    }
}

impl Coordinator {
    /// Has a sweep go on.
    pub(super) fn sweep_on(
        &mut self,
        mut sweep: Sweep,
        then: Box<Phase>,
        plan: &mut Plan,
        shards: &mut dyn Shards,
    ) -> Turned {
        match sweep.stage {
            Stage::Wait => {
                sweep.stage = Stage::Spare;
                let points = self.last_uses(&sweep, shards);
                let phase = Phase::Sweep(sweep, then);
                if points.is_empty() { phase.turn() } else { phase.after(Step::Wait(points.into_vec())) }
            }
            Stage::Spare => {
                sweep.stage = Stage::Next;
                if sweep.scope == Scope::WithSpare {
                    return self.release_spare(sweep, then, shards);
                }
                Phase::Sweep(sweep, then).turn()
            }
            Stage::Emptied { shard, slot, id } => {
                sweep.stage = Stage::Next;
                let then = Phase::Sweep(sweep, then);
                if let Some(bytes) = shards.with(shard, |shard| shard.forget_empty(slot, id)) {
                    self.ranges.lose(bytes);
                    return release(shard, slot, Step::ReleaseRange { shard, slot }, then);
                }
                then.turn()
            }
            Stage::Next | Stage::Synchronized => self.release_next(sweep, then, plan, shards),
        }
    }

    /// Releases the first candidate, or gives its claim back if it may not go.
    fn release_next(&mut self, mut sweep: Sweep, then: Box<Phase>, plan: &mut Plan, shards: &mut dyn Shards) -> Turned {
        let Some(&Candidate { shard, block }) = sweep.candidates.front() else { return then.turn() };
        let done = sweep.excess(self.reserved_bytes()) == 0;
        let has_pages = shards.with(shard, |s| s.whole_pages(block).is_some());
        let is_captured = self.pending.is_captured(self.stream_of(shard));
        if has_pages && self.traits.synchronizes() && sweep.stage == Stage::Next && !done && !is_captured {
            // PyTorch unmaps once the stream has come to an end.
            sweep.stage = Stage::Synchronized;
            return Phase::Sweep(sweep, then).after(Step::Synchronize(self.stream_of(shard)));
        }
        sweep.stage = Stage::Next;
        sweep.candidates.pop_front();
        let last_uses =
            shards.with(shard, |s| s.guards_of(block).iter().chain([s.last_point(block)]).collect::<Points>());
        let is_unsynchronized = is_captured && has_pages && self.traits.synchronizes();
        if done || is_unsynchronized || !last_uses.iter().all(|point| self.pending.is_reached(point)) {
            // Work that was never submitted, or is being captured, may still touch it: it stays cached.
            shards.with(shard, |s| s.unclaim(block, plan.request.clocks));
            return Phase::Sweep(sweep, then).turn();
        }
        if has_pages {
            self.unmap(sweep, then, (shard, block), plan, shards)
        } else {
            self.release_segment(sweep, then, (shard, block), shards)
        }
    }

    fn release_segment(
        &mut self,
        sweep: Sweep,
        then: Box<Phase>,
        (shard, block): (ShardId, BlockId),
        shards: &mut dyn Shards,
    ) -> Turned {
        let (slot, bytes, side) = shards.with(shard, |s| s.forget_whole(block));
        let then = Phase::Sweep(sweep, then);
        self.headroom.lose_segment(side, bytes);
        self.pools.lose(self.pool_of(shard), side, bytes);
        if self.settings.planted().is(Plant::LeakedSegment) {
            return then.turn();
        }
        release(shard, slot, Step::Release { shard, slot, bytes }, then)
    }

    /// Unmaps and releases the pages in a claimed block that may go, as many as are to go.
    fn unmap(
        &mut self,
        sweep: Sweep,
        then: Box<Phase>,
        (shard, block): (ShardId, BlockId),
        plan: &mut Plan,
        shards: &mut dyn Shards,
    ) -> Turned {
        let excess = sweep.excess(self.reserved_bytes());
        let Some(Run { offset, bytes, pages }) = self.first_to_go(shard, block, excess, shards) else {
            shards.with(shard, |s| s.unclaim(block, plan.request.clocks));
            return Phase::Sweep(sweep, then).turn();
        };
        let block = shards.with(shard, |s| {
            let block = s.carve(block, offset, bytes, plan.request.clocks);
            s.take_guards(block);
            block
        });
        let calls = pages.into_iter().flat_map(|page| self.calls_to_release(page, shards)).collect();
        Phase::call(Batch::new(calls, Purpose::GiveUp { shard, block, bytes, sweep, then }))
    }

    /// Returns the first run of pages in a claimed block that are in no window that is ending, up to `excess` bytes and
    /// the rest of a page.
    fn first_to_go(&self, shard: ShardId, block: BlockId, excess: u64, shards: &mut dyn Shards) -> Option<Run> {
        let whole: Vec<_> = shards.with(shard, |s| s.pages_in(block).collect());
        let mut run = Run { offset: 0, bytes: 0, pages: Vec::new() };
        for (at, mapping) in whole {
            if run.bytes >= excess {
                break;
            }
            if self.can_leave_windows(mapping.page) {
                if run.pages.is_empty() {
                    run.offset = at;
                }
                run.bytes += mapping.bytes;
                run.pages.push(mapping.page);
            } else if !run.pages.is_empty() {
                break;
            }
        }
        (!run.pages.is_empty()).then_some(run)
    }

    /// Notes that the driver has unmapped and released the pages of a claimed block.
    pub(super) fn unmapped(
        &mut self,
        mut sweep: Sweep,
        shard: ShardId,
        block: BlockId,
        bytes: u64,
        plan: &mut Plan,
        shards: &mut dyn Shards,
    ) -> Sweep {
        let (side, emptied) = shards.with(shard, |s| s.unmapped_pages(block));
        self.headroom.lose(side, bytes);
        self.note_progress(plan);
        if let Some((slot, id)) = emptied {
            sweep.stage = Stage::Emptied { shard, slot, id };
        }
        sweep
    }

    /// Returns the last uses of what is to be released that are not known to be over. The pages of classic's expandable
    /// segments wait for their whole stream instead.
    fn last_uses(&self, sweep: &Sweep, shards: &mut dyn Shards) -> Points {
        let mut points = Points::default();
        let mut add = |point| {
            if !self.pending.is_reached(point) {
                points.max(point);
            }
        };
        for &Candidate { shard, block } in &sweep.candidates {
            let (last_use, has_pages) = shards.with(shard, |shard| {
                shard.guards_of(block).iter().for_each(&mut add);
                (shard.last_point(block), shard.whole_pages(block).is_some())
            });
            if !has_pages || !self.traits.synchronizes() {
                add(last_use);
            }
        }
        points
    }
}

/// Neighbouring pages in a block, with the offset of the first.
struct Run {
    offset: u64,
    bytes: u64,
    pages: Vec<PageId>,
}

/// Gives a segment or a range to the driver.
fn release(shard: ShardId, slot: Slot, step: Step, then: Phase) -> Turned {
    (Phase::Asked(Asked::Release { shard, slot, then: Box::new(then) }), Some(step))
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::vec;

    use super::*;
    use crate::policy::Climb;
    use crate::policy::segments::Rung;

    fn next() -> Phase {
        Phase::Climb(Climb::Segments(Rung::Release))
    }

    #[test]
    fn a_sweep_of_nothing_is_left_out() {
        assert!(matches!(Sweep::idle(vec![]).then(next()), Phase::Climb(_)));
        assert!(matches!(Sweep::waiting(vec![], Scope::Listed, 0).then(next()), Phase::Climb(_)));
        assert!(matches!(Sweep::waiting(vec![], Scope::WithSpare, 0).then(next()), Phase::Sweep(..)), "spare pages go");
        let one = vec![(ShardId(0), BlockId(0))];
        assert!(matches!(Sweep::idle(one).then(next()), Phase::Sweep(..)));
    }

    #[test]
    fn what_is_not_idle_yet_is_waited_for_first() {
        let one = || vec![(ShardId(0), BlockId(0))];
        assert_eq!(Sweep::waiting(one(), Scope::Listed, 0).stage, Stage::Wait);
        assert_eq!(Sweep::idle(one()).stage, Stage::Next);
    }
}
