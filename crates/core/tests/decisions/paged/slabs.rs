//! Small blocks, which live in slabs that a home gives them and gets back.

use millpond_backend::Tick;
use millpond_core::settings::Growth;

use crate::driver::{Device, Held, MIB, is_pages, is_stream_wait, is_wait, point};

const SMALL: u64 = MIB / 2;

/// Returns the bytes of homes that are on the small and on the large side.
fn by_side(device: &mut Device) -> (u64, u64) {
    let reserved = device.stats().reserved_bytes;
    device.check();
    (reserved.small_pool.current, reserved.large_pool.current)
}

/// Makes a small request, which is a hit if there is a slab with room.
fn small(device: &mut Device) -> Held {
    device.hit(0, SMALL).unwrap_or_else(|| device.allocate(0, SMALL))
}

/// Sets up stream 0 with 8 MiB that are free.
fn with_free_memory() -> Device {
    let mut device = Device::new(Growth::Tight, 8 * MIB);
    device.use_until(0, 8 * MIB, 1);
    device.steps.clear();
    device
}

/// A small request takes a slab of 2 MiB from the stream's own free memory, without any driver call, and others share
/// it. The slab goes back as soon as the last block in it is freed.
#[test]
fn an_empty_slab_goes_back_to_the_large_side_at_once() {
    for order in [[0, 1, 2, 3], [3, 2, 1, 0], [1, 3, 0, 2], [2, 0, 3, 1]] {
        let mut device = with_free_memory();
        let blocks: Vec<_> = (0..4).map(|_| small(&mut device)).collect();
        assert!(!device.steps.iter().any(is_pages));
        assert_eq!(by_side(&mut device), (2 * MIB, 6 * MIB));
        assert!(blocks.iter().all(|held| held.offset / (2 * MIB) == blocks[0].offset / (2 * MIB)));
        assert!(device.hit(0, 8 * MIB).is_none());
        for at in order {
            device.free(blocks[at], 2);
        }
        assert_eq!(by_side(&mut device), (0, 8 * MIB), "{order:?}");
        let whole = device.hit(0, 8 * MIB).expect("it is one block again");
        assert_eq!(whole.last_use.tick(), Tick(2));
    }
}

/// A slab is taken only when the others are full, and each goes back on its own.
#[test]
fn slabs_go_back_one_by_one() {
    let mut device = with_free_memory();
    let blocks: Vec<_> = (0..16).map(|_| small(&mut device)).collect();
    assert_eq!(by_side(&mut device), (8 * MIB, 0));
    assert!(device.try_allocate(0, SMALL).is_none(), "the limit");
    for (count, slab) in [1, 3, 0, 2].into_iter().enumerate() {
        let in_slab = |held: &&Held| held.offset / (2 * MIB) == slab;
        let inside: Vec<_> = blocks.iter().filter(in_slab).copied().collect();
        assert_eq!(inside.len(), 4);
        inside.into_iter().for_each(|held| device.free(held, 2));
        assert_eq!(by_side(&mut device).0, (3 - count as u64) * 2 * MIB);
    }
    assert!(device.hit(0, 8 * MIB).is_some());
}

/// Free memory of both sides lies side by side, and stays apart.
#[test]
fn free_blocks_of_both_sides_do_not_join() {
    let mut device = with_free_memory();
    let blocks: Vec<_> = (0..8).map(|_| small(&mut device)).collect();
    // The last small block of the second slab is free, and large memory begins behind it.
    device.free(blocks[7], 2);
    assert_eq!(by_side(&mut device), (4 * MIB, 4 * MIB));
    assert!(device.hit(0, 4 * MIB + SMALL).is_none());
    let large = device.hit(0, 4 * MIB).expect("the rest of the home");
    assert_eq!(large.offset, 4 * MIB);
    device.free(large, 2);
    // Blocks of neighbouring slabs do join, and what is a whole slab goes back.
    [2, 3, 4, 5].into_iter().for_each(|at| device.free(blocks[at], 2));
    assert_eq!(by_side(&mut device), (4 * MIB, 4 * MIB), "two halves are no slab");
    assert_eq!(device.hit(0, 2 * MIB).map(|held| held.offset), Some(4 * MIB));
    device.free(blocks[6], 2);
    assert_eq!(by_side(&mut device), (2 * MIB, 6 * MIB));
    assert!(blocks.iter().all(|held| held.shard == 0));
}

/// Where a stream has no free memory, its home grows by a slab.
#[test]
fn a_home_grows_by_a_slab() {
    let mut device = Device::new(Growth::Tight, 40 * MIB);
    let first = small(&mut device);
    assert_eq!((by_side(&mut device), first.offset), ((2 * MIB, 0), 0));
    let large = device.allocate(0, 4 * MIB);
    assert_eq!((large.slot, large.offset), (first.slot, 2 * MIB), "the same home");
    device.free(first, 1);
    assert_eq!(by_side(&mut device), (0, 6 * MIB));
    device.free(large, 1);
    assert!(device.hit(0, 6 * MIB).is_some());
}

/// A large request is served in front of a slab and behind it, and a block of a slab is no part of that.
#[test]
fn a_slab_that_is_in_use_splits_the_large_side() {
    let mut device = with_free_memory();
    let front = device.hit(0, 2 * MIB).expect("it is free");
    let block = small(&mut device);
    device.free(front, 2);
    assert_eq!((block.offset, by_side(&mut device)), (2 * MIB, (2 * MIB, 6 * MIB)));
    // Together they are gathered, around the slab.
    let held = device.allocate(0, 6 * MIB);
    assert_eq!((held.shard, device.in_windows()), (0, 3));
    device.free(held, 3);
    device.free(block, 3);
    assert!(device.hit(0, 8 * MIB).is_some());
}

/// Each stream gets its small blocks from slabs of its own, which go back to the large side with the last of them.
#[test]
fn each_stream_has_its_own_slabs() {
    let mut device = with_free_memory();
    let held = [1, 2, 1].map(|stream| device.allocate(stream, SMALL));
    assert_eq!(held.map(|held| held.offset), [0, 2 * MIB, SMALL]);
    assert_eq!(by_side(&mut device), (4 * MIB, 4 * MIB));
    held.into_iter().for_each(|held| device.free(held, 2));
    assert_eq!(by_side(&mut device), (0, 8 * MIB));
    assert!(device.hit(0, 8 * MIB).is_some());
}

/// Two slabs of different streams are side by side, and what is free at their border is not joined.
#[test]
fn slabs_of_different_streams_stay_apart() {
    let mut device = with_free_memory();
    let [first, second] = [1, 2].map(|stream| device.allocate(stream, MIB));
    let behind = device.allocate(2, MIB);
    device.free(second, 2);
    assert_eq!((first.offset, behind.offset), (0, 3 * MIB));
    assert_eq!(device.hit(1, MIB).map(|held| held.offset), Some(MIB), "the rest of its own");
    assert_eq!(device.hit(2, MIB).map(|held| held.offset), Some(2 * MIB));
    device.check();
}

/// Where no memory is left, a stream gets a small block in the slab of another one.
#[test]
fn a_stream_gets_a_block_of_another_ones_slab_rather_than_none() {
    let mut device = Device::new(Growth::Tight, 2 * MIB);
    let first = device.allocate(0, MIB);
    let other = device.allocate(1, MIB);
    assert_eq!((first.offset, other.offset, device.reserved()), (0, MIB, 2 * MIB));
    device.free(first, 1);
    assert_eq!(device.allocate(0, MIB).offset, 0);
    device.free(other, 1);
    device.check();
}

/// A stream waits for whoever uses the small block that it gets. Another one has not waited: the rest of the slab stays
/// guarded.
#[test]
fn the_rest_of_a_slab_stays_guarded() {
    for has_neighbour in [false, true] {
        let mut device = Device::new(Growth::Tight, 2 * MIB);
        device.gpu.reached.fill(Tick::ZERO);
        let neighbour = has_neighbour.then(|| small(&mut device));
        let bytes = if has_neighbour { MIB } else { 2 * MIB };
        let held = device.hit(0, bytes).unwrap_or_else(|| device.allocate(0, bytes));
        device.free_behind(held, 1, &[point(2, 5)]);
        device.steps.clear();
        let front = device.allocate(1, SMALL);
        assert_eq!((front.offset, front.last_use.tick()), (held.offset, Tick(50)), "behind the waits");
        assert!(device.steps.iter().any(is_stream_wait));
        let own = device.hit(0, SMALL);
        let guarded = held.offset..held.offset + bytes;
        assert!(own.is_none_or(|own| !guarded.contains(&own.offset)), "{own:?} in {guarded:?}");
        assert!(device.hit(0, SMALL).is_none(), "a neighbour: {has_neighbour}");
        assert_eq!(neighbour.is_some(), has_neighbour);
    }
}

/// What is free of the large side and has no slab serves a small request as it is.
#[test]
fn a_small_request_gets_less_than_a_slab_from_the_large_side() {
    let mut device = Device::new(Growth::Tight, 8 * MIB);
    let held = device.allocate(0, 7 * MIB);
    let rest = device.allocate(1, SMALL);
    assert_eq!((rest.offset, by_side(&mut device)), (7 * MIB, (0, 8 * MIB)));
    device.free(rest, 2);
    device.free(held, 2);
    assert!(device.hit(0, 8 * MIB).is_some());
}

/// Work of another stream that is under way keeps no more slabs than the slack allows: a small request then waits for
/// that work on the device, for a slab or for a block in one that is partly in use.
#[test]
fn guarded_memory_serves_small_requests_once_the_slack_is_used_up() {
    for has_neighbour in [false, true] {
        let mut device = Device::new(Growth::Tight, 100 * MIB);
        device.gpu.reached.fill(Tick::ZERO);
        let neighbour = has_neighbour.then(|| small(&mut device));
        for tick in 1..=40 {
            let held = small(&mut device);
            device.free_behind(held, 1, &[point(1, tick)]);
            device.check();
        }
        assert_eq!(device.reserved(), 8 * MIB, "a neighbour: {has_neighbour}");
        assert!(device.steps.iter().any(is_stream_wait), "a neighbour: {has_neighbour}");
        assert!(!device.steps.iter().any(is_wait), "the host does not wait");
        device.gpu.reached.fill(Tick(100));
        if let Some(neighbour) = neighbour {
            device.free(neighbour, 2);
        }
        assert_eq!(device.allocate(0, 8 * MIB).size, 8 * MIB, "all of it is one block");
    }
}

/// What is free in a slab is listed with its stream. A block that another stream got there, as nothing else was left,
/// is not swapped: the rest of the slab would be the other stream's.
#[test]
fn what_is_free_in_the_slab_of_another_stream_stays_there() {
    let mut device = Device::new(Growth::Tight, 2 * MIB);
    let held = [(); 3].map(|()| device.allocate(1, 64 << 10));
    device.free(held[2], 1);
    let mut block = device.allocate(0, 1 << 10);
    for tick in 2..6 {
        device.free_unchecked(block, tick);
        block = device.hit(0, 1 << 10).expect("what it freed itself is ready");
        device.check();
    }
    let own = device.allocate(1, 64 << 10);
    device.free(own, 7);
    device.free(block, 8);
}
