//! What an attempt has to know of the streams.

use super::Growth;
use crate::coordinator::{Coordinator, Shards};
use crate::ids::ShardId;

use millpond_backend::{Point, StreamId};

/// What an attempt sees when it begins.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Overview {
    /// The bytes live in the pool of the request.
    pub(super) live_bytes: u64,
    /// Whether the device still uses free memory of the pool that the stream would have to wait for.
    pub(super) is_behind: bool,
}

impl Coordinator {
    /// Returns what the home looks like for a request of a stream.
    pub(super) fn overview(&self, home: ShardId, stream: StreamId, shards: &mut dyn Shards) -> Overview {
        let asks = self.paging.growth == Growth::Balanced;
        shards.with(home, |shard| {
            let is_behind = |point: Point| point.stream != stream && self.pending.is_behind(point);
            let is_behind = asks && shard.latest_points().any(is_behind) && shard.free_points().any(is_behind);
            Overview { live_bytes: shard.live_bytes(), is_behind }
        })
    }
}
