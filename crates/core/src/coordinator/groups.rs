//! Groups of private pools: what the shell asks about them. How they are paused and resumed is a plan's
//! (`plan/groups.rs`).

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use millpond_backend::StreamId;

use super::{Coordinator, Shards};
use crate::books::{GroupState, Member};
use crate::ids::{GroupId, PageId, PoolId, ShardBlock, ShardId};
use crate::segment::Role;
use crate::settings::Backing;
use crate::shard::Extent;

/// A part of the memory of a group, at its home.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupExtent {
    /// The shard that it belongs to.
    pub shard: ShardId,
    /// Where it lies there.
    pub extent: Extent,
}

/// A page of a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupPage {
    /// Its number.
    pub id: PageId,
    /// Its length in bytes.
    pub bytes: u64,
}

/// How much memory a group has, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GroupBytes {
    /// In blocks that the program holds.
    pub allocated: u64,
    /// In pages that are there.
    pub reserved: u64,
    /// In pages that are with the driver until the group is resumed.
    pub paused: u64,
}

impl Coordinator {
    /// Returns whether groups can be paused: under the policy `paged`, whose memory consists of pages.
    pub fn has_groups(&self) -> bool {
        self.backing == Backing::Pages
    }

    /// Creates a group without pools.
    pub fn create_group(&mut self) -> GroupId {
        self.groups.create()
    }

    /// Makes a private pool one of a group, if it can be one. Costs a look at the shards of the pool.
    ///
    /// # Panics
    ///
    /// If there is no such pool, or no such group.
    pub fn join_group(&mut self, pool: PoolId, group: GroupId) -> Member {
        let joins = Member::of(pool, self.has_source(pool), self.pools.group_of(pool), group);
        if joins == Member::Welcome && self.groups.state(group) != GroupState::Running {
            return Member::Asleep;
        }
        if joins == Member::Welcome {
            self.pools.join_group(pool, group);
        }
        joins
    }

    /// Makes a private pool that has no memory yet one of a group, also of one that is not running: it serves nothing
    /// before the group does.
    ///
    /// # Panics
    ///
    /// If there is no such pool.
    pub fn begin_group(&mut self, pool: PoolId, group: GroupId) {
        debug_assert!(self.pools.reserved(pool).is_none_or(|reserved| reserved.all.current == 0));
        self.pools.join_group(pool, group);
    }

    /// Returns the group of a pool if that is not running, so that nothing of the pool is granted.
    pub fn closed_group_of(&self, pool: PoolId) -> Option<GroupId> {
        self.pools.group_of(pool).filter(|&group| self.groups.is_closed(Some(group)))
    }

    /// Returns what [`closed_group_of`](Self::closed_group_of) does for the pool of a shard.
    pub fn closed_group_at(&self, shard: ShardId) -> Option<GroupId> {
        self.closed_group_of(self.pool_of(shard))
    }

    /// Returns the state of a group.
    ///
    /// # Panics
    ///
    /// If there is no such group.
    pub fn group_state(&self, group: GroupId) -> GroupState {
        self.groups.state(group)
    }

    /// Returns the pools of a group. Looks at every pool.
    pub fn pools_of_group(&self, group: GroupId) -> Vec<PoolId> {
        self.pools.of_group(group).collect()
    }

    /// Returns how much memory a group has. Looks at every pool and at each shard of the group.
    pub fn group_bytes(&self, group: GroupId, shards: &mut dyn Shards) -> GroupBytes {
        let mut sum = GroupBytes::default();
        for pool in self.pools_of_group(group) {
            sum.reserved += self.pools.reserved(pool).map_or(0, |reserved| reserved.all.current);
            sum.paused += self.pools.paused(pool);
        }
        for id in self.shards_of_group(group) {
            sum.allocated += shards.with(id, |shard| shard.live_bytes());
        }
        sum
    }

    /// Returns the bytes of all groups that are with the driver until they are resumed.
    pub fn paused_bytes(&self) -> u64 {
        self.pools.all_paused()
    }

    /// Returns the streams that use the memory of a group: those that live blocks were handed out for, those that were
    /// named since, and those that are not known to be done with what was freed. Looks at every block of the group.
    pub fn users_of(&self, group: GroupId, shards: &mut dyn Shards) -> BTreeSet<StreamId> {
        let mut users = BTreeSet::new();
        for id in self.shards_of_group(group) {
            shards.with(id, |shard| {
                users.extend(shard.users());
                let freed = shard.points_of_freed();
                let behind = freed.iter().filter(|at| at.tick > self.pending.reached(at.stream));
                users.extend(behind.map(|at| at.stream));
            });
        }
        // What is held waits for streams that no block names any more.
        let held = self.pending.blocks().into_iter().filter(|(at, _)| self.is_in_group(at.shard, group));
        users.extend(held.flat_map(|(_, points)| points).map(|at| at.stream));
        users
    }

    /// Returns whether a thread has freed a block of a group and has not said yet what the block waits for, which it is
    /// about to do: [`users_of`](Self::users_of) does not know those streams. Looks at every block of the group.
    pub fn is_freed_under_way(&self, group: GroupId, shards: &mut dyn Shards) -> bool {
        let known = self.pending.blocks();
        let is_unknown = |shard, block| !known.contains_key(&ShardBlock { shard, block });
        self.shards_of_group(group).into_iter().any(|id| {
            let freed = shards.with(id, |shard| shard.freed_elsewhere());
            freed.into_iter().any(|block| is_unknown(id, block))
        })
    }

    /// Returns the memory of a group whose contents have to be kept while it is paused: that of live blocks, and in
    /// pools in which a stream was captured all there is, as their graphs use memory that no block has. Looks at every
    /// block of the group.
    pub fn contents_of(&self, group: GroupId, shards: &mut dyn Shards) -> Vec<GroupExtent> {
        let of_shard = |id| {
            let whole = self.pools.was_captured(self.pool_of(id));
            let contents = shards.with(id, |shard| shard.contents(whole));
            contents.into_iter().map(move |extent| GroupExtent { shard: id, extent })
        };
        self.shards_of_group(group).into_iter().flat_map(of_shard).collect()
    }

    /// Opens a closed group: its pools serve requests again, also from what was freed meanwhile. Looks at every block
    /// of the group.
    ///
    /// # Panics
    ///
    /// If it is not closed, or its pages are with the driver.
    pub fn open_group(&mut self, group: GroupId, clocks: [u64; 2], shards: &mut dyn Shards) {
        self.groups.set(group, GroupState::Running);
        for id in self.shards_of_group(group) {
            if shards.with(id, |shard| shard.open(clocks)) {
                self.settle(id, shards);
            }
        }
        self.turns.progress += 1;
    }

    /// Returns the pages of a group. Looks at every mapping of the group.
    pub fn pages_of_group(&self, group: GroupId, shards: &mut dyn Shards) -> Vec<GroupPage> {
        let page = |id| GroupPage { id, bytes: self.pages[id].bytes };
        self.pages_of(group, shards).into_iter().map(page).collect()
    }

    /// Returns the shards of a group.
    pub(crate) fn shards_of_group(&self, group: GroupId) -> Vec<ShardId> {
        self.shard_ids().filter(|&id| self.is_in_group(id, group)).collect()
    }

    fn is_in_group(&self, shard: ShardId, group: GroupId) -> bool {
        self.pools.group_of(self.pool_of(shard)) == Some(group)
    }

    /// Returns the pages of a group.
    pub(crate) fn pages_of(&self, group: GroupId, shards: &mut dyn Shards) -> Vec<PageId> {
        let at_home = |id: ShardId| {
            let mappings = shards.with(id, |shard| shard.memory.mappings()).into_iter();
            mappings.filter(|(_, mapping)| mapping.role == Role::Home).map(|(_, mapping)| mapping.page)
        };
        self.shards_of_group(group).into_iter().flat_map(at_home).collect()
    }

    /// Returns the pool that a page has its home in.
    ///
    /// # Panics
    ///
    /// If it has none.
    pub(crate) fn home_pool(&self, page: PageId) -> PoolId {
        let home = self.pages[page].home.unwrap_or_else(|| panic!("page {} of a group has no home", page.0));
        self.pool_of(home.shard)
    }
}
