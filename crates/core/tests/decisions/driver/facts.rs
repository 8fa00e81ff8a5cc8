//! What a simulated device is like.

use millpond_backend::{PageCaps, Reuse, StreamId};
use millpond_core::settings::{Growth, Policy, Settings};
use millpond_core::{Coordinator, DeviceFacts, PoolId, Shard};

use super::MIB;

/// The properties of a device of 1 GiB and its allocator. A test names what differs from those of [`new`](Facts::new).
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    pub(crate) settings: Settings,
    pub(crate) total_bytes: u64,
    pub(crate) reuse: Reuse,
    pub(crate) pages: Option<PageCaps>,
    /// Whether streams can wait for each other.
    pub(crate) stream_wait: bool,
    pub(crate) limit: Option<u64>,
    /// The stream and the pool of each shard.
    pub(crate) shards: Vec<(u32, PoolId)>,
}

impl Facts {
    /// Returns those of a device with pages of 2 MiB that reuses memory in order, and streams of the default pool.
    pub(crate) fn new(settings: Settings, streams: u32) -> Self {
        Self {
            settings,
            total_bytes: 1 << 30,
            reuse: Reuse::InOrder,
            pages: Some(PageCaps::new(2 * MIB)),
            stream_wait: true,
            limit: None,
            shards: (0..streams).map(|stream| (stream, PoolId::DEFAULT)).collect(),
        }
    }

    pub(crate) fn under(policy: Policy, streams: u32) -> Self {
        Self::new(Settings { policy, ..Settings::default() }, streams)
    }

    /// Returns those of three streams under `paged`, with a limit.
    pub(crate) fn paged(growth: Growth, limit: u64) -> Self {
        Self { limit: Some(limit), ..Self::under(Policy::paged(growth), 3) }
    }

    /// Opens the shards of an allocator.
    pub(crate) fn open(&self) -> (Coordinator, Vec<Shard>) {
        let Self { total_bytes, reuse, pages, stream_wait, .. } = *self;
        let facts = DeviceFacts { total_bytes, reuse, pages, stream_wait };
        let mut coordinator = Coordinator::new(self.settings.clone(), facts);
        coordinator.set_limit(self.limit);
        let shards = self.shards.iter().map(|&(stream, pool)| coordinator.open_shard(StreamId(stream), pool));
        let shards = shards.collect();
        (coordinator, shards)
    }
}
