//! What becomes of the blocks of windows, and of vacant addresses.

use alloc::vec;

use millpond_backend::{Point, StreamId, Tick};

use super::*;
use crate::memory::home::tests::{add_range, free, map, settle, want, with_gaps};
use crate::segment::Role;
use crate::shard::{Freed, Grant, NewUser, Shard};
use crate::units::MIB;

/// A shard with 4 MiB free, 2 in use and 6 free at home, and 64 MiB of addresses for windows.
fn scene() -> (Shard, Vec<BlockId>, Slot) {
    let (mut shard, _, ids) = with_gaps(&[4, 2, 6]);
    let slot = add_range(&mut shard, true);
    (shard, ids, slot)
}

/// The stream of the shard, for memory that was never used.
fn user(shard: &Shard) -> NewUser {
    NewUser { stream: shard.stream(), last_use: LastUse::NEVER }
}

/// Keeps a window of 10 MiB, or of 11 behind `front` bytes that are 1 MiB. Returns its first block.
fn keep(shard: &mut Shard, slot: Slot, front: u64) -> BlockId {
    let bytes = (10 * MIB + front).next_multiple_of(2 * MIB);
    let Vacant { block, slot: at, offset } = shard.memory.claim_vacant(bytes).expect("there are addresses");
    assert_eq!(at, slot);
    map(shard, slot, (offset, offset + bytes), Role::Window);
    let run = shard.panes.begin(&mut shard.memory, block, front);
    shard.panes.unclaim_run(&mut shard.memory, run);
    settle(shard);
    block
}

/// Claims a part of a free block, from one MiB to another.
fn claim(shard: &mut Shard, block: BlockId, begin: u64, end: u64) -> BlockId {
    let claimed = shard.memory.claim_part(&shard.memory.tile(block), begin * MIB, end * MIB).expect("it is free");
    claimed.block
}

/// Hands the part of a window that begins at an offset out over these parts of free blocks.
fn open(shard: &mut Shard, head: BlockId, offset: u64, parts: &[(BlockId, u64, u64)]) -> Grant {
    let bytes: u64 = parts.iter().map(|(_, begin, end)| end - begin).sum();
    let run = shard.memory.claim_run(head, offset * MIB, bytes * MIB);
    let mut pieces = Vec::new();
    for &(block, begin, end) in parts {
        let block = claim(shard, block, begin, end);
        shard.memory.goes_away(block);
        pieces.push(block);
    }
    let grant = shard.open_window(run, pieces, user(shard), &want(bytes * MIB));
    settle(shard);
    grant
}

fn free_places(shard: &Shard) -> Vec<(u64, u64)> {
    shard.free_blocks_now().iter().map(|tile| (tile.begin / MIB, tile.end / MIB)).collect()
}

/// Returns the vacant addresses, as offset and length in MiB.
fn vacant(shard: &Shard) -> Vec<(u64, u64)> {
    shard
        .memory
        .vacant
        .iter()
        .map(|&(_, id)| (shard.memory.blocks[id].offset / MIB, shard.memory.blocks[id].size / MIB))
        .collect()
}

/// Returns the blocks of a window in order, each with its length in MiB and its state.
fn panes(shard: &Shard, head: BlockId) -> Vec<(u64, State)> {
    let blocks = core::iter::successors(Some(head), |&id| shard.memory.blocks[id].next.some());
    let panes = blocks.map(|id| (shard.memory.blocks[id].size / MIB, shard.memory.blocks[id].state));
    panes.take_while(|pane| pane.1 != State::Unmapped).collect()
}

/// Behind a window in one block as many addresses stay vacant as it has, as long as there are as many.
#[test]
fn windows_have_room_behind_them() {
    let (mut shard, _, slot) = scene();
    let [first, second, third] =
        [8, 4, 6].map(|mib| shard.memory.claim_vacant(mib * MIB).expect("there are addresses"));
    assert_eq!((first.offset, second.offset, third.offset), (0, 16 * MIB, 24 * MIB));
    assert_eq!((vacant(&shard), third.slot), (vec![(8, 8), (20, 4), (30, 34)], slot));
    assert!(shard.memory.has_vacant(34 * MIB) && !shard.memory.has_vacant(36 * MIB));
    let fourth = shard.memory.claim_vacant(30 * MIB).expect("there are addresses");
    assert_eq!(
        (fourth.offset, vacant(&shard)),
        (32 * MIB, vec![(8, 8), (20, 4), (30, 2), (62, 2)]),
        "half of what is left"
    );
    assert!(shard.memory.claim_vacant(10 * MIB).is_none());
    let room = shard.memory.room_behind(first.block, 8 * MIB).expect("there is room");
    assert_eq!(shard.size_of(room), 8 * MIB);
    let room = shard.memory.room_behind(third.block, 30 * MIB).expect("there is room");
    shard.memory.claim_addresses(room, 2 * MIB);
    assert_eq!(
        (shard.memory.room_behind(third.block, 30 * MIB), vacant(&shard)),
        (None, vec![(8, 8), (20, 4), (62, 2)])
    );
    shard.memory.unmapped(second.block);
    assert_eq!(vacant(&shard), [(8, 16), (62, 2)], "neighbours are one");
}

/// The memory of a window is away while its block is in use, and home as soon as that is freed. Its last use is
/// that of the window.
#[test]
fn the_memory_of_a_window_is_home_once_it_is_freed() {
    let (mut shard, ids, slot) = scene();
    let window = keep(&mut shard, slot, 0);
    for tick in [5, 6] {
        let grant = open(&mut shard, window, 0, &[(ids[2], 6, 12), (ids[0], 0, 4)]);
        assert_eq!((grant.slot, grant.offset, grant.size), (slot, 0, 10 * MIB));
        assert_eq!(free_places(&shard), []);
        free(&mut shard, grant.block, tick);
        let uses: Vec<_> = shard.free_blocks_now().iter().map(|tile| tile.point.tick).collect();
        assert_eq!((free_places(&shard), uses), (vec![(0, 4), (6, 12)], vec![Tick(tick); 2]));
        assert!(shard.memory.is_idle_window(window, 10 * MIB));
    }
}

/// Two blocks have parts of one window at once. Its addresses are one block again when both are freed, in whatever
/// order.
#[test]
fn a_window_that_is_used_in_parts_is_whole_again() {
    for order in [[0, 1], [1, 0]] {
        let (mut shard, ids, slot) = scene();
        let window = keep(&mut shard, slot, MIB);
        let blocks = [(3, (ids[2], 7, 10)), (8, (ids[0], 1, 3))].map(|(at, (block, begin, end))| {
            let grant = open(&mut shard, window, at, &[(block, begin, end)]);
            assert_eq!((grant.offset, grant.size), (at * MIB, (end - begin) * MIB));
            grant.block
        });
        let [kept, live] = [State::Kept, State::Live];
        assert_eq!(panes(&shard, window), [(3, kept), (3, live), (2, kept), (2, live), (2, kept)]);
        assert_eq!(free_places(&shard), [(0, 1), (3, 4), (6, 7), (10, 12)]);
        assert!(!shard.memory.is_idle_window(window, 12 * MIB));
        order.into_iter().zip(8..).for_each(|(at, tick)| free(&mut shard, blocks[at], tick));
        assert_eq!((panes(&shard, window), free_places(&shard)), (vec![(12, kept)], vec![(0, 4), (6, 12)]));
        let used: Vec<_> = shard.panes.points(window).collect();
        assert_eq!(used, [Point { stream: shard.stream(), tick: Tick(9) }], "the last use of all its addresses");
    }
}

/// A window that is lengthened is one with what is behind it, and the next window is not.
#[test]
fn a_longer_window_does_not_join_with_the_next_one() {
    let (mut shard, ids, slot) = scene();
    let [window, next] = [0; 2].map(|front| keep(&mut shard, slot, front));
    assert_eq!(shard.memory.blocks[next].offset, 20 * MIB);
    let room = shard.memory.room_behind(window, 10 * MIB).expect("there is room");
    assert_eq!(shard.size_of(room), 10 * MIB);
    shard.memory.claim_addresses(room, 10 * MIB);
    map(&mut shard, slot, (10 * MIB, 20 * MIB), Role::Window);
    let run = shard.memory.claim_run(window, 8 * MIB, 2 * MIB);
    shard.memory.absorb(run, room);
    let pieces = [(ids[0], 0, 4)].map(|(block, begin, end)| {
        let block = claim(&mut shard, block, begin, end);
        shard.memory.goes_away(block);
        block
    });
    let grant = shard.open_window(run, pieces.to_vec(), user(&shard), &want(4 * MIB));
    settle(&mut shard);
    let [kept, live] = [State::Kept, State::Live];
    assert_eq!(panes(&shard, window), [(8, kept), (4, live), (8, kept), (10, kept)]);
    free(&mut shard, grant.block, 8);
    assert_eq!(panes(&shard, window), [(20, kept), (10, kept)]);
    let front = open(&mut shard, next, 20, &[(ids[2], 6, 10)]);
    free(&mut shard, front.block, 9);
    assert_eq!(panes(&shard, window), [(20, kept), (10, kept)], "nor does the next one join with it");
}

/// Addresses that a window has lost are vacant once no page is mapped there, and what is left on both sides of them
/// stays.
#[test]
fn a_page_leaves_a_window() {
    let (mut shard, ids, slot) = scene();
    let window = keep(&mut shard, slot, 0);
    let live = open(&mut shard, window, 7, &[(ids[2], 7, 9)]);
    let at = crate::ids::Place { shard: crate::ids::ShardId(0), slot, offset: 2 * MIB };
    shard.memory.segments[at.slot].page_leaves(at);
    let TakenOut { block: out, behind } = shard.panes.take_out(&mut shard.memory, window, at.offset, 2 * MIB, true);
    assert!(!shard.memory.is_bare_window(out), "the driver is still unmapping");
    let rest = behind.expect("there is a rest");
    shard.memory.page_unmapped(at, crate::ids::PageId(1));
    assert!(shard.memory.is_bare_window(out) && !shard.memory.is_bare_window(window));
    shard.panes.vacate(&mut shard.memory, out);
    settle(&mut shard);
    assert_eq!(vacant(&shard), [(2, 2), (10, 54)]);
    free(&mut shard, live.block, 8);
    assert_eq!((panes(&shard, window), panes(&shard, rest)), (vec![(2, State::Kept)], vec![(6, State::Kept)]));
    let TakenOut { block: out, behind } = shard.panes.take_out(&mut shard.memory, rest, 8 * MIB, 2 * MIB, false);
    assert_eq!((shard.memory.blocks[out].size, behind), (2 * MIB, None));
}

/// What is behind addresses that a window has lost is a window of its own, also if it is freed before these are
/// vacant.
#[test]
fn what_is_behind_lost_addresses_does_not_join_with_them() {
    let (mut shard, ids, slot) = scene();
    let window = keep(&mut shard, slot, 0);
    let live = open(&mut shard, window, 4, &[(ids[2], 7, 9)]);
    let at = crate::ids::Place { shard: crate::ids::ShardId(0), slot, offset: 2 * MIB };
    shard.memory.segments[at.slot].page_leaves(at);
    let TakenOut { block: out, behind: rest } =
        shard.panes.take_out(&mut shard.memory, window, at.offset, 2 * MIB, true);
    assert_eq!(rest, Some(live.block));
    free(&mut shard, live.block, 8);
    shard.memory.page_unmapped(at, crate::ids::PageId(1));
    shard.panes.vacate(&mut shard.memory, out);
    settle(&mut shard);
    assert_eq!((vacant(&shard), panes(&shard, live.block)), (vec![(2, 2), (10, 54)], vec![(6, State::Kept)]));
}

/// A page is being unmapped for one plan. Another one would unmap it a second time.
#[test]
#[should_panic(expected = "no page of a window to unmap")]
fn a_page_leaves_a_window_once() {
    let (mut shard, _, slot) = scene();
    keep(&mut shard, slot, 0);
    let at = crate::ids::Place { shard: crate::ids::ShardId(0), slot, offset: 2 * MIB };
    (0..2).for_each(|_| shard.memory.segments[at.slot].page_leaves(at));
}

/// What is not mapped of claimed addresses is vacant again.
#[test]
fn addresses_that_were_claimed_in_vain_are_vacant() {
    let (mut shard, _, slot) = scene();
    let Vacant { block, offset, .. } = shard.memory.claim_vacant(10 * MIB).expect("there are addresses");
    map(&mut shard, slot, (offset, offset + 4 * MIB), Role::Window);
    assert!(shard.memory.keep_mapped(block, 4 * MIB));
    let run = shard.panes.begin(&mut shard.memory, block, MIB);
    shard.panes.unclaim_run(&mut shard.memory, run);
    settle(&mut shard);
    assert_eq!((panes(&shard, block), vacant(&shard)), (vec![(4, State::Kept)], vec![(4, 60)]));
    let Vacant { block, .. } = shard.memory.claim_vacant(10 * MIB).expect("there are addresses");
    assert!(!shard.memory.keep_mapped(block, 0));
    assert_eq!(vacant(&shard), [(4, 60)]);
}

/// The memory of a window that several streams have used goes home with all of them, and the window stays until they
/// are done.
#[test]
fn what_others_did_in_a_window_guards_its_memory() {
    let (mut shard, ids, slot) = scene();
    let window = keep(&mut shard, slot, 0);
    let grant = open(&mut shard, window, 0, &[(ids[2], 6, 12), (ids[0], 0, 4)]);
    shard.record_stream(grant.block, StreamId(1));
    assert!(matches!(shard.free(grant.block, Tick(9), 0), Freed::Pending(_)));
    let at = |stream, tick| Point { stream: StreamId(stream), tick: Tick(tick) };
    shard.guard(grant.block, Points::from_iter([at(1, 7)]), 0);
    settle(&mut shard);
    let points =
        |tile: &crate::memory::Tile| shard.memory.guards.points_of(&shard.memory.blocks[tile.block]).into_vec();
    let both = vec![at(1, 7), at(0, 9)];
    assert_eq!(shard.free_blocks_now().iter().map(points).collect::<Vec<_>>(), [both.clone(), both.clone()]);
    assert_eq!(shard.panes.points(window).collect::<Vec<_>>(), both);
}

#[test]
#[should_panic(expected = "of a window are claimed")]
fn addresses_in_use_are_not_claimed() {
    let (mut shard, ids, slot) = scene();
    let window = keep(&mut shard, slot, 0);
    open(&mut shard, window, 0, &[(ids[2], 6, 12)]);
    shard.memory.claim_run(window, 2 * MIB, 2 * MIB);
}

#[test]
#[should_panic(expected = "of a window are claimed")]
fn addresses_behind_what_is_kept_are_not_claimed() {
    let (mut shard, ids, slot) = scene();
    let window = keep(&mut shard, slot, 0);
    open(&mut shard, window, 4, &[(ids[2], 6, 12)]);
    shard.memory.claim_run(window, 2 * MIB, 4 * MIB);
}

/// Where no vacant addresses have all the room, a window is made in the longest ones.
#[test]
fn room_is_left_in_the_longest_addresses() {
    let (mut shard, ..) = scene();
    let offsets = [40, 14].map(|mib| shard.memory.claim_vacant(mib * MIB).expect("there are addresses").offset / MIB);
    assert_eq!((offsets, vacant(&shard)), ([0, 44], vec![(40, 4), (58, 6)]));
    assert_eq!(shard.memory.claim_vacant(2 * MIB).map(|vacant| vacant.offset), Some(60 * MIB));
}
