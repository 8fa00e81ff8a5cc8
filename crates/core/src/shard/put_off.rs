//! The last free of a shard, which is put off until the next request.
//!
//! Programs free a block and ask for the same size again, over and over. To join the block with its neighbours, put the
//! whole into the index, find it and cut it up again would end where it began. So a free waits for the next operation
//! on the shard. If that is a request for which the search would cut exactly this block out of the joined one, the
//! block is handed out as it is, and the counters change as if all of that had been done. Otherwise the free is done
//! first. When the same block is freed and asked for again, and nothing else happened in between, what was determined
//! before still holds (the [`Swap`]), and is not determined anew.
//!
//! The difference cannot be observed: every look at a shard from outside the hot path finds it
//! [`tidied`](Shard::tidied).

use millpond_backend::{Point, StreamId, Tick};

use super::{Grant, Shard};
use crate::block::{Block, LastUse, State};
use crate::ids::{BlockId, Side, Slot};
use crate::meter::SplitChange;
use crate::size::Want;

/// A block that was freed and handed out again as it was. It is valid until the shard does anything but the same again,
/// or is looked at from outside the hot path.
#[derive(Clone, Copy)]
pub(super) struct Swap {
    /// The grant of the block. Its size is 0 where there is no such block.
    grant: Grant,
    side: Side,
    /// The free block behind it.
    behind: BlockId,
    /// The change that its free makes in `inactive_split`, and the grant reverses.
    change: SplitChange,
}

impl Swap {
    pub(super) const NONE: Swap = Swap {
        grant: Grant {
            block: BlockId::NONE,
            slot: Slot(0),
            offset: 0,
            size: 0,
            base: 0,
            last_use: LastUse::NEVER,
            unsettled: false,
        },
        side: Side::Small,
        behind: BlockId::NONE,
        change: SplitChange { blocks: 0, bytes: 0 },
    };

    /// Ends the swap, because another operation follows.
    #[inline(always)]
    pub(super) fn end(&mut self) {
        self.grant.block = BlockId::NONE;
        self.grant.size = 0;
    }
}

impl Shard {
    /// Frees the block of the swap. No room can run out: there was enough for this free before, and what it took has
    /// been given back since. Returns whether it is that block.
    #[inline(always)]
    pub(super) fn swaps_out(&mut self, id: BlockId, tick: Tick, clock: u64) -> bool {
        if id != self.swap.grant.block {
            return false;
        }
        let Some(block) = self.memory.blocks.get_mut(id) else { return false };
        if block.state != State::Live || block.used_elsewhere {
            return false;
        }
        block.state = State::PutOff;
        block.last_use = LastUse::at(tick);
        block.age = clock;
        self.swap.grant.last_use = block.last_use;
        self.put_off = id;
        true
    }

    /// Hands the block of the swap out again, if it was freed and nothing else happened since, and the stream that asks
    /// is the one that had it.
    #[inline(always)]
    pub(super) fn swap_in(&mut self, want: &Want, clock: u64, stream: StreamId) -> Option<Grant> {
        let Swap { grant, side, behind, change } = &self.swap;
        if self.put_off != grant.block || want.rounded != grant.size || want.side != *side {
            return None;
        }
        let block = self.memory.blocks.get_mut(grant.block)?;
        if block.user != stream {
            return None;
        }
        let before = core::mem::replace(&mut block.requested, want.requested);
        block.state = State::Live;
        if let Some(behind) = self.memory.blocks.get_mut(*behind) {
            // The remainder would enter the index anew, with the last use of the whole, unless the record has that.
            behind.age = clock;
            if behind.last_use > LastUse::OVER {
                behind.last_use = behind.last_use.max(grant.last_use);
            }
        }
        self.put_off = BlockId::NONE;
        if self.memory.rules.moves_pages {
            self.memory.guards.seen.note_grant(stream);
            if *behind != BlockId::NONE {
                self.memory.guards.seen.note_free(Point { stream, tick: grant.last_use.tick() });
            }
        }
        let unsettled = self.meter.swap(*side, grant.size, before, want.requested, *change);
        Some(Grant { unsettled, ..*grant })
    }

    /// Puts off the free of a live block for which there is nothing else to wait, if no peak would rise by it. Returns
    /// whether it did.
    #[inline(always)]
    pub(super) fn puts_off(&mut self, id: BlockId, tick: Tick, clock: u64) -> bool {
        let block = &self.memory.blocks[id];
        // The largest change that the free of a block can make is tested first. If there is no room for it, the actual
        // change is.
        let most = SplitChange { blocks: 1, bytes: block.size as i64 };
        if !self.meter.has_split_room(block.side, most) {
            let change = self.memory.change_by_join(id);
            if !self.meter.has_split_room(self.memory.blocks[id].side, change) {
                return false;
            }
        }
        let block = &mut self.memory.blocks[id];
        block.state = State::PutOff;
        block.last_use = LastUse::at(tick);
        block.age = clock;
        self.put_off = id;
        true
    }

    /// Returns the shard with nothing put off, for all uses but the hot path.
    pub fn tidied(&mut self) -> &mut Shard {
        self.swap.end();
        if self.put_off != BlockId::NONE {
            self.tidy();
        }
        self
    }

    /// Does the free that was put off.
    #[inline(never)]
    pub(super) fn tidy(&mut self) {
        self.swap.end();
        let id = core::mem::replace(&mut self.put_off, BlockId::NONE);
        let block = &self.memory.blocks[id];
        let (side, size, requested, clock) = (block.side, block.size, block.requested, block.age);
        let change = self.memory.join(id, clock);
        let oversize = size >= self.memory.rules.max_split;
        // There was room when the free was put off. If there is a shortage now, the grant of another thread has caused
        // it, and that thread is about to settle it.
        let _ = self.meter.free_and_retire(side, size, requested, oversize, change);
    }

    /// Returns whether the block whose free was put off serves the request as it is: the joined block would be the best
    /// fit and would be cut at exactly this size. If so, the block becomes that of the swap.
    #[inline(always)]
    pub(super) fn is_retaken(&mut self, want: &Want) -> bool {
        let block = &self.memory.blocks[self.put_off];
        block.size == want.rounded && block.side == want.side && self.finds_swap(want)
    }

    #[inline(never)]
    fn finds_swap(&mut self, want: &Want) -> bool {
        let id = self.put_off;
        let Some(change) = self.would_retake(id, want) else { return false };
        let Block { slot, offset, size, last_use, side, .. } = self.memory.blocks[id];
        let grant =
            Grant { block: id, slot, offset, size, base: self.memory.segments[slot].base, last_use, unsettled: false };
        let behind = self.memory.free_behind(id);
        behind.into_iter().for_each(|behind| self.memory.cut_off(id, behind));
        self.swap = Swap { grant, side, behind: behind.unwrap_or(BlockId::NONE), change };
        true
    }

    /// Determines whether the search would find the put-off block, joined with its neighbours, and cut it at exactly
    /// this block. If so, returns the change that its free makes in `inactive_split` and the grant reverses.
    fn would_retake(&self, id: BlockId, want: &Want) -> Option<SplitChange> {
        let block = &self.memory.blocks[id];
        if !self.memory.rules.caches || self.memory.free_before(id).is_some() {
            return None;
        }
        let behind = self.memory.free_behind(id);
        // What the record has by place serves only where its order counts, and a slab lists what is free by its stream.
        let may_part = want.side == Side::Large
            && self.memory.rules.alias_reuse == self.memory.rules.reuse
            && self.memory.guards.seen.users > 1;
        let is_common = |other: BlockId| {
            self.memory.blocks[other].user == block.user
                && self.memory.guards.common_user(&self.memory.blocks, [None, Some(id), Some(other)]).is_some()
        };
        if self.memory.rules.moves_pages && !may_part && !behind.is_none_or(is_common) {
            return None;
        }
        let rest = behind.map_or(0, |behind| self.memory.blocks[behind].size);
        let whole = want.rounded + rest;
        if whole >= self.memory.rules.max_split || (rest != 0 && !self.splits(want, rest)) {
            return None;
        }
        let index = self.memory.index_for(want.side, block.user)?;
        let mut other = index.best_fit(want.rounded, |id| self.memory.blocks[id].size);
        if other.is_some() && other == behind {
            other = behind.and_then(|behind| index.next_after_alone(behind, rest))?;
        }
        if whole >= self.memory.gives_from && want.side == Side::Small && block.expandable {
            // The slab would go back to the large side, and the search would come to it last.
            let gets_it = other.is_none() && self.memory.would_get_slab(id, whole);
            return gets_it.then(SplitChange::default);
        }
        if let Some(other) = other {
            // A tie would be decided by rank: that is left to the search.
            if self.memory.blocks[other].size <= whole {
                return None;
            }
            // Where blocks count with the size that they could grow to, the next block must not be smaller in that
            // size.
            let last = behind.unwrap_or(id);
            if self.memory.rules.expandable && self.memory.reach(other) < whole + self.memory.unmapped_behind(last) {
                return None;
            }
        }
        Some(self.memory.change_by_join(id))
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use millpond_backend::{Point, StreamId, Tick};

    use super::*;
    use crate::memory::Requester;
    use crate::memory::home::tests::{SMALL, bare, free, grow, grow_for, settle, want};
    use crate::units::MIB;

    /// Returns a shard whose home has 6 MiB, all of them free.
    fn free_home() -> (Shard, BlockId) {
        let (mut shard, _) = bare();
        let whole = grow(&mut shard, 6 * MIB, true).block;
        free(&mut shard, whole, 3);
        (shard, whole)
    }

    /// Has another stream use a free part of a block that has joined.
    fn guard(shard: &mut Shard, block: BlockId, begin: u64, end: u64) {
        let part = shard.memory.claim_part(&shard.memory.tile(block), begin, end).expect("it is free").block;
        shard
            .memory
            .guards
            .put(&mut shard.memory.blocks[part], [Point { stream: StreamId(1), tick: Tick(9) }].into_iter().collect());
        shard.memory.unclaim(part, [0; 2]);
        settle(shard);
    }

    fn allocate(shard: &mut Shard, bytes: u64) -> Option<Grant> {
        shard.allocate(&want(bytes), 0, Requester::in_order(StreamId(0)))
    }

    /// Memory of another stream beside a slab would be recorded by place once the two are joined. A slab beside memory
    /// of its own stream alone is swapped.
    #[test]
    fn a_block_of_a_slab_is_swapped_where_no_other_stream_has_what_is_beside_it() {
        for guarded in [false, true] {
            let (mut shard, whole) = free_home();
            shard.memory.guards.see_reached(core::iter::once(Point { stream: StreamId(0), tick: Tick(9) }), 1);
            if guarded {
                guard(&mut shard, whole, 4 * MIB, 6 * MIB);
            }
            for _ in 0..2 {
                let grant = allocate(&mut shard, SMALL).expect("a slab");
                assert_eq!(grant.offset, 0);
                shard.free(grant.block, Tick(4), 0);
                assert_eq!(shard.is_retaken(&want(SMALL)), !guarded);
                let again = allocate(&mut shard, SMALL).expect("the same slab");
                assert_eq!(again.offset, grant.offset);
                free(&mut shard, again.block, 5);
            }
        }
    }

    /// A stream frees and asks again next to memory that nobody has used, in a home that another stream opened. That
    /// memory says no wrong use afterwards, and whoever asks for it next knows whom to ask.
    #[test]
    fn memory_behind_gets_the_use_of_the_stream_that_had_it() {
        let (mut shard, _) = bare();
        let by = Requester::in_order(StreamId(1));
        let mut block = grow_for(&mut shard, 3 * MIB, true, by.stream).block;
        // The first free is known to be over: only later ones are to be asked for.
        shard.memory.guards.see_reached(core::iter::once(Point { stream: by.stream, tick: Tick(4) }), 1);
        for tick in 4..8 {
            if tick == 5 {
                // As memory is that nobody has had yet: the first free of a shard is not put off.
                let rest = shard.memory.blocks[block].next;
                (shard.memory.blocks[rest].user, shard.memory.blocks[rest].last_use) = (StreamId(0), LastUse::NEVER);
                shard.memory.guards.see_reached(core::iter::once(Point { stream: by.stream, tick: Tick(5) }), 1);
            }
            shard.free(block, Tick(tick), 0);
            block = shard.allocate(&want(3 * MIB), 0, by).expect("it is free").block;
        }
        let point = shard.memory.blocks[shard.memory.blocks[block].next].last_point();
        assert!(point.stream == by.stream || point.tick == Tick::ZERO, "{point:?}");
        assert_eq!(shard.memory.guards.seen.streams_to_ask(), [StreamId(1)]);
    }

    /// A free that is put off leaves the same as one that is done before the block is asked for again, whoever has used
    /// the memory behind the block, and up to when.
    #[test]
    fn memory_behind_is_left_as_a_join_leaves_it() {
        let other = StreamId(1);
        let scenes: [fn(&mut Shard, BlockId); 5] = [
            |_, _| {},
            |shard, rest| shard.memory.blocks[rest].last_use = LastUse::NEVER,
            |shard, rest| {
                (shard.memory.blocks[rest].user, shard.memory.blocks[rest].last_use) =
                    (StreamId(1), LastUse::at(Tick(9)))
            },
            |shard, rest| {
                (shard.memory.blocks[rest].user, shard.memory.blocks[rest].last_use) =
                    (StreamId(1), LastUse::at(Tick(2)))
            },
            |shard, rest| {
                let (begin, end) = (shard.memory.blocks[rest].offset, shard.memory.blocks[rest].end());
                guard(shard, rest, begin + MIB, end);
            },
        ];
        for (number, scene) in scenes.into_iter().enumerate() {
            let left = [false, true].map(|is_seen| {
                let (mut shard, whole) = free_home();
                shard.memory.guards.see_reached([Point { stream: other, tick: Tick(3) }].into_iter(), 1);
                shard.memory.guards.seen.note_grant(other);
                let mut block = allocate(&mut shard, 2 * MIB).expect("it is free").block;
                assert_eq!(block, whole);
                let rest = shard.memory.blocks[block].next;
                scene(&mut shard, rest);
                for tick in 4..8 {
                    shard.free(block, Tick(tick), tick);
                    if is_seen {
                        shard.tidied();
                    }
                    block = allocate(&mut shard, 2 * MIB).expect("it is its own").block;
                }
                assert_eq!(shard.swap.grant.block == block, !is_seen, "scene {number}");
                settle(&mut shard);
                let guards: Vec<_> = shard.memory.guards.all().collect();
                let latest: Vec<_> = shard.memory.guards.seen.latest_points().collect();
                alloc::format!("{:?} {guards:?} {latest:?}", shard.memory.blocks[shard.memory.blocks[block].next])
            });
            assert_eq!(left[0], left[1], "scene {number}");
        }
    }

    /// What the record has by place may have been used at other addresses, which keep no order on some devices: a
    /// stream gets it once it is over, also if it has used it alone.
    #[test]
    fn what_a_join_would_record_is_swapped_only_where_addresses_keep_their_order() {
        for (has_order, is_others) in [(true, true), (false, false), (false, true)] {
            let (mut shard, _) = free_home();
            if !has_order {
                shard.memory.rules.alias_reuse = millpond_backend::Reuse::AfterDone;
            }
            let block = allocate(&mut shard, 2 * MIB).expect("it is free").block;
            if is_others {
                let rest = shard.memory.blocks[block].next;
                (shard.memory.blocks[rest].user, shard.memory.blocks[rest].last_use) =
                    (StreamId(1), LastUse::at(Tick(9)));
                shard.memory.guards.seen.note_grant(StreamId(1));
            }
            shard.free(block, Tick(4), 0);
            assert_eq!(shard.is_retaken(&want(2 * MIB)), has_order || !is_others, "{has_order} {is_others}");
        }
    }
}
