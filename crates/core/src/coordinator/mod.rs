//! The coordinator: everything that concerns more than one shard.
//!
//! It owns what is reserved and the limits on it, the points that pending blocks wait for, the device's peaks, and the
//! plans of requests that missed. It holds no shard: callers lend it access through [`Shards`], one shard at a time, so
//! that other streams can work while one grows.

mod calls;
mod check;
mod grow;
mod paged;
mod peaks;
mod pending;
mod plan;
mod report;
mod step;
mod sweep;
mod turn;

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use millpond_backend::{PageCaps, Point, Reuse, StreamId, Tick};

use crate::ids::{BlockId, PageId, Place, PoolId, SegmentId, ShardId, Side, Slot};
use crate::ledger::WasteLedger;
use crate::meter::{LANES, ROWS, Row};
use crate::page::{Page, Pages};
use crate::settings::Settings;
use crate::shard::{Rules, SegmentView, Shard};
use crate::size::Sizes;
use crate::stats::{PageStats, Stat, StatByPool};

use paged::Paging;
use turn::Turns;

pub use plan::Plan;
pub use report::{FreeRange, Pin, Report};
pub use step::{Outcome, PageCall, Step};

/// Access to the shards of an allocator, one at a time. The shell locks a shard for each call.
pub trait Shards {
    /// Runs `f` on the shard, [`tidied`](Shard::tidied).
    fn with<R>(&mut self, shard: ShardId, f: impl FnOnce(&mut Shard) -> R) -> R;

    /// Runs `f` on the shard like [`with`](Shards::with). Returns `None` if that would mean to wait for another thread
    /// and this access does not wait.
    fn try_with<R>(&mut self, shard: ShardId, f: impl FnOnce(&mut Shard) -> R) -> Option<R> {
        Some(self.with(shard, f))
    }

    /// Keeps the shards unchanged, except through this access, until [`let_go`](Shards::let_go): what several looks at
    /// them see was true at one moment. The shell keeps every shard's lock. Does nothing if the shards are held
    /// already, or where there is no other access.
    fn hold(&mut self) {}

    /// Ends what [`hold`](Shards::hold) began.
    fn let_go(&mut self) {}
}

impl Shards for Vec<Shard> {
    fn with<R>(&mut self, shard: ShardId, f: impl FnOnce(&mut Shard) -> R) -> R {
        f(self[shard.0 as usize].tidied())
    }
}

/// The facts about a device and a memory class on which decisions are based.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeviceFacts {
    /// All bytes of the class.
    pub total_bytes: u64,
    /// When memory that a stream freed can be used again on the same stream.
    pub reuse: Reuse,
    /// The properties of its pages, where there is virtual memory.
    pub pages: Option<PageCaps>,
    /// Whether one stream can wait for another on the device, also for work that was recorded a moment ago.
    pub stream_wait: bool,
}

/// An entry in a stream's queue of pending blocks: a block that waits until the stream has reached a tick.
#[derive(Clone, Copy, Debug)]
struct Waiter {
    tick: Tick,
    shard: ShardId,
    block: BlockId,
}

/// The part of the allocator's decisions that concerns the whole device.
pub struct Coordinator {
    settings: Settings,
    sizes: Sizes,
    facts: DeviceFacts,
    limit: Option<u64>,
    shards: Vec<(StreamId, PoolId)>,
    reserved: StatByPool,
    segments: StatByPool,
    oversize_segments: Stat,
    scalars: Scalars,
    /// The bytes that plans are asking the driver for at present, and those of plans that were lost meanwhile.
    reserving: u64,
    turns: Turns,
    /// The device's peaks of the shards' counters: see [`crate::meter`].
    peaks: [Row; ROWS],
    /// The pending blocks, by the stream that they wait for.
    queues: Vec<VecDeque<Waiter>>,
    waiters: usize,
    /// The newest tick that each stream is known to have reached.
    reached: Vec<Tick>,
    births: u64,
    pages: Pages,
    /// What the `paged` policy has observed and done.
    paging: Paging,
}

#[derive(Clone, Copy, Default)]
struct Scalars {
    num_alloc_retries: u64,
    num_ooms: u64,
    num_sync_all_streams: u64,
    num_device_alloc: u64,
    num_device_free: u64,
    num_oom_rejections: u64,
}

impl Coordinator {
    /// Creates the state of an allocator with nothing reserved.
    ///
    /// # Panics
    ///
    /// Panics on settings that the configuration parser refuses, and on expandable segments or the `paged` policy
    /// without virtual memory.
    pub fn new(settings: Settings, facts: DeviceFacts) -> Self {
        settings.check();
        assert!(
            !settings.needs_pages() || facts.pages.is_some(),
            "expandable segments or pages on a device without virtual memory"
        );
        let limit = limit_of(settings.memory_fraction, facts.total_bytes);
        Self {
            sizes: Sizes::new(&settings),
            settings,
            facts,
            limit,
            shards: Vec::new(),
            reserved: StatByPool::default(),
            segments: StatByPool::default(),
            oversize_segments: Stat::default(),
            scalars: Scalars::default(),
            reserving: 0,
            turns: Turns::default(),
            peaks: [[0; LANES]; ROWS],
            queues: Vec::new(),
            waiters: 0,
            reached: Vec::new(),
            births: 0,
            pages: Pages::default(),
            paging: Paging::default(),
        }
    }

    /// Opens the shard of a stream and a private pool. The caller keeps it and lends it back through [`Shards`], under
    /// ids that count up from 0.
    pub fn open_shard(&mut self, stream: StreamId, pool: PoolId) -> Shard {
        let id = ShardId(u32::try_from(self.shards.len()).unwrap_or(u32::MAX));
        self.shards.push((stream, pool));
        self.know_stream(stream);
        Shard::new(id, stream, pool, Rules::new(&self.settings, self.facts.reuse))
    }

    fn know_stream(&mut self, stream: StreamId) {
        let needed = stream.0 as usize + 1;
        if self.queues.len() < needed {
            self.queues.resize_with(needed, VecDeque::new);
            self.reached.resize(needed, Tick::ZERO);
        }
    }

    /// Returns the settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Returns the rounding rules.
    pub fn sizes(&self) -> &Sizes {
        &self.sizes
    }

    /// Sets the number of bytes that the device's budget leaves to a plan, for drivers that would grant more than the
    /// budget. Cached memory is then given back or moved before the budget is exceeded. No request is refused because
    /// of the budget.
    pub fn heed_budget(&self, plan: &mut Plan, free_bytes: u64) {
        plan.allowance = Some((self.reserved.all.current + self.reserving).saturating_add(free_bytes));
    }

    /// Returns the limit on reserved bytes, if there is one.
    pub fn limit(&self) -> Option<u64> {
        self.limit
    }

    /// Sets the limit on reserved bytes. As in PyTorch, a limit below what is reserved does not release anything.
    pub fn set_limit(&mut self, limit: Option<u64>) {
        self.limit = limit;
    }

    /// Sets the limit as a share of the device's bytes (PyTorch's `set_per_process_memory_fraction`). A share of 1
    /// means no limit.
    ///
    /// # Panics
    ///
    /// Panics if the share is not from 0 to 1.
    pub fn set_memory_fraction(&mut self, fraction: f64) {
        assert!((0.0..=1.0).contains(&fraction), "a memory fraction of {fraction} is not from 0 to 1");
        self.limit = limit_of(fraction, self.facts.total_bytes);
    }

    /// Returns the number of bytes that were taken from the driver and not given back.
    pub fn reserved_bytes(&self) -> u64 {
        self.reserved.all.current
    }

    /// Returns the number of reserved bytes above which garbage collection releases memory, if it is on. It is a share
    /// of the limit, as in PyTorch, or without a limit of the device's total if the settings allow that.
    fn gc_goal(&self) -> Option<u64> {
        let whole = match self.limit {
            Some(limit) => limit,
            None if self.settings.gc_without_limit => self.facts.total_bytes,
            None => return None,
        };
        (self.settings.gc_threshold > 0.0).then_some((self.settings.gc_threshold * whole as f64) as u64)
    }

    /// Returns whether garbage collection is on. Searches are counted in that case, because they are its clock.
    pub fn counts_searches(&self) -> bool {
        self.gc_goal().is_some()
    }

    fn shard_ids(&self) -> impl Iterator<Item = ShardId> + use<> {
        (0..self.shards.len() as u32).map(ShardId)
    }

    fn stream_of(&self, shard: ShardId) -> StreamId {
        self.shards[shard.0 as usize].0
    }

    fn is_reached(&self, point: Point) -> bool {
        self.reached[point.stream.0 as usize] >= point.tick
    }

    fn birth(&mut self) -> SegmentId {
        self.births += 1;
        SegmentId(self.births - 1)
    }

    fn book_reserved(&mut self, side: Side, bytes: u64) {
        both(&mut self.reserved, side, |stat| stat.increase(bytes));
        self.scalars.num_device_alloc += 1;
    }

    fn book_released(&mut self, side: Side, bytes: u64) {
        both(&mut self.reserved, side, |stat| stat.decrease(bytes));
        self.scalars.num_device_free += 1;
    }

    fn book_segment(&mut self, side: Side, bytes: u64, arrives: bool) {
        let change = |stat: &mut Stat| if arrives { stat.increase(1) } else { stat.decrease(1) };
        both(&mut self.segments, side, change);
        if bytes >= self.settings.max_split() {
            change(&mut self.oversize_segments);
        }
    }

    /// Returns every segment of every shard, in order of birth.
    pub fn layout(&self, shards: &mut impl Shards) -> Vec<SegmentView> {
        let mut all = Vec::new();
        for id in self.shard_ids() {
            all.append(&mut shards.with(id, |shard| shard.layout()));
        }
        all.sort_by_key(|view| view.id);
        all
    }

    /// Returns where every reserved byte is.
    pub fn ledger(&self, shards: &mut impl Shards) -> WasteLedger {
        let mut sum = WasteLedger { ready_bytes: self.pages.spare_bytes(), ..WasteLedger::default() };
        for id in self.shard_ids() {
            sum += shards.with(id, |shard| shard.ledger());
        }
        sum
    }

    /// Returns the slots of the segments that the shards hold, each with whether it is a range. They are what has to be
    /// given back at the end.
    pub fn holdings(&self, shards: &mut impl Shards) -> Vec<(ShardId, Slot, bool)> {
        let mut all = Vec::new();
        for id in self.shard_ids() {
            shards.with(id, |shard| {
                all.extend(shard.segments.iter().map(|(slot, segment)| (id, slot, segment.is_expandable())));
            });
        }
        all
    }

    /// Returns every page with the places where it is mapped, which have to be unmapped at the end.
    pub fn mappings(&self) -> Vec<(PageId, Vec<Place>)> {
        let places = |page: &Page| page.shadows.iter().map(|shadow| shadow.place).chain(page.home).collect();
        self.pages.iter().map(|(id, page)| (id, places(page))).collect()
    }

    /// Returns what the `paged` policy has done so far.
    pub fn page_stats(&self) -> PageStats {
        if !self.settings.is_paged() {
            return PageStats::default();
        }
        let (mut pages, mut shadows) = (0, 0);
        for (_, page) in self.pages.iter() {
            pages += 1;
            shadows += page.shadows.len() as u64;
        }
        PageStats { pages, shadows, ..self.paging.stats }
    }
}

fn limit_of(fraction: f64, total_bytes: u64) -> Option<u64> {
    (fraction < 1.0).then_some((fraction * total_bytes as f64) as u64)
}

fn both(stats: &mut StatByPool, side: Side, change: impl Fn(&mut Stat)) {
    change(&mut stats.all);
    change(match side {
        Side::Small => &mut stats.small_pool,
        Side::Large => &mut stats.large_pool,
    });
}
