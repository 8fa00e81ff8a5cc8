//! Loans that are made again.
//!
//! A stream that has no free memory of its own may ask for the same size again and again, and borrow each time. If the
//! place of its last loan is free, and no other stream has used it since, the same stream can have it again at once,
//! because its own work is in order. The device is not asked for that: a query of all streams takes several driver
//! calls for each stream that has work.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;

use super::Work;
use super::climb::Climb;
use super::small::LOOKS_MAX;
use super::tiles::Idle;
use super::ways::Way;
use crate::coordinator::phase::Turned;
use crate::coordinator::plan::Plan;
use crate::coordinator::{Coordinator, Shards};
use crate::ids::{Place, ShardId, Side};
use crate::shard::Tile;
use crate::size::Want;

/// How often in a row a stream has borrowed for requests of one size before it gets the same place without a question.
/// What else it asks for in between has found memory of its own.
const IN_A_ROW: u32 = 8;
/// How often it borrows before it asks all the same, as its home may be allowed to grow by then.
const ASKS_EVERY: u32 = 64;

/// What streams borrowed last.
#[derive(Debug, Default)]
pub(super) struct Again(BTreeMap<ShardId, Loan>);

#[derive(Clone, Copy, Debug)]
struct Loan {
    side: Side,
    bytes: u64,
    place: Place,
    /// How often in a row.
    times: u32,
}

impl Again {
    /// Notes the place that a stream has borrowed for a request.
    pub(super) fn note(&mut self, borrower: ShardId, want: &Want, place: Place) {
        let (side, bytes) = (want.side, want.rounded);
        let before = self.0.get(&borrower).filter(|last| (last.side, last.bytes) == (side, bytes));
        let times = before.map_or(0, |last| last.times).saturating_add(1);
        self.0.insert(borrower, Loan { side, bytes, place, times });
    }

    /// Notes that a request of a stream that missed was served in another way.
    pub(super) fn forget(&mut self, borrower: ShardId) {
        self.0.remove(&borrower);
    }

    fn last(&self, borrower: ShardId, want: &Want) -> Option<Place> {
        let is_due = |last: &&Loan| last.times >= IN_A_ROW && !last.times.is_multiple_of(ASKS_EVERY);
        let last = self.0.get(&borrower).filter(is_due)?;
        ((last.side, last.bytes) == (want.side, want.rounded)).then_some(last.place)
    }
}

impl Coordinator {
    /// Has the place lent again that the stream borrowed last for such a request, if all of it is free and known to be
    /// ready.
    pub(super) fn lend_again(&mut self, climb: &Climb, plan: &mut Plan, shards: &mut impl Shards) -> Option<Turned> {
        let (shard, want) = plan.request.allocation();
        let place = self.paging.again.last(shard, &want)?;
        let may_lend = self.guards() && self.pending.waiters() == 0 && !self.pending.has_captures();
        if !may_lend || !self.neighbours(shard).any(|id| id == place.shard) {
            return None;
        }
        let taker = self.taker(climb, plan);
        let tile = shards.with(place.shard, |lender| {
            let on = |side| lender.tile_over(side, place, want.rounded, LOOKS_MAX);
            // A slab that is all free is on the large side.
            on(want.side).or_else(|| if want.side == Side::Small { on(Side::Large) } else { None })
        })?;
        let part = Tile { begin: place.offset, end: place.offset + want.rounded, ..tile };
        let holds = |ready: &Idle| ready.tile.begin <= part.begin && part.end <= ready.tile.end;
        if !self.ready_parts(taker, place.shard, &tile, shards).iter().any(holds) {
            return None;
        }
        let way = match want.side {
            Side::Large => self.take(Idle { shard: place.shard, tile: part }, &want, taker, shards),
            Side::Small => self.small_way(&want, (taker, place.shard), &part, shards),
        };
        match way {
            Way::Job(job) => Some(job.begin(climb.clone()).turn()),
            Way::Spoiled(job) => {
                self.give_up_window(Work::Order(Box::new(job)), plan, shards);
                None
            }
            Way::Range(_) | Way::End(_) | Way::Budget | Way::Release(..) => None,
        }
    }
}
