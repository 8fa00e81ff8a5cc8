//! What a simulated device is like.

use millpond_backend::{PageCaps, Reuse, StreamId};
use millpond_core::settings::{Growth, Policy, RecordStream, Settings};
use millpond_core::{Coordinator, DeviceFacts, PoolId, Shard, ShardId};

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

    /// Returns those of three streams under `paged`, with a limit, where what other streams use is held.
    pub(crate) fn holding(growth: Growth, limit: u64) -> Self {
        let mut facts = Self::paged(growth, limit);
        facts.settings.record_stream = RecordStream::Hold;
        facts
    }

    /// Opens the shards of an allocator. Also returns for each stream and pool of the test the shard that it has: under
    /// `paged` the streams of a pool have one.
    pub(crate) fn open(&self) -> (Coordinator, Vec<Shard>, Vec<Lane>) {
        let Self { total_bytes, reuse, pages, stream_wait, .. } = *self;
        let facts = DeviceFacts { total_bytes, reuse, pages, stream_wait };
        let mut coordinator = Coordinator::new(self.settings.clone(), facts);
        coordinator.set_limit(self.limit);
        let (mut shards, mut lanes) = (Vec::new(), Vec::new());
        for &(stream, pool) in &self.shards {
            lanes.push(Lane::open(&mut coordinator, &mut shards, StreamId(stream), pool));
        }
        (coordinator, shards, lanes)
    }
}

/// A stream in a pool, with the shard that it has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Lane {
    pub(crate) stream: StreamId,
    pub(crate) shard: ShardId,
}

impl Lane {
    /// Opens the shard of a stream in a pool, unless there is one.
    pub(crate) fn open(coordinator: &mut Coordinator, shards: &mut Vec<Shard>, stream: StreamId, pool: PoolId) -> Self {
        coordinator.know_stream(stream);
        let shard = coordinator.shard_of(stream, pool).unwrap_or_else(|| {
            let shard = coordinator.open_shard(stream, pool);
            let id = shard.id();
            shards.push(shard);
            id
        });
        Self { stream, shard }
    }
}
