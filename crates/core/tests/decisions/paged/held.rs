//! `record_stream:hold`: freed memory that other streams have used is nobody's until they are done.

use millpond_backend::{StreamId, Tick};
use millpond_core::settings::Growth;
use millpond_core::{BlockState, Obstacle, Plan, PoolId, Step};

use crate::driver::{Device, Facts, Held, MIB, gaps_on, is_pages, is_stream_wait, is_wait, point};

const GROWTHS: [Growth; 2] = [Growth::Balanced, Growth::Tight];
/// A large block and a small one.
const SIZES: [u64; 2] = [6 * MIB, MIB / 2];

fn holding(growth: Growth, limit: u64) -> Device {
    Device::of(&Facts::holding(growth, limit))
}

/// Returns the number of blocks that are freed and not free, and their bytes in the ledger.
fn pending(device: &mut Device) -> (usize, u64) {
    let views = device.coordinator.layout(&mut device.shards);
    let blocks = views.iter().flat_map(|view| &view.blocks);
    (blocks.filter(|block| block.state == BlockState::ActivePendingFree).count(), device.ledger().waiting_bytes)
}

/// Has all streams be at these ticks, and the allocator know it.
fn reach(device: &mut Device, ticks: [u64; 3]) {
    device.gpu.reached = ticks.map(Tick).to_vec();
    device.poll();
}

/// Allocates a block, and frees it when streams 1 and 2 use it up to tick 209, and its own stream 0 is done with it.
fn freed(device: &mut Device, bytes: u64) -> Held {
    let held = device.allocate(0, bytes);
    device.free_behind(held, 10, &[point(1, 209), point(2, 209)]);
    held
}

#[test]
fn nobody_gets_a_block_before_all_its_points_are_reached() {
    for (growth, bytes) in GROWTHS.into_iter().flat_map(|growth| SIZES.map(|bytes| (growth, bytes))) {
        let mut device = holding(growth, 1 << 30);
        let held = freed(&mut device, bytes);
        for stream in 0..3 {
            let other = device.serve(stream, bytes);
            assert!(!other.overlaps(&held), "{growth:?}, stream {stream}: {other:?}");
            assert!(!device.steps.iter().any(is_stream_wait), "{growth:?}, stream {stream}: {:?}", device.steps);
        }
        reach(&mut device, [100, 209, 208]);
        assert_eq!(pending(&mut device), (1, bytes), "{growth:?}: one point of two is reached");
        reach(&mut device, [100, 209, 209]);
        assert_eq!(pending(&mut device), (0, 0), "{growth:?}");
        assert_eq!(device.serve(0, bytes).place(), held.place(), "{growth:?}");
        assert!(!device.steps.iter().any(is_pages), "{growth:?}: {:?}", device.steps);
    }
}

/// As PyTorch counts it: such a block is no longer allocated, and still active.
#[test]
fn a_block_that_is_held_is_active() {
    for bytes in SIZES {
        let mut device = holding(Growth::Balanced, 1 << 30);
        freed(&mut device, bytes);
        let now = |device: &mut Device| {
            let stats = device.stats();
            [stats.allocation, stats.allocated_bytes, stats.active, stats.active_bytes].map(|stat| stat.all.current)
        };
        assert_eq!(now(&mut device), [0, 0, 1, bytes]);
        assert_eq!((pending(&mut device), device.ledger().guarded_bytes), ((1, bytes), 0));
        let pinned: Vec<_> = device.slack().pinned_by.iter().map(|by| (by.stream.0, by.bytes)).collect();
        assert_eq!(pinned, [(1, bytes), (2, bytes)]);
        reach(&mut device, [100, 209, 209]);
        assert_eq!(now(&mut device), [0; 4]);
        assert_eq!(device.slack().pinned_by, []);
    }
}

/// Its own stream's use counts as that of any free memory: another stream waits for that on the device.
#[test]
fn once_it_is_free_its_own_stream_had_it_last() {
    let mut device = holding(Growth::Tight, 6 * MIB);
    let held = device.allocate(0, 6 * MIB);
    device.free_behind(held, 150, &[point(1, 209)]);
    reach(&mut device, [100, 209, 100]);
    assert_eq!(device.hit(2, 6 * MIB), None, "stream 0 has not reached tick 150");
    device.serve(2, 6 * MIB);
    assert!(device.steps.contains(&Step::StreamWait { stream: StreamId(2), points: vec![point(0, 150)] }));
}

/// A plan asks the device before it takes new memory, and what is reached by then serves it.
#[test]
fn a_plan_finds_what_its_own_poll_has_freed() {
    for growth in GROWTHS {
        let (mut device, bytes) = (holding(growth, 1 << 30), 6 * MIB);
        let held = freed(&mut device, bytes);
        device.gpu.reached = [100, 209, 209].map(Tick).to_vec();
        device.steps.clear();
        let mut plan = device.plan(0, bytes);
        let served = device.finish(&mut plan, 0).expect("there is room");
        assert_eq!(served.place(), held.place(), "{growth:?}: {:?}", device.steps);
        assert!(!device.steps.iter().any(is_pages), "{growth:?}: {:?}", device.steps);
    }
}

/// Near the limit the host waits for the points, and no stream does. If they are never reached, the request is refused.
#[test]
fn short_of_memory_a_plan_waits_for_it_before_it_refuses() {
    for growth in GROWTHS {
        let mut device = holding(growth, 6 * MIB);
        let held = freed(&mut device, 6 * MIB);
        device.gpu.waits_in_vain = true;
        let report = device.try_serve(2, 6 * MIB).expect_err("streams 1 and 2 never get there");
        assert!(device.steps.iter().any(is_wait), "{growth:?}: {:?}", device.steps);
        assert_eq!((report.waiting_frees, report.by_waiting.serves), (6 * MIB, true), "{growth:?}");
        device.gpu.waits_in_vain = false;
        let served = device.serve(2, 6 * MIB);
        assert_eq!((served.place(), device.reserved()), (held.place(), 6 * MIB), "{growth:?}");
        assert!(!device.steps.iter().any(is_stream_wait), "{growth:?}: {:?}", device.steps);
    }
}

#[test]
fn empty_cache_waits_for_it_and_releases_it() {
    for bytes in SIZES {
        let mut device = holding(Growth::Balanced, 1 << 30);
        freed(&mut device, bytes);
        assert_eq!(device.empty(), 0);
        let waits = device.steps.iter().filter(|step| is_wait(step)).cloned().collect::<Vec<_>>();
        assert_eq!(waits, [Step::Wait(vec![point(1, 209), point(2, 209)])]);
    }
}

/// The memory behind a window that is held is not free at home, and the window serves nobody.
#[test]
fn what_was_used_through_a_window_is_held_at_home() {
    for growth in GROWTHS {
        let (mut device, _) = gaps_on(holding(growth, 14 * MIB), 1, &[6, 2, 6]);
        let window = device.allocate(0, 12 * MIB);
        device.free_behind(window, 10, &[point(2, 209)]);
        device.gpu.waits_in_vain = true;
        for (stream, mib) in [(0, 12), (0, 6), (1, 6), (2, 12)] {
            assert!(device.try_serve(stream, mib * MIB).is_err(), "{growth:?}, stream {stream}: {mib} MiB");
        }
        reach(&mut device, [100, 100, 209]);
        assert_eq!(device.serve(1, 12 * MIB).place(), window.place(), "{growth:?}: the window that was kept");
    }
}

/// What a stream does while it is captured runs later, so what it uses is held until the capture has ended.
#[test]
fn a_block_that_a_captured_stream_uses_is_held_until_the_capture_ends() {
    let mut device = holding(Growth::Balanced, 1 << 30);
    assert!(device.coordinator.begin_capture(StreamId(1), PoolId::DEFAULT, Tick(209)));
    let held = device.allocate(0, 6 * MIB);
    device.free_behind(held, 10, &[point(1, 209)]);
    reach(&mut device, [100, 300, 100]);
    assert_eq!(pending(&mut device), (1, 6 * MIB));
    device.coordinator.end_capture(StreamId(1), PoolId::DEFAULT);
    reach(&mut device, [100, 300, 100]);
    assert_eq!((pending(&mut device), device.serve(0, 6 * MIB).place()), ((0, 0), held.place()));
}

#[test]
fn a_checkpoint_names_what_is_held_and_waits() {
    let pool = PoolId(1);
    let facts = Facts { shards: vec![(0, pool), (1, pool), (2, pool)], ..Facts::holding(Growth::Tight, 1 << 30) };
    let mut device = Device::of(&facts);
    device.coordinator.hold_pool(pool);
    let held = device.allocate(0, 6 * MIB);
    let checkpoint = device.checkpoint(pool);
    device.free_behind(held, 10, &[point(1, 209), point(2, 150)]);
    let in_use = |points: &[_]| Err(Obstacle::InUse(points.to_vec()));
    assert_eq!(device.restore(pool, &checkpoint), in_use(&[point(1, 209), point(2, 150)]));
    device.note_reached(2, 150);
    assert_eq!(device.restore(pool, &checkpoint), in_use(&[point(1, 209)]));
    device.note_reached(1, 209);
    assert_eq!(device.restore(pool, &checkpoint).map(|blocks| blocks.len()), Ok(1));
}

/// A group is paused only once the streams that its memory is held for are done, and what becomes free while it is
/// closed is free once it is opened.
#[test]
fn a_group_waits_for_the_streams_that_its_memory_is_held_for() {
    let pool = PoolId(1);
    let facts = Facts { shards: vec![(0, pool), (1, pool), (2, pool)], ..Facts::holding(Growth::Tight, 1 << 30) };
    let mut device = Device::of(&facts);
    let group = device.coordinator.create_group();
    device.coordinator.hold_pool(pool);
    device.coordinator.begin_group(pool, group);
    let [before, after] = [6, 8].map(|mib| device.allocate(0, mib * MIB));
    device.free_behind(before, 10, &[point(1, 209)]);
    let users = |device: &mut Device| {
        let users = device.coordinator.users_of(group, &mut device.shards);
        users.into_iter().map(|stream| stream.0).collect::<Vec<_>>()
    };
    assert_eq!(device.end(&mut Plan::close(group, [0; 2])), Step::Done);
    assert_eq!(users(&mut device), [0, 1]);
    device.free_behind(after, 10, &[point(2, 209)]);
    assert_eq!(users(&mut device), [0, 1, 2]);
    device.note_reached(1, 209);
    assert_eq!((pending(&mut device), users(&mut device)), ((2, 14 * MIB), vec![0, 2]), "freed, and not free before");
    assert_eq!(device.end(&mut Plan::pause(group, [0; 2])), Step::Done);
    device.note_reached(2, 209);
    assert_eq!(device.end(&mut Plan::resume(group, [0; 2])), Step::Done);
    device.coordinator.open_group(group, [0; 2], &mut device.shards);
    device.check();
    assert_eq!(pending(&mut device), (0, 0));
    let again = [6, 8].map(|mib| device.serve(0, mib * MIB).place());
    assert_eq!(again, [before.place(), after.place()]);
}
