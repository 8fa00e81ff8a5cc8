//! How many blocks homes have lent and borrowed.
//!
//! A shard counts a block that it lends as one of its own grants, though another stream works in it. How much each
//! stream does is therefore told by both numbers, and [`pace`](super::pace) asks how fast each comes on.

use alloc::collections::BTreeMap;

use crate::coordinator::{Coordinator, Shards};
use crate::ids::ShardId;

/// The number of blocks that each home has lent and borrowed since totals were reset, as the grants of a shard are
/// counted since then.
#[derive(Debug, Default)]
pub(super) struct Loans(BTreeMap<ShardId, Count>);

#[derive(Clone, Copy, Debug, Default)]
struct Count {
    lent: u64,
    borrowed: u64,
}

impl Loans {
    /// Counts a block that a home has lent to another one.
    fn note(&mut self, lender: ShardId, borrower: ShardId) {
        self.0.entry(lender).or_default().lent += 1;
        self.0.entry(borrower).or_default().borrowed += 1;
    }

    fn of(&self, id: ShardId) -> Count {
        self.0.get(&id).copied().unwrap_or_default()
    }
}

impl Coordinator {
    /// Notes a loan, at both homes and for the small requests of all streams of the pool, of which some may go past
    /// guarded memory.
    pub(super) fn note_loan(&mut self, lender: ShardId, borrower: ShardId, shards: &mut dyn Shards) {
        self.paging.stats.lent += 1;
        self.paging.loans.note(lender, borrower);
        let pool = self.pool_of(lender);
        if self.paging.goes_past.remove(&pool) {
            for id in self.shards_of(pool) {
                shards.with(id, |shard| shard.note_loan());
            }
        }
    }

    /// Prepares for grants that are counted from 0 on: loans are, too.
    pub(crate) fn count_grants_anew(&mut self) {
        self.paging.loans.0.clear();
    }

    /// Returns how many blocks the stream of a home was granted, there and at others.
    pub(super) fn grants_to(&self, id: ShardId, shards: &mut dyn Shards) -> u64 {
        let Count { lent, borrowed } = self.paging.loans.of(id);
        shards.with(id, |shard| shard.grants()).saturating_sub(lent) + borrowed
    }
}
