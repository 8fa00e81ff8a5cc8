//! Homes that grow, and what tests of shards share.

use alloc::vec;
use alloc::vec::Vec;

use millpond_backend::{PageCaps, Point, Reuse, Tick};

use super::*;
use crate::ids::{PageId, Place, PoolId, SegmentId, ShardId};
use crate::memory::{Arrival, Requester, Rules};
use crate::segment::{Mapping, Role};
use crate::settings::{self, Policy, Settings};
use crate::shard::{Freed, Grant, NewUser, Shard};
use crate::size::{Sizes, Want};
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
    let slot = shard.memory.segments.promise();
    let (id, bytes, page_bytes) = (SegmentId(u64::from(slot.0)), 64 * MIB, 2 * MIB);
    let arrival = Arrival { id, base: 0, bytes, side: Side::Large, page_bytes, shared: true, has_windows };
    shard.memory.adopt(slot, arrival);
    slot
}

/// Returns a shard whose home has 64 MiB of addresses, and nothing there.
pub(crate) fn bare() -> (Shard, Slot) {
    let settings = Settings { policy: Policy::paged(settings::Growth::Tight), ..Settings::default() };
    let rules = Rules::new(&settings, Reuse::InOrder, Some(PageCaps::new(2 * MIB)), 2 * MIB);
    let mut shard = Shard::new(ShardId(0), StreamId(0), PoolId::default(), rules);
    let slot = add_range(&mut shard, false);
    (shard, slot)
}

/// Maps a page of 2 MiB at every place in a part of a range.
pub(crate) fn map(shard: &mut Shard, slot: Slot, (begin, end): (u64, u64), role: Role) {
    for offset in (begin..end).step_by(2 << 20) {
        let page = PageId((offset / (2 * MIB)) as u32);
        let mapping = Mapping { page, birth: 0, bytes: 2 * MIB, role };
        shard.memory.page_mapped(Place { shard: ShardId(0), slot, offset }, mapping);
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
    let growth = shard.memory.growth(length, joins).unwrap_or_else(|| panic!("{bytes} bytes fit nowhere"));
    let missing = growth.missing.next_multiple_of(2 * MIB);
    let ground = shard.memory.claim_growth(&growth, missing).unwrap_or_else(|| panic!("{growth:?} is as it was"));
    map(shard, growth.slot, (growth.begin, growth.begin + missing), Role::Home);
    let grant = shard.serve_growth(ground, &request, 0, NewUser { stream, last_use: LastUse::NEVER });
    settle(shard);
    grant
}

/// Raises the rooms, as the coordinator does after each grant, and verifies the invariants.
pub(crate) fn settle(shard: &mut Shard) {
    shard.restart_peaks();
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
    shard.free_blocks_now().iter().map(|tile| (tile.begin / MIB, tile.end / MIB)).collect()
}

#[test]
fn a_home_grows_behind_its_last_free_block() {
    let (mut shard, slot, _) = with_gaps(&[4, 4, 6]);
    let growth = shard.memory.growth(10 * MIB, true).expect("there are addresses");
    assert_eq!((growth.slot, growth.begin, growth.missing), (slot, 14 * MIB, 4 * MIB), "6 MiB are free in front");
    let enough = shard.memory.growth(6 * MIB, true).expect("there are addresses");
    assert_eq!((enough.slot, enough.begin, enough.missing, enough.before), (slot, 14 * MIB, 6 * MIB, None));
    let alone = shard.memory.growth(10 * MIB, false).expect("there are addresses");
    assert_eq!((alone.begin, alone.missing, alone.before), (14 * MIB, 10 * MIB, None));
    assert_eq!(shard.memory.growth(57 * MIB, true), None, "50 are left, behind 6");
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
        let growth = shard.memory.growth(10 * MIB, true).expect("there are addresses");
        match change {
            0 => drop(shard.find_and_take(&want(6 * MIB), 0, OWN)),
            1 => drop((0..2).map(|_| shard.find_and_take(&want(4 * MIB), 0, OWN)).count()),
            _ => drop(
                shard.memory.claim_growth(&shard.memory.growth(2 * MIB, false).expect("there are addresses"), 2 * MIB),
            ),
        }
        settle(&mut shard);
        assert_eq!(shard.memory.claim_growth(&growth, 4 * MIB), None, "change {change}");
        settle(&mut shard);
    }
}

/// The pages of a plan arrive in part. Those are free memory, and the other addresses are without memory again.
#[test]
fn what_has_arrived_of_a_growth_is_free() {
    for backed in [0, 2, 4, 6] {
        let (mut shard, slot, _) = with_gaps(&[4, 4]);
        let growth = shard.memory.growth(6 * MIB, true).expect("there are addresses");
        let ground = shard.memory.claim_growth(&growth, 6 * MIB).expect("it is as it was");
        map(&mut shard, slot, (8 * MIB, (8 + backed) * MIB), Role::Home);
        shard.memory.keep_backed(ground.gap, backed * MIB, LastUse::NEVER, [0; 2]);
        settle(&mut shard);
        let expected = if backed == 0 { vec![(0, 4)] } else { vec![(0, 4), (8, 8 + backed)] };
        assert_eq!(free_places(&shard), expected);
        let again = shard.memory.growth(50 * MIB, true).expect("all addresses");
        assert_eq!((again.begin, again.missing), ((8 + backed) * MIB, (50 - backed) * MIB));
    }
}

/// A part of a free block is claimed, sent away and comes home. What is left on both sides stays free meanwhile.
#[test]
fn a_part_of_a_free_block_goes_away_and_comes_home() {
    for (begin, end, left) in [(0, 4, vec![]), (0, 1, vec![(1, 4)]), (3, 4, vec![(0, 3)]), (1, 3, vec![(0, 1), (3, 4)])]
    {
        let (mut shard, _, ids) = with_gaps(&[4, 4]);
        let part = shard.memory.claim_part(&shard.memory.tile(ids[0]), begin * MIB, end * MIB);
        let Claimed { block: part, points, .. } = part.expect("it is free");
        assert_eq!(points.into_vec(), [point(0, 3)]);
        settle(&mut shard);
        shard.memory.goes_away(part);
        settle(&mut shard);
        assert_eq!(free_places(&shard), left);
        shard.memory.comes_home(part, point(0, 7), &Points::default(), 0);
        settle(&mut shard);
        let tiles = shard.free_blocks_now();
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
    assert_eq!((small.offset, shard.memory.small_bytes), (4 * MIB, 2 * MIB));
    assert_eq!(free_places(&shard), [(3, 4), (6, 10)]);
    free(&mut shard, small.block, 6);
    assert_eq!((shard.memory.small_bytes, free_places(&shard)), (0, vec![(3, 10)]));
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
    let claimed = shard.memory.claim_part(&shard.memory.tile(whole), part, part + MIB / 4).expect("it is free");
    assert_eq!((claimed.points.into_vec(), claimed.is_fresh), (vec![point(0, 3)], false));
    shard.memory.guards.put(&mut shard.memory.blocks[claimed.block], [point(1, 9)].into_iter().collect());
    shard.memory.unclaim(claimed.block, [0; 2]);
    settle(&mut shard);
    let slab = |shard: &mut Shard, by| shard.take_slab(&want(SMALL), 0, by).map(|grant| grant.offset);
    assert_eq!(slab(&mut shard, OWN), Some(0));
    assert_eq!(slab(&mut shard, OWN), None, "what is left begins with what another stream uses");
    let other = Requester::in_order(other);
    assert_eq!(slab(&mut shard, other), None, "behind its own part it has what the first stream used");
    shard.memory.guards.see_reached([point(0, 3)].into_iter(), 1);
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
    assert_eq!((shard.memory.small_bytes, free_places(&shard)), (6 * MIB, vec![]));
    // All but the first and the last of twelve: only the middle slab is whole.
    blocks[1..11].iter().for_each(|&id| free(&mut shard, id, 4));
    assert_eq!((shard.memory.small_bytes, free_places(&shard)), (4 * MIB, vec![(2, 4)]));
    free(&mut shard, blocks[0], 4);
    assert_eq!((shard.memory.small_bytes, free_places(&shard)), (2 * MIB, vec![(0, 4)]));
    free(&mut shard, blocks[11], 4);
    assert_eq!((shard.memory.small_bytes, free_places(&shard)), (0, vec![(0, 6)]));
}
