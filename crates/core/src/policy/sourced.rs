//! Private pools with a source of their own.
//!
//! Memory that another allocator supplies comes in segments, and goes back to it whole. So the rules of `classic` hold
//! in such a pool, whatever the policy is: its requests climb the ladder of segments, of PyTorch's sizes, and its
//! memory is neither mapped a second time nor used by other streams.

use super::{Policy, Traits};
use crate::coordinator::Coordinator;
use crate::ids::{PoolId, ShardId};
use crate::settings::Settings;
use crate::size::Sizes;

/// What holds in pools with a source of their own.
pub(crate) struct Sourced {
    settings: Settings,
    traits: Traits,
    sizes: Sizes,
}

impl Sourced {
    /// Returns what holds there in an allocator with these settings.
    pub(crate) fn under(settings: &Settings) -> Self {
        // PyTorch's own policy, as it is without any configuration.
        let settings = settings.clone().with_policy(Policy::default());
        Self { traits: settings.policy.traits(), sizes: Sizes::new(&settings), settings }
    }
}

impl Coordinator {
    /// Returns the settings that hold in a pool.
    pub(crate) fn settings_in(&self, pool: PoolId) -> &Settings {
        if self.has_source(pool) { &self.sourced.settings } else { &self.settings }
    }

    /// Returns the traits of the policy that serves requests of a shard.
    pub(crate) fn traits_of(&self, shard: ShardId) -> Traits {
        if self.has_source(self.pool_of(shard)) { self.sourced.traits } else { self.traits }
    }

    /// Returns the rounding rules for segments of a shard.
    pub(crate) fn sizes_of(&self, shard: ShardId) -> &Sizes {
        if self.has_source(self.pool_of(shard)) { &self.sourced.sizes } else { &self.sizes }
    }

    /// Returns the reserved bytes without those that came from sources of pools, which the policy has no say in.
    pub(crate) fn reserved_by_policy(&self) -> u64 {
        self.reserved_bytes() - self.pools.reserved_from_sources()
    }
}
