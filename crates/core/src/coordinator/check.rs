//! What must hold between the coordinator's books and its shards. Each check panics with the numbers.
//!
//! Cost: walks every block and every page.

use alloc::collections::BTreeMap;

use super::{Coordinator, Shards};
use crate::books::ledger::WasteLedger;
use crate::ids::{PageId, Place};
use crate::segment::Role;

impl Coordinator {
    /// Verifies every invariant of the coordinator and of all shards.
    ///
    /// # Panics
    ///
    /// On the first one that does not hold.
    pub fn check(&mut self, shards: &mut dyn Shards) {
        self.settle_all(shards);
        let mut ledger = WasteLedger { ready_bytes: self.pages.spare_bytes(), ..WasteLedger::default() };
        let mut held = self.pages.spare_bytes_by_side();
        let (mut mapped, mut by_pool) = (BTreeMap::new(), BTreeMap::new());
        for id in self.shard_ids() {
            ledger += self.ledger_of(id, shards);
            shards.with(id, |shard| {
                shard.check();
                assert_eq!(shard.pool(), self.pool_of(id), "the pool of {id:?}");
                for view in shard.layout() {
                    let bytes = view.mapped_bytes();
                    held[view.side.index()] += bytes;
                    by_pool.entry(view.pool).or_insert([0; 2])[view.side.index()] += bytes;
                }
                let seen = shard.mappings().into_iter();
                mapped.extend(seen.map(|(place, m)| (place, (m.page, m.bytes, m.role == Role::Home))));
            });
        }
        self.headroom.check(held);
        self.ranges.check(self.shard_ids().map(|id| shards.with(id, |shard| shard.range_bytes())).sum());
        self.pools.check(&by_pool);
        assert_eq!(ledger.total(), self.reserved_bytes(), "the waste ledger {ledger:?} against reserved bytes");
        self.check_pages(&mapped);
        self.check_windows();
        self.check_pools();
        self.pending.check();
        self.check_peaks(shards);
    }

    /// P2: a page is mapped in one shard only.
    fn check_pools(&self) {
        for (id, page) in self.pages.iter() {
            let Some(home) = page.home else { continue };
            let elsewhere = page.windows.iter().find(|at| at.shard != home.shard);
            assert_eq!(elsewhere, None, "page {} of {:?} is mapped for another pool", id.0, home.shard);
        }
    }

    /// G3: a page is mapped exactly where its entry says: at home, and in windows.
    fn check_pages(&self, mapped: &BTreeMap<Place, (PageId, u64, bool)>) {
        assert_eq!(*mapped, self.pages.check(), "what is mapped in segments against what pages say");
    }
}
