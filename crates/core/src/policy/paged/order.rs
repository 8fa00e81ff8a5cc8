//! What a stream comes behind when it gets memory that other streams have used.

use millpond_backend::{Point, StreamId, Tick};

use crate::books::Points;
use crate::coordinator::Coordinator;
use crate::last_use::LastUse;
use crate::shard::Claimed;

/// What the requesting stream comes behind.
#[derive(Debug)]
pub(super) struct Order {
    /// The points of other streams that it waits for.
    pub(super) waits: Points,
    /// A tick of the stream that covers those waits, and what other streams did that is over.
    pub(super) covered: Tick,
}

impl Order {
    /// Returns the order of a stream that waits for nothing, and has reached a tick: it stands for uses on other
    /// streams that are over.
    pub(super) fn behind(reached: Tick) -> Self {
        Self { waits: Points::default(), covered: reached }
    }
}

impl Coordinator {
    /// Has a stream wait for points of other streams that are not reached, unless it has done so before.
    pub(super) fn wait_for(&self, order: &mut Order, stream: StreamId, points: impl Iterator<Item = Point>) {
        for point in points.filter(|point| point.stream != stream && !self.pending.is_reached(*point)) {
            match self.paging.waited.covering(stream, point) {
                Some(covered) => order.covered = order.covered.max(covered),
                None => order.waits.max(point),
            }
        }
    }

    /// Returns the last use, on a stream, of claimed memory. What other streams did there is over, or covered by a
    /// wait.
    pub(super) fn last_use_of(&self, pieces: &[Claimed], covered: Tick, stream: StreamId) -> LastUse {
        let behind = |point: Point| LastUse::at(if point.stream == stream { point.tick } else { covered });
        let used = |piece: &Claimed| {
            let least = if piece.is_fresh { LastUse::NEVER } else { LastUse::at(Tick::ZERO) };
            piece.points.iter().map(behind).fold(least, LastUse::max)
        };
        pieces.iter().map(used).max().unwrap_or(LastUse::NEVER)
    }
}
