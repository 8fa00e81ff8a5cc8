//! Statistics for users: PyTorch's families, pools and names, and the ledger of where every reserved byte is.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::AddAssign;
use core::time::Duration;

use millpond_backend::StreamId;

use crate::ids::Side;

/// One of PyTorch's counters: the current value, the peak, and the totals of increases and decreases.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stat {
    /// The present value.
    pub current: u64,
    /// The highest `current` since the last reset of peaks.
    pub peak: u64,
    /// The sum of everything added since the last reset of totals.
    pub allocated: u64,
    /// The sum of everything taken away since the last reset of totals.
    pub freed: u64,
}

impl Stat {
    /// Adds `n`.
    pub fn increase(&mut self, n: u64) {
        self.current += n;
        self.allocated += n;
        self.peak = self.peak.max(self.current);
    }

    /// Takes `n` away.
    ///
    /// # Panics
    ///
    /// Panics if the counter is lower than `n`. A counter that goes below zero is a bug in Millpond.
    pub fn decrease(&mut self, n: u64) {
        assert!(n <= self.current, "a counter at {} is decreased by {n}", self.current);
        self.current -= n;
        self.freed += n;
    }

    pub(crate) fn reset_peak(&mut self) {
        self.peak = self.current;
    }

    pub(crate) fn reset_totals(&mut self) {
        self.allocated = 0;
        self.freed = 0;
    }
}

/// A family of counters: for both pools together, and by pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StatByPool {
    /// Both pools together. Its peak is the peak of the sum.
    pub all: Stat,
    /// The small pool's share.
    pub small_pool: Stat,
    /// The large pool's share.
    pub large_pool: Stat,
}

impl StatByPool {
    /// Changes the counter of a side and that of both together.
    pub(crate) fn change(&mut self, side: Side, change: impl Fn(&mut Stat)) {
        change(&mut self.all);
        change(match side {
            Side::Small => &mut self.small_pool,
            Side::Large => &mut self.large_pool,
        });
    }

    /// Changes all three counters.
    pub(crate) fn each(&mut self, change: impl Fn(&mut Stat)) {
        [&mut self.all, &mut self.small_pool, &mut self.large_pool].into_iter().for_each(change);
    }
}

/// What a pool has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PoolStats {
    /// The number of references to it: PyTorch's `getPoolUseCount`.
    pub uses: u64,
    /// The bytes taken from the driver for it: PyTorch's `reserved_bytes_by_private_pools`. Spare pages of `paged`,
    /// which were created for a request that failed, are not in any pool yet.
    pub reserved_bytes: StatByPool,
    /// The bytes in buffers, after rounding.
    pub allocated_bytes: u64,
    /// The bytes in free blocks.
    pub free_bytes: u64,
}

/// All of `torch.cuda.memory_stats`, under PyTorch's names. Sizes are in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MemoryStats {
    /// Blocks handed out and not yet freed by the program.
    pub allocation: StatByPool,
    /// The bytes in those blocks, after rounding.
    pub allocated_bytes: StatByPool,
    /// Segments taken from the driver (expandable ones are not counted, as in PyTorch).
    pub segment: StatByPool,
    /// Bytes taken from the driver.
    pub reserved_bytes: StatByPool,
    /// Blocks handed out, or freed and still waiting for a point.
    pub active: StatByPool,
    /// The bytes in those blocks.
    pub active_bytes: StatByPool,
    /// Free blocks in segments that are partly in use.
    pub inactive_split: StatByPool,
    /// The bytes in those blocks.
    pub inactive_split_bytes: StatByPool,
    /// The bytes that programs asked for in the active blocks, before rounding.
    pub requested_bytes: StatByPool,
    /// Blocks of at least `max_split_size`.
    pub oversize_allocations: Stat,
    /// Segments of at least `max_split_size`.
    pub oversize_segments: Stat,
    /// Allocations that succeeded or failed only after everything cached was released.
    pub num_alloc_retries: u64,
    /// Allocations refused for lack of memory.
    pub num_ooms: u64,
    /// Waits for every outstanding point.
    pub num_sync_all_streams: u64,
    /// Driver allocations, and mappings in a range.
    pub num_device_alloc: u64,
    /// Driver releases, and unmappings in a range.
    pub num_device_free: u64,
    /// Requests refused by `throw_on_cudamalloc_oom`. The counter is newer than the 122 keys, so it is not in
    /// [`flat`](Self::flat).
    pub num_oom_rejections: u64,
    /// `max_split_size`, in bytes; `None` without a limit (PyTorch prints -1).
    pub max_split_size: Option<u64>,
}

/// What `paged` has done with pages. All values are 0 under other policies.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PageStats {
    /// Pages that exist now.
    pub pages: u64,
    /// Mappings of pages in windows now. A page counts once for each window that it is in.
    pub shadows: u64,
    /// Pages created.
    pub created: u64,
    /// Pages released.
    pub released: u64,
    /// Mappings of pages that were made in windows, new and lengthened ones.
    pub moved: u64,
    /// Pieces of free memory that were handed out to requests for which a stream was told to wait for others on the
    /// device.
    pub moved_behind_wait: u64,
    /// Requests that were served through a kept window, without any driver call for pages.
    pub returned: u64,
    /// Mappings of pages in windows that the driver has unmapped.
    pub unmapped: u64,
}

/// What went back to the driver because nothing had needed it for a while: see
/// [`IdleRelease`](crate::settings::IdleRelease).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct IdleStats {
    /// How often memory went back.
    pub releases: u64,
    /// The bytes that went back, of all times together.
    pub released_bytes: u64,
    /// How long ago the last time was, if there was one.
    pub since_last: Option<Duration>,
}

/// Reserved bytes beyond the slack, and the work in flight that may be the reason. Sizes are in bytes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SlackStats {
    /// The most that was ever live, in blocks after rounding, whether peaks were reset meanwhile or not. Under `paged`,
    /// since the cache was emptied last while no more was live than the slack of that: what was live before then does
    /// not count, and what came since counts as it was seen at requests that missed, until it exceeds the peak. Where
    /// idle memory goes back by itself, only what was live since the last time that some did.
    pub most_live_bytes: u64,
    /// The most that `paged` aims to reserve without work in flight: `1 + slack` times what was live. Nothing is
    /// refused because of it. `None` under other policies.
    pub bound_bytes: Option<u64>,
    /// What is reserved beyond that.
    pub beyond_bytes: u64,
    /// Freed memory that waits for points which are not known to be reached, or that several streams may still use.
    /// Each byte counts once.
    pub pinned_bytes: u64,
    /// The streams whose work may still use freed memory, in order.
    pub pinned_by: Vec<PinnedBy>,
    /// Whether streams were found to run side by side.
    pub sharing: Sharing,
}

/// How the work of several streams shares the device, as far as `paged` knows. With `growth:balanced` it decides
/// whether to create pages or let streams wait for each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Sharing {
    /// No time has passed, or none is told (where the application closes ticks): pages are created.
    #[default]
    Untold,
    /// Too little was seen so far: 32 MiB at most are created before streams wait, unless that goes on for long.
    Unknown,
    /// Several streams together are hardly faster than one: streams wait.
    InTurn,
    /// Several streams together are clearly faster than one: pages are created.
    SideBySide,
}

impl Sharing {
    /// Returns the name that reports use.
    pub const fn name(self) -> &'static str {
        match self {
            Sharing::Untold => "untold",
            Sharing::Unknown => "unknown",
            Sharing::InTurn => "in turn",
            Sharing::SideBySide => "side by side",
        }
    }
}

/// The freed memory that the work of one stream may still use. Sizes are in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PinnedBy {
    /// The stream.
    pub stream: StreamId,
    /// Freed memory that waits for points of the stream, or that the stream and others may still use. Memory of several
    /// streams counts for each of them.
    pub bytes: u64,
    /// Free memory that the stream itself was the last to use: it gets it again without any wait, other streams do not.
    pub own_bytes: u64,
}

impl MemoryStats {
    /// Returns the families with a split by pool, under their PyTorch names, in alphabetical order.
    pub fn families(&self) -> [(&'static str, &StatByPool); 9] {
        [
            ("active", &self.active),
            ("active_bytes", &self.active_bytes),
            ("allocated_bytes", &self.allocated_bytes),
            ("allocation", &self.allocation),
            ("inactive_split", &self.inactive_split),
            ("inactive_split_bytes", &self.inactive_split_bytes),
            ("requested_bytes", &self.requested_bytes),
            ("reserved_bytes", &self.reserved_bytes),
            ("segment", &self.segment),
        ]
    }

    /// Returns every value under its PyTorch key, such as `allocated_bytes.all.peak`: the 122 keys of
    /// `torch.cuda.memory_stats` in PyTorch 2.11, in alphabetical order.
    pub fn flat(&self) -> Vec<(String, i64)> {
        let mut rows = Vec::with_capacity(122);
        let mut push = |key: String, stat: &Stat| {
            let values = [stat.allocated, stat.current, stat.freed, stat.peak];
            for (name, value) in ["allocated", "current", "freed", "peak"].into_iter().zip(values) {
                rows.push((format!("{key}.{name}"), to_i64(value)));
            }
        };
        for (family, by_pool) in self.families() {
            push(format!("{family}.all"), &by_pool.all);
            push(format!("{family}.large_pool"), &by_pool.large_pool);
            push(format!("{family}.small_pool"), &by_pool.small_pool);
        }
        push("oversize_allocations".into(), &self.oversize_allocations);
        push("oversize_segments".into(), &self.oversize_segments);
        let counts = [
            ("max_split_size", self.max_split_size.map_or(-1, to_i64)),
            ("num_alloc_retries", to_i64(self.num_alloc_retries)),
            ("num_device_alloc", to_i64(self.num_device_alloc)),
            ("num_device_free", to_i64(self.num_device_free)),
            ("num_ooms", to_i64(self.num_ooms)),
            ("num_sync_all_streams", to_i64(self.num_sync_all_streams)),
        ];
        rows.extend(counts.map(|(key, value)| (key.into(), value)));
        rows.sort_unstable();
        rows
    }
}

fn to_i64(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// The reserved bytes by their use. [`total`](WasteLedger::total) is exactly what was taken from the driver.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WasteLedger {
    /// Bytes that the program asked for and holds.
    pub live_bytes: u64,
    /// Bytes handed out beyond what was asked for, by rounding and by blocks left whole.
    pub rounding_bytes: u64,
    /// Bytes cached in segments (or whole pages) that nothing pins: they can be reused, and `empty_cache` would give
    /// them back.
    pub ready_bytes: u64,
    /// Bytes in blocks that the program has freed and that wait for a point.
    pub waiting_bytes: u64,
    /// Free bytes that several streams may still use: whoever gets them comes after that, by a device-side wait where
    /// the device has those.
    pub guarded_bytes: u64,
    /// Free bytes inside a segment (or page) that live or waiting blocks pin.
    pub stranded_bytes: u64,
    /// Free bytes of private pools that are held, in segments (or whole pages) that no block pins: requests in the same
    /// pool can reuse them, and they stay reserved as long as the pool has references.
    pub held_bytes: u64,
}

impl WasteLedger {
    /// Returns the sum of the parts: all reserved bytes.
    pub fn total(&self) -> u64 {
        self.parts().iter().map(|(_, bytes)| bytes).sum()
    }

    /// Returns the parts with their names, in the order of the fields.
    pub fn parts(&self) -> [(&'static str, u64); 7] {
        [
            ("live", self.live_bytes),
            ("rounding", self.rounding_bytes),
            ("ready", self.ready_bytes),
            ("waiting", self.waiting_bytes),
            ("guarded", self.guarded_bytes),
            ("stranded", self.stranded_bytes),
            ("held", self.held_bytes),
        ]
    }

    /// Returns the same bytes, of a pool that is held: what would be ready to go back is not.
    pub(crate) fn of_held_pool(self) -> WasteLedger {
        WasteLedger { ready_bytes: 0, held_bytes: self.held_bytes + self.ready_bytes, ..self }
    }
}

impl AddAssign for WasteLedger {
    fn add_assign(&mut self, other: WasteLedger) {
        self.live_bytes += other.live_bytes;
        self.rounding_bytes += other.rounding_bytes;
        self.ready_bytes += other.ready_bytes;
        self.waiting_bytes += other.waiting_bytes;
        self.guarded_bytes += other.guarded_bytes;
        self.stranded_bytes += other.stranded_bytes;
        self.held_bytes += other.held_bytes;
    }
}
