//! The homes of pages: how a home grows, its slabs, and the parts that are in use elsewhere.

use millpond_backend::{Point, StreamId};

use super::{Claimed, Grant, Shard, Tile};
use crate::block::State;
use crate::books::Points;
use crate::ids::{BlockId, Side, Slot};
use crate::last_use::LastUse;
use crate::size::Want;

/// A place where a home can grow so that a request is served there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Growth {
    /// The free block in front of the addresses, if there is one.
    pub(crate) before: Option<Tile>,
    /// The block of addresses without memory.
    hole: BlockId,
    pub(crate) slot: Slot,
    /// Where the new pages begin.
    pub(crate) begin: u64,
    /// The bytes of new pages that the request needs.
    pub(crate) missing: u64,
    /// Where the addresses end.
    pub(crate) limit: u64,
}

/// What a plan has claimed to let a home grow.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Ground {
    pub(crate) before: Option<Claimed>,
    pub(crate) gap: BlockId,
}

impl Shard {
    /// Moves a claimed block of the large side to the small one, where it is a stream's.
    pub(super) fn becomes_slab(&mut self, id: BlockId, stream: StreamId) {
        if self.blocks[id].user != stream {
            // The stream may still have to come after whoever used it.
            self.record_user(id);
        }
        self.blocks[id].user = stream;
        self.blocks[id].side = Side::Small;
        self.small_bytes += self.blocks[id].size;
    }

    /// Moves a claimed block of the small side to the large one.
    pub(super) fn leaves_slab(&mut self, id: BlockId) {
        self.blocks[id].side = Side::Large;
        self.small_bytes -= self.blocks[id].size;
        if self.small_bytes == 0 {
            self.gives_from = self.rules.slab;
        }
    }

    /// Returns where a home can grow for a request: the first hole that is long enough, together with the free block in
    /// front of it unless the request needs a place at a multiple of a page's size.
    pub(crate) fn growth(&self, bytes: u64, joins: bool) -> Option<Growth> {
        debug_assert!(bytes > 0, "a home grows by nothing");
        self.pools[Side::Large.index()].unmapped.iter().find_map(|&(_, hole)| {
            let block = &self.blocks[hole];
            let before = block.prev.some().filter(|&id| joins && self.is_free_on(id, Side::Large));
            // One that is long enough is not ready, or it would have served.
            let before = before.map(|id| self.tile(id)).filter(|tile| tile.end - tile.begin < bytes);
            let missing = bytes.saturating_sub(before.map_or(0, |tile| tile.end - tile.begin));
            let (slot, begin, limit) = (block.slot, block.offset, block.end());
            let fits = missing.next_multiple_of(self.rules.slab) <= block.size;
            fits.then_some(Growth { before, hole, slot, begin, missing, limit })
        })
    }

    /// Takes a place to grow for a plan, with `bytes` of its addresses, and the free block in front. Returns `None`,
    /// with nothing claimed, if another thread has changed it meanwhile.
    pub(crate) fn claim_growth(&mut self, growth: &Growth, bytes: u64) -> Option<Ground> {
        let hole = &self.blocks[growth.hole];
        let stands = (hole.state, hole.slot, hole.offset) == (State::Unmapped, growth.slot, growth.begin)
            && hole.size >= bytes
            && growth.before.is_none_or(|tile| {
                let block = &self.blocks[tile.block];
                (block.state, block.slot, block.offset, block.end()) == (State::Free, tile.slot, tile.begin, tile.end)
            });
        if !stands {
            return None;
        }
        let before = growth.before.map(|tile| {
            self.claim(tile.block);
            self.claimed(tile.block)
        });
        let gap = self.claim_hole(growth.hole, growth.begin, growth.begin + bytes);
        Some(Ground { before, gap })
    }

    /// Joins what a plan has claimed and backed, and hands it out on the side of the request.
    pub(crate) fn serve_growth(&mut self, ground: Ground, want: &Want, clock: u64, to: (StreamId, LastUse)) -> Grant {
        let whole = match ground.before {
            Some(before) => self.absorb(before.block, ground.gap),
            None => ground.gap,
        };
        if want.side == Side::Small {
            // The rest of the slab is free for other small blocks.
            self.becomes_slab(whole, to.0);
        }
        // A free block in front that the plan has not claimed stays as it is: the block that is handed out follows it.
        self.serve(whole, want, clock, to)
    }

    /// Notes that claimed memory is in use through a window from now on.
    pub(crate) fn goes_away(&mut self, id: BlockId) {
        let block = &mut self.blocks[id];
        assert_eq!(block.state, State::Claimed, "block {} goes away", id.0);
        block.state = State::Away;
    }

    /// Notes that a stream no longer uses memory through a window: it is free again, for whoever comes after that use
    /// and these points of others.
    ///
    /// # Panics
    ///
    /// If it was not away.
    pub(super) fn comes_home(&mut self, id: BlockId, used: Point, points: &Points, clock: u64) {
        let block = &mut self.blocks[id];
        assert_eq!(block.state, State::Away, "block {} comes home", id.0);
        (block.user, block.last_use) = (used.stream, LastUse::at(used.tick));
        self.used_by_others(id, points.clone(), true);
        self.join(id, clock);
    }

    /// Returns where a small block would begin in a slab of a free block of the large side: where the first slab
    /// begins. Segments have no slabs.
    pub(super) fn place_in_slab(&self, id: BlockId, bytes: u64) -> Option<u64> {
        let whole = (self.blocks[id].offset, self.blocks[id].end());
        self.blocks[id].expandable.then(|| self.within_slab(whole, whole, bytes)).flatten()
    }

    /// Returns where the first bytes of a part of a block begin that lie in one slab. The slab lies in the block.
    pub(crate) fn within_slab(&self, block: (u64, u64), (begin, end): (u64, u64), bytes: u64) -> Option<u64> {
        let slab = self.rules.slab;
        let first = block.0.next_multiple_of(slab).max(begin);
        let at = if first % slab + bytes > slab { first.next_multiple_of(slab) } else { first };
        let slab_end = at / slab * slab + slab;
        (at + bytes <= end && slab_end <= block.1).then_some(at)
    }

    /// Returns whether a block is the first one of a slab of `whole` bytes that is free but for it, and a small request
    /// would get that slab if the block were freed and the slab given back. Returns `false` also where that would be
    /// costly to find out.
    pub(super) fn would_get_slab(&self, id: BlockId, whole: u64) -> bool {
        let (slab, block) = (self.rules.slab, &self.blocks[id]);
        if whole != slab || !block.offset.is_multiple_of(slab) {
            return false;
        }
        let behind = block.next.some().filter(|_| whole > block.size);
        let behind = behind.map_or(block.next, |behind| self.blocks[behind].next);
        let beside = [block.prev, behind].map(|id| id.some().filter(|&id| self.is_free_on(id, Side::Large)));
        let (mut size, mut first) = (slab, id);
        for neighbour in beside.into_iter().flatten() {
            let other = &self.blocks[neighbour];
            let is_before = other.offset < block.offset;
            // Joined, what several streams have used is recorded by place, which could be seen afterwards.
            if other.used_elsewhere || other.user != block.user {
                return false;
            }
            // What guards the memory on either side of the slab does not guard the slab.
            if is_before && other.size >= slab {
                return false;
            }
            size += other.size;
            first = if is_before { neighbour } else { first };
        }
        let free = &self.pools[Side::Large.index()].free;
        let mut others = free.iter_from(slab).filter(|other| !beside.contains(&Some(*other)));
        others.find(|&other| self.place_in_slab(other, block.size).is_some()).is_none_or(|other| {
            let theirs = self.entry(other);
            (size, self.entry(first).rank) < (theirs.size, theirs.rank)
        })
    }

    /// Gives back to the large side what [`returnable`](Self::returnable) names of a free block of the small side.
    #[cold]
    #[inline(never)]
    pub(super) fn give_slabs(&mut self, id: BlockId) {
        let Some((begin, end)) = self.returnable(id) else { return };
        let clock = self.blocks[id].age;
        self.claim(id);
        // What is left on both sides is a part of a slab that has other small blocks, so it stays small.
        let slabs = self.carve(id, begin, end - begin, [clock; 2]);
        self.leaves_slab(slabs);
        self.join(slabs, clock);
    }

    /// Returns what of a free block of the small side belongs to the large side: its whole slabs. A restored block may
    /// have left a part of a slab to either side: that goes back where no small block is next to it.
    pub(super) fn returnable(&self, id: BlockId) -> Option<(u64, u64)> {
        let (slab, block) = (self.rules.slab, &self.blocks[id]);
        let is_small = |id: BlockId| id.some().is_some_and(|id| self.blocks[id].side == Side::Small);
        let begin = if is_small(block.prev) { block.offset.next_multiple_of(slab) } else { block.offset };
        let end = if is_small(block.next) { block.end() / slab * slab } else { block.end() };
        (begin < end).then_some((begin, end))
    }

    /// Has every free block of the small side looked at from now on, however short: some slab is in parts.
    pub(super) fn has_parts_of_slabs(&mut self) {
        self.gives_from = 0;
    }

    /// Sets the last use of claimed memory.
    pub(crate) fn set_last_use(&mut self, id: BlockId, last_use: LastUse) {
        debug_assert_eq!(self.blocks[id].state, State::Claimed);
        self.blocks[id].last_use = last_use;
    }

    /// Returns the bytes of homes that belong to the small side now.
    pub(crate) fn small_bytes(&self) -> u64 {
        self.small_bytes
    }

    /// Keeps the first `backed` bytes of a claimed gap that a plan could not back in full: they become a free block.
    pub(crate) fn keep_backed(&mut self, id: BlockId, backed: u64, last_use: LastUse, clocks: [u64; 2]) {
        let clock = clocks[self.blocks[id].side.index()];
        self.blocks[id].last_use = last_use;
        if backed == 0 {
            self.unmapped(id);
        } else if backed < self.blocks[id].size {
            let rest = self.cut(id, backed);
            self.unmapped(rest);
            self.join(id, clock);
        } else {
            self.join(id, clock);
        }
    }

    /// Returns the free blocks that may hold a whole page of that size.
    pub(crate) fn free_with_pages(&self, page: u64) -> impl Iterator<Item = BlockId> {
        self.pools[Side::Large.index()].free.iter_from(page)
    }
}

#[cfg(test)]
pub(super) mod tests {
    extern crate std;

    use std::vec;
    use std::vec::Vec;

    use millpond_backend::{PageCaps, Point, Reuse, Tick};

    use super::*;
    use crate::ids::{PageId, Place, PoolId, SegmentId, ShardId};
    use crate::segment::{Mapping, Role};
    use crate::settings::{self, Policy, Settings};
    use crate::shard::{Arrival, Freed, Requester, Rules};
    use crate::size::Sizes;
    use crate::units::MIB;

    pub(crate) const SMALL: u64 = MIB / 2;

    /// The stream of the shards here.
    pub(crate) const OWN: Requester = Requester::in_order(StreamId(0));

    fn point(stream: u32, tick: u64) -> Point {
        Point { stream: StreamId(stream), tick: Tick(tick) }
    }

    pub(crate) fn want(bytes: u64) -> Want {
        Sizes::new(&Settings::default()).want(bytes).unwrap_or_else(|| panic!("{bytes} bytes"))
    }

    /// Adds a range of 64 MiB.
    pub(crate) fn add_range(shard: &mut Shard, has_windows: bool) -> Slot {
        let slot = shard.promise();
        let (id, bytes, page_bytes) = (SegmentId(u64::from(slot.0)), 64 * MIB, 2 * MIB);
        let arrival = Arrival { id, base: 0, bytes, side: Side::Large, page_bytes, shared: true, has_windows };
        shard.adopt(slot, arrival);
        slot
    }

    /// Returns a shard whose home has 64 MiB of addresses, and nothing there.
    pub(crate) fn bare() -> (Shard, Slot) {
        let settings = Settings { policy: Policy::paged(settings::Growth::Tight), ..Settings::default() };
        let rules = Rules::new(&settings, Reuse::InOrder).on(Some(PageCaps::new(2 * MIB)));
        let mut shard = Shard::new(ShardId(0), StreamId(0), PoolId::default(), rules);
        let slot = add_range(&mut shard, false);
        (shard, slot)
    }

    /// Maps a page of 2 MiB at every place in a part of a range.
    pub(crate) fn map(shard: &mut Shard, slot: Slot, (begin, end): (u64, u64), role: Role) {
        for offset in (begin..end).step_by(2 << 20) {
            let page = PageId((offset / (2 * MIB)) as u32);
            let mapping = Mapping { page, birth: 0, bytes: 2 * MIB, role };
            shard.page_mapped(Place { shard: ShardId(0), slot, offset }, mapping);
        }
    }

    /// Has a home grow for a request of its own stream, as a plan does.
    pub(crate) fn grow(shard: &mut Shard, bytes: u64, joins: bool) -> Grant {
        grow_for(shard, bytes, joins, OWN.stream)
    }

    /// Has a home grow for a request of a stream.
    pub(crate) fn grow_for(shard: &mut Shard, bytes: u64, joins: bool, stream: StreamId) -> Grant {
        let request = want(bytes);
        let length = if request.side == Side::Small { 2 * MIB } else { request.rounded };
        let growth = shard.growth(length, joins).unwrap_or_else(|| panic!("{bytes} bytes fit nowhere"));
        let missing = growth.missing.next_multiple_of(2 * MIB);
        let ground = shard.claim_growth(&growth, missing).unwrap_or_else(|| panic!("{growth:?} is as it was"));
        map(shard, growth.slot, (growth.begin, growth.begin + missing), Role::Home);
        let grant = shard.serve_growth(ground, &request, 0, (stream, LastUse::NEVER));
        settle(shard);
        grant
    }

    /// Raises the rooms, as the coordinator does after each grant, and verifies the invariants.
    pub(crate) fn settle(shard: &mut Shard) {
        shard.reset_peaks();
        shard.tidied().check();
    }

    pub(crate) fn free(shard: &mut Shard, block: BlockId, tick: u64) {
        assert!(matches!(shard.free(block, millpond_backend::Tick(tick), 0), Freed::Done { .. }));
        settle(shard);
    }

    /// Returns a shard whose home has free blocks at these offsets with these lengths in MiB, and others between them
    /// that are in use.
    pub(crate) fn with_gaps(blocks: &[u64]) -> (Shard, Slot, Vec<BlockId>) {
        let (mut shard, slot) = bare();
        let ids: Vec<_> = blocks.iter().map(|mib| grow(&mut shard, mib * MIB, true).block).collect();
        ids.iter().step_by(2).for_each(|&id| free(&mut shard, id, 3));
        (shard, slot, ids)
    }

    fn free_places(shard: &Shard) -> Vec<(u64, u64)> {
        shard.tiles_now().iter().map(|tile| (tile.begin / MIB, tile.end / MIB)).collect()
    }

    #[test]
    fn a_home_grows_behind_its_last_free_block() {
        let (mut shard, slot, _) = with_gaps(&[4, 4, 6]);
        let growth = shard.growth(10 * MIB, true).expect("there are addresses");
        assert_eq!((growth.slot, growth.begin, growth.missing), (slot, 14 * MIB, 4 * MIB), "6 MiB are free in front");
        let enough = shard.growth(6 * MIB, true).expect("there are addresses");
        assert_eq!((enough.slot, enough.begin, enough.missing, enough.before), (slot, 14 * MIB, 6 * MIB, None));
        let alone = shard.growth(10 * MIB, false).expect("there are addresses");
        assert_eq!((alone.begin, alone.missing, alone.before), (14 * MIB, 10 * MIB, None));
        assert_eq!(shard.growth(57 * MIB, true), None, "50 are left, behind 6");
        let grant = grow(&mut shard, 10 * MIB, true);
        assert_eq!(grant.offset, 8 * MIB);
        assert_eq!(free_places(&shard), [(0, 4)]);
    }

    /// Between the look and the claim another thread has taken the free block, or its rest, or another plan the
    /// addresses. Nothing is claimed then.
    #[test]
    fn a_home_grows_only_where_it_is_as_it_was_seen() {
        for change in 0..3 {
            let (mut shard, _, _) = with_gaps(&[4, 4, 6]);
            let growth = shard.growth(10 * MIB, true).expect("there are addresses");
            match change {
                0 => drop(shard.find_and_take(&want(6 * MIB), 0, OWN)),
                1 => drop((0..2).map(|_| shard.find_and_take(&want(4 * MIB), 0, OWN)).count()),
                _ => drop(shard.claim_growth(&shard.growth(2 * MIB, false).expect("there are addresses"), 2 * MIB)),
            }
            settle(&mut shard);
            assert_eq!(shard.claim_growth(&growth, 4 * MIB), None, "change {change}");
            settle(&mut shard);
        }
    }

    /// The pages of a plan arrive in part. Those are free memory, and the other addresses are without memory again.
    #[test]
    fn what_has_arrived_of_a_growth_is_free() {
        for backed in [0, 2, 4, 6] {
            let (mut shard, slot, _) = with_gaps(&[4, 4]);
            let growth = shard.growth(6 * MIB, true).expect("there are addresses");
            let ground = shard.claim_growth(&growth, 6 * MIB).expect("it is as it was");
            map(&mut shard, slot, (8 * MIB, (8 + backed) * MIB), Role::Home);
            shard.keep_backed(ground.gap, backed * MIB, LastUse::NEVER, [0; 2]);
            settle(&mut shard);
            let expected = if backed == 0 { vec![(0, 4)] } else { vec![(0, 4), (8, 8 + backed)] };
            assert_eq!(free_places(&shard), expected);
            let again = shard.growth(50 * MIB, true).expect("all addresses");
            assert_eq!((again.begin, again.missing), ((8 + backed) * MIB, (50 - backed) * MIB));
        }
    }

    /// A part of a free block is claimed, sent away and comes home. What is left on both sides stays free meanwhile.
    #[test]
    fn a_part_of_a_free_block_goes_away_and_comes_home() {
        for (begin, end, left) in
            [(0, 4, vec![]), (0, 1, vec![(1, 4)]), (3, 4, vec![(0, 3)]), (1, 3, vec![(0, 1), (3, 4)])]
        {
            let (mut shard, _, ids) = with_gaps(&[4, 4]);
            let part = shard.claim_part(&shard.tile(ids[0]), begin * MIB, end * MIB);
            let Claimed { block: part, points, .. } = part.expect("it is free");
            assert_eq!(points.into_vec(), [point(0, 3)]);
            settle(&mut shard);
            shard.goes_away(part);
            settle(&mut shard);
            assert_eq!(free_places(&shard), left);
            shard.comes_home(part, point(0, 7), &Points::default(), 0);
            settle(&mut shard);
            let tiles = shard.tiles_now();
            assert_eq!(tiles.len(), 1, "it has joined: {tiles:?}");
            assert_eq!((tiles[0].end, tiles[0].point), (4 * MIB, point(0, 7)));
        }
    }

    /// A slab is a whole one of its length, wherever the free block begins.
    #[test]
    fn a_slab_begins_at_a_multiple_of_its_length() {
        let (mut shard, _) = bare();
        let [front, rest] = [3, 7].map(|mib| grow(&mut shard, mib * MIB, true).block);
        assert!(shard.take_slab(&want(SMALL), 0, OWN).is_none(), "nothing is free");
        free(&mut shard, rest, 5);
        let small = shard.take_slab(&want(SMALL), 0, OWN).expect("a slab");
        settle(&mut shard);
        assert_eq!((small.offset, shard.small_bytes()), (4 * MIB, 2 * MIB));
        assert_eq!(free_places(&shard), [(3, 4), (6, 10)]);
        free(&mut shard, small.block, 6);
        assert_eq!((shard.small_bytes(), free_places(&shard)), (0, vec![(3, 10)]));
        free(&mut shard, front, 6);
        assert_eq!(free_places(&shard), [(0, 10)]);
    }

    /// Another stream still uses the first bytes of one slab, and what is beside the others. Those serve at once.
    #[test]
    fn a_slab_that_another_stream_uses_is_passed_over() {
        let (mut shard, _) = bare();
        let whole = grow(&mut shard, 6 * MIB, true).block;
        free(&mut shard, whole, 3);
        let (part, other) = (2 * MIB, StreamId(1));
        let claimed = shard.claim_part(&shard.tile(whole), part, part + MIB / 4).expect("it is free");
        assert_eq!((claimed.points.into_vec(), claimed.is_fresh), (vec![point(0, 3)], false));
        shard.put_guards(claimed.block, [point(1, 9)].into_iter().collect());
        shard.unclaim(claimed.block, [0; 2]);
        settle(&mut shard);
        let slab = |shard: &mut Shard, by| shard.take_slab(&want(SMALL), 0, by).map(|grant| grant.offset);
        assert_eq!(slab(&mut shard, OWN), Some(0));
        assert_eq!(slab(&mut shard, OWN), None, "what is left begins with what another stream uses");
        let other = Requester::in_order(other);
        assert_eq!(slab(&mut shard, other), None, "behind its own part it has what the first stream used");
        shard.see_reached([point(0, 3)].into_iter(), 1);
        assert_eq!(slab(&mut shard, OWN), None, "the other stream is not done");
        assert_eq!(slab(&mut shard, other), Some(2 * MIB));
        settle(&mut shard);
    }

    /// Two free slabs are side by side for a moment, because a half of each was in use. Both go back together.
    #[test]
    fn whole_slabs_in_a_free_block_go_back_and_parts_stay() {
        let (mut shard, _) = bare();
        let block = grow(&mut shard, 6 * MIB, true).block;
        free(&mut shard, block, 3);
        let small = |shard: &mut Shard| {
            let found = shard.find_and_take(&want(SMALL), 0, OWN);
            let grant = found.or_else(|| shard.take_slab(&want(SMALL), 0, OWN)).expect("there is room");
            settle(shard);
            grant.block
        };
        let blocks: Vec<_> = (0..12).map(|_| small(&mut shard)).collect();
        assert_eq!((shard.small_bytes(), free_places(&shard)), (6 * MIB, vec![]));
        // All but the first and the last of twelve: only the middle slab is whole.
        blocks[1..11].iter().for_each(|&id| free(&mut shard, id, 4));
        assert_eq!((shard.small_bytes(), free_places(&shard)), (4 * MIB, vec![(2, 4)]));
        free(&mut shard, blocks[0], 4);
        assert_eq!((shard.small_bytes(), free_places(&shard)), (2 * MIB, vec![(0, 4)]));
        free(&mut shard, blocks[11], 4);
        assert_eq!((shard.small_bytes(), free_places(&shard)), (0, vec![(0, 6)]));
    }
}
