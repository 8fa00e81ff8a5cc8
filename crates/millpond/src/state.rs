//! The allocator's state: the coordinator with its lock, the lanes, and the values that the hot path reads without a
//! lock.

use std::collections::VecDeque;
use std::time::Instant;

use crossbeam_utils::CachePadded;
use millpond_backend::{Backend, ClassId, Closing, Point, Reuse, StreamId};
use millpond_core::settings::Scrub;
use millpond_core::{Coordinator, PoolId, Shard, ShardId, Shards, Side};

use crate::activity::Activity;
use crate::bond::Bonds;
use crate::created::{Created, Lease};
use crate::error::Error;
use crate::events::Sinks;
use crate::hooks::Hooks;
#[cfg(not(loom))]
use crate::idle::Background;
use crate::lane;
use crate::pages::Pages;
use crate::raw::latched::Guard;
use crate::raw::pointers::{self, OwnerRef};
use crate::rounding::Rounding;
#[cfg(not(loom))]
use crate::sleep::Groups;
use crate::sources::Sources;
use crate::sync::{Arc, AtomicBool, AtomicU64, AtomicUsize, Condvar, Mutex, Ordering, lock_soon};
#[cfg(not(loom))]
use crate::waiters::Waiters;

mod explain;
mod noting;
mod refusals;
pub(crate) mod steps;
mod tell;
#[cfg(all(test, not(loom)))]
mod tests;
mod timing;

/// A lane of an allocator, which its state owns.
pub(crate) type Lane<B> = lane::Lane<B, State<B>>;
/// What the lock of a lane guards.
pub(crate) type LaneState<B> = lane::LaneState<B, State<B>>;
/// A pointer to a lane.
pub(crate) type LaneRef<B> = pointers::LaneRef<Lane<B>>;

/// The streams that caches of page-locked memory have set aside, which stay so.
#[derive(Default)]
struct SetAside {
    all: Vec<StreamId>,
    /// Those whose caches are gone: they serve the next ones.
    left: Vec<StreamId>,
}

impl SetAside {
    fn take(&mut self, home: StreamId) {
        if !self.all.contains(&home) {
            self.all.push(home);
        }
    }
}

/// The state that the handles of one allocator share.
///
/// Lock order: the coordinator before any lane and before the created streams, lanes one at a time, then the list of
/// holders, the sinks last. None is held across a call of the backend, except for `mark`, which calls no driver.
pub(crate) struct State<B: Backend> {
    pub(crate) backend: B,
    pub(crate) class: ClassId,
    /// The number of the device in messages.
    pub(crate) device: u32,
    pub(crate) sizes: Rounding,
    pub(crate) reuse: Reuse,
    /// The stream that the allocator has set aside for itself, if it is a cache of page-locked memory: the home of all
    /// its memory, on which no work is put.
    home: Option<StreamId>,
    /// The streams that such caches have set aside. Allocators that share this list have the same backend, and so the
    /// same numbers of streams.
    set_aside: Arc<Mutex<SetAside>>,
    /// The streams that were created for users. Allocators that share the list above share this one.
    created: std::sync::Arc<Created>,
    /// Whether a freed block is released to the driver as soon as possible, without caching.
    pub(crate) direct: bool,
    /// The keys of the configuration that have no effect.
    pub(crate) ignored: Vec<&'static str>,
    /// The setting that selects the memory to overwrite before it is granted.
    pub(crate) scrub: Scrub,
    /// Whether memory goes back to the driver that nothing has needed for a while.
    pub(crate) releases_idle: AtomicBool,
    /// Held while it does.
    pub(crate) releasing: Mutex<()>,
    /// Whether garbage collection counts searches.
    counts_searches: AtomicBool,
    searches: CachePadded<[AtomicU64; 2]>,
    /// The number of outstanding waits for points. It is almost always 0, and then the device is not asked.
    waiters: AtomicUsize,
    /// Whether a hit needs nothing but its lane: no waits are outstanding, searches are not counted, memory is not
    /// overwritten, and it is reused in order.
    is_plain: AtomicBool,
    /// Whether a miss in a home asks the device before its plan begins.
    asks_first: AtomicBool,
    pub(crate) sinks: Sinks,
    /// What the program does before a request is refused.
    pub(crate) hooks: std::sync::Arc<Hooks>,
    /// Whether the caller was told an address of the memory.
    pub(crate) is_addressed: AtomicBool,
    /// The futures that wait for points.
    #[cfg(not(loom))]
    pub(crate) later: Waiters<B, State<B>>,
    /// The handle of the cache of page-locked memory that downloads arrive in which are awaited.
    #[cfg(not(loom))]
    pub(crate) landing: Mutex<Option<Arc<Handle<B>>>>,
    pub(crate) activity: CachePadded<Activity>,
    /// The last thread that was short of room for a peak.
    settler: CachePadded<AtomicUsize>,
    /// The lanes that have begun to hold room for peaks, of which the coordinator does not know yet.
    holders: Mutex<Vec<ShardId>>,
    pub(crate) coordinator: CachePadded<Mutex<Coordinator>>,
    /// Signalled when paused plans may continue.
    pub(crate) released: Condvar,
    lanes: boxcar::Vec<Lane<B>>,
    /// The handles of private pools.
    pub(crate) bonds: Bonds<B>,
    /// The segments that came from sources of pools.
    pub(crate) sources: Sources<B>,
    pub(crate) pages: Pages<B>,
    /// The groups, by name.
    #[cfg(not(loom))]
    pub(crate) groups: Groups,
    /// The cache of page-locked memory that the contents of groups go through, once one was paused.
    #[cfg(not(loom))]
    pub(crate) ring: Mutex<Option<Arc<Handle<B>>>>,
    /// When the allocator was created, from which times are counted.
    pub(crate) opened: Instant,
}

/// The state behind the user's handles. When the last handle is dropped, lanes without live blocks stop keeping the
/// state alive.
pub(crate) struct Handle<B: Backend> {
    pub(crate) state: Arc<State<B>>,
    /// The thread that gives idle memory back, if there is one.
    #[cfg(not(loom))]
    background: Mutex<Option<Background>>,
}

impl<B: Backend> Handle<B> {
    pub(crate) fn new(state: State<B>) -> Self {
        let state = Arc::new(state);
        #[cfg(not(loom))]
        let background = Mutex::new(Background::of(&state));
        Self {
            state,
            #[cfg(not(loom))]
            background,
        }
    }
}

#[cfg(not(loom))]
impl<B: Backend> Handle<B> {
    /// Has the thread that gives idle memory back do so as the settings say now.
    pub(crate) fn restart_background(&self) {
        let before = {
            let mut background = self.background.lock();
            std::mem::replace(&mut *background, Background::of(&self.state))
        };
        // It is waited for without the lock: it may be in a sink that configures the allocator.
        drop(before);
    }

    fn end_background(&mut self) {
        drop(self.background.get_mut().take());
    }
}

impl<B: Backend> Drop for Handle<B> {
    fn drop(&mut self) {
        // Afterwards only blocks keep the state alive, and the last of them is dropped by the program.
        #[cfg(not(loom))]
        self.end_background();
        self.state.tell_of_what_is_left();
        // They may own buffers, which would keep the allocator for ever.
        self.state.hooks.end();
        let kept: Vec<_> = self.state.lanes().map(|lane| lane.lock().close()).collect();
        // This is outside of the locks, because the last of these references may drop the state.
        drop(kept);
    }
}

impl<B: Backend> AsRef<B> for State<B> {
    fn as_ref(&self) -> &B {
        &self.backend
    }
}

/// The shards of an allocator, each locked while it is visited.
pub(crate) struct LockedShards<'a, B: Backend>(pub(crate) &'a State<B>);

impl<B: Backend> Shards for LockedShards<'_, B> {
    fn visit(&mut self, shard: ShardId, f: &mut dyn FnMut(&mut Shard)) {
        self.0.lane(shard).lock().visit(f);
    }

    fn add_holders(&mut self, holders: &mut VecDeque<ShardId>) {
        holders.extend(self.0.holders.lock().drain(..));
    }
}

/// The shards for a plan, which visits one of them several times in a row, and in some steps needs all of them locked
/// together.
pub(crate) struct HeldShards<'a, B: Backend> {
    state: &'a State<B>,
    /// The lock of the lane that was visited last.
    last: Option<(ShardId, Guard<'a, LaneState<B>>)>,
    /// The locks of all lanes in order, while they are held together. No other thread waits for a lane while it holds
    /// one, and no lane is opened meanwhile, because the coordinator's lock is held.
    held: Vec<Guard<'a, LaneState<B>>>,
}

impl<'a, B: Backend> HeldShards<'a, B> {
    pub(crate) fn new(state: &'a State<B>) -> Self {
        Self { state, last: None, held: Vec::new() }
    }

    /// Returns the lanes, if they are held.
    pub(crate) fn lanes(&self) -> &[Guard<'a, LaneState<B>>] {
        &self.held
    }
}

impl<B: Backend> Shards for HeldShards<'_, B> {
    fn visit(&mut self, shard: ShardId, f: &mut dyn FnMut(&mut Shard)) {
        if let Some(lane) = self.held.get_mut(shard.0 as usize) {
            return lane.visit(f);
        }
        if self.last.as_ref().is_none_or(|(last, _)| *last != shard) {
            // One lane at a time.
            self.last = None;
            self.last = Some((shard, self.state.lane(shard).lock()));
        }
        self.last.iter_mut().for_each(|(_, lane)| lane.visit(f));
    }

    fn add_holders(&mut self, holders: &mut VecDeque<ShardId>) {
        LockedShards(self.state).add_holders(holders);
    }

    fn hold(&mut self) {
        if self.held.is_empty() {
            self.last = None;
            self.held.extend(self.state.lanes().map(Lane::lock));
        }
    }

    fn let_go(&mut self) {
        self.last = None;
        self.held.clear();
    }
}

/// The shards for a thread that does not wait for other threads.
struct UncontendedShards<'a, B: Backend>(&'a State<B>);

impl<B: Backend> Shards for UncontendedShards<'_, B> {
    fn visit(&mut self, shard: ShardId, f: &mut dyn FnMut(&mut Shard)) {
        self.0.lane(shard).lock().visit(f);
    }

    fn try_visit(&mut self, shard: ShardId, f: &mut dyn FnMut(&mut Shard)) -> bool {
        self.0.lane(shard).try_lock().map(|mut lane| lane.visit(f)).is_some()
    }

    fn add_holders(&mut self, holders: &mut VecDeque<ShardId>) {
        LockedShards(self.0).add_holders(holders);
    }
}

impl<B: Backend> State<B> {
    pub(crate) fn new(backend: B, class: ClassId, device: u32, coordinator: Coordinator) -> Self {
        let state = Self {
            reuse: backend.caps().reuse_of(class),
            home: None,
            set_aside: Arc::new(Mutex::new(SetAside::default())),
            created: Created::new(),
            backend,
            class,
            device,
            sizes: Rounding::new(coordinator.sizes().clone()),
            direct: !coordinator.settings().policy.caches(),
            ignored: Vec::new(),
            scrub: coordinator.settings().scrub,
            releases_idle: AtomicBool::new(coordinator.settings().idle.after.is_some()),
            releasing: Mutex::new(()),
            counts_searches: AtomicBool::new(coordinator.counts_searches()),
            searches: CachePadded::new([AtomicU64::new(0), AtomicU64::new(0)]),
            waiters: AtomicUsize::new(0),
            sinks: Sinks::new(),
            hooks: std::sync::Arc::new(Hooks::new()),
            is_addressed: AtomicBool::new(false),
            #[cfg(not(loom))]
            later: Waiters::new(),
            #[cfg(not(loom))]
            landing: Mutex::new(None),
            activity: CachePadded::new(Activity::new()),
            settler: CachePadded::new(AtomicUsize::new(0)),
            holders: Mutex::new(Vec::new()),
            coordinator: CachePadded::new(Mutex::new(coordinator)),
            released: Condvar::new(),
            is_plain: AtomicBool::new(false),
            asks_first: AtomicBool::new(false),
            lanes: boxcar::Vec::new(),
            bonds: Bonds::new(),
            sources: Sources::new(),
            pages: Pages::new(),
            #[cfg(not(loom))]
            groups: Groups::default(),
            #[cfg(not(loom))]
            ring: Mutex::new(None),
            opened: Instant::now(),
        };
        state.publish(&state.coordinator.lock());
        state
    }

    /// Joins another allocator of the same backend, and sets a stream aside for this one.
    pub(crate) fn beside(mut self, other: &Self, home: StreamId) -> Self {
        self.set_aside = Arc::clone(&other.set_aside);
        self.created = std::sync::Arc::clone(&other.created);
        self.set_aside.lock().take(home);
        self.home = Some(home);
        self
    }

    /// Returns the stream that the allocator has set aside for itself, if it is a cache of page-locked memory.
    #[cfg(not(loom))]
    pub(crate) fn home(&self) -> Option<StreamId> {
        self.home
    }

    /// Returns a stream that a cache which is gone has left set aside, for the next one.
    pub(crate) fn left_aside(&self) -> Option<StreamId> {
        self.set_aside.lock().left.pop()
    }

    /// Leaves the stream that was set aside, if one was, to the next cache. Nothing of this state is in use any more.
    pub(crate) fn leave_aside(&self) {
        self.set_aside.lock().left.extend(self.home);
    }

    /// Returns whether both have the same backend.
    pub(crate) fn is_beside(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.set_aside, &other.set_aside)
    }

    /// Returns a stream that no handle has: one that has ended and is not being captured, or else a new one.
    pub(crate) fn create_stream(&self) -> Result<std::sync::Arc<Lease>, Error<B::Error>> {
        loop {
            let ended = {
                let coordinator = self.coordinator.lock();
                self.created.take(|id| !coordinator.is_captured(id))
            };
            let Some(lease) = ended else { break };
            if self.backend.takes_work(lease.id()) {
                return Ok(lease);
            }
            self.created.forget(&lease);
        }
        let id = self.backend.create_stream().map_err(|e| Error::of_driver("create_stream", e))?;
        Ok(self.created.add(id))
    }

    /// Returns what keeps a stream from being handed out again, if it was created here.
    pub(crate) fn lease(&self, id: StreamId) -> Option<std::sync::Arc<Lease>> {
        self.created.lease(id)
    }

    pub(crate) fn lane(&self, shard: ShardId) -> &Lane<B> {
        match self.lane_if_any(shard) {
            Some(lane) => lane,
            None => panic!("{shard:?} of {} lanes", self.lanes.count()),
        }
    }

    /// Returns the lane of a shard that may be another allocator's.
    pub(crate) fn lane_if_any(&self, shard: ShardId) -> Option<&Lane<B>> {
        self.lanes.get(shard.0 as usize)
    }

    pub(crate) fn lanes(&self) -> impl Iterator<Item = &Lane<B>> {
        self.lanes.iter().map(|(_, lane)| lane)
    }

    /// Returns the lane of a stream in a pool, which is opened on first use. For a private pool that may be a lane that
    /// another one, which is over, has left.
    pub(crate) fn lane_of(&self, stream: StreamId, pool: PoolId) -> &Lane<B> {
        // The coordinator's lock is taken first, so that two threads do not open two lanes for one stream.
        let mut coordinator = self.coordinator.lock();
        coordinator.know_stream(stream);
        if let Some(shard) = coordinator.shard_of(stream, pool) {
            return self.lane(shard);
        }
        let is_over = |pool| self.bonds.are_over(pool);
        if let Some(shard) = coordinator.reopen_shard(stream, pool, is_over, &mut LockedShards(self)) {
            return self.lane(shard);
        }
        let shard = coordinator.open_shard(stream, pool);
        let set_aside = self.home == Some(stream);
        let at = self.lanes.push(Lane::new(OwnerRef::new(self), shard, set_aside, self.direct));
        self.note_new(&self.lanes[at]);
        &self.lanes[at]
    }

    /// Notes that the caller is told an address, so that work may use memory without naming its segment.
    #[inline]
    pub(crate) fn tell_address(&self) {
        // Mostly it is noted already. A write would take the cache line from other threads.
        if !self.is_addressed.load(Ordering::Relaxed) {
            self.is_addressed.store(true, Ordering::Relaxed);
        }
    }

    /// Returns whether blocks wait for points.
    pub(crate) fn has_waiters(&self) -> bool {
        self.waiters.load(Ordering::Relaxed) != 0
    }

    /// Returns whether operations need nothing but their lane, because nothing is waited for or counted.
    #[inline(always)]
    pub(crate) fn is_plain(&self) -> bool {
        self.is_plain.load(Ordering::Relaxed)
    }

    /// Returns the streams that are asked before a plan for a request of a lane begins, if that may be done.
    pub(crate) fn first_question(&self, lane: &Lane<B>) -> Option<Vec<StreamId>> {
        if !self.asks_first.load(Ordering::Relaxed) {
            return None;
        }
        lane.lock().shard.first_question()
    }

    /// Counts a search for a cached block, if searches are counted. Returns its number, or else 0.
    pub(crate) fn count_search(&self, side: Side) -> u64 {
        if self.counts_searches.load(Ordering::Relaxed) {
            self.searches[side as usize].fetch_add(1, Ordering::Relaxed) + 1
        } else {
            0
        }
    }

    /// Returns the counts of searches, by which cached blocks age.
    #[inline]
    pub(crate) fn clocks(&self) -> [u64; 2] {
        [self.searches[0].load(Ordering::Relaxed), self.searches[1].load(Ordering::Relaxed)]
    }

    /// Settles a lane that an operation left short of room for a peak, or with room that it does not hold. As long as
    /// one thread does all such operations, it settles at once and every peak is exact. Several threads would spend
    /// their time taking room from each other; so each of their streams settles once for many operations, and a peak
    /// may miss what rose and fell in between. Meanwhile the lane holds what room it has, for those that settle.
    #[cold]
    pub(crate) fn settle(&self, shard: ShardId) {
        let me = this_thread();
        let last = self.settler.swap(me, Ordering::Relaxed);
        let is_alone = last == me || last == 0;
        // A single thread finds the lock free. Where another thread holds it, the settlement can wait.
        let coordinator = if is_alone { self.coordinator.try_lock() } else { None };
        let mut lane = self.lane(shard).lock();
        if coordinator.is_none() && lane.shard.hold_room() {
            self.holders.lock().push(shard);
        }
        let settles_now = lane.settles_now(is_alone);
        drop(lane);
        if settles_now && let Some(mut coordinator) = coordinator.or_else(|| self.coordinator.try_lock()) {
            coordinator.settle(shard, &mut UncontendedShards(self));
        }
    }

    /// Asks the streams that are waited for about their progress, and retires what is ready. One thread does this for
    /// all of them: a thread that finds another doing it continues.
    #[cold]
    pub(crate) fn retire_ready(&self) -> Result<(), Error<B::Error>> {
        let Some(coordinator) = self.coordinator.try_lock() else { return Ok(()) };
        let streams = coordinator.streams_waited_for(&mut LockedShards(self));
        drop(coordinator);
        self.retire_on(&streams)
    }

    /// Retires blocks that wait for their home stream, on devices that do not reuse in order. An allocation does this
    /// only for its own stream.
    pub(crate) fn retire_homes(&self) -> Result<(), Error<B::Error>> {
        if self.reuse == Reuse::InOrder {
            return Ok(());
        }
        let streams = self.coordinator.lock().streams();
        self.retire_on(&streams)
    }

    /// Asks streams for their progress, and retires what is ready then.
    fn retire_on(&self, streams: &[StreamId]) -> Result<(), Error<B::Error>> {
        let reached = self.poll(streams)?;
        if self.sinks.is_on() && self.backend.caps().closing == Closing::Backend {
            self.note_look(self.time());
        }
        let mut coordinator = lock_soon(&self.coordinator);
        for point in reached {
            coordinator.note_reached(point.stream, point.tick);
        }
        coordinator.retire_ready(self.clocks(), &mut LockedShards(self));
        self.publish(&coordinator);
        Ok(())
    }

    pub(crate) fn poll(&self, streams: &[StreamId]) -> Result<Vec<Point>, Error<B::Error>> {
        streams.iter().map(|&stream| self.reached(stream)).collect()
    }

    /// Asks how far a stream is.
    pub(crate) fn reached(&self, stream: StreamId) -> Result<Point, Error<B::Error>> {
        let tick = self.closing(stream, |backend| backend.reached(stream));
        let tick = tick.map_err(|e| Error::of_driver("reached", e))?;
        let point = Point { stream, tick };
        self.note_reached(point);
        Ok(point)
    }

    /// Publishes the coordinator's state for the hot path. The caller holds the coordinator's lock.
    pub(crate) fn publish(&self, coordinator: &Coordinator) {
        let (waiters, counts) = (coordinator.waiters(), coordinator.counts_searches());
        // Blocks keep the age that they got while searches were counted.
        let counted = counts || self.clocks() != [0; 2];
        let is_plain = waiters == 0 && !counted && self.reuse == Reuse::InOrder && self.scrub == Scrub::Off;
        self.waiters.store(waiters, Ordering::Relaxed);
        self.counts_searches.store(counts, Ordering::Relaxed);
        self.is_plain.store(is_plain, Ordering::Relaxed);
        self.asks_first.store(coordinator.asks_first(), Ordering::Relaxed);
    }
}

/// Returns a number of the calling thread, not 0, that no other living thread has.
fn this_thread() -> usize {
    thread_local!(static MARK: u8 = const { 0 });
    MARK.with(|mark| std::ptr::from_ref(mark).addr())
}
