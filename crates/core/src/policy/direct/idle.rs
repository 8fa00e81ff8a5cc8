//! What is idle goes back at once.

use alloc::vec::Vec;

use crate::coordinator::phase::{Phase, Turned};
use crate::coordinator::step::Step;
use crate::coordinator::sweep::{Sweep, claim_releasable};
use crate::coordinator::{Coordinator, Shards};
use crate::ids::{ShardId, Side};

impl Coordinator {
    /// Chooses everything that could go, of which what is still in use stays: what `direct` gives back before it takes
    /// more, but for held pools. `None` if there is no free block at all; otherwise also the shards to be asked how far
    /// they are.
    fn sweep_idle(&self, shards: &mut dyn Shards) -> Option<(Sweep, Vec<ShardId>)> {
        let holders: Vec<_> =
            self.releasable_shards().filter(|&id| shards.with(id, |shard| shard.has_free())).collect();
        if holders.is_empty() {
            return None;
        }
        let mut blocks = Vec::new();
        for &id in &holders {
            for side in Side::BOTH {
                blocks.extend(claim_releasable(id, side, shards));
            }
        }
        Some((Sweep::idle(blocks), holders))
    }

    /// Releases what is idle, once the streams were asked how far they are.
    pub(in crate::policy) fn release_idle(&mut self, next: Phase, shards: &mut dyn Shards) -> Turned {
        match self.sweep_idle(shards) {
            None => next.turn(),
            Some((sweep, holders)) => {
                let streams = self.streams_of(holders.into_iter());
                sweep.then(next).after(Step::Poll(streams))
            }
        }
    }
}
