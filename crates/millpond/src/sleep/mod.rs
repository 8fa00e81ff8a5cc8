//! Sleep: groups of memory that go back to the driver while the program does something else, and return to the same
//! addresses.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc as StdArc;
use std::sync::atomic::{AtomicBool, Ordering};

use millpond_backend::{Backend, StreamId};
use millpond_core::{GroupBytes, GroupExtent, GroupId, GroupState, Member, PoolId, ShardId};
use parking_lot::{Mutex, MutexGuard};

use crate::allocator::Allocator;
use crate::error::{Error, PauseError};
use crate::pool::Pool;
use crate::state::{LockedShards, State};
use crate::stream::Stream;

mod contents;
mod host;
mod turn;

use host::HostCopy;

/// What happens to the contents of a group while it is paused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Keep {
    /// They are lost. After [`resume`](Group::resume) the memory holds unspecified bytes.
    Discard,
    /// They are copied to memory of the host, and back by [`resume`](Group::resume).
    Host,
}

/// A group of memory that can be paused: its pages go back to the driver, for other programs or other parts of this
/// one, and its buffers keep their addresses. After [`resume`](Self::resume) there are pages at the same addresses
/// again, so pointers and captured graphs stay valid.
///
/// A group has its own pages: no page holds bytes of two groups, nor of a group and the rest. It consists of private
/// pools: one that it creates, whose streams [`stream`](Self::stream) returns, and those that are [added](Self::add).
/// A pool of a group is not *held*: what no buffer and no captured graph needs is released as that of the default pool
/// is.
///
/// Groups need the policy `paged`, and so a device with virtual memory: CUDA, Vulkan with sparse binding, the simulated
/// device. They are known by name, and exist as long as their allocator. Dropping a `Group` changes nothing.
///
/// While a group is paused, its buffers may be dropped, which calls no driver. They must not be used: nothing can be
/// allocated in the group, and no transfer to or from its buffers is accepted ([`Error::Paused`]).
///
/// ```
/// use millpond::{Allocator, Keep};
/// use millpond_sim::Sim;
///
/// let allocator = Allocator::new(Sim::new());
/// let id = allocator.create_stream()?.id();
/// let (weights, cache) = (allocator.group("weights")?, allocator.group("kv")?);
/// let weights_buffer = weights.stream(id)?.allocate(6 << 20)?;
/// let cache_buffer = cache.stream(id)?.allocate(20 << 20)?;
/// let address = weights_buffer.address();
///
/// weights.pause(Keep::Host)?;
/// cache.pause(Keep::Discard)?;
/// assert_eq!(allocator.memory_reserved(), 0, "another program can have it all");
///
/// weights.resume()?;
/// cache.resume()?;
/// assert_eq!(weights_buffer.address(), address);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Group<B: Backend> {
    allocator: Allocator<B>,
    entry: StdArc<Entry>,
    /// The group's own pool.
    pool: Pool<B>,
}

/// How much memory a group has, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct GroupStats {
    /// In buffers that the program holds, whether the group is paused or not.
    pub allocated_bytes: u64,
    /// In pages that are taken from the driver now.
    pub reserved_bytes: u64,
    /// In pages that went back to the driver until the group is resumed.
    pub paused_bytes: u64,
    /// In memory of the host: contents, and what [`keep_host_memory`](Group::keep_host_memory) keeps for the next ones.
    pub host_bytes: u64,
    /// Whether the group is paused.
    pub is_paused: bool,
}

/// The groups of an allocator, by name.
#[derive(Default)]
pub(crate) struct Groups {
    by_name: Mutex<BTreeMap<Box<str>, StdArc<Entry>>>,
    /// Whether a group has ever been created. Until then, transfers take no lock.
    any: AtomicBool,
}

/// A group as its allocator knows it.
struct Entry {
    id: GroupId,
    name: Box<str>,
    /// The number of its own pool. The pool is gone once it has neither handles nor memory.
    pool: Mutex<PoolId>,
    /// Locked while the group is paused or resumed.
    sleep: Mutex<Sleep>,
}

/// What is kept of a paused group.
#[derive(Default)]
struct Sleep {
    /// Its contents, unless they were discarded.
    contents: Option<Contents>,
    /// Whether memory of the host stays after a resume.
    keeps_host: bool,
    /// Memory of the host for the next contents.
    spare: Option<HostCopy>,
}

/// The contents of a group: parts of its memory, and their bytes one after the other.
struct Contents {
    parts: Vec<GroupExtent>,
    bytes: HostCopy,
}

impl Groups {
    fn find(&self, id: GroupId) -> Option<StdArc<Entry>> {
        self.by_name.lock().values().find(|entry| entry.id == id).cloned()
    }
}

/// Groups of memory that can be paused.
impl<B: Backend> Allocator<B> {
    /// Returns the group of this name, which the first call creates. Takes no memory.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if the policy is not `paged`, which needs virtual memory; [`Error::NoStreams`] if this is
    /// a cache of page-locked memory.
    pub fn group(&self, name: &str) -> Result<Group<B>, Error<B::Error>> {
        let state = self.state();
        state.expect_streams()?;
        let mut groups = state.groups.by_name.lock();
        let entry = match groups.get(name) {
            Some(entry) => StdArc::clone(entry),
            None => {
                let id = state.create_group()?;
                let name: Box<str> = name.into();
                let pool = Mutex::new(PoolId::DEFAULT);
                let entry = StdArc::new(Entry { id, name: name.clone(), pool, sleep: Mutex::default() });
                groups.insert(name, StdArc::clone(&entry));
                state.groups.any.store(true, Ordering::Relaxed);
                entry
            }
        };
        drop(groups);
        let pool = self.pool_of_group(&entry)?;
        Ok(Group { allocator: self.clone(), entry, pool })
    }

    /// Returns the names of all groups, in order.
    pub fn group_names(&self) -> Vec<Box<str>> {
        self.state().groups.by_name.lock().keys().cloned().collect()
    }

    /// Returns a reference to the group's own pool, which is created anew if nothing was left of it.
    fn pool_of_group(&self, entry: &Entry) -> Result<Pool<B>, Error<B::Error>> {
        let mut known = entry.pool.lock();
        if let Ok(pool) = self.pool(*known) {
            return Ok(pool);
        }
        let pool = self.create_pool()?;
        self.state().coordinator.lock().begin_group(pool.id(), entry.id);
        *known = pool.id();
        Ok(pool)
    }
}

impl<B: Backend> State<B> {
    fn create_group(&self) -> Result<GroupId, Error<B::Error>> {
        let mut coordinator = self.coordinator.lock();
        if coordinator.has_groups() {
            return Ok(coordinator.create_group());
        }
        let what = "groups that can be paused under this policy";
        let advice = "build the allocator with policy:paged, on a device with virtual memory";
        Err(Error::Unsupported { what, device: self.backend.caps().name.clone(), advice })
    }

    /// Returns the error of a request of a pool whose group is paused.
    pub(crate) fn paused(&self, group: GroupId) -> Error<B::Error> {
        let entry = self.groups.find(group);
        Error::Paused { group: entry.map_or_else(Box::default, |entry| entry.name.clone()) }
    }

    /// Refuses to place anything in a shard whose group is paused.
    pub(crate) fn expect_running_at(&self, shard: ShardId) -> Result<(), Error<B::Error>> {
        let closed = self.coordinator.lock().closed_group_at(shard);
        closed.map_or(Ok(()), |group| Err(self.paused(group)))
    }

    /// Refuses to move bytes of a shard whose group is paused, as they have no memory. Where there are no groups, it
    /// costs a load.
    pub(crate) fn expect_memory_at(&self, shard: ShardId) -> Result<(), Error<B::Error>> {
        if self.groups.any.load(Ordering::Relaxed) { self.expect_running_at(shard) } else { Ok(()) }
    }

    /// Refuses to change a pool whose group is paused.
    pub(crate) fn expect_running(&self, pool: PoolId) -> Result<(), Error<B::Error>> {
        let closed = self.coordinator.lock().closed_group_of(pool);
        closed.map_or(Ok(()), |group| Err(self.paused(group)))
    }
}

impl<B: Backend> Group<B> {
    /// Returns its name.
    pub fn name(&self) -> &str {
        &self.entry.name
    }

    /// Returns a stream on which buffers are allocated in this group. It is the same queue of work as the stream of
    /// that number elsewhere. Takes a lock that all streams share, so keep the result.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Pool::stream`].
    pub fn stream(&self, id: StreamId) -> Result<Stream<B>, Error<B::Error>> {
        self.pool.stream(id)
    }

    /// Returns the pool that [`stream`](Self::stream) allocates in.
    pub fn pool(&self) -> &Pool<B> {
        &self.pool
    }

    /// Makes a private pool a part of the group, for as long as the pool exists: that of a captured graph, for example.
    /// It is paused and resumed with the group. It no longer serves requests of the default pool
    /// ([`use_on_oom`](millpond_core::settings::PoolFlags::use_on_oom)). Nothing happens if it is one already.
    ///
    /// # Errors
    ///
    /// [`Error::NotPaused`] for a pool of another group, or one with a source; [`Error::Paused`] while the group is
    /// paused; [`Error::UnknownPool`] for a pool of another allocator.
    pub fn add(&self, pool: &Pool<B>) -> Result<(), Error<B::Error>> {
        let (state, group, pool_id) = (self.state(), || self.entry.name.clone(), pool.id());
        if !pool.is_of(state) {
            return Err(Error::UnknownPool { pool: pool_id });
        }
        let why = match state.coordinator.lock().join_group(pool_id, self.entry.id) {
            Member::Welcome => return Ok(()),
            Member::Asleep => return Err(Error::Paused { group: group() }),
            Member::OfAnother => PauseError::OtherGroup { group: group(), pool: pool_id },
            Member::Sourced => PauseError::Sourced { group: group(), pool: pool_id },
            Member::Default => return Err(Error::UnknownPool { pool: pool_id }),
        };
        Err(Error::NotPaused(Box::new(why)))
    }

    /// Returns whether it is paused.
    pub fn is_paused(&self) -> bool {
        self.state().coordinator.lock().group_state(self.entry.id) == GroupState::Paused
    }

    /// Returns how much memory it has. Waits while the group is being paused or resumed. Looks at each of its pools.
    pub fn stats(&self) -> GroupStats {
        let sleep = self.entry.sleep.lock();
        let coordinator = self.state().coordinator.lock();
        let GroupBytes { allocated, reserved, paused } =
            coordinator.group_bytes(self.entry.id, &mut LockedShards(self.state()));
        let copies = sleep.contents.iter().map(|contents| &contents.bytes).chain(&sleep.spare);
        GroupStats {
            allocated_bytes: allocated,
            reserved_bytes: reserved,
            paused_bytes: paused,
            host_bytes: copies.map(HostCopy::bytes).sum(),
            is_paused: coordinator.group_state(self.entry.id) == GroupState::Paused,
        }
    }

    /// Chooses whether the host memory that contents were kept in stays after a [`resume`](Self::resume). It is
    /// released by default. A program that pauses often saves the time to take host memory again.
    pub fn keep_host_memory(&self, keep: bool) {
        let mut sleep = self.entry.sleep.lock();
        sleep.keeps_host = keep;
        if !keep {
            sleep.spare = None;
        }
    }

    fn state(&self) -> &State<B> {
        self.allocator.state()
    }

    fn lock(&self) -> MutexGuard<'_, Sleep> {
        self.entry.sleep.lock()
    }
}

impl<B: Backend> Clone for Group<B> {
    fn clone(&self) -> Self {
        let Self { allocator, entry, pool } = self;
        Self { allocator: allocator.clone(), entry: StdArc::clone(entry), pool: pool.clone() }
    }
}

impl<B: Backend> fmt::Debug for Group<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Group").field("name", &self.name()).field("is_paused", &self.is_paused()).finish()
    }
}
