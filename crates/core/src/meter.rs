//! The counters of a shard, and the device's exact peaks, which are kept without contention between threads.
//!
//! PyTorch's peaks are peaks of sums over all streams, and every operation may raise one. If they were kept in one
//! place, all streams would share a cache line and a lock. Instead each shard holds *room*: the amount by which its own
//! counter may still rise before the peak of the sum could rise. For every counter, at every moment,
//!
//! ```text
//! peak = sum over shards of (current + room)
//! ```
//!
//! A shard keeps the sum of both, the *ceiling* that its counter may rise to, which its own operations do not change.
//! The present value is the difference of what was added and what was taken away, so an operation only adds to a few
//! sums.
//!
//! Nor does an operation check all rooms. Each side has *credit*: an amount of room that it is certain to have, in
//! blocks and in bytes, over all counters that rise and fall together. A grant spends credit and a free gives it back.
//! Only when it is used up are the rooms calculated, in [`Meter::refill`]. An operation that finds a room below zero
//! there reports it, and [`Coordinator::settle`](crate::Coordinator::settle) takes room from other shards, or raises
//! the peak by what is missing, which restores the equation with all rooms at zero or above. If one thread alone makes
//! all calls, every peak is exact to the operation. Where many threads find their shards short of room all the time, a
//! shard is *overdrawn* ([`Meter::overdraw`]): it gets credit without room, and settles after some blocks.
//!
//! A shard whose room was all taken stops *holding* room. It has no credit, puts no free off, and reports every
//! operation that leaves it with room or without enough, after which it holds room again. So only shards that hold room
//! have to be asked for it, and what all others have is known: none.

use crate::ids::Side;

/// The counters that change on every allocation and free.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Counter {
    Allocation,
    AllocatedBytes,
    Active,
    ActiveBytes,
    RequestedBytes,
    InactiveSplit,
    InactiveSplitBytes,
    /// Blocks of at least the split limit. The statistics report the sum of both sides only.
    Oversize,
}

pub(crate) const COUNTERS: usize = 8;

pub(crate) const EVERY_COUNTER: [Counter; COUNTERS] = [
    Counter::Allocation,
    Counter::AllocatedBytes,
    Counter::Active,
    Counter::ActiveBytes,
    Counter::RequestedBytes,
    Counter::InactiveSplit,
    Counter::InactiveSplitBytes,
    Counter::Oversize,
];

/// One value for each [`Counter`].
pub(crate) type Row = [i64; COUNTERS];

/// The rows of rooms and peaks: all, small, large.
pub(crate) const ROWS: usize = 3;

/// No room in any counter.
pub(crate) const NONE: [Row; ROWS] = [[0; COUNTERS]; ROWS];

/// Returns whether a room is below zero.
pub(crate) fn has_shortage(rooms: &[Row; ROWS]) -> bool {
    let mut signs = 0;
    each(|row, counter| signs |= rooms[row][counter]);
    signs < 0
}

/// Visits the counters of all rows. The compiler unrolls this loop, which it does not do with flattened iterators.
#[inline(always)]
pub(crate) fn each(mut f: impl FnMut(usize, usize)) {
    for row in 0..ROWS {
        for counter in 0..COUNTERS {
            f(row, counter);
        }
    }
}

/// The change that an operation makes in `inactive_split` and `inactive_split_bytes`.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct SplitChange {
    pub(crate) blocks: i64,
    pub(crate) bytes: i64,
}

/// The sums of one side since totals were reset. The totals of every counter are calculated from these few sums.
#[derive(Clone, Copy, Default, Debug)]
struct Totals {
    granted: Sums,
    /// Blocks that were freed and retired at once.
    gone: Sums,
    /// Blocks that were freed, to be retired later. Their `requested` is not counted.
    left: Sums,
    /// Blocks that were retired later than freed.
    retired: Sums,
    split_up: SplitChange,
    /// What was added less what was taken away.
    split: SplitChange,
    oversize_granted: i64,
    oversize_freed: i64,
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

/// The amounts by which the counters of one side are certain to be able to rise: those that count blocks in use, those
/// of their bytes, and the two of free blocks in pieces.
///
/// Invariant: no side has more than its own rooms hold, and what both have above zero is in the rooms of all.
type Credit = [i64; CREDITS];

const CREDITS: usize = 4;
const BLOCKS: usize = 0;
const BYTES: usize = 1;
const SPLIT_BLOCKS: usize = 2;
const SPLIT_BYTES: usize = 3;

/// A credit that is so low that the next operation on the side finds it used up, and has the actual one calculated.
const UNKNOWN: Credit = [i64::MIN / 4; CREDITS];

/// A shard that gives room to another one, and has plenty, keeps one part in this many of what the two have. If it kept
/// more, a stream that makes many requests before another one does would come back more often; if less, it would take
/// longer until all streams have room where there is enough.
const LEFT: i64 = 4;

/// The number of blocks of the mean size that a side is certain to be able to grow by, while a shard is overdrawn.
const OVERDRAFT: i64 = 8;

/// Returns all the credit that the rooms of a row allow.
#[inline(always)]
fn credit_in(room: &Row) -> Credit {
    let of = |counter: Counter| room[counter as usize];
    let bytes = of(Counter::AllocatedBytes).min(of(Counter::ActiveBytes)).min(of(Counter::RequestedBytes));
    [
        of(Counter::Allocation).min(of(Counter::Active)),
        bytes,
        of(Counter::InactiveSplit),
        of(Counter::InactiveSplitBytes),
    ]
}

/// Spends the credit of a split. Returns whether there was too little.
#[inline(always)]
fn spend_split(credit: &mut Credit, split: SplitChange) -> bool {
    credit[SPLIT_BLOCKS] -= split.blocks;
    credit[SPLIT_BYTES] -= split.bytes;
    credit[SPLIT_BLOCKS] | credit[SPLIT_BYTES] < 0
}

/// The counters of one shard.
#[derive(Clone, Debug, Default)]
pub(crate) struct Meter {
    totals: [Totals; 2],
    credit: [Credit; 2],
    /// Whether there may be more credit than the rooms hold.
    is_overdrawn: bool,
    /// Whether the shard may have room. If not, it has none, no credit, and no free that is put off.
    holds: bool,
    /// The value that a counter may have before a peak rises, which is `current + room`: all, small, large.
    ceiling: [Row; ROWS],
    /// The values when totals were reset, by side: `current = base + came - went`.
    base: [Row; 2],
}

impl Meter {
    pub(crate) fn new() -> Self {
        Self { holds: true, ..Self::default() }
    }

    /// Counts a block that was handed out. Returns whether room ran out.
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

    /// Counts that a block that is handed out became longer by `size` bytes, and that the program asked for `requested`
    /// more of it. `oversize` says that it counts as one from now on. Returns whether room ran out.
    pub(crate) fn grow(&mut self, side: Side, size: u64, requested: u64, oversize: bool, split: SplitChange) -> bool {
        let (size, requested) = (size as i64, requested as i64);
        let totals = &mut self.totals[side.index()];
        totals.granted.bytes += size;
        totals.granted.requested += requested;
        totals.oversize_granted += i64::from(oversize);
        totals.book_split(split);
        let credit = &mut self.credit[side.index()];
        credit[BYTES] -= size.max(requested);
        let short = spend_split(credit, split) | (credit[BYTES] < 0);
        (short | oversize) && self.refill(side)
    }

    /// Counts blocks in use that have begun, and that have ceased, to be oversize because the limit is another one.
    /// Returns whether room ran out.
    pub(crate) fn recount_oversize(&mut self, side: Side, begun: u64, ceased: u64) -> bool {
        let totals = &mut self.totals[side.index()];
        totals.oversize_granted += begun as i64;
        totals.oversize_freed += ceased as i64;
        self.refill(side)
    }

    /// Counts a block that the program freed. It stays active until its points are reached. Returns whether the shard
    /// has room now that it does not hold.
    #[inline]
    pub(crate) fn free(&mut self, side: Side, size: u64, oversize: bool) -> bool {
        let totals = &mut self.totals[side.index()];
        totals.left.add(size as i64, 0);
        totals.oversize_freed += i64::from(oversize);
        !self.holds
    }

    /// Counts a freed block whose last point was reached. Returns whether room ran out.
    #[inline]
    pub(crate) fn retire(&mut self, side: Side, size: u64, requested: u64, split: SplitChange) -> bool {
        let totals = &mut self.totals[side.index()];
        totals.retired.add(size as i64, requested as i64);
        totals.book_split(split);
        // No credit is given for the block and its bytes: a refill may already have counted the room that the free gave
        // back.
        spend_split(&mut self.credit[side.index()], split) && self.refill(side)
    }

    /// Does the work of [`free`](Self::free) and [`retire`](Self::retire) together. Returns whether room ran out.
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
        totals.book_split(split);
        let credit = &mut self.credit[side.index()];
        credit[BLOCKS] += 1;
        // All counters of bytes fell, the one of requested bytes by the least.
        credit[BYTES] += requested as i64;
        spend_split(credit, split) && self.refill(side)
    }

    /// Returns whether the split counters are certain to be able to take this change without any peak rising. They may
    /// be able to even if it returns `false`.
    #[inline(always)]
    pub(crate) fn has_split_room(&self, side: Side, change: SplitChange) -> bool {
        let credit = &self.credit[side.index()];
        credit[SPLIT_BLOCKS] >= change.blocks && credit[SPLIT_BYTES] >= change.bytes
    }

    /// Counts a block that was freed, which changed `inactive_split`, and handed out again at once, which changed it
    /// back. Returns whether room ran out.
    #[inline(always)]
    pub(crate) fn swap(&mut self, side: Side, size: u64, before: u64, requested: u64, split: SplitChange) -> bool {
        let (size, before, requested) = (size as i64, before as i64, requested as i64);
        let totals = &mut self.totals[side.index()];
        totals.gone.add(size, before);
        totals.granted.add(size, requested);
        // The totals rise by what rose at the free or at the grant.
        totals.split_up.blocks += split.blocks.abs();
        totals.split_up.bytes += split.bytes.abs();
        let credit = &mut self.credit[side.index()];
        credit[BYTES] -= (requested - before).max(0);
        credit[BYTES] < 0 && self.refill(side)
    }

    /// Calculates the rooms and gives a side all the credit there is, except up to half of it for the other side.
    /// Returns whether a room is below zero, or there is room that the shard does not hold. It gets no credit then, so
    /// that the next operation comes here as well.
    #[cold]
    #[inline(never)]
    fn refill(&mut self, side: Side) -> bool {
        if self.is_overdrawn {
            self.forget_credit();
        }
        let rooms = self.rooms();
        if !self.holds {
            return rooms != NONE;
        }
        let (all, own) = (&rooms[0], &rooms[1 + side.index()]);
        let (in_all, in_own) = (credit_in(all), credit_in(own));
        for at in 0..CREDITS {
            let others = &mut self.credit[1 - side.index()][at];
            *others = (*others).min(in_all[at] >> 1);
            self.credit[side.index()][at] = in_own[at].min(in_all[at] - (*others).max(0));
        }
        let mut signs = 0;
        for counter in 0..COUNTERS {
            signs |= all[counter] | own[counter];
        }
        signs < 0
    }

    /// Gives both sides credit that the rooms may not hold. Until one of them has used it up, the shard neither notices
    /// that it is short of room nor reports that it has some. So it must be one that is asked for room.
    ///
    /// # Panics
    ///
    /// If the shard does not hold room.
    pub(crate) fn overdraw(&mut self) {
        assert!(self.holds, "a shard that holds no room is overdrawn: {self:?}");
        for (credit, totals) in self.credit.iter_mut().zip(&self.totals) {
            let Sums { blocks, bytes, .. } = totals.granted;
            let bytes = bytes / blocks.max(1) * OVERDRAFT;
            *credit = [OVERDRAFT, bytes, OVERDRAFT, bytes];
        }
        self.is_overdrawn = true;
    }

    /// Returns how much each counter may still rise before a peak does: all, small, large. A room is below zero where a
    /// peak has to rise.
    pub(crate) fn rooms(&self) -> [Row; ROWS] {
        let mut rooms = self.current_rows();
        each(|row, counter| rooms[row][counter] = self.ceiling[row][counter] - rooms[row][counter]);
        rooms
    }

    /// Has the shard hold room from now on, and returns whether it did not before. What credit there is may have been
    /// calculated where room was below zero.
    pub(crate) fn hold_room(&mut self) -> bool {
        self.forget_credit();
        !core::mem::replace(&mut self.holds, true)
    }

    /// Returns whether the shard may have room.
    pub(crate) fn holds_room(&self) -> bool {
        self.holds
    }

    /// Covers what lacks to `rooms` out of this shard's room. If that leaves at least as much here as was lacking, the
    /// shard gives most of the rest in every counter, and keeps as much as was lacking. So neither comes back every
    /// time, nor for each counter alone. Otherwise it gives all and no longer holds room. Returns whether it still
    /// does.
    pub(crate) fn give_room(&mut self, rooms: &mut [Row; ROWS]) -> bool {
        let own = self.rooms();
        let mut signs = 0;
        each(|row, counter| signs |= own[row][counter] + 2 * rooms[row][counter].min(0));
        let shares = signs >= 0;
        each(|row, counter| {
            let (room, own) = (rooms[row][counter], own[row][counter]);
            let given = if shares { (own - (own + room) / LEFT).min(own + room) } else { own }.max(0);
            rooms[row][counter] += given;
            self.ceiling[row][counter] -= given;
        });
        self.forget_credit();
        self.holds = shares;
        shares
    }

    /// Adds room, or takes it away where `more` is below zero.
    pub(crate) fn add_room(&mut self, more: &[Row; ROWS]) {
        each(|row, counter| self.ceiling[row][counter] += more[row][counter]);
        self.forget_credit();
    }

    pub(crate) fn reset_room(&mut self) {
        self.ceiling = self.current_rows();
        self.forget_credit();
    }

    fn forget_credit(&mut self) {
        self.credit = [UNKNOWN; 2];
        self.is_overdrawn = false;
    }

    /// Returns whether no room is below zero, and none is there that the shard does not hold.
    pub(crate) fn is_settled(&self) -> bool {
        let rooms = self.rooms();
        if self.holds { !has_shortage(&rooms) } else { rooms == NONE }
    }

    #[inline(always)]
    pub(crate) fn current(&self, side: Side, counter: Counter) -> i64 {
        self.current_row(side)[counter as usize]
    }

    #[inline(always)]
    fn current_row(&self, side: Side) -> Row {
        let Flows { came, went } = self.totals[side.index()].flows();
        let mut row = self.base[side.index()];
        for counter in 0..COUNTERS {
            row[counter] += came[counter] - went[counter];
        }
        row
    }

    /// Returns the sums of which the peaks are kept: all, small, large.
    #[inline]
    pub(crate) fn current_rows(&self) -> [Row; ROWS] {
        let (small, large) = (self.current_row(Side::Small), self.current_row(Side::Large));
        let mut all = small;
        for counter in 0..COUNTERS {
            all[counter] += large[counter];
        }
        [all, small, large]
    }

    /// Returns what was added and what was taken away since totals were reset.
    pub(crate) fn flow(&self, side: Side, counter: Counter) -> Flow {
        let Flows { came, went } = self.totals[side.index()].flows();
        Flow { came: came[counter as usize] as u64, went: went[counter as usize] as u64 }
    }

    pub(crate) fn reset_totals(&mut self) {
        for side in Side::BOTH {
            self.base[side.index()] = self.current_row(side);
            self.totals[side.index()] = Totals::default();
        }
    }

    /// Verifies C1: no side has more credit than its rooms hold, nor both together more than those of all.
    pub(crate) fn check_credit(&self) {
        if self.is_overdrawn {
            return;
        }
        let [all, small, large] = self.rooms().map(|row| credit_in(&row));
        for at in 0..CREDITS {
            let [of_small, of_large] = self.credit.map(|credit| credit[at]);
            assert!(of_small <= small[at] && of_large <= large[at], "{self:?}: credit {at} against room");
            let both = of_small.max(0) + of_large.max(0);
            assert!(both <= all[at].max(0), "{self:?}: credit {at} of both sides against room");
        }
    }
}

/// What was added to a counter, and what was taken away.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flow {
    pub(crate) came: u64,
    pub(crate) went: u64,
}

/// The same of every counter.
#[derive(Clone)]
struct Flows {
    came: Row,
    went: Row,
}

impl Totals {
    #[inline(always)]
    fn book_split(&mut self, change: SplitChange) {
        self.split_up.blocks += change.blocks.max(0);
        self.split_up.bytes += change.bytes.max(0);
        self.split.blocks += change.blocks;
        self.split.bytes += change.bytes;
    }

    /// Returns what was added and what was taken away, by counter.
    #[inline(always)]
    fn flows(&self) -> Flows {
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
        Flows { came, went }
    }
}

/// For every counter, the highest that the sum over all shards has been. See [`crate::meter`] for how the shards' rooms
/// keep it exact.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Peaks([Row; ROWS]);

impl Peaks {
    /// Covers what `rooms` lack by raising the peaks, after which no room is below zero.
    pub(crate) fn cover(&mut self, rooms: &mut [Row; ROWS]) {
        each(|row, counter| {
            self.0[row][counter] += (-rooms[row][counter]).max(0);
            rooms[row][counter] = rooms[row][counter].max(0);
        });
    }

    /// Adds a shard's counters to peaks that begin anew.
    pub(crate) fn add(&mut self, current: &[Row; ROWS]) {
        add(&mut self.0, current);
    }

    /// Raises each peak to what another stretch of time has, if that is more.
    pub(crate) fn raise(&mut self, other: &Peaks) {
        each(|row, counter| self.0[row][counter] = self.0[row][counter].max(other.0[row][counter]));
    }

    /// Returns the peaks of a counter: of both sides together, of the small side and of the large one.
    pub(crate) fn of(&self, counter: usize) -> [u64; ROWS] {
        self.0.map(|row| row[counter] as u64)
    }

    /// Verifies that each peak is the sum of what is there and of what room is left.
    ///
    /// # Panics
    ///
    /// If one is not, or if some room is below zero.
    pub(crate) fn check(&self, shards: &[([Row; ROWS], [Row; ROWS])]) {
        let mut sums = [[0; COUNTERS]; ROWS];
        for (at, (current, rooms)) in shards.iter().enumerate() {
            assert!(!has_shortage(rooms), "shard {at} has room below zero: {rooms:?}");
            add(&mut sums, current);
            add(&mut sums, rooms);
        }
        assert_eq!(sums, self.0, "what is there plus room, against the peaks (all, small, large)");
    }
}

fn add(rows: &mut [Row; ROWS], more: &[Row; ROWS]) {
    each(|row, counter| rows[row][counter] += more[row][counter]);
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::vec::Vec;

    use millpond_trace::Random;

    use super::*;

    /// Settles a meter as the coordinator does where no other shard has room.
    fn settle(meter: &mut Meter) {
        meter.hold_room();
        let rooms = meter.rooms();
        if has_shortage(&rooms) {
            meter.add_room(&rooms.map(|row| row.map(|room| (-room).max(0))));
        }
    }

    /// Other threads work between an operation that is short of room and its settlement, and give the room back.
    #[test]
    fn credit_is_within_the_rooms_after_a_late_settlement() {
        let mut random = Random::new(1);
        for _ in 0..2000 {
            let (mut meter, mut live) = (Meter::new(), Vec::new());
            for _ in 0..60 {
                if random.one_in(2) && !live.is_empty() {
                    let (side, size) = live.swap_remove(random.index(live.len()));
                    meter.free_and_retire(side, size, size, false, SplitChange::default());
                } else {
                    let (side, size) = (Side::BOTH[random.index(2)], 512 * (1 + random.below(8)));
                    meter.grant(side, size, size, false, SplitChange::default());
                    live.push((side, size));
                }
                if random.one_in(4) {
                    settle(&mut meter);
                    meter.check_credit();
                }
            }
        }
    }

    #[test]
    fn a_peak_rises_by_what_is_missing_alone() {
        let mut peaks = Peaks::default();
        let mut rooms = [[0; COUNTERS]; ROWS];
        (rooms[0][1], rooms[0][2]) = (-5, 7);
        peaks.cover(&mut rooms);
        assert_eq!((peaks.of(1)[0], peaks.of(2)[0]), (5, 0));
        assert_eq!((rooms[0][1], rooms[0][2]), (0, 7));
    }
}
