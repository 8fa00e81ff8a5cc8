//! A simple model of the statistics: the values of the counters that follow from counting what the program did.

use millpond::MemoryStats;
use millpond::stats::Stat;

/// The expected statistics, computed from what the program did. The model knows blocks and their sizes, but no pools.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Model {
    allocation: Stat,
    allocated_bytes: Stat,
    /// The bytes that were requested for the live blocks.
    requested_bytes: u64,
    ooms: u64,
}

impl Model {
    /// Counts a block that was handed out.
    pub fn granted(&mut self, bytes: u64, requested: u64) {
        self.allocation.increase(1);
        self.allocated_bytes.increase(bytes);
        self.requested_bytes += requested;
    }

    /// Counts by what a block became longer, and how much of that was requested.
    pub fn grown(&mut self, bytes: u64, requested: u64) {
        self.allocated_bytes.increase(bytes);
        self.requested_bytes += requested;
    }

    /// Counts a block that the program freed.
    pub fn freed(&mut self, bytes: u64, requested: u64) {
        self.allocation.decrease(1);
        self.allocated_bytes.decrease(bytes);
        self.requested_bytes -= requested;
    }

    /// Counts a request that was refused for lack of memory.
    pub fn refused(&mut self) {
        self.ooms += 1;
    }

    /// Resets the peaks to the current values.
    pub fn reset_peaks(&mut self) {
        for stat in [&mut self.allocation, &mut self.allocated_bytes] {
            stat.peak = stat.current;
        }
    }

    /// Resets the totals, and the counts of events with them.
    pub fn reset_totals(&mut self) {
        for stat in [&mut self.allocation, &mut self.allocated_bytes] {
            (stat.allocated, stat.freed) = (0, 0);
        }
        self.ooms = 0;
    }

    /// Compares exactly the counters that the model knows, and checks relations that hold in any case for the others.
    /// `peaks` says that the operations came one after the other, so that the peaks are known too. Blocks of paused
    /// groups count as active, and their pages, of `paused_bytes`, are not reserved.
    ///
    /// # Errors
    ///
    /// If a counter differs: the first difference, with both numbers.
    pub fn compare(&self, stats: &MemoryStats, peaks: bool, paused_bytes: u64) -> Result<(), String> {
        for (name, ours, mut theirs) in [
            ("allocation", self.allocation, stats.allocation.all),
            ("allocated_bytes", self.allocated_bytes, stats.allocated_bytes.all),
        ] {
            if !peaks {
                theirs.peak = ours.peak;
            }
            if ours != theirs {
                return Err(format!("{name}.all is {theirs:?}, and by counting {ours:?}"));
            }
        }
        let ooms = stats.num_ooms + stats.num_oom_rejections;
        if ooms != self.ooms {
            return Err(format!("{ooms} refusals in the statistics, {} seen", self.ooms));
        }
        let current = |name: &str| match stats.families().iter().find(|(family, _)| *family == name) {
            Some((_, by_pool)) => by_pool.all.current,
            None => panic!("{name} is no family of statistics"),
        };
        let order = [
            ("active", "allocation"),
            ("active_bytes", "allocated_bytes"),
            ("active_bytes", "requested_bytes"),
            ("reserved_bytes", "active_bytes"),
            ("reserved_bytes", "inactive_split_bytes"),
        ];
        for (more, less) in order {
            let paused = if more == "reserved_bytes" { paused_bytes } else { 0 };
            if current(more) + paused < current(less) {
                return Err(format!("{less} is {}, more than {more}, which is {}", current(less), current(more)));
            }
        }
        if current("requested_bytes") < self.requested_bytes {
            let theirs = current("requested_bytes");
            return Err(format!("requested_bytes is {theirs}, and live blocks alone hold {}", self.requested_bytes));
        }
        sums(stats, peaks)
    }
}

/// Checks that in every family the two pools add up to the whole. The peaks of all pools and of each are read one after
/// the other: with several threads they may belong to different moments.
fn sums(stats: &MemoryStats, peaks: bool) -> Result<(), String> {
    for (name, by_pool) in stats.families() {
        let (all, small, large) = (by_pool.all, by_pool.small_pool, by_pool.large_pool);
        let adds_up = small.current + large.current == all.current
            && small.allocated + large.allocated == all.allocated
            && small.freed + large.freed == all.freed
            && (!peaks || (all.peak <= small.peak + large.peak && all.peak >= small.peak.max(large.peak)));
        if !adds_up {
            return Err(format!("{name}: {small:?} and {large:?} do not add up to {all:?}"));
        }
    }
    Ok(())
}
