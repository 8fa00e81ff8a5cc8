//! Windows that a job makes or lengthens: addresses are claimed, pages are mapped there, and what is mapped is a window
//! even if the job fails.

use alloc::vec::Vec;

use super::gathered::Gathered;
use crate::books::{Part, WindowId};
use crate::coordinator::{Coordinator, Shards};
use crate::ids::{BlockId, Place, ShardId, Slot};

/// A window that is made or lengthened.
#[derive(Debug)]
pub(super) struct Making {
    /// The end of a window that was kept, if that is lengthened.
    rear: Option<Rear>,
    /// Claimed addresses for more pages.
    block: BlockId,
    /// The bytes between the beginning of the first page and the block that is handed out. 0 behind a rear.
    front: u64,
    /// These pages.
    pub(super) parts: Vec<Part>,
}

/// The end of a window that is lengthened.
#[derive(Debug)]
struct Rear {
    /// Its claimed addresses.
    run: BlockId,
    /// The place of the last page there, by which the window is found again.
    last: Place,
}

impl Coordinator {
    /// Claims addresses for a new window over what is gathered and the new pages of `created`, or for what goes behind
    /// the last bytes of a kept window.
    ///
    /// # Panics
    ///
    /// If there are not enough.
    pub(super) fn begin_making(
        &mut self,
        shard: ShardId,
        gathered: &Gathered,
        created: Vec<Part>,
        shards: &mut dyn Shards,
    ) -> Making {
        let nowhere = Place { shard, slot: Slot(0), offset: 0 };
        let (added, behind) = gathered.added();
        let mut parts = self.parts_of(added, nowhere, shards);
        let front = match (gathered.rear, added.first(), parts.first()) {
            (None, Some(stretch), Some(part)) => stretch.home.offset - part.home.offset,
            _ => 0,
        };
        parts.extend(created);
        parts.extend(self.parts_of(behind, nowhere, shards));
        let length: u64 = parts.iter().map(|part| part.bytes).sum();
        let (rear, (block, slot, offset)) = match gathered.rear {
            Some((id, bytes)) => self.claim_rear(id, (bytes, length), shards),
            None => match shards.with(shard, |shard| shard.claim_vacant(length)) {
                Some(addresses) => (None, addresses),
                None => panic!("no {length} bytes of addresses for a window"),
            },
        };
        let mut at = offset;
        for part in &mut parts {
            part.at = Place { shard, slot, offset: at };
            at += part.bytes;
        }
        Making { rear, block, front, parts }
    }

    /// Claims the last `bytes` of a kept window, and addresses of a length behind it.
    fn claim_rear(
        &mut self,
        id: WindowId,
        (bytes, length): (u64, u64),
        shards: &mut dyn Shards,
    ) -> (Option<Rear>, (BlockId, Slot, u64)) {
        self.paging.windows.note_use(id);
        let window = &self.paging.windows[id];
        let (end, slot) = (window.end(), window.begin().slot);
        let Some(last) = window.parts.last().map(|part| part.at) else { panic!("window {} is empty", id.0) };
        shards.with(window.shard, |shard| {
            let Some((block, room)) = shard.room_behind(window.head, end) else { panic!("no room behind {last:?}") };
            assert!(length <= room, "{length} bytes of addresses behind {last:?}, where {room} are vacant");
            shard.claim_behind(block, length);
            let run = shard.claim_run(window.head, end - bytes, bytes);
            (Some(Rear { run, last }), (block, slot, end))
        })
    }

    /// Notes that a window is made or lengthened, and returns the claimed part of it that the request gets.
    pub(super) fn made(&mut self, shard: ShardId, making: Making, shards: &mut dyn Shards) -> BlockId {
        let Making { rear, block, front, parts } = making;
        match rear {
            Some(Rear { run, last }) => {
                self.lengthen(last, parts);
                shards.with(shard, |shard| shard.join_claimed(run, block));
                run
            }
            None => {
                self.paging.windows.insert(shard, block, parts);
                shards.with(shard, |shard| shard.begin_window(block, front))
            }
        }
    }

    /// Adds pages to the window whose last page is mapped at a place.
    fn lengthen(&mut self, last: Place, parts: Vec<Part>) {
        let Some((id, _)) = self.paging.windows.at(last) else { panic!("no window ends at {last:?}") };
        self.paging.windows.lengthen(id, parts);
    }

    /// Gives up the addresses of a window. The pages that are mapped there already are kept.
    pub(super) fn unmake(&mut self, shard: ShardId, making: Making, shards: &mut dyn Shards) {
        let Making { rear, block, front, mut parts } = making;
        let mapped = parts.iter().take_while(|part| self.pages[part.page].windows.contains(&part.at)).count();
        parts.truncate(mapped);
        let bytes = parts.iter().map(|part| part.bytes).sum();
        let is_kept = shards.with(shard, |shard| {
            rear.iter().for_each(|rear| shard.unclaim_run(rear.run));
            shard.keep_mapped(block, bytes)
        });
        if is_kept {
            let run = match &rear {
                Some(Rear { last, .. }) => {
                    self.lengthen(*last, parts);
                    block
                }
                None => self.made(shard, Making { rear: None, block, front, parts }, shards),
            };
            shards.with(shard, |shard| shard.unclaim_run(run));
        }
    }
}
