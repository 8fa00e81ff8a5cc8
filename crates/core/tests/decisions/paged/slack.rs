//! The slack: how many pages are created before free memory is used, and what the statistics say about it.

use millpond_backend::{StreamId, Tick};
use millpond_core::Step;
use millpond_core::settings::Growth;
use millpond_core::stats::PinnedBy;

use crate::driver::{Device, MIB, empty_cache};

fn pinned(stream: u32, mib: u64, own: u64) -> PinnedBy {
    PinnedBy { stream: StreamId(stream), bytes: mib * MIB, own_bytes: own * MIB }
}

/// 100 MiB were live, and two pieces of 5 MiB are free, which do not serve a request of 6 MiB in one. The home grows
/// for it if two fifths of the slack allow that, of 500 MiB: those that were live and 400 MiB.
#[test]
fn a_home_grows_by_two_fifths_of_the_slack_and_no_further() {
    for (slack, created) in [(0.0, 0), (0.0299, 0), (0.03, 6), (0.05, 6), (0.5, 6)] {
        let mut device = Device::with_slack(Growth::Tight, slack);
        let blocks: Vec<_> = (0..20).map(|_| device.allocate(0, 5 * MIB)).collect();
        assert_eq!(device.reserved(), 100 * MIB, "{slack}");
        [2, 5].into_iter().for_each(|at: usize| device.free(blocks[at], 1));
        device.allocate(0, 6 * MIB);
        assert_eq!(device.reserved(), (100 + created) * MIB, "{slack}");
        assert_eq!(device.in_windows() == 0, created > 0, "{slack}: what is free is gathered otherwise");
    }
}

/// A request that is refused was never live: what comes later is bounded as if it had not been made.
#[test]
fn a_refused_request_makes_the_slack_no_larger() {
    let mut device = Device::new(Growth::Tight, 140 * MIB);
    let blocks: Vec<_> = (0..10).map(|_| device.allocate(0, 10 * MIB)).collect();
    assert!(device.try_allocate(0, 120 * MIB).is_none() && device.try_allocate(0, 1 << 40).is_none());
    blocks.iter().step_by(2).for_each(|&block| device.free(block, 1));
    assert_eq!(device.slack().most_live_bytes, 100 * MIB);
    device.allocate(0, 20 * MIB);
    assert_eq!(device.reserved(), 100 * MIB, "what is free is gathered: 20 MiB more are beyond the slack");
}

/// What was live counts for good: peaks that are reset do not make the bound smaller.
#[test]
fn what_was_live_counts_after_the_peaks_are_reset() {
    let mut device = Device::new(Growth::Tight, 1 << 30);
    let (large, small) = (device.allocate(0, 200 * MIB), device.allocate(0, 100 * MIB));
    device.free(large, 1);
    device.reset_peaks();
    let stats = device.slack();
    assert_eq!((stats.most_live_bytes, stats.bound_bytes, stats.beyond_bytes), (300 * MIB, Some(315 * MIB), 0));
    device.free(small, 1);
}

/// Sets up a device on which 200 MiB were live, and empties the cache while this number of bytes is.
fn emptied(left: u64, has_private_pool: bool) -> Device {
    let mut device = Device::new(Growth::Tight, 1 << 30);
    if has_private_pool {
        device.coordinator.create_pool();
    }
    let blocks = [200 * MIB - left, left].map(|bytes| device.allocate(0, bytes));
    // The pool's most is seen at requests that miss.
    device.use_until(0, 2 * MIB, 1);
    device.free(blocks[0], 1);
    assert!(matches!(device.until(&mut empty_cache(), Step::is_end), Step::Done));
    device
}

/// A program is over once the cache is emptied and no more is live than the slack of what was. The slack of the next
/// one is of its own blocks.
#[test]
fn the_next_program_has_a_slack_of_its_own() {
    for has_private_pool in [false, true] {
        let mut device = emptied(10 * MIB, has_private_pool);
        let blocks: Vec<_> = (0..10).map(|_| device.allocate(0, 4 * MIB)).collect();
        assert_eq!(device.reserved(), 50 * MIB);
        for reset in [false, true] {
            let stats = device.slack();
            assert!((46 * MIB..=50 * MIB).contains(&stats.most_live_bytes), "{has_private_pool}, {reset}: {stats:?}");
            device.reset_peaks();
        }
        blocks.iter().step_by(2).for_each(|&block| device.free(block, 2));
        device.allocate(0, 20 * MIB);
        assert_eq!(device.reserved(), 50 * MIB, "{has_private_pool}: what is free is gathered");
    }
}

/// What a program holds beyond the old peak is known exactly again.
#[test]
fn a_program_that_needs_more_than_the_one_before_it_is_known_by_its_peak() {
    let mut device = emptied(10 * MIB, false);
    device.use_until(0, 250 * MIB, 2);
    device.allocate_at_no_cost(0, 200 * MIB);
    assert_eq!(device.slack().most_live_bytes, 260 * MIB);
}

/// Runs a made-up program on all streams, whose blocks have `unit` to 24 times that many bytes. Returns what was
/// reserved after each of its requests.
fn run(device: &mut Device, unit: u64) -> Vec<u64> {
    let mut random = 1_u64;
    let mut below = |most: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % most
    };
    let (mut held, mut reserved) = (Vec::new(), Vec::new());
    for _ in 0..600 {
        if held.len() > 12 {
            let at = below(held.len() as u64) as usize;
            device.free(held.swap_remove(at), 1);
        }
        held.push(device.allocate(below(3) as usize, (1 + below(24)) * unit));
        reserved.push(device.reserved());
    }
    held.into_iter().for_each(|block| device.free(block, 1));
    reserved
}

/// Nothing that a larger program has left makes a smaller one reserve more than it does alone.
#[test]
fn the_next_program_reserves_what_it_does_alone() {
    let alone = run(&mut Device::new(Growth::Tight, 1 << 30), MIB / 2);
    let mut device = Device::new(Growth::Tight, 1 << 30);
    run(&mut device, 4 * MIB);
    device.use_until(0, 600 * MIB, 1);
    assert!(matches!(device.until(&mut empty_cache(), Step::is_end), Step::Done));
    assert_eq!(device.reserved(), 0);
    // From here on the peaks tell exactly what is live, as they do on a new device.
    device.reset_peaks();
    assert_eq!(run(&mut device, MIB / 2), alone);
}

/// Once peaks are reset behind a new beginning, they tell exactly what is live, without a request that misses.
#[test]
fn after_a_reset_the_peaks_tell_what_the_next_program_has_live() {
    let mut device = emptied(10 * MIB, false);
    device.reset_peaks();
    device.allocate(0, 100 * MIB);
    assert_eq!(device.slack().most_live_bytes, 110 * MIB);
}

/// A program that empties the cache while it has more live than the slack goes on.
#[test]
fn what_was_live_counts_where_the_program_goes_on() {
    for has_private_pool in [false, true] {
        let mut device = emptied(12 * MIB, has_private_pool);
        let blocks: Vec<_> = (0..10).map(|_| device.allocate(0, 4 * MIB)).collect();
        assert!(device.slack().most_live_bytes >= 200 * MIB);
        blocks.iter().step_by(2).for_each(|&block| device.free(block, 2));
        device.allocate(0, 20 * MIB);
        assert_eq!(device.reserved(), 72 * MIB, "{has_private_pool}: as much was live before");
    }
}

/// While work is under way, `balanced` creates pages beyond the slack. The statistics say by how much, and which
/// streams' work keeps the free memory.
#[test]
fn what_is_beyond_the_slack_is_told_with_the_streams_that_pin_it() {
    let mut device = Device::new(Growth::Balanced, 1 << 30);
    device.gpu.reached.fill(Tick(0));
    device.use_until(0, 100 * MIB, 5);
    device.allocate(1, 50 * MIB);
    let stats = device.slack();
    assert_eq!((stats.most_live_bytes, stats.bound_bytes), (100 * MIB, Some(105 * MIB)));
    assert_eq!((stats.beyond_bytes, stats.pinned_bytes), (45 * MIB, 0), "150 MiB are reserved");
    assert_eq!(stats.pinned_by, [pinned(0, 0, 100)]);
    device.gpu.reached = vec![Tick(5), Tick(0), Tick(0)];
    device.poll();
    let stats = device.slack();
    assert_eq!((stats.beyond_bytes, stats.pinned_by.len()), (45 * MIB, 0), "the work is over, the pages are there");
}

/// Two blocks are used on other streams and freed. Each byte that several streams may still use counts once in all, and
/// once for each of them. What one stream alone may still use is its own.
#[test]
fn guarded_memory_is_told_by_stream_until_the_work_is_over() {
    let mut device = Device::new(Growth::Tight, 1 << 30);
    device.gpu.reached = vec![Tick(100), Tick(0), Tick(0)];
    let [both, one, _live] = [20, 30, 4].map(|mib| device.allocate(0, mib * MIB));
    for (held, streams) in [(both, &[1, 2][..]), (one, &[2])] {
        streams.iter().for_each(|&stream| device.record(held, stream));
        device.free(held, 5);
    }
    let mut told = |reached: [u64; 3]| {
        device.gpu.reached = reached.map(Tick).to_vec();
        device.poll();
        let stats = device.slack();
        let ledger = device.ledger();
        assert_eq!(stats.pinned_bytes, ledger.guarded_bytes, "nothing waits, and what is over is guarded no longer");
        (stats.pinned_bytes / MIB, stats.pinned_by)
    };
    assert_eq!(told([100, 0, 0]), (20, vec![pinned(1, 20, 0), pinned(2, 20, 30)]));
    assert_eq!(told([100, 5, 4]), (0, vec![pinned(2, 0, 50)]), "the first block is the second stream's now");
    assert_eq!(told([100, 5, 5]), (0, vec![]));
}
