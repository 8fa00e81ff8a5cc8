//! What plans do, for the history: segments, pages, grants and refusals. The coordinator's lock is held, so that the
//! history agrees with the layout at every moment.

use millpond_backend::{Backend, StreamId};
use millpond_core::{Coordinator, Outcome, PageCall, Place, PoolId, Report, ShardId, Slot, Step, Want};

use super::{LaneState, State};
use crate::notes::note::Asked;
use crate::notes::ring::{Kind, Raw};
use crate::tag::TagId;

/// What is known of the pages of a step before its calls are made: of those that are unmapped whether it is from their
/// home, and the bytes of each. Empty where there is no history.
#[derive(Default)]
pub(crate) struct Pages(Vec<(Option<bool>, u64)>);

/// An entry about memory, and not about a block.
fn entry(kind: Kind, stream: StreamId, size: u64) -> Raw {
    Raw {
        kind,
        ticks: 0,
        stream,
        pool: PoolId::DEFAULT,
        segment: None,
        offset: 0,
        base: 0,
        size,
        requested: 0,
        tag: TagId::NONE,
        site: None,
    }
}

impl<B: Backend> State<B> {
    /// Takes in the step that the coordinator has decided on, before it is performed. `asked` is the request that the
    /// plan is for, if it is for one.
    #[cold]
    pub(crate) fn decided(
        &self,
        coordinator: &Coordinator,
        step: &Step,
        asked: Option<&(ShardId, Want, Asked)>,
    ) -> Pages {
        match (step, asked) {
            (Step::Grant(grant), Some((shard, want, asked))) => {
                self.lane(*shard).lock().granted(asked, want.requested, grant);
            }
            (Step::Lend { lender, grant }, Some((_, want, asked))) => {
                self.lane(*lender).lock().granted(asked, want.requested, grant);
            }
            (Step::Grown(grant), Some((shard, want, _))) => {
                self.lane(*shard).lock().grown(want.requested, grant);
            }
            (Step::Refuse(report), Some((shard, ..))) => self.refused(*shard, report),
            (&Step::Release { shard, slot, .. }, _) => self.segment_goes(Kind::SegmentFree, shard, slot),
            (&Step::ReleaseRange { shard, slot }, _) => self.segment_goes(Kind::RangeFree, shard, slot),
            (Step::Pages(calls), _) if self.sinks.noting.records() => return Pages(of_calls(coordinator, calls)),
            _ => {}
        }
        Pages::default()
    }

    /// Takes in what a step has done, after the coordinator has learned of it.
    #[cold]
    pub(crate) fn done(&self, coordinator: &Coordinator, step: &Step, outcome: &Outcome, known: &Pages) {
        match (step, outcome) {
            (&Step::Reserve { shard, slot, bytes }, Outcome::Reserved { .. }) => {
                self.segment_comes(Kind::SegmentAlloc, shard, slot, bytes);
            }
            (&Step::ReserveRange { shard, slot, bytes }, Outcome::Reserved { .. }) => {
                self.segment_comes(Kind::RangeAlloc, shard, slot, bytes);
            }
            (Step::Pages(calls), Outcome::Done) => self.pages_done(coordinator, calls, known),
            (Step::Pages(calls), &Outcome::Stopped { done, .. }) => self.pages_done(coordinator, &calls[..done], known),
            _ => {}
        }
    }

    fn refused(&self, shard: ShardId, report: &Report) {
        let mut lane = self.lane(shard).lock();
        let LaneState { notes: Some(notes), shard, .. } = &mut *lane else { return };
        let most = report.limit_bytes.unwrap_or(report.total_bytes).min(report.total_bytes);
        let refused = entry(Kind::OutOfMemory, report.stream, report.tried_bytes);
        let offset = most.saturating_sub(report.reserved_bytes);
        notes.happened(shard, Raw { offset, requested: report.requested_bytes, ..refused });
    }

    fn segment_comes(&self, kind: Kind, id: ShardId, slot: Slot, bytes: u64) {
        let lane = self.lane(id);
        let mut inner = lane.lock();
        let base = inner.segment_base(&self.backend, slot);
        let LaneState { notes: Some(notes), shard, .. } = &mut *inner else { return };
        if let Some(segment) = shard.segment_at(slot) {
            notes.segment_came(slot, segment, bytes);
            notes.happened(shard, Raw { segment: Some(segment), base, ..entry(kind, lane.stream, bytes) });
        }
    }

    fn segment_goes(&self, kind: Kind, id: ShardId, slot: Slot) {
        let lane = self.lane(id);
        let mut inner = lane.lock();
        let base = inner.segment_base(&self.backend, slot);
        let LaneState { notes: Some(notes), shard, .. } = &mut *inner else { return };
        if let Some((segment, bytes)) = notes.segment_went(slot) {
            notes.happened(shard, Raw { segment: Some(segment), base, ..entry(kind, lane.stream, bytes) });
        }
    }

    /// Takes in page calls that were made.
    fn pages_done(&self, coordinator: &Coordinator, calls: &[PageCall], Pages(known): &Pages) {
        // A page that has no place belongs to the lane in whose step it came or went.
        let mut shard = calls.iter().find_map(|call| place_of(call).map(|at| at.shard)).unwrap_or(ShardId(0));
        for (call, &(was_home, bytes)) in calls.iter().zip(known) {
            let (kind, at) = match *call {
                PageCall::Create { .. } => (Kind::PageCreate, None),
                PageCall::Release { .. } => (Kind::PageRelease, None),
                PageCall::Map { page, at } => match coordinator.is_home(page, at) {
                    Some(true) => (Kind::SegmentMap, Some(at)),
                    Some(false) => (Kind::Gather, Some(at)),
                    // The plan failed, and the next step takes it back.
                    None => continue,
                },
                PageCall::Unmap { at, .. } => match was_home {
                    Some(true) => (Kind::SegmentUnmap, Some(at)),
                    Some(false) => (Kind::Ungather, Some(at)),
                    None => continue,
                },
            };
            shard = at.map_or(shard, |at| at.shard);
            self.page_happened(kind, shard, at, bytes);
        }
    }

    fn page_happened(&self, kind: Kind, id: ShardId, at: Option<Place>, bytes: u64) {
        let lane = self.lane(id);
        let mut inner = lane.lock();
        let base = at.map_or(0, |at| inner.segment_base(&self.backend, at.slot));
        let LaneState { notes: Some(notes), shard, .. } = &mut *inner else { return };
        let (segment, offset) = (at.and_then(|at| shard.segment_at(at.slot)), at.map_or(0, |at| at.offset));
        notes.happened(shard, Raw { segment, offset, base, ..entry(kind, lane.stream, bytes) });
    }
}

fn place_of(call: &PageCall) -> Option<Place> {
    match *call {
        PageCall::Map { at, .. } | PageCall::Unmap { at, .. } => Some(at),
        PageCall::Create { .. } | PageCall::Release { .. } => None,
    }
}

/// Returns what is known of the pages before their calls are made.
fn of_calls(coordinator: &Coordinator, calls: &[PageCall]) -> Vec<(Option<bool>, u64)> {
    let of = |call: &PageCall| {
        let (page, home) = match *call {
            PageCall::Create { page, .. } | PageCall::Release { page } => (page, None),
            PageCall::Map { page, at } | PageCall::Unmap { page, at } => (page, coordinator.is_home(page, at)),
        };
        (home, coordinator.bytes_of(page).unwrap_or(0))
    };
    calls.iter().map(of).collect()
}
