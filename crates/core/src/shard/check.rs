//! The invariants of a shard. Each check panics with the numbers.
//!
//! Cost: every block is visited. The checks are meant for tests and for the search for a fault.

use super::Shard;
use crate::block::State;
use crate::ids::Side;
use crate::meter::{COUNTERS, Counter, EVERY_COUNTER};

impl Shard {
    /// Verifies every invariant of the shard.
    ///
    /// # Panics
    ///
    /// Panics at the first invariant that does not hold.
    pub fn check(&self) {
        self.memory.check();
        Side::BOTH.into_iter().for_each(|side| self.check_meter(side));
        self.meter.check_credit();
        self.check_waits();
        self.check_snug();
        self.panes.check(&self.memory);
    }

    /// Verifies A1: the counters are the sums over the blocks.
    fn check_meter(&self, side: Side) {
        let mut sums = [0; COUNTERS];
        let mut add = |counter: Counter, bytes: u64| sums[counter as usize] += bytes as i64;
        for (_, block) in self.memory.blocks.iter().filter(|(_, block)| block.side == side) {
            if block.state == State::Live {
                add(Counter::Allocation, 1);
                add(Counter::AllocatedBytes, block.size);
                add(Counter::Oversize, u64::from(block.size >= self.memory.rules.max_split));
            }
            if matches!(block.state, State::Live | State::Pending) {
                add(Counter::Active, 1);
                add(Counter::ActiveBytes, block.size);
                add(Counter::RequestedBytes, block.requested);
            }
            let expandable = self.memory.segments[block.slot].is_expandable();
            assert_eq!(block.expandable, expandable, "{block:?} against its segment");
            if block.state == State::Free && block.is_split() && !expandable {
                add(Counter::InactiveSplit, 1);
                add(Counter::InactiveSplitBytes, block.size);
            }
        }
        for counter in EVERY_COUNTER {
            let counted = self.meter.current(side, counter);
            assert_eq!(counted, sums[counter as usize], "{side:?} {counter:?}: counted against summed");
        }
    }

    /// Verifies W1: settling blocks are pending, in order of their ticks, and uses are kept for live blocks only.
    fn check_waits(&self) {
        assert!(self.settling.iter().is_sorted_by_key(|(tick, _)| *tick), "settling blocks out of order");
        for &(tick, id) in &self.settling {
            let block = &self.memory.blocks[id];
            assert_eq!(
                (block.state, block.last_use.tick(), block.waits),
                (State::Pending, tick, 0),
                "settling block {}",
                id.0
            );
        }
        for &id in self.uses.keys() {
            assert_eq!(self.memory.blocks[id].state, State::Live, "uses are kept for block {}", id.0);
        }
    }
}
