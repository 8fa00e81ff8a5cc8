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

/// The counters of one shard.
#[derive(Clone, Debug)]
pub(crate) struct Meter {
    /// What may still rise before a peak does: all, small, large.
    pub(crate) room: [Row; ROWS],
    /// Added since totals were reset, by side.
    allocated: [Row; 2],
    /// Taken away since totals were reset, by side.
    freed: [Row; 2],
    /// What was there when totals were reset, by side: `current = base + allocated - freed`.
    base: [Row; 2],
}

impl Meter {
    pub(crate) fn new() -> Self {
        Self { room: [[0; LANES]; ROWS], allocated: [[0; LANES]; 2], freed: [[0; LANES]; 2], base: [[0; LANES]; 2] }
    }

    /// A block was handed out. Answers whether room ran out.
    #[inline]
    pub(crate) fn grant(&mut self, side: Side, size: u64, requested: u64, oversize: bool, split: SplitChange) -> bool {
        let (size, requested) = (size as i64, requested as i64);
        self.change(side, &[1, size, 1, size, requested, split.blocks, split.bytes, i64::from(oversize)])
    }

    /// The program freed a block, which stays active until its points are reached.
    #[inline]
    pub(crate) fn free(&mut self, side: Side, size: u64, oversize: bool) {
        self.change(side, &[-1, -(size as i64), 0, 0, 0, 0, 0, -i64::from(oversize)]);
    }

    /// A freed block's last point was reached. Answers whether room ran out.
    #[inline]
    pub(crate) fn retire(&mut self, side: Side, size: u64, requested: u64, split: SplitChange) -> bool {
        self.change(side, &[0, 0, -1, -(size as i64), -(requested as i64), split.blocks, split.bytes, 0])
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
        let (size, requested) = (size as i64, requested as i64);
        self.change(side, &[-1, -size, -1, -size, -requested, split.blocks, split.bytes, -i64::from(oversize)])
    }

    #[inline(always)]
    fn change(&mut self, side: Side, by: &Row) -> bool {
        let s = side.index();
        let [all, small, large] = &mut self.room;
        let own = if s == 0 { small } else { large };
        let mut signs = 0;
        for lane in 0..LANES {
            let rise = by[lane];
            all[lane] -= rise;
            own[lane] -= rise;
            signs |= all[lane] | own[lane];
            self.allocated[s][lane] += rise.max(0);
            self.freed[s][lane] -= rise.min(0);
        }
        signs < 0
    }

    pub(crate) fn current(&self, side: Side, lane: Lane) -> i64 {
        let (s, lane) = (side.index(), lane as usize);
        self.base[s][lane] + self.allocated[s][lane] - self.freed[s][lane]
    }

    /// The sum over rows that the peaks are peaks of: all, small, large.
    pub(crate) fn current_rows(&self) -> [Row; ROWS] {
        let mut rows = [[0; LANES]; ROWS];
        for side in Side::BOTH {
            for lane in 0..LANES {
                let s = side.index();
                let now = self.base[s][lane] + self.allocated[s][lane] - self.freed[s][lane];
                rows[0][lane] += now;
                rows[1 + s][lane] = now;
            }
        }
        rows
    }

    pub(crate) fn totals(&self, side: Side, lane: Lane) -> (u64, u64) {
        let (s, lane) = (side.index(), lane as usize);
        (self.allocated[s][lane] as u64, self.freed[s][lane] as u64)
    }

    pub(crate) fn reset_totals(&mut self) {
        for side in Side::BOTH {
            let s = side.index();
            for lane in 0..LANES {
                self.base[s][lane] += self.allocated[s][lane] - self.freed[s][lane];
            }
            self.allocated[s] = [0; LANES];
            self.freed[s] = [0; LANES];
        }
    }

    pub(crate) fn reset_room(&mut self) {
        self.room = [[0; LANES]; ROWS];
    }

    pub(crate) fn is_settled(&self) -> bool {
        self.room.iter().flatten().all(|&room| room >= 0)
    }
}
