//! The invariants between the coordinator and its shards. Each check panics with the numbers.
//!
//! Cost: every block and every page is visited.

use alloc::collections::{BTreeMap, VecDeque};

use super::{Coordinator, Shards};
use crate::block::State;
use crate::ids::{PageId, Place, ShardId};
use crate::ledger::WasteLedger;
use crate::segment::{Mapping, Role, Segment};
use crate::shard::Shard;

impl Coordinator {
    /// Verifies every invariant of the coordinator and of all shards.
    ///
    /// # Panics
    ///
    /// Panics at the first invariant that does not hold.
    pub fn check(&mut self, shards: &mut impl Shards) {
        self.settle_all(shards);
        let mut ledger = WasteLedger { ready_bytes: self.pages.spare_bytes(), ..WasteLedger::default() };
        let mut held = [0; 2];
        for &spare in &self.pages.spare {
            held[self.pages[spare].side.index()] += self.pages[spare].bytes;
        }
        let mut mapped = BTreeMap::new();
        for id in self.shard_ids() {
            shards.with(id, |shard| {
                shard.check();
                ledger += shard.ledger();
                for view in shard.layout() {
                    held[view.side.index()] += view.mapped_bytes();
                }
                check_backing(shard);
                list_mappings(id, shard, &mut mapped);
            });
        }
        let reserved = [self.reserved.small_pool.current, self.reserved.large_pool.current];
        assert_eq!(held, reserved, "bytes in segments and spare pages against bytes reserved, by side");
        assert_eq!(ledger.total(), self.reserved.all.current, "the waste ledger {ledger:?} against reserved bytes");
        self.check_pages(&mapped);
        self.check_queues();
        self.check_peaks(shards);
    }

    /// Verifies G1: a page is mapped exactly where its entry says, at its home, if it has one, and at its shadows.
    fn check_pages(&self, mapped: &BTreeMap<Place, Mapping>) {
        let mut known: BTreeMap<Place, (PageId, u64, bool)> = BTreeMap::new();
        for (id, page) in self.pages.iter() {
            let shadows = page.shadows.iter().map(|shadow| (shadow.place, false));
            for (place, is_home) in page.home.map(|home| (home, true)).into_iter().chain(shadows) {
                let before = known.insert(place, (id, page.bytes, is_home));
                assert_eq!(before, None, "pages at one place: {place:?}, and page {}", id.0);
            }
            let is_spare = self.pages.spare.contains(&id);
            assert!(!is_spare || page.home.is_none(), "spare page {} is at home at {:?}", id.0, page.home);
        }
        let seen: BTreeMap<_, _> =
            mapped.iter().map(|(&place, m)| (place, (m.page, m.bytes, m.role == Role::Home))).collect();
        assert_eq!(seen, known, "what is mapped in segments against what pages say");
    }

    fn check_queues(&self) {
        assert_eq!(self.queues.iter().map(VecDeque::len).sum::<usize>(), self.waiters, "waiters listed and counted");
        for (stream, queue) in self.queues.iter().enumerate() {
            assert!(
                queue.iter().is_sorted_by_key(|waiter| waiter.tick),
                "the queue of stream {stream} is out of order"
            );
        }
    }
}

fn list_mappings(id: ShardId, shard: &Shard, all: &mut BTreeMap<Place, Mapping>) {
    for (slot, segment) in shard.segments.iter() {
        let mut end = 0;
        for (&offset, &mapping) in &segment.mappings {
            assert!(offset >= end, "{}: the mapping at {offset} begins before {end}, where another ends", segment.id);
            end = offset + mapping.bytes;
            all.insert(Place { shard: id, slot, offset }, mapping);
        }
        assert!(end <= segment.bytes, "{}: mapped up to {end} of {}", segment.id, segment.bytes);
    }
}

/// Verifies G2: blocks in use and free blocks have the memory of pages at their home behind every byte, unmapped ones
/// behind none. What a plan has claimed may be either.
fn check_backing(shard: &Shard) {
    for (_, block) in shard.blocks.iter().filter(|(_, block)| block.expandable) {
        let segment = &shard.segments[block.slot];
        let home = home_bytes(segment, block.offset, block.end());
        match block.state {
            State::Claimed | State::Vacant => {}
            State::Unmapped => assert_eq!(home, 0, "{}: unmapped and backed: {block:?}", segment.id),
            State::Live | State::Pending | State::Free | State::PutOff => {
                assert_eq!(home, block.size, "{}: backed bytes of {block:?}", segment.id);
            }
        }
    }
}

fn home_bytes(segment: &Segment, begin: u64, end: u64) -> u64 {
    let home = segment.mapped_in(begin, end).filter(|(_, mapping)| mapping.role == Role::Home);
    home.map(|(at, mapping)| (at + mapping.bytes).min(end) - at.max(begin)).sum()
}
