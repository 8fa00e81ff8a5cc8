//! Blocks at addresses that the program names: PyTorch's `mallocWithAddress`.

use alloc::vec::Vec;

use millpond_backend::{Point, Reuse, StreamId};

use super::checkpoint::Obstacle;
use super::{Coordinator, Shards};
use crate::ids::ShardId;
use crate::shard::{Grant, Stands};
use crate::size::Want;

impl Coordinator {
    /// Hands out free memory of a shard at just this address, for a request of a stream. Nothing is taken from the
    /// driver and no other memory serves the request: the bytes must lie in one segment, or at home, and all of them be
    /// free. Addresses in a window are never free.
    ///
    /// # Errors
    ///
    /// [`Obstacle::InUse`] with the points to wait for on the host, if other streams may still use the memory;
    /// [`Obstacle::Capturing`] if that is so and a capture forbids the wait; [`Obstacle::Taken`] if not all of it is
    /// free, and [`Obstacle::Gone`] if it is not the shard's, or is of the other side. Nothing has changed then.
    pub fn allocate_at(
        &mut self,
        shard: ShardId,
        stream: StreamId,
        want: &Want,
        address: u64,
        shards: &mut dyn Shards,
    ) -> Result<Grant, Obstacle> {
        let bytes = want.rounded;
        let may_wait = !self.is_capturing(stream, shard);
        // The stream comes after what it did there itself.
        let is_ordered = self.reuse_anywhere() == Reuse::InOrder;
        let is_ahead = |point: &Point| !(is_ordered && point.stream == stream || self.pending.is_reached(*point));
        let grant = shards.with(shard, |shard| {
            let spot = shard.spot_at(address, want).ok_or(Obstacle::Gone { bytes })?;
            if shard.standing_at(&spot, None).0.iter().any(|stand| *stand != Stands::Free) {
                return Err(Obstacle::Taken { bytes });
            }
            let ahead: Vec<_> = shard.points_at(&spot, None).into_iter().filter(is_ahead).collect();
            match ahead.is_empty() {
                true => Ok(shard.grant_at(&spot, want, stream)),
                false if may_wait => Err(Obstacle::InUse(ahead)),
                false => Err(Obstacle::Capturing),
            }
        })?;
        let grant = self.settled(shard, grant, shards);
        let live = self.live_in_pool(shard, shards);
        self.note_live(shard, live);
        Ok(grant)
    }
}
