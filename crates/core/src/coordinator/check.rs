//! What must hold between the coordinator's books and its shards. Each check panics with the numbers.
//!
//! Cost: walks every block and every page.

use alloc::collections::BTreeMap;

use super::{Coordinator, Shards};
use crate::books::ledger::WasteLedger;
use crate::ids::{PageId, Place};
use crate::segment::Role;
use crate::shard::BlockState;

impl Coordinator {
    /// Verifies every invariant of the coordinator and of all shards.
    ///
    /// # Panics
    ///
    /// On the first one that does not hold.
    pub fn check(&mut self, shards: &mut impl Shards) {
        self.settle_all(shards);
        let mut ledger = WasteLedger { ready_bytes: self.pages.spare_bytes(), ..WasteLedger::default() };
        let mut held = self.pages.spare_bytes_by_side();
        let mut mapped = BTreeMap::new();
        for id in self.shard_ids() {
            shards.with(id, |shard| {
                shard.check();
                ledger += shard.ledger();
                for view in shard.layout() {
                    let with_memory = view.blocks.iter().filter(|block| block.state != BlockState::Unmapped);
                    with_memory.for_each(|block| held[view.side.index()] += block.size);
                }
                let seen = shard.mappings().into_iter();
                mapped.extend(seen.map(|(place, m)| (place, (m.page, m.bytes, m.role == Role::Home))));
            });
        }
        self.headroom.check(held);
        assert_eq!(ledger.total(), self.reserved_bytes(), "the waste ledger {ledger:?} against reserved bytes");
        self.check_pages(&mapped);
        self.check_windows();
        self.pending.check();
        self.check_peaks(shards);
    }

    /// G3: a page is mapped exactly where its entry says: at home, and in windows.
    fn check_pages(&self, mapped: &BTreeMap<Place, (PageId, u64, bool)>) {
        assert_eq!(*mapped, self.pages.check(), "what is mapped in segments against what pages say");
    }
}
