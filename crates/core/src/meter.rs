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
//! An operation that stays within its shard's room touches nothing else. One that does not leaves the room below zero
//! and reports it; [`Peaks::settle`](crate::coordinator) then takes room from other shards, or raises the peak by what
//! is missing, which restores the equation with all rooms at zero or above. Driven from one thread, every peak is exact
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

/// How a free block's change shows in `inactive_split` and `inactive_split_bytes`.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct SplitChange {
    pub(crate) blocks: i64,
    pub(crate) bytes: i64,
}

/// What came and went since totals were reset. From these few sums come the totals of every lane.
#[derive(Clone, Copy, Default, Debug)]
struct Totals {
    granted: Sums,
    freed: Sums,
    retired: Sums,
    split_up: SplitChange,
    split_down: SplitChange,
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

/// The counters of one shard.
#[derive(Clone, Debug)]
pub(crate) struct Meter {
    /// What may still rise before a peak does: all, small, large.
    pub(crate) room: [Row; ROWS],
    totals: [Totals; 2],
    /// What was there when totals were reset, by side: `current = base + came - went`.
    base: [Row; 2],
}

impl Meter {
    pub(crate) fn new() -> Self {
        Self { room: [[0; LANES]; ROWS], totals: [Totals::default(); 2], base: [[0; LANES]; 2] }
    }

    /// A block was handed out. Answers whether room ran out.
    #[inline]
    pub(crate) fn grant(&mut self, side: Side, size: u64, requested: u64, oversize: bool, split: SplitChange) -> bool {
        let (size, requested, oversize) = (size as i64, requested as i64, i64::from(oversize));
        let totals = &mut self.totals[side.index()];
        totals.granted.add(size, requested);
        totals.oversize_granted += oversize;
        totals.book_split(split);
        self.spend(side, &[1, size, 1, size, requested, split.blocks, split.bytes, oversize])
    }

    /// The program freed a block, which stays active until its points are reached.
    #[inline]
    pub(crate) fn free(&mut self, side: Side, size: u64, oversize: bool) {
        let (size, oversize) = (size as i64, i64::from(oversize));
        let totals = &mut self.totals[side.index()];
        totals.freed.add(size, 0);
        totals.oversize_freed += oversize;
        self.spend(side, &[-1, -size, 0, 0, 0, 0, 0, -oversize]);
    }

    /// A freed block's last point was reached. Answers whether room ran out.
    #[inline]
    pub(crate) fn retire(&mut self, side: Side, size: u64, requested: u64, split: SplitChange) -> bool {
        let (size, requested) = (size as i64, requested as i64);
        let totals = &mut self.totals[side.index()];
        totals.retired.add(size, requested);
        totals.book_split(split);
        self.spend(side, &[0, 0, -1, -size, -requested, split.blocks, split.bytes, 0])
    }

    /// [`free`](Self::free) and [`retire`](Self::retire) in one.
    #[inline]
    pub(crate) fn free_and_retire(
        &mut self,
        side: Side,
        size: u64,
        requested: u64,
        oversize: bool,
        split: SplitChange,
    ) -> bool {
        let (size, requested, oversize) = (size as i64, requested as i64, i64::from(oversize));
        let totals = &mut self.totals[side.index()];
        totals.freed.add(size, 0);
        totals.retired.add(size, requested);
        totals.oversize_freed += oversize;
        totals.book_split(split);
        self.spend(side, &[-1, -size, -1, -size, -requested, split.blocks, split.bytes, -oversize])
    }

    /// The split lanes can take this change without any peak rising.
    #[inline(always)]
    pub(crate) fn has_split_room(&self, side: Side, change: SplitChange) -> bool {
        let (all, own) = (&self.room[0], &self.room[1 + side.index()]);
        let (blocks, bytes) = (Lane::InactiveSplit as usize, Lane::InactiveSplitBytes as usize);
        all[blocks].min(own[blocks]) >= change.blocks && all[bytes].min(own[bytes]) >= change.bytes
    }

    /// A block was freed, which changed `inactive_split`, and handed out again at once, which changed it back. Answers
    /// whether room ran out.
    #[inline(always)]
    pub(crate) fn swap(&mut self, side: Side, size: u64, before: u64, requested: u64, split: SplitChange) -> bool {
        let (size, before, requested) = (size as i64, before as i64, requested as i64);
        let totals = &mut self.totals[side.index()];
        totals.freed.add(size, 0);
        totals.retired.add(size, before);
        totals.granted.add(size, requested);
        totals.book_split(split);
        totals.book_split(SplitChange { blocks: -split.blocks, bytes: -split.bytes });
        let (lane, rise) = (Lane::RequestedBytes as usize, requested - before);
        let mut signs = 0;
        for row in [0, 1 + side.index()] {
            self.room[row][lane] -= rise;
            signs |= self.room[row][lane];
        }
        signs < 0
    }

    /// Takes what rises out of the rooms, and puts what falls back. Answers whether a room is below zero.
    #[inline(always)]
    fn spend(&mut self, side: Side, by: &Row) -> bool {
        let mut signs = 0;
        for row in [0, 1 + side.index()] {
            // Straight loops over whole rows: the compiler makes vector instructions of them.
            let room = &mut self.room[row];
            for lane in 0..LANES {
                room[lane] -= by[lane];
            }
            for &room in room.iter() {
                signs |= room;
            }
        }
        signs < 0
    }

    pub(crate) fn current(&self, side: Side, lane: Lane) -> i64 {
        let (came, went) = self.totals[side.index()].of(lane);
        self.base[side.index()][lane as usize] + came - went
    }

    /// The sum over rows that the peaks are peaks of: all, small, large.
    pub(crate) fn current_rows(&self) -> [Row; ROWS] {
        let mut rows = [[0; LANES]; ROWS];
        for side in Side::BOTH {
            for lane in EVERY_LANE {
                let now = self.current(side, lane);
                rows[0][lane as usize] += now;
                rows[1 + side.index()][lane as usize] = now;
            }
        }
        rows
    }

    /// What came and what went since totals were reset.
    pub(crate) fn totals(&self, side: Side, lane: Lane) -> (u64, u64) {
        let (came, went) = self.totals[side.index()].of(lane);
        (came as u64, went as u64)
    }

    pub(crate) fn reset_totals(&mut self) {
        for side in Side::BOTH {
            for lane in EVERY_LANE {
                self.base[side.index()][lane as usize] = self.current(side, lane);
            }
            self.totals[side.index()] = Totals::default();
        }
    }

    pub(crate) fn reset_room(&mut self) {
        self.room = [[0; LANES]; ROWS];
    }

    pub(crate) fn is_settled(&self) -> bool {
        self.room.iter().flatten().all(|&room| room >= 0)
    }
}

impl Totals {
    #[inline(always)]
    fn book_split(&mut self, change: SplitChange) {
        self.split_up.blocks += change.blocks.max(0);
        self.split_up.bytes += change.bytes.max(0);
        self.split_down.blocks -= change.blocks.min(0);
        self.split_down.bytes -= change.bytes.min(0);
    }

    /// What came and what went in a lane.
    fn of(&self, lane: Lane) -> (i64, i64) {
        match lane {
            Lane::Allocation => (self.granted.blocks, self.freed.blocks),
            Lane::AllocatedBytes => (self.granted.bytes, self.freed.bytes),
            Lane::Active => (self.granted.blocks, self.retired.blocks),
            Lane::ActiveBytes => (self.granted.bytes, self.retired.bytes),
            Lane::RequestedBytes => (self.granted.requested, self.retired.requested),
            Lane::InactiveSplit => (self.split_up.blocks, self.split_down.blocks),
            Lane::InactiveSplitBytes => (self.split_up.bytes, self.split_down.bytes),
            Lane::Oversize => (self.oversize_granted, self.oversize_freed),
        }
    }
}
