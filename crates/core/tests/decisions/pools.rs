//! Private pools and captures: what stays in a pool, what goes back of it and when, and which streams are left alone.

use millpond_backend::{PageCaps, StreamId, Tick};
use millpond_core::settings::{Growth, Policy, PoolFlags, Segments, Settings};
use millpond_core::{Outcome, Plan, PoolId, Step};
use millpond_trace::Random;

use crate::driver::{Device, Facts, Held, MIB, empty_cache, is_stream_wait, is_wait, point};

const POLICIES: [Policy; 5] = [
    Policy::Classic(Segments::Plain),
    Policy::Classic(Segments::Expandable),
    Policy::paged(Growth::Balanced),
    Policy::paged(Growth::Tight),
    Policy::Direct,
];

/// Opens a shard of each of these streams and pools. A wait comes back with what the streams have reached.
fn opened(settings: Settings, shards: &[(u32, PoolId)], pages: PageCaps) -> Device {
    let facts = Facts { pages: Some(pages), shards: shards.to_vec(), ..Facts::new(settings, 0) };
    let mut device = Device::of(&facts);
    (device.gpu.waits_in_vain, device.gpu.asked) = (true, 0);
    device
}

/// Returns a device with shards 0 and 1 of two streams in the default pool, and 2 and 3 of the same streams in a
/// private pool, which is held.
fn scene(policy: Policy) -> (Device, PoolId) {
    scene_on(policy, PageCaps::new(2 * MIB))
}

fn scene_on(policy: Policy, pages: PageCaps) -> (Device, PoolId) {
    let pool = PoolId(1);
    let shards = [(0, PoolId::DEFAULT), (1, PoolId::DEFAULT), (0, pool), (1, pool)];
    let mut device = opened(Settings { policy, ..Settings::default() }, &shards, pages);
    device.coordinator.hold_pool(pool);
    (device, pool)
}

fn release(device: &mut Device, pool: PoolId) {
    device.coordinator.release_pool(pool, &mut device.shards);
}

fn capture(device: &mut Device, stream: u32, pool: PoolId, open: u64) {
    assert!(device.coordinator.begin_capture(StreamId(stream), pool, Tick(open)));
}

/// Returns whether the last plan was about a stream: it asked or waited for it, or made it wait.
fn asks(device: &Device, stream: u32) -> bool {
    let stream = StreamId(stream);
    device.steps.iter().any(|step| match step {
        Step::Poll(streams) => streams.contains(&stream),
        Step::Wait(points) => points.iter().any(|point| point.stream == stream),
        Step::Synchronize(other) => *other == stream,
        Step::StreamWait { stream: waiting, points } => {
            *waiting == stream || points.iter().any(|point| point.stream == stream)
        }
        _ => false,
    })
}

/// Nothing of a held pool goes back, by whatever way. With the last reference it goes with the rest.
#[test]
fn memory_of_a_held_pool_stays() {
    for policy in POLICIES {
        let (mut device, pool) = scene(policy);
        for bytes in [12 * MIB, 512] {
            let [own, held] = [0, 2].map(|shard| device.serve(shard, bytes));
            device.free(own, 1);
            device.free(held, 1);
        }
        device.coordinator.hold_pool(pool);
        release(&mut device, pool);
        let had = device.coordinator.pool_stats(pool, &mut device.shards).expect("it exists");
        assert!(had.reserved_bytes.all.current >= 12 * MIB && had.uses == 1, "{policy:?}: {had:?}");
        for plan in [
            empty_cache(),
            Plan::trim(1, [0; 2]),
            Plan::empty_pool(pool, [0; 2]),
            Plan::reclaim([0; 2]),
            Plan::empty_pool(PoolId::DEFAULT, [0; 2]),
        ] {
            let mut plan = plan;
            assert_eq!(device.run(&mut plan), Step::Done);
            device.check();
            assert_eq!(device.coordinator.pool_stats(pool, &mut device.shards), Some(had), "{policy:?}: {plan:?}");
        }
        assert_eq!(device.reserved(), had.reserved_bytes.all.current, "{policy:?}: the rest is gone");
        release(&mut device, pool);
        assert_eq!(device.run(&mut Plan::empty_pool(PoolId::DEFAULT, [0; 2])), Step::Done);
        assert_eq!(device.reserved(), had.reserved_bytes.all.current, "{policy:?}: another pool");
        assert_eq!(device.run(&mut Plan::empty_pool(pool, [0; 2])), Step::Done);
        device.check();
        assert_eq!(device.reserved(), 0, "{policy:?}");
    }
}

/// A request is refused rather than served from another pool, or at the cost of one that is held. A pool without
/// references gives its memory up before that.
#[test]
fn a_request_is_refused_rather_than_served_from_another_pool() {
    for policy in POLICIES {
        for (asks, has) in [(0, 2), (3, 1), (2, 0)] {
            let (mut device, pool) = scene(policy);
            device.set_limit(100 * MIB);
            let held = device.serve(has, 60 * MIB);
            device.free(held, 1);
            // What the default pool has goes back for any request.
            let stays = has >= 2;
            let told = device.try_serve(asks, 60 * MIB);
            assert_eq!(told.is_err(), stays, "{policy:?}: {asks} from {has}");
            if let Err(report) = told {
                assert_eq!((report.largest_usable, report.empty_cache_frees), (None, 0));
                assert_eq!((report.ledger.held_bytes, report.in_private_pools), (60 * MIB, 60 * MIB), "{policy:?}");
                release(&mut device, pool);
                assert!(device.try_serve(asks, 60 * MIB).is_ok(), "{policy:?}: it is given up now");
                assert!(device.steps.iter().any(|step| matches!(step, Step::Release { .. } | Step::Pages(_))));
            }
        }
    }
}

/// Streams of one pool share its memory under `paged`, and no other pool has it.
#[test]
fn streams_of_one_pool_share_its_memory() {
    for growth in [Growth::Balanced, Growth::Tight] {
        let (mut device, pool) = scene(Policy::paged(growth));
        device.set_limit(64 * MIB);
        let [low, _fixed, high] = [20, 4, 20].map(|mib| device.serve(2, mib * MIB));
        let default = device.serve(0, 20 * MIB);
        [low, high, default].into_iter().for_each(|held| device.free(held, 1));
        let gathered = device.serve(3, 40 * MIB);
        assert_eq!(gathered.shard, low.shard, "{growth:?}");
        assert!(gathered.shard != default.shard && gathered.slot != low.slot, "{growth:?}: a window in its own pool");
        device.free(gathered, 2);
        let stats = device.coordinator.pool_stats(pool, &mut device.shards).expect("it exists");
        assert_eq!((stats.reserved_bytes.all.current, stats.allocated_bytes), (44 * MIB, 4 * MIB));
        assert_eq!(stats.free_bytes, 40 * MIB);
    }
}

/// Under `direct` a freed block of a held pool serves a request of its size, on its stream, and no other one.
#[test]
fn without_caching_a_held_pool_keeps_whole_blocks() {
    let (mut device, pool) = scene(Policy::Direct);
    let first = device.serve(2, 12 * MIB);
    device.free(first, 1);
    assert_eq!(device.serve(3, 12 * MIB).shard, 3, "another stream");
    let other = device.serve(2, 11 * MIB);
    assert_ne!(other.place(), first.place(), "another size");
    assert_eq!(device.serve(2, 12 * MIB).place(), first.place());
    device.free(other, 2);
    release(&mut device, pool);
    assert_eq!(device.run(&mut Plan::reclaim([0; 2])), Step::Done);
    assert_eq!(device.reserved(), 24 * MIB, "what is idle goes at once");
}

/// Segments from a size on are given back for a request of such a size, but not those of a held pool.
#[test]
fn oversize_segments_of_a_held_pool_stay() {
    let settings = Settings { max_split_bytes: Some(20 * MIB), ..Settings::default() };
    for is_held in [true, false] {
        let pool = PoolId(1);
        let mut device = opened(settings.clone(), &[(0, pool)], PageCaps::new(2 * MIB));
        if is_held {
            device.coordinator.hold_pool(pool);
        }
        device.set_limit(110 * MIB);
        let held = device.serve(0, 24 * MIB);
        device.free(held, 1);
        assert_eq!(device.try_serve(0, 90 * MIB).is_err(), is_held);
        assert_eq!(device.reserved(), if is_held { 24 * MIB } else { 90 * MIB });
    }
}

/// Idle segments beyond the slack are given back before another one is taken, but not those of a held pool.
#[test]
fn surplus_segments_of_a_held_pool_stay() {
    for is_held in [true, false] {
        let (mut device, pool) = scene(Policy::Classic(Segments::Snug(0.125)));
        if !is_held {
            release(&mut device, pool);
        }
        let held = device.serve(2, 30 * MIB);
        device.free(held, 1);
        device.serve(2, 40 * MIB);
        assert_eq!(device.reserved(), if is_held { 70 * MIB } else { 40 * MIB });
    }
}

/// Garbage is collected in the default pool alone.
#[test]
fn a_private_pool_has_no_garbage() {
    let settings = Settings { gc_threshold: 0.01, ..Settings::default() };
    for pool in [PoolId::DEFAULT, PoolId(1)] {
        let mut device = opened(settings.clone(), &[(0, pool)], PageCaps::new(2 * MIB));
        let held = device.serve(0, 40 * MIB);
        device.free(held, 1);
        device.serve(0, 60 * MIB);
        let is_collected = device.reserved() == 60 * MIB;
        assert_eq!(is_collected, pool == PoolId::DEFAULT, "{pool}");
    }
}

/// Before a private pool gets memory, another one that nothing holds gives back what is idle. Nothing is waited for: of
/// expandable segments the whole stream would have to be.
#[test]
fn what_a_pool_leaves_goes_back_without_a_wait() {
    for policy in POLICIES {
        let pools = [PoolId(1), PoolId(2)];
        let settings = Settings { policy, ..Settings::default() };
        let mut device = opened(settings, &[(0, pools[0]), (0, pools[1])], PageCaps::new(2 * MIB));
        device.coordinator.hold_pool(pools[1]);
        let held = device.serve(0, 40 * MIB);
        device.free(held, 1);
        device.gpu.reached[0] = Tick(1);
        device.serve(1, 40 * MIB);
        let waits = |step: &Step| matches!(step, Step::Wait(_) | Step::Synchronize(_));
        assert!(!device.steps.iter().any(waits), "{policy:?}: {:?}", device.steps);
        let stays = policy == Policy::Classic(Segments::Expandable);
        assert_eq!(device.reserved(), if stays { 80 * MIB } else { 40 * MIB }, "{policy:?}");
    }
}

/// A plan that finds out only later that addresses are scarce has pools in which a graph was captured emptied, too.
#[test]
fn what_a_graph_leaves_goes_back_where_addresses_turn_out_to_be_scarce() {
    let pools = [1, 2, 3].map(PoolId);
    let settings = Settings { policy: Policy::paged(Growth::Tight), ..Settings::default() };
    let mut device = opened(settings, &pools.map(|pool| (0, pool)), PageCaps::new(2 * MIB));
    for (shard, pool) in (0..).zip(pools) {
        device.coordinator.hold_pool(pool);
        if shard == 0 {
            capture(&mut device, 0, pool, 1);
            device.coordinator.end_capture(StreamId(0), pool);
        }
        if shard < 2 {
            let held = device.serve(shard, 30 * MIB);
            device.free(held, 1);
            release(&mut device, pool);
        }
    }
    device.gpu.reached[0] = Tick(1);
    device.gpu.answers = |step| match step {
        Step::ReserveRange { bytes, .. } if *bytes > 200 * MIB => Some(Outcome::Refused),
        _ => None,
    };
    device.serve(2, 90 * MIB);
    assert_eq!(device.reserved(), 90 * MIB, "{:?}", device.steps);
}

/// Where addresses are scarce windows end, but not those of a held pool: a request gets new pages instead.
#[test]
fn windows_of_a_held_pool_do_not_end() {
    let pages = PageCaps::new(2 * MIB).with_address_bytes(300 * MIB);
    for is_held in [true, false] {
        let (mut device, pool) = scene_on(Policy::paged(Growth::Tight), pages);
        if !is_held {
            release(&mut device, pool);
        }
        let mut random = Random::new(3);
        let mut live: Vec<Held> = Vec::new();
        let mut refused = 0;
        for tick in 1..1500 {
            if live.len() > 8 || (!live.is_empty() && random.one_in(2)) {
                device.free(live.swap_remove(random.index(live.len())), tick);
            } else {
                match device.try_serve(2, random.between(MIB + 1, 9 * MIB)) {
                    Ok(held) => live.push(held),
                    Err(_) => refused += 1,
                }
            }
        }
        let stats = device.page_stats();
        assert_eq!(stats.unmapped == 0, is_held, "{refused} were refused: {stats:?}");
        assert!(stats.moved > 20, "{stats:?}");
    }
}

/// A stream that is being captured is neither asked nor waited for, nor made to wait.
#[test]
fn a_captured_stream_is_left_alone() {
    for policy in POLICIES {
        let (mut device, pool) = scene(policy);
        device.set_limit(300 * MIB);
        let before = device.serve(1, 24 * MIB);
        capture(&mut device, 1, pool, 101);
        assert!(!device.coordinator.begin_capture(StreamId(1), pool, Tick(101)), "once at a time");
        let inside = device.serve(3, 24 * MIB);
        assert!(!asks(&device, 1), "{policy:?}: {:?}", device.steps);
        let used = device.serve(0, 24 * MIB);
        device.record(used, 1);
        device.free(used, 101);
        device.free(inside, 101);
        device.free(before, 101);
        assert!(!device.coordinator.streams_waited_for(&mut device.shards).contains(&StreamId(1)));
        for shard in [0, 1, 3] {
            let more = device.try_serve(shard, 220 * MIB);
            assert!(!asks(&device, 1), "{policy:?}: {:?}", device.steps);
            more.into_iter().for_each(|held| device.free(held, 101));
        }
        device.empty();
        assert!(!asks(&device, 1), "{policy:?}: {:?}", device.steps);
        device.coordinator.end_capture(StreamId(1), pool);
        release(&mut device, pool);
        device.gpu.reached = vec![Tick(101); 4];
        assert_eq!(device.empty(), 0, "{policy:?}: nothing is left behind");
        assert!(asks(&device, 1), "{policy:?}: {:?}", device.steps);
    }
}

/// A block that a captured stream used, and that is freed meanwhile, is handed out to no other stream until the capture
/// has ended.
#[test]
fn what_a_captured_stream_has_used_waits_for_the_end() {
    for policy in [Policy::Classic(Segments::Plain), Policy::paged(Growth::Balanced), Policy::paged(Growth::Tight)] {
        let (mut device, pool) = scene(policy);
        capture(&mut device, 1, pool, 10);
        let used = device.serve(0, 24 * MIB);
        device.record(used, 1);
        device.free(used, 10);
        let other = device.serve(0, 24 * MIB);
        assert_ne!(other.place(), used.place(), "{policy:?}");
        device.note_reached(1, 20);
        device.free(other, 11);
        let [one, two] = [0; 2].map(|shard| device.serve(shard, 24 * MIB));
        assert!(![one, two].iter().any(|held| held.place() == used.place()), "{policy:?}: while it is captured");
        device.coordinator.end_capture(StreamId(1), pool);
        device.note_reached(1, 20);
        assert_eq!(device.serve(0, 24 * MIB).place(), used.place(), "{policy:?}: once the capture has ended");
    }
}

/// While a stream is captured in a private pool, no stream there takes memory that another one may still use: neither
/// behind a wait, nor because it has waited before. What is reached it may take.
#[test]
fn in_a_capturing_pool_guarded_memory_is_not_taken() {
    for growth in [Growth::Balanced, Growth::Tight] {
        for (captures, reached) in [(false, 0), (true, 0), (true, 5)] {
            let (mut device, pool) = scene(Policy::paged(growth));
            device.set_limit(400 * MIB);
            device.gpu.reached = vec![Tick(0), Tick(100), Tick(0), Tick(0)];
            // Stream 1 has waited for tick 5 of stream 0 before.
            let fill = device.serve(2, 300 * MIB);
            device.free(fill, 5);
            let behind = device.serve(3, 300 * MIB);
            assert!(asks(&device, 0), "{:?}", device.steps);
            device.free(behind, 5);
            let used = device.serve(2, 300 * MIB);
            device.record(used, 1);
            device.free(used, 5);
            if captures {
                capture(&mut device, 1, pool, 200);
            }
            device.gpu.reached[0] = Tick(reached);
            let told = device.try_serve(3, 300 * MIB);
            let is_taken = !captures || reached == 5;
            assert_eq!(told.is_ok(), is_taken, "{growth:?}: captures {captures}, {reached} is reached");
            let waits = device.steps.iter().any(is_stream_wait);
            assert!(!captures || !waits, "{growth:?}: {:?}", device.steps);
        }
    }
}

/// A capture in the default pool concerns its stream alone.
#[test]
fn beside_a_capture_in_the_default_pool_others_wait_as_ever() {
    let (mut device, _) = scene(Policy::paged(Growth::Tight));
    device.set_limit(64 * MIB);
    capture(&mut device, 3, PoolId::DEFAULT, 10);
    device.gpu.reached = vec![Tick(0); 4];
    let held = device.serve(0, 60 * MIB);
    device.free(held, 5);
    assert!(device.try_serve(1, 60 * MIB).is_ok());
    assert!(device.steps.iter().any(is_stream_wait), "{:?}", device.steps);
}

/// A shard whose pool is over serves another pool, and no number of a pool is given out twice. Under `paged` it is the
/// home of all streams of the pool, and otherwise of the same stream.
#[test]
fn a_shard_without_memory_is_reopened_for_another_pool() {
    for policy in [Policy::Classic(Segments::Plain), Policy::paged(Growth::Balanced)] {
        is_reopened(policy);
    }
}

fn is_reopened(policy: Policy) {
    let (mut device, pool) = scene(policy);
    let home = device.lanes[2].shard;
    let is_shared = device.lanes[3].shard == home;
    assert_eq!(is_shared, matches!(policy, Policy::Paged { .. }));
    let held = device.serve(2, 12 * MIB);
    let next = device.coordinator.create_pool();
    assert!(next > pool && device.coordinator.private_pools() == [pool, next]);
    let reopen = |device: &mut Device, is_over: bool| {
        device.coordinator.reopen_shard(StreamId(0), next, |_| is_over, &mut device.shards)
    };
    assert_eq!(reopen(&mut device, true), None, "it is held");
    release(&mut device, pool);
    assert_eq!(reopen(&mut device, true), None, "it has a live block");
    device.free(held, 1);
    assert_eq!(reopen(&mut device, true), None, "it has memory");
    device.empty();
    assert_eq!(reopen(&mut device, false), None, "the program has a handle");
    assert_eq!(reopen(&mut device, true), Some(home));
    assert_eq!(reopen(&mut device, true), None, "the other one is of another stream, and this one is taken");
    device.check();
    assert_eq!(device.coordinator.shard_of(StreamId(0), next), Some(home));
    assert_eq!(device.coordinator.shard_of(StreamId(1), next), is_shared.then_some(home));
    assert_eq!(device.serve(2, 12 * MIB).shard, home.0 as usize);
    assert_eq!(device.shards[home.0 as usize].layout()[0].pool, next);
    if is_shared {
        assert_eq!(device.coordinator.private_pools(), [next], "the first has none left");
        assert!(device.coordinator.create_pool() > next);
    } else {
        assert_eq!(device.coordinator.private_pools(), [pool, next], "one shard is left of the first");
        device.coordinator.hold_pool(pool);
        assert_eq!(device.coordinator.pool_uses(pool), 1);
    }
}

/// Each pool has its own slack: what one has reserved does not keep another one from growing.
#[test]
fn each_pool_has_its_own_slack() {
    let (mut device, pool) = scene(Policy::paged(Growth::Tight));
    let held = device.serve(2, 400 * MIB);
    device.free(held, 1);
    let bound = device.slack().bound_bytes.expect("paged has one");
    assert!((420 * MIB..=421 * MIB).contains(&bound), "{bound}");
    // Its home grows within the slack, although the other pool has more than is live.
    device.gaps(0, &[20, 4, 20], 1);
    let reserved = device.reserved();
    device.serve(0, 24 * MIB);
    assert!(device.reserved() > reserved, "{:?}", device.steps);
    let stats = device.slack();
    assert!(stats.bound_bytes.is_some_and(|now| now > bound + 40 * MIB), "{stats:?}");
    let of_pool = device.coordinator.pool_stats(pool, &mut device.shards).expect("it exists");
    assert_eq!(of_pool.reserved_bytes.all.peak, 400 * MIB);
}

/// What is live in one pool does not let the home of another one grow either: its free memory is gathered.
#[test]
fn what_is_live_in_another_pool_makes_no_slack() {
    let (mut device, _) = scene(Policy::paged(Growth::Tight));
    device.serve(2, 400 * MIB);
    device.gaps(0, &[20, 4, 20], 1);
    let reserved = device.reserved();
    device.serve(0, 30 * MIB);
    assert_eq!(device.reserved(), reserved, "{:?}", device.steps);
}

/// A pool that allows it lends free memory to a request of the default pool on the same stream, before it is refused.
/// Under `paged` all streams have the same memory of a pool.
#[test]
fn a_pool_may_be_used_before_a_request_is_refused() {
    for policy in POLICIES {
        for (flag, captures, asks) in
            [(true, false, 0), (false, false, 0), (true, true, 0), (true, false, 1), (true, false, 4)]
        {
            let (mut device, pool) = scene(policy);
            let other = device.coordinator.create_pool();
            device.open(0, other);
            device.set_limit(64 * MIB);
            let flags = PoolFlags { use_on_oom: flag, ..PoolFlags::default() };
            device.coordinator.set_pool_flags(pool, flags, &mut device.shards);
            let held = device.serve(2, 40 * MIB);
            device.free(held, 1);
            if captures {
                capture(&mut device, 1, pool, 200);
            }
            let what = format!("{policy:?}: {flags:?}, captures {captures}, asked by {asks}");
            let told = device.try_serve(asks, 40 * MIB);
            let is_shared = matches!(policy, Policy::Paged { .. });
            let lends = flags.use_on_oom && !captures && (asks == 0 || asks == 1 && is_shared);
            let home = device.lanes[2].shard.0 as usize;
            assert_eq!(told.as_ref().ok().map(|held| held.shard), lends.then_some(home), "{what}");
            if let Ok(lent) = told {
                assert_eq!(lent.place(), held.place(), "{what}");
                device.free(lent, 2);
                assert_eq!(device.serve(2, 40 * MIB).shard, home, "{what}: it has come back");
            }
            release(&mut device, pool);
            assert_eq!(device.coordinator.pool_flags(pool), PoolFlags::default());
        }
    }
}

/// A pool that may be used is used before cached memory is released, and once more for what the waits have made free.
#[test]
fn a_pool_is_used_before_memory_is_released_and_after_waits() {
    for policy in [Policy::Classic(Segments::Plain), Policy::paged(Growth::Tight)] {
        for waits in [false, true] {
            let (mut device, pool) = scene(policy);
            device.set_limit(64 * MIB);
            let flags = PoolFlags { use_on_oom: true, ..PoolFlags::default() };
            device.coordinator.set_pool_flags(pool, flags, &mut device.shards);
            let (cached, held) = (device.serve(1, 12 * MIB), device.serve(2, 40 * MIB));
            device.free(cached, 1);
            if waits {
                device.record(held, 1);
            }
            (device.gpu.reached, device.gpu.waits_in_vain) = (vec![Tick(if waits { 0 } else { 105 }); 4], false);
            device.free(held, 105);
            let lent = device.try_serve(0, 40 * MIB).expect("the pool has it");
            assert_eq!(lent.place(), held.place(), "{policy:?}");
            let waited = device.steps.iter().any(is_wait);
            let released = device.reserved() < 52 * MIB;
            assert_eq!(waited, waits, "{policy:?}: {:?}", device.steps);
            assert!(waits || !released, "{policy:?}: {:?}", device.steps);
        }
    }
}

/// A pool is emptied once its own work is over, whatever others do.
#[test]
fn an_emptied_pool_waits_for_its_own_work() {
    for policy in [Policy::Classic(Segments::Plain), Policy::paged(Growth::Tight)] {
        let (mut device, pool) = scene(policy);
        device.open(2, PoolId::DEFAULT);
        for (shard, stream) in [(0, 2), (2, 1)] {
            let held = device.serve(shard, 24 * MIB);
            device.record(held, stream);
            device.gpu.reached = vec![Tick(0); 5];
            device.free(held, 105);
        }
        assert_eq!(device.run(&mut Plan::empty_pool(pool, [0; 2])), Step::Done);
        assert_eq!(device.steps, [Step::Done], "{policy:?}: nothing is waited for while it is held");
        device.gpu.reached = vec![Tick(105); 5];
        release(&mut device, pool);
        assert_eq!(device.run(&mut Plan::empty_pool(pool, [0; 2])), Step::Done);
        assert_eq!((asks(&device, 1), asks(&device, 2)), (true, false), "{policy:?}: {:?}", device.steps);
        assert_eq!(device.reserved(), 24 * MIB, "{policy:?}");
    }
}

/// A request waits for no memory that can neither serve it nor go back.
#[test]
fn a_request_does_not_wait_for_a_held_pool() {
    for is_held in [true, false] {
        let (mut device, pool) = scene(Policy::paged(Growth::Tight));
        device.set_limit(64 * MIB);
        let held = device.serve(3, 40 * MIB);
        (device.gpu.reached, device.gpu.waits_in_vain) = (vec![Tick(0); 4], false);
        device.free(held, 105);
        if !is_held {
            release(&mut device, pool);
        }
        assert_eq!(device.try_serve(0, 40 * MIB).is_err(), is_held);
        let oldest = Step::Wait(vec![point(1, 105)]);
        assert_eq!(device.steps.contains(&oldest), !is_held, "{:?}", device.steps);
    }
}

/// Blocks of a pool are not cut, where they lie in segments, until the last reference to the pool is given up.
#[test]
fn a_pool_may_leave_its_blocks_whole() {
    for (policy, size) in [
        (Policy::Classic(Segments::Plain), 20 * MIB),
        (Policy::Classic(Segments::Expandable), 20 * MIB),
        (Policy::paged(Growth::Balanced), 3 * MIB),
    ] {
        let (mut device, pool) = scene(policy);
        let flags = PoolFlags { no_split: true, ..PoolFlags::default() };
        device.coordinator.set_pool_flags(pool, flags, &mut device.shards);
        let grants = [0; 2].map(|_| device.serve(2, 3 * MIB));
        assert!(grants.iter().all(|grant| grant.size == size), "{policy:?}: {grants:?}");
        assert_eq!(device.serve(0, 3 * MIB).size, 3 * MIB, "{policy:?}: the default pool");
        device.open(2, pool);
        assert_eq!(device.serve(4, 3 * MIB).size, size, "{policy:?}: a stream that comes later");
        device.coordinator.hold_pool(pool);
        release(&mut device, pool);
        assert_eq!(device.serve(3, 3 * MIB).size, size, "{policy:?}: it is held");
        release(&mut device, pool);
        let cut = device.serve(2, 3 * MIB);
        assert_eq!(cut.size, 3 * MIB, "{policy:?}");
    }
}
