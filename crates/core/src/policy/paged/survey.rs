//! The memory that is available to serve a request.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::cmp::Reverse;

use millpond_backend::{Point, Reuse, StreamId, Tick};

use crate::coordinator::{Coordinator, Shards};
use crate::ids::{BlockId, PageId, Place, ShardId};
use crate::last_use::LastUse;

/// The time at which a page inside a free block can move.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum When {
    /// Now: the device no longer uses it, or later work of the same stream is ordered behind that use at another
    /// address too.
    Now,
    /// Now, if the stream that gets it waits on the device.
    BehindWait,
    /// Not before its last use is over.
    Later,
}

/// A whole page inside a free block. The device may still use it: `when` says until when it stays.
#[derive(Clone, Copy, Debug)]
pub(super) struct FreePage {
    pub(super) page: PageId,
    pub(super) bytes: u64,
    pub(super) at: Place,
    pub(super) block: BlockId,
    pub(super) stream: StreamId,
    pub(super) last_use: LastUse,
    pub(super) when: When,
}

/// The memory that an attempt may use.
pub(super) struct Means {
    /// The shard of the request.
    pub(super) shard: ShardId,
    pub(super) free: BTreeMap<PageId, FreePage>,
    /// The same pages by size and, where sizes are equal, by number, the highest first.
    pub(super) by_size: Vec<(u64, Reverse<PageId>)>,
    /// Spare pages, with their sizes.
    pub(super) spare: Vec<(PageId, u64)>,
    /// The number of bytes that may be created at all.
    pub(super) room: u64,
    /// The number of those bytes that may be created before anything is moved.
    pub(super) slack: u64,
    /// Whether nothing moves and nothing comes back as long as the slack lasts, so that pages are where they will be
    /// needed again.
    pub(super) settles: bool,
    /// The largest page to create.
    pub(super) cap: u64,
    /// Whether pages move behind waits before any are created.
    pub(super) tight: bool,
}

impl Means {
    /// Returns whether a page is idle, so that it can come back at no cost to a place where it is still mapped.
    pub(super) fn comes_back(&self, page: PageId) -> bool {
        self.free.get(&page).is_some_and(|free| free.when == When::Now)
    }

    /// Returns whether the pages that could move at once, the spare pages and what may be created make up at least
    /// `bytes`.
    pub(super) fn suffice(&self, bytes: u64) -> bool {
        let movable = self.free.values().filter(|free| free.when != When::Later).map(|free| free.bytes);
        let spare = self.spare.iter().map(|&(_, bytes)| bytes);
        movable.chain(spare).sum::<u64>().saturating_add(self.room) >= bytes
    }
}

/// Returns the pages in order of size.
pub(super) fn by_size(free: &BTreeMap<PageId, FreePage>) -> Vec<(u64, Reverse<PageId>)> {
    let mut all: Vec<_> = free.values().map(|free| (free.bytes, Reverse(free.page))).collect();
    all.sort_unstable();
    all
}

impl Coordinator {
    /// Returns the whole pages inside free blocks of every shard of the pool, each with the time at which it could move
    /// to the shard `to`. `can_wait` says whether that shard's stream can wait for others, and `open` is its open tick.
    pub(super) fn free_pages(
        &self,
        to: ShardId,
        can_wait: bool,
        open: Tick,
        shards: &mut impl Shards,
    ) -> BTreeMap<PageId, FreePage> {
        let granularity = self.granularity();
        let mut all = BTreeMap::new();
        for id in self.neighbours(to).chain([to]) {
            shards.with(id, |shard| {
                for (block, slot, last_use) in shard.free_with_pages(granularity) {
                    let point = shard.last_point(block);
                    let when = self.when_to_move(self.stream_of(to), point, can_wait, open);
                    for (offset, mapping) in shard.pages_in(block) {
                        let at = Place { shard: id, slot, offset };
                        let (page, bytes) = (mapping.page, mapping.bytes);
                        all.insert(page, FreePage { page, bytes, at, block, stream: point.stream, last_use, when });
                    }
                }
            });
        }
        all
    }

    /// Returns when memory that was used up to a point can move to a stream, which will use it at other addresses.
    fn when_to_move(&self, to: StreamId, last_use: Point, can_wait: bool, open: Tick) -> When {
        let pages = self.facts.pages.filter(|pages| pages.aliasing);
        match pages {
            _ if self.pending.is_reached(last_use) => When::Now,
            // The old address must be unmapped first, and the device still uses it.
            None => When::Later,
            Some(pages) if last_use.stream == to => {
                let is_ordered = match pages.alias_reuse {
                    Reuse::InOrder => true,
                    Reuse::AfterSubmit => last_use.tick < open,
                    Reuse::AfterDone => false,
                };
                if is_ordered { When::Now } else { When::Later }
            }
            Some(_) if self.facts.stream_wait && can_wait => When::BehindWait,
            Some(_) => When::Later,
        }
    }
}
