//! How large segments and pages are, and where pages are mapped.

use super::{Coordinator, Shards};
use crate::ids::{PageId, Place, ShardId};
use crate::memory::least_to_map;
use crate::policy::Backing;
use crate::segment::{Mapping, Role};
use crate::size::Want;

impl Coordinator {
    /// Returns what `throw_on_cudamalloc_oom` compares with: the configured share of the device's bytes.
    pub(crate) fn throw_above(&self) -> u64 {
        self.headroom.share(self.settings.memory_fraction)
    }

    /// Returns the bytes of a page: of classic's expandable segments, or under `paged` the unit of all pages.
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

    /// Returns the bytes of the segment that a miss takes, and whether blocks are cut from it.
    pub(crate) fn segment_for(&self, shard: ShardId, want: &Want, shards: &mut dyn Shards) -> (u64, bool) {
        let snug = shards.with(shard, |shard| shard.snug_segment(want));
        snug.unwrap_or_else(|| (self.sizes_of(shard).segment_bytes(want.rounded), true))
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
        self.segment_for(shard, want, shards).0
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
