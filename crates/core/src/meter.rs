//! What a shard counts, and how the device's exact peaks come about without threads meeting.
//!
//! PyTorch's peaks are peaks of sums over all streams, and every operation may raise one. Keeping them in one place
//! would make all streams share a cache line and a lock. Instead each shard holds *room*: how much its own counter may
//! still rise before the peak of the sum could rise. For every counter, at every moment,
//!
//! ```text
//! peak = sum over shards of (current + room)
//! ```
//!
//! A shard keeps the sum of both, which its own operations leave alone: the *ceiling* that its counter may rise to.
//! What is there now is the difference of what came and what went, so an operation only adds to a few sums.
//!
//! Nor does it ask all rooms. Each side has *credit*: as much room as it surely has, in blocks and in bytes, over all
//! counters that rise and fall together. A grant spends credit and a free gives it back. Only when it is used up are
//! the rooms worked out, in [`Meter::refill`]. An operation that finds a room below zero there reports it, and
//! [`Coordinator::settle`](crate::Coordinator::settle) takes room from other shards, or raises the peak by what is
//! missing, which restores the equation with all rooms at zero or above. Driven from one thread, every peak is exact
//! to the operation.

use crate::ids::Side;

/// The counters that change on every allocation and free.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lane {
    Allocation,
    AllocatedBytes,
    Active,
    ActiveBytes,
    RequestedBytes,
    InactiveSplit,
    InactiveSplitBytes,
    /// Counted for both sides together only.
    Oversize,
}

pub(crate) const LANES: usize = 8;

pub(crate) const EVERY_LANE: [Lane; LANES] = [
    Lane::Allocation,
    Lane::AllocatedBytes,
    Lane::Active,
    Lane::ActiveBytes,
    Lane::RequestedBytes,
    Lane::InactiveSplit,
    Lane::InactiveSplitBytes,
    Lane::Oversize,
];

/// One value for each [`Lane`].
pub(crate) type Row = [i64; LANES];

/// The rows of rooms and peaks: all, small, large.
pub(crate) const ROWS: usize = 3;

/// Some room is below zero.
pub(crate) fn has_shortage(rooms: &[Row; ROWS]) -> bool {
    let mut signs = 0;
    each(|row, lane| signs |= rooms[row][lane]);
    signs < 0
}

/// Goes over the lanes of all rows. The compiler unrolls it, which it does not do with flattened iterators.
#[inline(always)]
pub(crate) fn each(mut f: impl FnMut(usize, usize)) {
    for row in 0..ROWS {
        for lane in 0..LANES {
            f(row, lane);
        }
    }
}

/// How a free block's change shows in `inactive_split` and `inactive_split_bytes`.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct SplitChange {
    pub(crate) blocks: i64,
    pub(crate) bytes: i64,
}

/// What came and went on one side since totals were reset. From these few sums come the totals of every lane.
#[derive(Clone, Copy, Default, Debug)]
struct Totals {
    granted: Sums,
    /// Freed, and retired at once.
    gone: Sums,
    /// Freed, to be retired later; its `requested` is not counted.
    left: Sums,
    /// Retired later than freed.
    retired: Sums,
    split_up: SplitChange,
    /// What came less what went.
    split: SplitChange,
    oversize_granted: i64,
    oversize_freed: i64,
    low: Low,
}

/// The least that was live on one side since it was last asked for, and all that had been granted until then.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Low {
    pub(crate) live_bytes: i64,
    pub(crate) granted_blocks: i64,
    pub(crate) granted_bytes: i64,
}

impl core::ops::AddAssign for Low {
    fn add_assign(&mut self, other: Low) {
        self.live_bytes += other.live_bytes;
        self.granted_blocks += other.granted_blocks;
        self.granted_bytes += other.granted_bytes;
    }
}

#[derive(Clone, Copy, Default, Debug)]
struct Sums {
    blocks: i64,
    bytes: i64,
    requested: i64,
}

impl Sums {
    #[inline(always)]
    fn add(&mut self, size: i64, requested: i64) {
        self.blocks += 1;
        self.bytes += size;
        self.requested += requested;
    }
}

/// How much the counters of one side may surely rise: those that count blocks in use, those of their bytes, and the
/// two of free blocks in pieces.
///
/// Invariant: no side has more than its own rooms hold, and what both have above zero is in the rooms of all.
type Credit = [i64; CREDITS];

const CREDITS: usize = 4;
const BLOCKS: usize = 0;
const BYTES: usize = 1;
const SPLIT_BLOCKS: usize = 2;
const SPLIT_BYTES: usize = 3;

/// So little that it is worked out before it is used.
const UNKNOWN: Credit = [i64::MIN / 4; CREDITS];

/// All the credit that the rooms of a row allow.
#[inline(always)]
fn credit_in(room: &Row) -> Credit {
    let of = |lane: Lane| room[lane as usize];
    let bytes = of(Lane::AllocatedBytes).min(of(Lane::ActiveBytes)).min(of(Lane::RequestedBytes));
    [of(Lane::Allocation).min(of(Lane::Active)), bytes, of(Lane::InactiveSplit), of(Lane::InactiveSplitBytes)]
}

/// Answers whether there was too little.
#[inline(always)]
fn spend_split(credit: &mut Credit, split: SplitChange) -> bool {
    credit[SPLIT_BLOCKS] -= split.blocks;
    credit[SPLIT_BYTES] -= split.bytes;
    credit[SPLIT_BLOCKS] | credit[SPLIT_BYTES] < 0
}

/// The counters of one shard.
#[derive(Clone, Debug)]
pub(crate) struct Meter {
    totals: [Totals; 2],
    credit: [Credit; 2],
    /// What may be there before a peak rises, so `current + room`: all, small, large.
    ceiling: [Row; ROWS],
    /// What was there when totals were reset, by side: `current = base + came - went`.
    base: [Row; 2],
}

impl Meter {
    pub(crate) fn new() -> Self {
        Self {
            totals: [Totals::default(); 2],
            credit: [[0; CREDITS]; 2],
            ceiling: [[0; LANES]; ROWS],
            base: [[0; LANES]; 2],
        }
    }

    /// A block was handed out. Answers whether room ran out.
    #[inline(always)]
    pub(crate) fn grant(&mut self, side: Side, size: u64, requested: u64, oversize: bool, split: SplitChange) -> bool {
        let size = size as i64;
        let totals = &mut self.totals[side.index()];
        totals.granted.add(size, requested as i64);
        totals.book_split(split);
        let credit = &mut self.credit[side.index()];
        credit[BLOCKS] -= 1;
        credit[BYTES] -= size;
        let short = spend_split(credit, split) | (credit[BLOCKS] | credit[BYTES] < 0);
        if oversize {
            totals.oversize_granted += 1;
        }
        (short | oversize) && self.refill(side)
    }

    /// The program freed a block, which stays active until its points are reached.
    #[inline]
    pub(crate) fn free(&mut self, side: Side, size: u64, oversize: bool) {
        let totals = &mut self.totals[side.index()];
        totals.left.add(size as i64, 0);
        totals.oversize_freed += i64::from(oversize);
        totals.note_low();
    }

    /// A freed block's last point was reached. Answers whether room ran out.
    #[inline]
    pub(crate) fn retire(&mut self, side: Side, size: u64, requested: u64, split: SplitChange) -> bool {
        let totals = &mut self.totals[side.index()];
        totals.retired.add(size as i64, requested as i64);
        totals.book_split(split);
        // No credit for the rest: what the free gave back may have been counted since.
        spend_split(&mut self.credit[side.index()], split) && self.refill(side)
    }

    /// [`free`](Self::free) and [`retire`](Self::retire) in one.
    #[inline(always)]
    pub(crate) fn free_and_retire(
        &mut self,
        side: Side,
        size: u64,
        requested: u64,
        oversize: bool,
        split: SplitChange,
    ) -> bool {
        let totals = &mut self.totals[side.index()];
        totals.gone.add(size as i64, requested as i64);
        totals.oversize_freed += i64::from(oversize);
        totals.note_low();
        totals.book_split(split);
        let credit = &mut self.credit[side.index()];
        credit[BLOCKS] += 1;
        // All counters of bytes fell, that of requested bytes the least.
        credit[BYTES] += requested as i64;
        spend_split(credit, split) && self.refill(side)
    }

    /// The split lanes surely can take this change without any peak rising. They may even where the answer is no.
    #[inline(always)]
    pub(crate) fn has_split_room(&self, side: Side, change: SplitChange) -> bool {
        let credit = &self.credit[side.index()];
        credit[SPLIT_BLOCKS] >= change.blocks && credit[SPLIT_BYTES] >= change.bytes
    }

    /// A block was freed, which changed `inactive_split`, and handed out again at once, which changed it back. Answers
    /// whether room ran out.
    #[inline(always)]
    pub(crate) fn swap(&mut self, side: Side, size: u64, before: u64, requested: u64, split: SplitChange) -> bool {
        let (size, before, requested) = (size as i64, before as i64, requested as i64);
        let totals = &mut self.totals[side.index()];
        totals.gone.add(size, before);
        totals.granted.add(size, requested);
        // Up by what rose at the free, or at the grant.
        totals.split_up.blocks += split.blocks.abs();
        totals.split_up.bytes += split.bytes.abs();
        let credit = &mut self.credit[side.index()];
        credit[BYTES] -= (requested - before).max(0);
        credit[BYTES] < 0 && self.refill(side)
    }

    /// Works out the rooms and gives a side what credit there is, leaving the other side up to half. Answers whether a
    /// room is below zero.
    #[cold]
    #[inline(never)]
    fn refill(&mut self, side: Side) -> bool {
        let rooms = self.rooms();
        let (all, own) = (&rooms[0], &rooms[1 + side.index()]);
        let (in_all, in_own) = (credit_in(all), credit_in(own));
        for at in 0..CREDITS {
            let others = &mut self.credit[1 - side.index()][at];
            *others = (*others).min(in_all[at] >> 1);
            self.credit[side.index()][at] = in_own[at].min(in_all[at] - (*others).max(0));
        }
        let mut signs = 0;
        for lane in 0..LANES {
            signs |= all[lane] | own[lane];
        }
        signs < 0
    }

    /// What may still rise before a peak does: all, small, large. Below zero where a peak has to rise.
    pub(crate) fn rooms(&self) -> [Row; ROWS] {
        let mut rooms = self.current_rows();
        each(|row, lane| rooms[row][lane] = self.ceiling[row][lane] - rooms[row][lane]);
        rooms
    }

    /// Adds room, or takes it where `more` is below zero.
    pub(crate) fn add_room(&mut self, more: &[Row; ROWS]) {
        each(|row, lane| self.ceiling[row][lane] += more[row][lane]);
        self.credit = [UNKNOWN; 2];
    }

    pub(crate) fn reset_room(&mut self) {
        self.ceiling = self.current_rows();
        self.credit = [UNKNOWN; 2];
    }

    pub(crate) fn is_settled(&self) -> bool {
        !has_shortage(&self.rooms())
    }

    pub(crate) fn current(&self, side: Side, lane: Lane) -> i64 {
        self.current_row(side)[lane as usize]
    }

    #[inline(always)]
    fn current_row(&self, side: Side) -> Row {
        let (came, went) = self.totals[side.index()].rows();
        let mut row = self.base[side.index()];
        for lane in 0..LANES {
            row[lane] += came[lane] - went[lane];
        }
        row
    }

    /// The sum over rows that the peaks are peaks of: all, small, large.
    #[inline]
    pub(crate) fn current_rows(&self) -> [Row; ROWS] {
        let (small, large) = (self.current_row(Side::Small), self.current_row(Side::Large));
        let mut all = small;
        for lane in 0..LANES {
            all[lane] += large[lane];
        }
        [all, small, large]
    }

    /// What came and what went since totals were reset.
    pub(crate) fn totals(&self, side: Side, lane: Lane) -> (u64, u64) {
        let (came, went) = self.totals[side.index()].rows();
        (came[lane as usize] as u64, went[lane as usize] as u64)
    }

    /// The low point of a side since the last call, and now. Grants are counted since totals were reset; what is live
    /// now counts for the next low point as well.
    pub(crate) fn take_low(&mut self, side: Side) -> (Low, Low) {
        let base = self.base[side.index()][Lane::AllocatedBytes as usize];
        let totals = &mut self.totals[side.index()];
        let (low, now) = (totals.low, totals.now());
        totals.low = now;
        let absolute = |low: Low| Low { live_bytes: base + low.live_bytes, ..low };
        (absolute(low), absolute(now))
    }

    pub(crate) fn reset_totals(&mut self) {
        for side in Side::BOTH {
            self.base[side.index()] = self.current_row(side);
            self.totals[side.index()] = Totals::default();
        }
    }

    /// C1: no side has more credit than its rooms hold, nor both together more than those of all.
    pub(crate) fn check_credit(&self) {
        let [all, small, large] = self.rooms().map(|row| credit_in(&row));
        for at in 0..CREDITS {
            let [of_small, of_large] = self.credit.map(|credit| credit[at]);
            assert!(of_small <= small[at] && of_large <= large[at], "{self:?}: credit {at} against room");
            let both = of_small.max(0) + of_large.max(0);
            assert!(both <= all[at].max(0), "{self:?}: credit {at} of both sides against room");
        }
    }
}

impl Totals {
    #[inline(always)]
    fn now(&self) -> Low {
        let live_bytes = self.granted.bytes - self.gone.bytes - self.left.bytes;
        Low { live_bytes, granted_blocks: self.granted.blocks, granted_bytes: self.granted.bytes }
    }

    #[inline(always)]
    fn note_low(&mut self) {
        let now = self.now();
        if now.live_bytes < self.low.live_bytes {
            self.low = now;
        }
    }

    #[inline(always)]
    fn book_split(&mut self, change: SplitChange) {
        self.split_up.blocks += change.blocks.max(0);
        self.split_up.bytes += change.bytes.max(0);
        self.split.blocks += change.blocks;
        self.split.bytes += change.bytes;
    }

    /// What came and what went, by lane.
    #[inline(always)]
    fn rows(&self) -> (Row, Row) {
        let Totals { granted, gone, left, retired, split_up, split, .. } = *self;
        let came = [
            granted.blocks,
            granted.bytes,
            granted.blocks,
            granted.bytes,
            granted.requested,
            split_up.blocks,
            split_up.bytes,
            self.oversize_granted,
        ];
        let went = [
            gone.blocks + left.blocks,
            gone.bytes + left.bytes,
            gone.blocks + retired.blocks,
            gone.bytes + retired.bytes,
            gone.requested + retired.requested,
            split_up.blocks - split.blocks,
            split_up.bytes - split.bytes,
            self.oversize_freed,
        ];
        (came, went)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_that_was_live_is_known_until_somebody_asks() {
        let (mut meter, unsplit) = (Meter::new(), SplitChange::default());
        meter.grant(Side::Large, 100, 100, false, unsplit);
        meter.grant(Side::Large, 200, 200, false, unsplit);
        assert_eq!(meter.take_low(Side::Large).1.live_bytes, 300);
        meter.free_and_retire(Side::Large, 200, 200, false, unsplit);
        meter.grant(Side::Large, 400, 400, false, unsplit);
        let (low, now) = meter.take_low(Side::Large);
        assert_eq!(low, Low { live_bytes: 100, granted_blocks: 2, granted_bytes: 300 });
        assert_eq!(now, Low { live_bytes: 500, granted_blocks: 3, granted_bytes: 700 });
        assert_eq!(meter.take_low(Side::Large).0, now, "nothing was freed since");
    }
}
