//! Operations of other threads just before each look of a plan at a shard.

use millpond_backend::{StreamId, Tick};
use millpond_core::settings::Growth;
use millpond_core::{Freed, Requester, Shard, Sizes, Step};

use crate::driver::{Device, Facts, Held, MIB, is_stream_wait, point, with_gaps};

const SMALL: u64 = MIB / 2;

/// What another thread did.
enum Meddling {
    /// Nothing: what it needs was not there.
    Nothing,
    /// It took a block, which it has.
    Took(Held),
    /// It took a block and freed it.
    Used,
}

/// Runs a plan for `bytes` on stream 0 once for each look that it takes, with `meddle` done just before that look. Each
/// run must be granted memory that no other block has, and all invariants must hold. `verify` is called with the steps
/// of each run in which another thread has used memory. Returns the number of looks.
fn at_each_look(
    set_up: impl Fn() -> (Device, u64),
    meddle: impl Fn(&mut Vec<Shard>, &Sizes) -> Meddling,
    verify: impl Fn(&[Step]),
) -> u32 {
    for place in 0.. {
        let (mut device, bytes) = set_up();
        let mut plan = device.plan(0, bytes);
        let sizes = device.sizes.clone();
        let (mut looks, mut done) = (place, None);
        device.steps.clear();
        let mut strike = |shards: &mut Vec<Shard>| done = Some(meddle(shards, &sizes));
        let end = device.end_meddled(&mut plan, &mut looks, &mut strike);
        let granted = device.granted(&end, 0).unwrap_or_else(|| panic!("look {place}: {end:?}"));
        device.check();
        match done {
            Some(Meddling::Took(taken)) => {
                assert!(!taken.overlaps(&granted), "look {place}: {taken:?} and {granted:?}");
            }
            Some(Meddling::Used) => verify(&device.steps),
            Some(Meddling::Nothing) => {}
            None => return place,
        }
    }
    unreachable!("a plan looks for ever")
}

fn take(shards: &mut [Shard], stream: u32, sizes: &Sizes, mib: u64) -> Option<Held> {
    let by = Requester::in_order(StreamId(stream));
    let grant = shards[0].allocate(&sizes.want(mib * MIB)?, 0, by)?;
    Some(Held { shard: 0, grant })
}

fn took(shards: &mut [Shard], stream: u32, sizes: &Sizes, mib: u64) -> Meddling {
    take(shards, stream, sizes, mib).map_or(Meddling::Nothing, Meddling::Took)
}

/// Sets up stream 0 with 20 MiB free in front of addresses without memory, and a request for 30 MiB, for which its home
/// grows there.
fn free_block_before_a_hole() -> (Device, u64) {
    let mut device = Device::new(Growth::Balanced, 200 * MIB);
    let blocks: Vec<_> = [20, 20, 20].map(|mib| device.allocate(0, mib * MIB)).into();
    device.free(blocks[1], 1);
    device.empty();
    device.free(blocks[0], 2);
    (device, 30 * MIB)
}

#[test]
fn the_free_block_in_front_of_new_pages_is_taken_by_another_thread() {
    let looks = at_each_look(free_block_before_a_hole, |shards, sizes| took(shards, 0, sizes, 16), |_| {});
    assert!(looks > 6, "only {looks} looks");
}

/// The rest of the block is taken, and its front is free again: it is the same block, but smaller.
#[test]
fn the_free_block_in_front_of_new_pages_shrinks() {
    let shrink = |shards: &mut Vec<Shard>, sizes: &Sizes| {
        let Some(front) = take(shards, 0, sizes, 16) else { return Meddling::Nothing };
        let rest = took(shards, 0, sizes, 4);
        assert_eq!(shards[0].free(front.grant.block, Tick(3), 0), Freed::Done { unsettled: false });
        rest
    };
    let looks = at_each_look(free_block_before_a_hole, shrink, |_| {});
    assert!(looks > 6, "only {looks} looks");
}

/// Sets up a home with all that the limit allows, free in two pieces that stream 1 has used. Stream 0 needs most of it.
fn gaps_of_another_stream() -> (Device, u64) {
    let (mut device, _) = with_gaps(Growth::Tight, 1, &[24, 4, 44, 8]);
    device.gpu.reached[1] = Tick(100);
    (device, 50 * MIB)
}

#[test]
fn memory_that_is_to_be_gathered_is_taken_by_another_thread() {
    let set_up = || {
        let (device, bytes) = gaps_of_another_stream();
        // There is room for what is missing then.
        let mut device = device;
        device.set_limit(88 * MIB);
        (device, bytes)
    };
    let looks = at_each_look(set_up, |shards, sizes| took(shards, 1, sizes, 20), |_| {});
    assert!(looks > 10, "only {looks} looks");
}

/// All that is free does not suffice, and while it is gathered for a window with new pages, another thread frees what
/// was missing.
#[test]
fn memory_that_is_missing_is_freed_by_another_thread() {
    let last = std::cell::Cell::new(None);
    let set_up = || {
        let (mut device, between) = with_gaps(Growth::Tight, 1, &[24, 4, 44, 8]);
        device.set_limit(88 * MIB);
        last.set(between.last().copied());
        (device, 70 * MIB)
    };
    let free = |shards: &mut Vec<Shard>, _: &Sizes| {
        let held = last.get().expect("it was set up");
        assert_eq!(shards[0].free(held.grant.block, Tick(3), 0), Freed::Done { unsettled: false });
        Meddling::Used
    };
    let looks = at_each_look(set_up, free, |_| {});
    assert!(looks > 10, "only {looks} looks");
}

/// The memory is taken, used by work that is still running, and free again, all between two looks. It is gathered
/// behind that later use then.
#[test]
fn memory_that_is_to_be_gathered_is_used_once_more_by_another_thread() {
    let used = std::cell::Cell::new(0);
    let use_again = |shards: &mut Vec<Shard>, sizes: &Sizes| {
        let Some(taken) = take(shards, 1, sizes, 44) else { return Meddling::Nothing };
        assert_eq!(shards[0].free(taken.grant.block, Tick(200), 0), Freed::Done { unsettled: false });
        Meddling::Used
    };
    at_each_look(gaps_of_another_stream, use_again, |steps| {
        used.set(used.get() + 1);
        let waits = |step: &Step| matches!(step, Step::StreamWait { points, .. } if points == &[point(1, 200)]);
        assert!(steps.iter().any(waits), "{steps:?}");
    });
    assert!(used.get() > 5, "used {} times", used.get());
}

/// A kept window is to serve a request, and another thread takes the memory behind it.
#[test]
fn the_memory_of_a_kept_window_is_taken_by_another_thread() {
    let set_up = || {
        let (mut device, bytes) = gaps_of_another_stream();
        device.use_until(0, bytes, 3);
        assert!(device.in_windows() > 0);
        device.set_limit(120 * MIB);
        (device, bytes)
    };
    let looks = at_each_look(set_up, |shards, sizes| took(shards, 1, sizes, 40), |_| {});
    assert!(looks > 10, "only {looks} looks");
}

/// A block is to serve another stream, and the stream that freed it takes it itself.
#[test]
fn a_block_that_another_stream_freed_is_taken_by_another_thread() {
    let set_up = || {
        let (mut device, between) = with_gaps(Growth::Tight, 1, &[24, 4]);
        device.set_limit(60 * MIB);
        let again = device.hit(1, 24 * MIB).expect("it is free");
        device.free(again, 150);
        assert!(again.offset < between[0].offset);
        (device, 20 * MIB)
    };
    let looks = at_each_look(set_up, |shards, sizes| took(shards, 1, sizes, 22), |_| {});
    assert!(looks > 5, "only {looks} looks");
}

/// Returns a device whose streams cannot wait for each other, with these blocks of stream 1, which are all that the
/// limit allows. Every other one is free, and the device is done with it, which a request finds out that asks.
fn without_waits(blocks: &[u64]) -> Device {
    let limit = blocks.iter().sum::<u64>().next_multiple_of(2 * MIB);
    let mut device = Device::of(&Facts { stream_wait: false, ..Facts::paged(Growth::Tight, limit) });
    let held: Vec<_> =
        blocks.iter().map(|&bytes| device.hit(1, bytes).unwrap_or_else(|| device.allocate(1, bytes))).collect();
    held.into_iter().step_by(2).for_each(|held| device.free(held, 150));
    device.gpu.reached[1] = Tick(150);
    device
}

/// A block is to serve another stream, and the stream that freed it takes it, uses it for work that is still running,
/// and frees it, all between two looks. The request gets another one, because its stream cannot wait for that work.
fn a_block_is_used_once_more(set_up: impl Fn() -> (Device, u64)) {
    let used = std::cell::Cell::new(0);
    let use_again = |shards: &mut Vec<Shard>, sizes: &Sizes| {
        let want = sizes.want(set_up().1).expect("a size that exists");
        let Some(grant) = shards[0].allocate(&want, 0, Requester::in_order(StreamId(1))) else {
            return Meddling::Nothing;
        };
        assert_eq!(shards[0].free(grant.block, Tick(200), 0), Freed::Done { unsettled: false });
        Meddling::Used
    };
    let looks = at_each_look(&set_up, use_again, |steps| {
        used.set(used.get() + 1);
        assert!(!steps.iter().any(is_stream_wait), "{steps:?}");
    });
    assert!(used.get() > 2 && used.get() + 3 > looks, "used {} times in {looks} looks", used.get());
}

#[test]
fn a_block_that_another_stream_freed_is_used_once_more_where_streams_cannot_wait() {
    a_block_is_used_once_more(|| (without_waits(&[20 * MIB, 2 * MIB, 20 * MIB, 2 * MIB]), 20 * MIB));
}

#[test]
fn a_small_block_that_another_stream_freed_is_used_once_more_where_streams_cannot_wait() {
    a_block_is_used_once_more(|| (without_waits(&[SMALL; 8]), SMALL));
}

/// The small block is to lie in a slab that is free as a whole.
#[test]
fn a_slab_that_another_stream_freed_is_used_once_more_where_streams_cannot_wait() {
    a_block_is_used_once_more(|| (without_waits(&[2 * MIB; 4]), SMALL));
}

/// Before the device is asked, a plan looks for what was freed since its request missed. Where nothing was, it asks.
#[test]
fn a_plan_looks_first_for_what_was_freed_since_its_request_missed() {
    for was_freed in [false, true] {
        let mut device = Device::new(Growth::Balanced, 1 << 30);
        let block = device.allocate(0, 8 * MIB);
        assert!(device.hit(0, 8 * MIB).is_none());
        let missed_at = device.shards[0].changes();
        let now = if was_freed { missed_at } else { missed_at + 1 };
        device.free(block, 200);
        assert_eq!(device.shards[0].changes(), missed_at + 1);
        let mut plan = device.plan(0, 8 * MIB).after_miss(now);
        let first = device.next(&mut plan);
        assert_eq!(matches!(first, Step::Grant(_)), was_freed, "{first:?}");
        if !was_freed {
            device.done(&mut plan, &first);
            let end = device.run(&mut plan);
            assert!(matches!(end, Step::Grant(_)), "it is found once the device was asked: {end:?}");
        }
    }
}
