//! Free memory of a shard, for another stream as it is.

use millpond_backend::{Point, StreamId, Tick};

use super::{Grant, Shard};
use crate::last_use::LastUse;
use crate::size::Want;

impl Shard {
    /// Returns what the shard could lend for a request: the length of the block that fits best, and the point up to
    /// which it was used.
    pub(crate) fn offer(&self, want: &Want) -> Option<(u64, Point)> {
        let found = self.find(want)?;
        Some((self.size_of(found), self.last_point(found)))
    }

    /// Hands out the block that fits best for use on another stream, if its last use is at most `reached`: another
    /// thread may have taken the one that was offered, or freed one that is still in use.
    pub(crate) fn lend(&mut self, want: &Want, reached: Tick, clock: u64, borrower: StreamId) -> Option<Grant> {
        let found = self.find(want).filter(|&found| self.blocks[found].last_use.tick() <= reached)?;
        let mut grant = self.take(found, want, clock);
        if !grant.last_use.is_never() {
            // It is over, which is all that the borrower has to know: the tick is one of the lender's stream.
            grant.last_use = LastUse::at(Tick::ZERO);
        }
        self.record_stream(grant.block, borrower);
        self.note_lent(&grant);
        Some(grant)
    }

    /// Hands out a free block of the shard, if one serves the request.
    pub(crate) fn find_and_take(&mut self, want: &Want, clock: u64) -> Option<Grant> {
        let found = self.find(want)?;
        Some(self.take(found, want, clock))
    }
}
