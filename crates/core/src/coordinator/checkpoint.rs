//! Checkpoints of private pools: what was handed out at one moment, and handing out just that again.
//!
//! PyTorch's graph trees (`torch.compile(mode="reduce-overhead")`) record several graphs in one pool. Before the next
//! one is recorded, the pool must have just the live blocks that there were when the last graph of that path ended,
//! although its tensors are gone meanwhile: `getCheckpointState` and `setCheckpointPoolState`.
//!
//! A held pool gives nothing back, so a place stays what it is. A mark names its block by the segment and the births of
//! the pages there, and not by an address, so memory that did go back and came again is told from what was there.
//!
//! The memory of a restored block is in use by graphs that run again, not by whoever is about to get it. So no stream
//! is made to wait for what still uses it: [`restore`](Coordinator::restore) returns the points, and the caller waits
//! on the host and tries again.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use millpond_backend::{Point, Reuse, StreamId};

use super::{Coordinator, Shards};
use crate::block::{LastUse, State};
use crate::ids::{BlockId, PoolId, ShardBlock, ShardId, Slot};
use crate::shard::{AtSpot, Grant, Mark, Shard, Spot, Standing};
use crate::size::Want;

/// The live blocks of a private pool at one moment, with their places. It holds no memory and no reference to the pool.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Checkpoint {
    pool: PoolId,
    marks: Vec<Mark>,
}

impl Checkpoint {
    /// Returns the pool that it was taken of.
    pub fn pool(&self) -> PoolId {
        self.pool
    }

    /// Returns the number of live blocks.
    pub fn len(&self) -> usize {
        self.marks.len()
    }

    /// Returns whether there was no live block.
    pub fn is_empty(&self) -> bool {
        self.marks.is_empty()
    }

    /// Returns the bytes of the live blocks, after rounding.
    pub fn live_bytes(&self) -> u64 {
        self.marks.iter().map(|mark| mark.spot.end - mark.spot.begin).sum()
    }
}

/// A block that was handed out again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Restored {
    /// The shard that it belongs to.
    pub shard: ShardId,
    /// The stream that it is for.
    pub stream: StreamId,
    /// What was asked for.
    pub want: Want,
    /// The block.
    pub grant: Grant,
}

/// Why a pool cannot go back to a checkpoint.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Obstacle {
    /// The checkpoint is one of another pool.
    #[error("it is one of {0}")]
    OtherPool(PoolId),
    /// A stream is being captured in the pool.
    #[error("a stream is being captured in the pool; end the capture first")]
    Capturing,
    /// Memory of the checkpoint went back to the driver. That happens once the pool has no reference.
    #[error(
        "the memory of one of its blocks, of {bytes} bytes, went back to the driver; hold the pool from the \
         checkpoint on"
    )]
    Gone {
        /// The bytes of the block whose memory it was.
        bytes: u64,
    },
    /// A block that the program holds lies where the checkpoint has one.
    #[error("a live block lies where it has one of {bytes} bytes; free that block first")]
    Taken {
        /// The bytes of the checkpoint's block.
        bytes: u64,
    },
    /// Another thread's request or free in the pool is in progress.
    #[error("another thread allocates or frees in the pool at this moment; try again")]
    Busy,
    /// Streams may still use freed memory of the checkpoint: wait for these points and try again. There are none where
    /// a block is freed and not free yet, and nothing is known that it waits for: a thread is about to note its points,
    /// or they are reached and it was not [retired](Coordinator::retire_ready) since.
    #[error("{} streams may still use its memory; wait for them", .0.len())]
    InUse(Vec<Point>),
}

/// The memory that a checkpoint's blocks had, in the order of places. Each belongs to a mark, or to a piece of one.
struct Ground<'a> {
    spot: &'a Spot,
    mark: usize,
    piece: Option<usize>,
}

impl Coordinator {
    /// Returns what a pool has handed out.
    ///
    /// Cost: every block of the pool is visited.
    pub fn checkpoint(&self, pool: PoolId, shards: &mut dyn Shards) -> Checkpoint {
        let mut marks = Vec::new();
        for id in self.shards_of(pool) {
            shards.with(id, |shard| {
                for (block, pieces) in shard.live_by_place() {
                    let pieces = pieces.into_iter().map(|piece| Spot::of(&shard.memory, piece)).collect();
                    marks.push(shard.mark_of(block, pieces));
                }
            });
        }
        Checkpoint { pool, marks }
    }

    /// Checks whether a pool could go back to a checkpoint once the blocks `leaving` are free, apart from waits.
    /// Changes nothing.
    ///
    /// Cost: every block of the pool is visited.
    ///
    /// # Errors
    ///
    /// The obstacle, which is never [`Obstacle::InUse`].
    pub fn may_restore(
        &self,
        pool: PoolId,
        to: &Checkpoint,
        leaving: &[ShardBlock],
        shards: &mut dyn Shards,
    ) -> Result<(), Obstacle> {
        let mut leaves: BTreeSet<ShardBlock> = leaving.iter().copied().collect();
        for &ShardBlock { shard, block } in leaving {
            let pieces = shards.with(shard, |shard| shard.pieces_of(block));
            leaves.extend(pieces.into_iter().map(|block| ShardBlock { shard, block }));
        }
        self.look_at(pool, to, &leaves, shards).map(drop)
    }

    /// Hands out exactly the blocks of a checkpoint, at their places. No other block of the pool is touched.
    ///
    /// Cost: every block of the pool is visited.
    ///
    /// # Errors
    ///
    /// The obstacle. Nothing has changed then. A shard takes a freed block back before the coordinator learns what it
    /// waits for; such a block is in the way like one whose points are known.
    pub fn restore(
        &mut self,
        pool: PoolId,
        to: &Checkpoint,
        shards: &mut dyn Shards,
    ) -> Result<Vec<Restored>, Obstacle> {
        let Ahead { points, has_pending } = self.look_at(pool, to, &BTreeSet::new(), shards)?;
        let points: Vec<_> = points.into_iter().filter(|&point| !self.pending.is_reached(point)).collect();
        if has_pending || !points.is_empty() {
            return Err(Obstacle::InUse(points));
        }
        let claimed = claim(to, shards);
        let mut restored = Vec::new();
        for (mark, ground) in to.marks.iter().zip(claimed) {
            let id = mark.spot.shard;
            let grant = match (&mark.pieces, &ground[..]) {
                (None, &[Claimed { at, .. }]) => shards.with(id, |shard| shard.grant_again(at, mark)),
                _ => open(mark, &ground, shards),
            };
            if grant.unsettled {
                self.settle(id, shards);
            }
            let stream = mark.user;
            let want = Want { requested: mark.requested, rounded: grant.size, side: mark.spot.side };
            restored.push(Restored { shard: id, stream, want, grant: Grant { unsettled: false, ..grant } });
        }
        if let Some(first) = to.marks.first() {
            let live = self.live_in_pool(first.spot.shard, shards);
            self.note_live(first.spot.shard, live);
        }
        Ok(restored)
    }

    /// Hands out free memory of a shard at just this address, as PyTorch's `mallocWithAddress` does, for a request of a
    /// stream. Nothing is taken from the driver and no other memory serves the request: the bytes must lie in one
    /// segment, or at home, and all of them be free. Addresses in a window are never free.
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
            let spot = Spot::at(&shard.memory, address, want).ok_or(Obstacle::Gone { bytes })?;
            let Standing { blocks, points, .. } = shard.standing_at(&spot, None);
            if blocks.iter().any(|(_, state)| !matches!(state, State::Free | State::Kept)) {
                return Err(Obstacle::Taken { bytes });
            }
            let ahead: Vec<_> = points.into_iter().filter(is_ahead).collect();
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

    /// Returns the points that come before a pool can go back to a checkpoint, and whether freed blocks lie there that
    /// are not free yet, which the coordinator may not know of. The blocks that are `leaving`, and the memory behind
    /// them, count as freed.
    fn look_at(
        &self,
        pool: PoolId,
        to: &Checkpoint,
        leaving: &BTreeSet<ShardBlock>,
        shards: &mut dyn Shards,
    ) -> Result<Ahead, Obstacle> {
        if to.pool != pool {
            return Err(Obstacle::OtherPool(to.pool));
        }
        if self.pools.is_capturing(pool) {
            return Err(Obstacle::Capturing);
        }
        let mut waiting = BTreeSet::new();
        for shard in self.shards_of(pool) {
            let pieces = shards.with(shard, |shard| shard.pieces_of_pending());
            waiting.extend(pieces.into_iter().map(|block| ShardBlock { shard, block }));
        }
        let (mut points, mut has_pending) = (Vec::new(), false);
        let mut from = None;
        for Ground { spot, mark, .. } in grounds(to) {
            let mark = &to.marks[mark];
            let bytes = mark.spot.end - mark.spot.begin;
            let is_there = self.shards.get(spot.shard.0 as usize).is_some_and(|of| of.pool == pool);
            if !is_there || !shards.with(spot.shard, |shard| spot.is_there(&shard.memory)) {
                return Err(Obstacle::Gone { bytes });
            }
            let hint = hint_for(spot, from);
            let found = shards.with(spot.shard, |shard| shard.standing_at(spot, hint));
            from = Some(Searched { shard: spot.shard, slot: spot.slot, block: found.last });
            for (block, state) in found.blocks {
                let block = ShardBlock { shard: spot.shard, block };
                match state {
                    State::Free | State::Kept => {}
                    State::Pending => has_pending = true,
                    State::Claimed => return Err(Obstacle::Busy),
                    State::Unmapped | State::Reserved | State::Vacant => return Err(Obstacle::Gone { bytes }),
                    // The program holds it, or it is memory of a window.
                    State::Live | State::Away | State::PutOff if leaving.contains(&block) => {}
                    State::Live | State::Away | State::PutOff if waiting.contains(&block) => has_pending = true,
                    State::Live | State::Away | State::PutOff => return Err(Obstacle::Taken { bytes }),
                }
            }
            // A stream comes after what it did there itself. At other addresses it may not.
            let is_own = mark.pieces.is_none() && self.reuse_anywhere() == Reuse::InOrder;
            points.extend(found.points.into_iter().filter(|point| !is_own || point.stream != mark.user));
        }
        if has_pending {
            points.extend(self.outstanding_in(pool, shards));
        }
        Ok(Ahead { points, has_pending })
    }
}

/// Returns the places of a checkpoint in order: of blocks, of their addresses in windows, and of the memory behind
/// those.
fn grounds(to: &Checkpoint) -> Vec<Ground<'_>> {
    let mut all: Vec<_> = Vec::new();
    for (mark, Mark { spot, pieces, .. }) in to.marks.iter().enumerate() {
        all.push(Ground { spot, mark, piece: None });
        let pieces = pieces.iter().flatten().enumerate();
        all.extend(pieces.map(|(piece, spot)| Ground { spot, mark, piece: Some(piece) }));
    }
    all.sort_by_key(|ground| (ground.spot.shard, ground.spot.slot, ground.spot.begin));
    all
}

/// Where a search for a spot ended.
#[derive(Clone, Copy)]
struct Searched {
    shard: ShardId,
    slot: Slot,
    block: BlockId,
}

/// Returns the block with which the last search ended, if this one goes on in the same segment.
fn hint_for(spot: &Spot, from: Option<Searched>) -> Option<BlockId> {
    from.filter(|at| (at.shard, at.slot) == (spot.shard, spot.slot)).map(|at| at.block)
}

/// What may still be done with the memory of a checkpoint.
struct Ahead {
    points: Vec<Point>,
    has_pending: bool,
}

/// Claimed memory of a checkpoint.
#[derive(Clone, Copy)]
struct Claimed {
    at: AtSpot,
    /// The number of the piece that it is, if it is one.
    piece: usize,
}

/// Claims the memory of a checkpoint, all of which is free. Returns it by mark.
fn claim(to: &Checkpoint, shards: &mut dyn Shards) -> Vec<Vec<Claimed>> {
    let mut claimed: Vec<Vec<Claimed>> = to.marks.iter().map(|_| Vec::new()).collect();
    let mut from = None;
    for Ground { spot, mark, piece } in grounds(to) {
        if piece.is_none() && to.marks[mark].pieces.is_some() {
            continue;
        }
        let hint = hint_for(spot, from);
        let at = shards.with(spot.shard, |shard| spot.claim(&mut shard.memory, to.marks[mark].user, hint));
        from = Some(Searched { shard: spot.shard, slot: spot.slot, block: at.block });
        claimed[mark].push(Claimed { at, piece: piece.unwrap_or(0) });
    }
    claimed
}

/// Sends claimed memory away, and hands out the addresses of a mark in a window.
fn open(mark: &Mark, ground: &[Claimed], shards: &mut dyn Shards) -> Grant {
    let homes = mark.pieces.as_deref().unwrap_or_default();
    let mut order: Vec<_> = ground.to_vec();
    order.sort_by_key(|claimed| claimed.piece);
    let (mut pieces, mut last_use) = (Vec::new(), LastUse::NEVER);
    for (block, home) in order.iter().map(|claimed| claimed.at.block).zip(homes) {
        let used = shards.with(home.shard, |shard: &mut Shard| {
            shard.memory.goes_away(block);
            shard.memory.blocks[block].last_use
        });
        last_use = last_use.max(used);
        pieces.push(block);
    }
    shards.with(mark.spot.shard, |shard| shard.open_again(mark, pieces, last_use))
}
