//! What a shard counts, for the device's statistics: rooms and totals.

use super::Shard;
use crate::ids::Side;
use crate::meter::{Counter, ROWS, Row};

impl Shard {
    /// Returns how much each counter may rise before the device's peak of it could; below zero where it has risen
    /// further.
    pub(crate) fn rooms(&self) -> [Row; ROWS] {
        self.meter.rooms()
    }

    /// Returns whether no room is below zero, and none is there that the shard does not hold.
    pub(crate) fn is_settled(&self) -> bool {
        self.meter.is_settled()
    }

    /// Has the shard hold room from now on, and returns whether it did not before. If so the coordinator has to know,
    /// see [`Shards::add_holders`](crate::Shards::add_holders).
    pub fn hold_room(&mut self) -> bool {
        self.meter.hold_room()
    }

    /// Returns whether the shard may have room.
    pub(crate) fn holds_room(&self) -> bool {
        self.meter.holds_room()
    }

    /// Has the next operations find no shortage of room, up to some blocks: what is missing is settled later. A peak
    /// misses what rises and falls again until then.
    ///
    /// # Panics
    ///
    /// If the shard does not hold room.
    pub fn overdraw(&mut self) {
        self.meter.overdraw();
    }

    /// Adds to the rooms, or takes away from them.
    pub(crate) fn add_room(&mut self, more: &[Row; ROWS]) {
        self.meter.add_room(more);
    }

    /// Covers what lacks to `rooms` out of this shard's, and gives most of the rest, or all. Returns whether this shard
    /// still holds room.
    pub(crate) fn give_room(&mut self, rooms: &mut [Row; ROWS]) -> bool {
        self.meter.give_room(rooms)
    }

    /// Returns what is there now: of both sides together, of the small side and of the large one.
    pub(crate) fn current(&self) -> [Row; ROWS] {
        self.meter.current_rows()
    }

    /// Returns what a counter says of a side: what is there, what came and what went.
    pub(crate) fn totals(&self, side: Side, counter: Counter) -> (u64, u64, u64) {
        let (came, went) = self.meter.totals(side, counter);
        (self.meter.current(side, counter) as u64, came, went)
    }

    /// Lets the peaks begin anew with what is there now, which it returns.
    pub(crate) fn reset_peaks(&mut self) -> [Row; ROWS] {
        self.meter.reset_room();
        self.snug_reset();
        self.meter.current_rows()
    }

    /// Sets what came and what went to 0.
    pub(crate) fn reset_totals(&mut self) {
        self.meter.reset_totals();
    }

    /// Returns the bytes of blocks that the program holds, after rounding.
    pub(crate) fn live_bytes(&self) -> u64 {
        let of = |side| self.meter.current(side, Counter::AllocatedBytes) as u64;
        of(Side::Small) + of(Side::Large)
    }

    /// Returns a number that rises with what may let a request hit that has missed: frees, and news of streams.
    pub fn changes(&self) -> u64 {
        self.frees() + self.news_seen()
    }

    /// Returns the number of blocks that were freed so far.
    pub(crate) fn frees(&self) -> u64 {
        Side::BOTH.map(|side| self.meter.totals(side, Counter::Allocation).1).iter().sum()
    }
}
