//! The costs of driver calls, in nanoseconds of the virtual clock.

/// A cost that grows with the bytes: constant up to `small_bytes`, then linear through both points.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Curve {
    /// The size in bytes up to which the cost is `small_ns`.
    pub small_bytes: u64,
    /// Nanoseconds at `small_bytes` and below.
    pub small_ns: u64,
    /// The second measured size in bytes.
    pub large_bytes: u64,
    /// Nanoseconds at `large_bytes`. The line continues beyond it.
    pub large_ns: u64,
}

impl Curve {
    /// Returns a cost that is the same for any number of bytes.
    pub const fn flat(ns: u64) -> Curve {
        Curve { small_bytes: 0, small_ns: ns, large_bytes: 0, large_ns: ns }
    }

    /// Returns the cost of this number of bytes, in nanoseconds. Uses integer arithmetic and rounds down, so that the
    /// result is the same on every machine.
    pub fn at(&self, bytes: u64) -> u64 {
        if bytes <= self.small_bytes || self.large_bytes <= self.small_bytes {
            return self.small_ns;
        }
        let rise = u128::from(self.large_ns.saturating_sub(self.small_ns));
        let run = u128::from(self.large_bytes - self.small_bytes);
        let more = rise * u128::from(bytes - self.small_bytes) / run;
        u64::try_from(u128::from(self.small_ns) + more).unwrap_or(u64::MAX)
    }
}

/// The cost of each driver call, in nanoseconds. Waiting costs nothing here, because the driver does not determine how
/// long work runs.
///
/// A call that fails is counted in [`Calls`](crate::Calls) and adds nothing to the clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CostModel {
    /// Taking a segment.
    pub reserve: Curve,
    /// Giving a segment back, without the wait for the device that it may imply.
    pub release: Curve,
    /// Reserving addresses.
    pub reserve_range_ns: u64,
    /// Giving addresses back.
    pub release_range_ns: u64,
    /// Creating physical memory.
    pub create_page: Curve,
    /// Giving physical memory back, whatever its size.
    pub release_page_ns: u64,
    /// Mapping a page. Each map is followed by `set_access_ns`.
    pub map: Curve,
    /// Opening a mapped page for access.
    pub set_access_ns: u64,
    /// Unmapping a page.
    pub unmap_ns: u64,
    /// Recording an event, where the backend closes ticks.
    pub record_ns: u64,
    /// Querying an event.
    pub query_ns: u64,
    /// Queueing a device-side wait.
    pub stream_wait_ns: u64,
    /// Filling memory, until the device is done with it. This is the only transfer that has a cost here, because
    /// overwriting memory is what the allocator itself asks for. On hardware, fills that follow each other overlap with
    /// the host, so this is the most that they cost.
    pub fill: Curve,
}

impl CostModel {
    /// Returns a model in which calls are free, for tests of speed and of decisions.
    pub const fn free() -> CostModel {
        let none = Curve::flat(0);
        CostModel {
            reserve: none,
            release: none,
            reserve_range_ns: 0,
            release_range_ns: 0,
            create_page: none,
            release_page_ns: 0,
            map: none,
            set_access_ns: 0,
            unmap_ns: 0,
            record_ns: 0,
            query_ns: 0,
            stream_wait_ns: 0,
            fill: none,
        }
    }

    /// Returns the costs of the same H200 through Vulkan, where segments are buffers with their own memory and a queue
    /// binds the pages: `map` is how much longer a submit takes for each page that it binds, and the host need not wait
    /// for it. Both that and the memory of a page cost by the byte, as it is memory that no buffer has for itself.
    /// Reserving addresses was not measured, and costs nothing here.
    pub const fn h200_vulkan() -> CostModel {
        const SMALL: u64 = 2 << 20;
        const LARGE: u64 = 256 << 20;
        CostModel {
            reserve: Curve { small_bytes: SMALL, small_ns: 37_000, large_bytes: LARGE, large_ns: 180_000 },
            release: Curve { small_bytes: SMALL, small_ns: 36_000, large_bytes: LARGE, large_ns: 140_000 },
            reserve_range_ns: 0,
            release_range_ns: 0,
            create_page: Curve { small_bytes: SMALL, small_ns: 170_000, large_bytes: 64 << 20, large_ns: 1_150_000 },
            release_page_ns: 2_200,
            map: Curve { small_bytes: SMALL, small_ns: 141_000, large_bytes: 64 << 20, large_ns: 690_000 },
            set_access_ns: 0,
            unmap_ns: 0,
            record_ns: 0,
            query_ns: 22,
            stream_wait_ns: 1_700,
            fill: Curve { small_bytes: 1 << 20, small_ns: 60_700, large_bytes: 64 << 20, large_ns: 74_100 },
        }
    }

    /// Returns the measured costs of an idle H200 with driver 580.
    pub const fn h200() -> CostModel {
        const SMALL: u64 = 2 << 20;
        const LARGE: u64 = 8 << 30;
        CostModel {
            reserve: Curve { small_bytes: SMALL, small_ns: 43_000, large_bytes: LARGE, large_ns: 677_000 },
            release: Curve { small_bytes: SMALL, small_ns: 35_000, large_bytes: LARGE, large_ns: 3_600_000 },
            reserve_range_ns: 2_000,
            release_range_ns: 2_000,
            create_page: Curve::flat(9_000),
            release_page_ns: 9_000,
            map: Curve::flat(1_000),
            set_access_ns: 26_000,
            unmap_ns: 16_000,
            record_ns: 250,
            query_ns: 400,
            stream_wait_ns: 345,
            // `fill` in benches/record/nvidia-h200/cuda-2.md: beyond 1 MiB, 4.2 TB/s.
            fill: Curve { small_bytes: 1 << 20, small_ns: 9_000, large_bytes: 64 << 20, large_ns: 24_700 },
        }
    }
}

impl Default for CostModel {
    fn default() -> CostModel {
        CostModel::h200()
    }
}
