//! The coordinator: everything that concerns more than one shard.
//!
//! It owns what is reserved and the limits on it, the points that pending blocks wait for, the device's peaks, and the
//! plans of requests that missed. It holds no shard: callers lend it access through [`Shards`], one shard at a time, so
//! that other streams can work while one grows.

mod change;
mod checkpoint;
mod groups;
mod idle;
mod pools;
mod retire;
mod stats;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use millpond_backend::{PageCaps, Reuse, StreamId};

use crate::books::{Groups, Headroom, Idle, Pages, Paging, Pending, Pools, Ranges, Scopes, Turns};
use crate::governor::Governor;
use crate::ids::{PageId, Place, PoolId, ShardId, Slot};
use crate::looks;
use crate::memory::{Rules, least_to_map};
use crate::meter::Peaks;
use crate::segment::{Mapping, Role, Segment};
use crate::settings::{Backing, Policy, Settings};
use crate::shard::{SegmentView, Shard};
use crate::size::{NewSegment, Sizes, Want};
use crate::stats::{MemoryStats, PageStats, WasteLedger};

pub use checkpoint::{Checkpoint, Obstacle, Restored};
pub use groups::{GroupBytes, GroupExtent, GroupPage};

/// Access to the shards of an allocator, one at a time. The shell locks a shard for each call, and may keep the lock
/// until the next one.
///
/// The decisions take it as `&mut dyn Shards`, so that they are compiled once, and not for every device and every way
/// of locking in each program. A request that hits needs no access of this kind.
pub trait Shards {
    /// Calls `f` once with the shard, [`tidied`](Shard::tidied).
    fn visit(&mut self, shard: ShardId, f: &mut dyn FnMut(&mut Shard));

    /// Calls `f` once with the shard like [`visit`](Shards::visit), and returns `true`. Returns `false`, with `f` not
    /// called, if that would mean to wait for another thread and this access does not wait.
    fn try_visit(&mut self, shard: ShardId, f: &mut dyn FnMut(&mut Shard)) -> bool {
        self.visit(shard, f);
        true
    }

    /// Adds the shards that have begun to hold room since the last call, without the coordinator's doing: those of
    /// which [`Shard::hold_room`] returned `true`.
    fn add_holders(&mut self, _: &mut VecDeque<ShardId>) {}

    /// Keeps the shards unchanged, except through this access, until [`let_go`](Shards::let_go): what several looks at
    /// them see was true at one moment. The shell keeps every shard's lock. Does nothing if the shards are held
    /// already, or where there is no other access.
    fn hold(&mut self) {}

    /// Ends what [`hold`](Shards::hold) began. No lock of a shard is kept after this.
    fn let_go(&mut self) {}
}

impl dyn Shards + '_ {
    /// Runs `f` on the shard, [`tidied`](Shard::tidied), and returns its result.
    #[inline]
    pub(crate) fn with<R>(&mut self, shard: ShardId, f: impl FnOnce(&mut Shard) -> R) -> R {
        looks::note(1);
        let (mut f, mut result) = (Some(f), None);
        self.visit(shard, &mut |shard| result = f.take().map(|f| f(shard)));
        result.unwrap_or_else(|| panic!("{shard:?} was not visited"))
    }
}

impl Shards for Vec<Shard> {
    fn visit(&mut self, shard: ShardId, f: &mut dyn FnMut(&mut Shard)) {
        f(self[shard.0 as usize].tidied());
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
    /// Whether one stream can wait for another on the device.
    pub stream_wait: bool,
}

/// A shard that is open.
#[derive(Clone)]
struct Opened {
    /// The stream that it was opened for.
    stream: StreamId,
    pool: PoolId,
}

/// A segment, or a range of addresses, that a shard has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Holding {
    /// The shard.
    pub shard: ShardId,
    /// Its place there.
    pub slot: Slot,
    /// Whether it is a range.
    pub is_range: bool,
}

/// The device-wide half of the decisions.
#[derive(Clone)]
pub struct Coordinator {
    pub(crate) settings: Settings,
    pub(crate) backing: Backing,
    pub(crate) sizes: Sizes,
    /// The settings that hold instead in pools with a source of their own: PyTorch's policy, and the others as they
    /// are.
    pub(crate) sourced: Settings,
    pub(crate) facts: DeviceFacts,
    shards: Vec<Opened>,
    /// The streams of the shards, each once.
    streams: Vec<StreamId>,
    pub(crate) pools: Pools,
    pub(crate) groups: Groups,
    pub(crate) headroom: Headroom,
    pub(crate) pending: Pending,
    pub(crate) pages: Pages,
    pub(crate) ranges: Ranges,
    /// The peaks that run: since the last scope was opened, or the peaks were reset.
    peaks: Peaks,
    /// The peaks of parts of the program, and those of all of it since peaks were reset.
    scopes: Scopes,
    /// The shards that hold room for peaks, in the order in which they are asked for it: see
    /// [`settle`](Coordinator::settle).
    holders: VecDeque<ShardId>,
    /// The most bytes of blocks that the program held at a time before the running peaks began, or, where it has begun
    /// anew since, the most that were seen since then.
    most_live: u64,
    /// The running peak that there was when the program began anew, which counts no longer. 0 if the running peaks
    /// began since.
    forgotten_peak: u64,
    /// PyTorch's counters of what requests led to: what else there is of these is counted elsewhere.
    pub(crate) scalars: MemoryStats,
    pub(crate) turns: Turns,
    pub(crate) births: u64,
    pub(crate) paging: Paging,
    idle: Idle,
}

impl Coordinator {
    /// Creates the state of an allocator with nothing reserved.
    ///
    /// # Panics
    ///
    /// Panics on settings that the configuration parser refuses, and on expandable segments or the `paged` policy
    /// without virtual memory.
    pub fn new(settings: Settings, facts: DeviceFacts) -> Self {
        if let Err(error) = settings.validate() {
            panic!("{error}");
        }
        assert!(
            !settings.policy.needs_pages() || facts.pages.is_some(),
            "expandable segments or pages on a device without virtual memory"
        );
        let mut headroom = Headroom::new(facts.total_bytes, settings.max_split());
        headroom.set_fraction(settings.memory_fraction);
        Self {
            sizes: Sizes::new(&settings),
            sourced: Settings { policy: Policy::default(), ..settings.clone() },
            backing: settings.policy.backing(),
            paging: Paging::new(Governor::new(settings.policy, facts.pages.map_or(1, |pages| pages.granularity))),
            settings,
            facts,
            shards: Vec::new(),
            streams: Vec::new(),
            pools: Pools::default(),
            groups: Groups::default(),
            headroom,
            pending: Pending::default(),
            pages: Pages::default(),
            ranges: Ranges::new(facts.pages.map_or(u64::MAX, |pages| pages.address_bytes)),
            peaks: Peaks::default(),
            scopes: Scopes::default(),
            holders: VecDeque::new(),
            most_live: 0,
            forgotten_peak: 0,
            scalars: MemoryStats::default(),
            turns: Turns::default(),
            births: 0,
            idle: Idle::default(),
        }
    }

    /// Opens the shard of a stream and a pool, or of all streams of the pool under `paged`. The caller keeps it and
    /// lends it back through [`Shards`], under ids that count up from 0. A pool that does not exist is added, without a
    /// reference.
    pub fn open_shard(&mut self, stream: StreamId, pool: PoolId) -> Shard {
        let live = self.most_live();
        self.pools.know(pool, live);
        let id = ShardId(u32::try_from(self.shards.len()).unwrap_or(u32::MAX));
        self.shards.push(Opened { stream, pool });
        self.holders.push_back(id);
        self.know_stream(stream);
        let DeviceFacts { reuse, pages, .. } = self.facts;
        let rules = Rules::new(self.settings_in(pool), reuse, pages, self.paging.governor.page_unit());
        let mut shard = Shard::new(id, stream, pool, rules);
        shard.memory.rules.set_flags(self.pools.flags(pool));
        shard
    }

    /// Notes that a stream may request memory, from a shard that may belong to another stream.
    pub fn know_stream(&mut self, stream: StreamId) {
        if !self.streams.contains(&stream) {
            self.streams.push(stream);
        }
        self.pending.know_stream(stream);
    }

    /// Returns whether a stream has requested memory.
    pub fn knows_stream(&self, stream: StreamId) -> bool {
        self.streams.contains(&stream)
    }

    /// Returns when a stream may have memory again that it freed, at whatever address it used it.
    pub(crate) fn reuse_anywhere(&self) -> Reuse {
        match self.facts.pages.filter(|_| self.backing == Backing::Pages) {
            Some(pages) => self.facts.reuse.max(pages.alias_reuse),
            None => self.facts.reuse,
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

    /// Returns the limit on reserved bytes, if there is one.
    pub fn limit(&self) -> Option<u64> {
        self.headroom.limit
    }

    /// Sets the limit on reserved bytes. As in PyTorch, a limit below what is reserved does not release anything.
    pub fn set_limit(&mut self, limit: Option<u64>) {
        self.headroom.limit = limit;
    }

    /// Sets the limit as a share of the device's bytes (PyTorch's `set_per_process_memory_fraction`). A share of 1
    /// means no limit.
    ///
    /// # Panics
    ///
    /// Panics if the share is not from 0 to 1.
    pub fn set_memory_fraction(&mut self, fraction: f64) {
        assert!((0.0..=1.0).contains(&fraction), "a memory fraction of {fraction} is not from 0 to 1");
        self.headroom.set_fraction(fraction);
    }

    /// Returns the number of bytes that were taken from the driver and not given back.
    pub fn reserved_bytes(&self) -> u64 {
        self.headroom.reserved_bytes()
    }

    /// Returns the number of reserved bytes above which garbage collection releases memory, if it is on. It is a share
    /// of the limit, as in PyTorch, or without a limit of the device's total if the settings allow that.
    pub(crate) fn gc_goal(&self) -> Option<u64> {
        let whole = match self.headroom.limit {
            Some(limit) => limit,
            None if self.settings.gc_without_limit => self.headroom.total_bytes,
            None => return None,
        };
        (self.settings.gc_threshold > 0.0).then_some((self.settings.gc_threshold * whole as f64) as u64)
    }

    /// Returns whether garbage collection is on. Searches are counted in that case, because they are its clock.
    pub fn counts_searches(&self) -> bool {
        self.gc_goal().is_some()
    }

    pub(crate) fn shard_ids(&self) -> impl Iterator<Item = ShardId> + use<> {
        (0..self.shards.len() as u32).map(ShardId)
    }

    pub(crate) fn stream_of(&self, shard: ShardId) -> StreamId {
        self.shards[shard.0 as usize].stream
    }

    /// Returns the pool of a shard.
    pub(crate) fn pool_of(&self, shard: ShardId) -> PoolId {
        self.shards[shard.0 as usize].pool
    }

    /// Returns every segment of every shard, in order of birth.
    pub fn layout(&self, shards: &mut dyn Shards) -> Vec<SegmentView> {
        let mut all: Vec<_> = self.shard_ids().flat_map(|id| shards.with(id, |shard| shard.layout())).collect();
        all.sort_by_key(|view| view.id);
        all
    }

    /// Returns where every reserved byte is.
    pub fn ledger(&self, shards: &mut dyn Shards) -> WasteLedger {
        let mut sum = WasteLedger { ready_bytes: self.pages.spare_bytes(), ..WasteLedger::default() };
        for id in self.shard_ids() {
            let ledger = shards.with(id, |shard| shard.ledger());
            // Nothing of a held pool is ready to go back.
            sum += if self.may_release(id) { ledger } else { ledger.of_held_pool() };
        }
        sum
    }

    /// Returns the segments and ranges that the shards hold, which have to be given back at the end.
    pub fn holdings(&self, shards: &mut dyn Shards) -> Vec<Holding> {
        let of_shard = |id| {
            shards.with(id, |shard| {
                let holding =
                    |(slot, segment): (Slot, &Segment)| Holding { shard: id, slot, is_range: segment.is_expandable() };
                shard.memory.segments.iter().map(holding).collect::<Vec<_>>()
            })
        };
        self.shard_ids().flat_map(of_shard).collect()
    }

    /// Returns every page that is there with the places where it is mapped, which have to be unmapped at the end.
    pub fn mappings(&self) -> Vec<(PageId, Vec<Place>)> {
        let there = self.pages.iter().filter(|(_, page)| !page.paused);
        there.map(|(id, page)| (id, page.places())).collect()
    }

    /// Returns whether a place is the home of a page, or one of its windows; `None` if the page is not known to be
    /// mapped there.
    pub fn is_home(&self, page: PageId, at: Place) -> Option<bool> {
        let page = self.pages.get(page)?;
        if page.home == Some(at) { Some(true) } else { page.windows.contains(&at).then_some(false) }
    }

    /// Returns the length of a page in bytes; `None` if there is no such page.
    pub fn bytes_of(&self, page: PageId) -> Option<u64> {
        self.pages.get(page).map(|page| page.bytes)
    }

    /// Returns what the `paged` policy has done so far.
    pub fn page_stats(&self) -> PageStats {
        if self.backing != Backing::Pages {
            return PageStats::default();
        }
        let shadows = self.paging.windows.mappings() as u64;
        PageStats { pages: self.pages.iter().count() as u64, shadows, ..self.paging.stats }
    }

    /// Verifies every invariant of the coordinator and of all shards.
    ///
    /// # Panics
    ///
    /// On the first one that does not hold, with the numbers. It walks every block and every page.
    pub fn check(&mut self, shards: &mut dyn Shards) {
        self.settle_all(shards);
        let ledger = self.ledger(shards);
        let mut held = self.pages.spare_bytes_by_side();
        let (mut mapped, mut by_pool, mut plain) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
        for id in self.shard_ids() {
            shards.with(id, |shard| {
                shard.check();
                assert_eq!(shard.pool(), self.pool_of(id), "the pool of {id:?}");
                for view in shard.layout() {
                    let bytes = view.mapped_bytes();
                    held[view.side.index()] += bytes;
                    by_pool.entry(view.pool).or_insert([0; 2])[view.side.index()] += bytes;
                }
                plain.extend(shard.plain_segments());
                let seen = shard.memory.mappings().into_iter();
                mapped.extend(seen.map(|(place, m)| (place, (m.page, m.bytes, m.role == Role::Home))));
            });
        }
        self.headroom.check(held, &plain);
        self.ranges
            .check(self.shard_ids().map(|id| shards.with(id, |shard| shard.memory.segments.range_bytes())).sum());
        self.pools.check(&by_pool);
        assert_eq!(ledger.total(), self.reserved_bytes(), "the waste ledger {ledger:?} against reserved bytes");
        // G3: a page is mapped exactly where its entry says: at home, and in windows. P2: in one shard only.
        assert_eq!(mapped, self.pages.check(), "what is mapped in segments against what pages say");
        self.check_windows();
        for (id, page) in self.pages.iter() {
            let elsewhere = page.home.and_then(|home| page.windows.iter().find(|at| at.shard != home.shard));
            assert_eq!(elsewhere, None, "page {} of {:?} is mapped for another pool", id.0, page.home);
        }
        self.pending.check();
        self.check_peaks(shards);
    }

    /// Verifies that the book of windows agrees with itself and with the pages.
    fn check_windows(&self) {
        self.paging.windows.check();
        for (_, window) in self.paging.windows.iter() {
            for part in &window.parts {
                assert!(self.pages[part.page].windows.contains(&part.at), "{part:?} of a window is not mapped");
            }
        }
    }
}

impl Coordinator {
    /// Returns what `throw_on_cudamalloc_oom` compares with: the configured share of the device's bytes.
    pub(crate) fn throw_above(&self) -> u64 {
        self.headroom.share(self.settings.memory_fraction)
    }

    /// Returns the bytes of a page of classic's expandable segments, or under `paged` the device's granularity.
    pub(crate) fn page_bytes(&self, want: &Want) -> u64 {
        match self.backing {
            Backing::Pages => self.granularity(),
            _ => self.sizes.page_bytes(want.side, self.granularity()),
        }
    }

    /// Returns the least bytes of a page.
    ///
    /// # Panics
    ///
    /// On a device without virtual memory.
    pub(crate) fn granularity(&self) -> u64 {
        self.facts.pages.expect("a device without virtual memory is asked for pages").granularity
    }

    /// Returns the segment that a miss takes.
    pub(crate) fn segment_for(&self, shard: ShardId, want: &Want, shards: &mut dyn Shards) -> NewSegment {
        let snug = shards.with(shard, |shard| shard.snug_segment(want));
        snug.unwrap_or_else(|| {
            let bytes = Sizes::new(self.settings_in(self.pool_of(shard))).segment_bytes(want.rounded);
            NewSegment { bytes, shared: true }
        })
    }

    /// Returns the unit of new memory in expandable segments, in bytes: a whole page where the settings follow PyTorch.
    pub(crate) fn unit_of(&self, want: &Want) -> u64 {
        if self.settings.shorter_pages { self.granularity() } else { self.page_bytes(want) }
    }

    /// Returns the bytes that the driver has to give for a request that nothing free serves: PyTorch's `alloc_size`, or
    /// in expandable segments no more than what is missing.
    pub(crate) fn needed_for(&self, shard: ShardId, want: &Want, shards: &mut dyn Shards) -> u64 {
        if self.backing_of(shard) == Backing::Ranges && self.settings.shorter_pages {
            let unit = self.unit_of(want);
            return shards.with(shard, |shard| least_to_map(&shard.memory, want, unit));
        }
        self.segment_for(shard, want, shards).bytes
    }

    /// Notes that a page is mapped at a place.
    pub(crate) fn page_arrives(&mut self, id: PageId, at: Place, role: Role, shards: &mut dyn Shards) {
        let (pool, page) = (self.pool_of(at.shard), &mut self.pages[id]);
        match role {
            Role::Home => {
                page.home = Some(at);
                self.pools.gain(pool, page.side, page.bytes);
            }
            Role::Window | Role::Leaving => page.windows.push(at),
        }
        let mapping = Mapping { page: id, birth: page.birth, bytes: page.bytes, role };
        shards.with(at.shard, |shard| shard.memory.page_mapped(at, mapping));
    }

    /// Notes that a page is no longer mapped at a place.
    pub(crate) fn page_leaves(&mut self, id: PageId, at: Place, shards: &mut dyn Shards) {
        let (pool, page) = (self.pool_of(at.shard), &mut self.pages[id]);
        if page.home == Some(at) {
            page.home = None;
            self.pools.lose(pool, page.side, page.bytes);
        } else {
            self.pages.leaves_window(id, at);
            self.paging.stats.unmapped += 1;
        }
        shards.with(at.shard, |shard| shard.memory.page_unmapped(at, id));
    }
}
