//! Counters, as PyTorch's `increase_stat` and `decrease_stat`.

use millpond::stats::{Stat, StatByPool};

pub(super) fn rise(stat: &mut Stat, amount: u64) {
    stat.current += amount;
    stat.allocated += amount;
    if stat.current > stat.peak {
        stat.peak = stat.current;
    }
}

pub(super) fn fall(stat: &mut Stat, amount: u64) {
    stat.current = stat.current.checked_sub(amount).expect("a counter of the model falls below zero");
    stat.freed += amount;
}

fn pool(family: &mut StatByPool, small: bool) -> &mut Stat {
    if small { &mut family.small_pool } else { &mut family.large_pool }
}

pub(super) fn up(family: &mut StatByPool, small: bool, amount: u64) {
    rise(&mut family.all, amount);
    rise(pool(family, small), amount);
}

pub(super) fn down(family: &mut StatByPool, small: bool, amount: u64) {
    fall(&mut family.all, amount);
    fall(pool(family, small), amount);
}

/// Changes a counter once, by the difference of what was added and what was removed.
pub(super) fn net(family: &mut StatByPool, small: bool, added: u64, gone: u64) {
    match added.checked_sub(gone) {
        Some(0) => {}
        Some(more) => up(family, small, more),
        None => down(family, small, gone - added),
    }
}

impl super::Model {
    /// Sets every peak to the current value.
    pub fn reset_peak(&mut self) {
        self.each_stat(|stat| stat.peak = stat.current);
    }

    /// Sets the sums of what was added and removed to 0, and the bare counters, too.
    pub fn reset_accumulated(&mut self) {
        self.each_stat(|stat| (stat.allocated, stat.freed) = (0, 0));
        let s = &mut self.stats;
        for counter in [
            &mut s.num_alloc_retries,
            &mut s.num_ooms,
            &mut s.num_sync_all_streams,
            &mut s.num_device_alloc,
            &mut s.num_device_free,
        ] {
            *counter = 0;
        }
    }

    fn each_stat(&mut self, mut change: impl FnMut(&mut Stat)) {
        let s = &mut self.stats;
        for family in [
            &mut s.allocation,
            &mut s.allocated_bytes,
            &mut s.segment,
            &mut s.reserved_bytes,
            &mut s.active,
            &mut s.active_bytes,
            &mut s.inactive_split,
            &mut s.inactive_split_bytes,
            &mut s.requested_bytes,
        ] {
            change(&mut family.all);
            change(&mut family.small_pool);
            change(&mut family.large_pool);
        }
        change(&mut s.oversize_allocations);
        change(&mut s.oversize_segments);
    }
}
