//! Private pools with a source of their own: PyTorch's segments under every policy, which go back where they came from.

use millpond_backend::{StreamId, Tick};
use millpond_core::settings::{Growth, Policy, PoolFlags, Segments};
use millpond_core::{Obstacle, Outcome, Plan, PoolId, Step};

use crate::driver::{Device, Facts, Held, MIB};

/// The pool with a source.
const POOL: PoolId = PoolId(1);
const POLICIES: [Policy; 6] = [
    Policy::Classic(Segments::Plain),
    Policy::Classic(Segments::Expandable),
    Policy::Classic(Segments::Snug(0.125)),
    Policy::paged(Growth::Balanced),
    Policy::paged(Growth::Tight),
    Policy::Direct,
];

/// Returns a device with shards 0 and 1 of two streams in the default pool, and 2 and 3 of the same streams in a pool
/// with a source.
fn under(policy: Policy) -> Device {
    let mut device = Device::of(&Facts::under(policy, 2));
    device.gpu.asked = 0;
    assert_eq!(device.coordinator.create_pool_with_source(), POOL);
    [0, 1].into_iter().for_each(|stream| device.open(stream, POOL));
    device
}

fn allocate_at(device: &mut Device, shard: usize, bytes: u64, address: u64) -> Result<Held, Obstacle> {
    let want = device.want(bytes);
    let crate::driver::Lane { stream, shard } = device.lanes[shard];
    let granted = device.coordinator.allocate_at(shard, stream, &want, address, &mut device.shards);
    let shard = shard.0 as usize;
    device.check();
    granted.map(|grant| Held { shard, grant })
}

/// Returns the bytes of the segments that the last plan took, and panics if it did anything about pages.
fn taken(device: &Device) -> Vec<u64> {
    let about_pages = |step: &&Step| matches!(step, Step::ReserveRange { .. } | Step::Pages(_));
    assert_eq!(device.steps.iter().find(about_pages), None);
    let bytes = |step: &Step| if let Step::Reserve { bytes, .. } = step { Some(*bytes) } else { None };
    device.steps.iter().filter_map(bytes).collect()
}

/// Returns the bytes of the segments that the last plan gave back.
fn given_back(device: &Device) -> u64 {
    let bytes = |step: &Step| if let Step::Release { bytes, .. } = step { *bytes } else { 0 };
    device.steps.iter().map(bytes).sum()
}

/// Empties the pool, and returns the bytes that it gave back.
fn empty(device: &mut Device) -> u64 {
    assert_eq!(device.run(&mut Plan::empty_pool(POOL, [0; 2])), Step::Done);
    given_back(device)
}

fn release(device: &mut Device) {
    device.coordinator.release_pool(POOL, &mut device.shards);
}

#[test]
fn segments_have_pytorchs_sizes_under_every_policy() {
    for policy in POLICIES {
        let mut device = under(policy);
        let segments: Vec<_> = [3 * MIB, 4 * MIB, 13 * MIB, 15 * MIB]
            .map(|bytes| {
                device.serve(2, bytes);
                taken(&device)
            })
            .into();
        assert_eq!(segments, [vec![20 * MIB], vec![], vec![], vec![16 * MIB]], "{policy:?}");
        let stats = device.coordinator.pool_stats(POOL, &mut device.shards).expect("it exists");
        assert_eq!(stats.reserved_bytes.all.current, 36 * MIB, "{policy:?}");
        device.serve(2, 700);
        assert_eq!(taken(&device), [2 * MIB], "{policy:?}");
    }
}

/// Neither another stream nor another pool gets the memory, and none of theirs serves the pool.
#[test]
fn nothing_is_lent_or_gathered() {
    for policy in POLICIES {
        let mut device = under(policy);
        let default = device.serve(0, 12 * MIB);
        device.free(default, 1);
        let first = device.serve(2, 12 * MIB);
        assert_eq!(taken(&device), [12 * MIB], "{policy:?}: the default pool lends nothing");
        let own = first.place();
        device.free(first, 2);
        device.serve(3, 12 * MIB);
        assert_eq!(taken(&device), [12 * MIB], "{policy:?}: nor does the other stream");
        device.serve(1, 12 * MIB);
        let again = device.serve(2, 12 * MIB);
        assert_eq!((again.place(), device.steps.len()), (own, 0), "{policy:?}: it stayed where it was");
    }
}

/// A block that another stream uses waits for that stream, as under `classic`: it is not free behind a guard.
#[test]
fn blocks_wait_for_other_streams() {
    for policy in POLICIES {
        let mut device = under(policy);
        device.gpu.reached.fill(Tick(0));
        let held = device.serve(2, 12 * MIB);
        let own = held.place();
        device.record(held, 1);
        device.free(held, 7);
        let ledger = device.ledger();
        assert_eq!((ledger.waiting_bytes, ledger.guarded_bytes), (12 * MIB, 0), "{policy:?}");
        let next = device.serve(2, 12 * MIB);
        assert_eq!((taken(&device), next.place() == own), (vec![12 * MIB], false), "{policy:?}");
        device.note_reached(1, 7);
        assert_eq!(device.serve(2, 12 * MIB).place(), own, "{policy:?}");
    }
}

#[test]
fn memory_goes_back_once_the_pool_is_given_up() {
    for policy in POLICIES {
        let mut device = under(policy);
        let (free, live) = (device.serve(2, 12 * MIB), device.serve(3, 3 * MIB));
        device.free(free, 1);
        assert_eq!(empty(&mut device), 0, "{policy:?}: it is held");
        release(&mut device);
        assert_eq!(empty(&mut device), 12 * MIB, "{policy:?}");
        taken(&device);
        device.free(live, 1);
        assert_eq!(empty(&mut device), 20 * MIB, "{policy:?}");
        assert_eq!(device.reserved(), 0, "{policy:?}");
    }
}

/// What a pool that was given up has goes back for requests in any pool.
#[test]
fn memory_goes_back_before_a_request_is_refused() {
    for policy in POLICIES {
        let mut device = under(policy);
        device.set_limit(100 * MIB);
        let held = device.serve(2, 60 * MIB);
        device.free(held, 1);
        let refused = device.try_serve(0, 60 * MIB).expect_err("it is held");
        assert!(!refused.has_source, "{policy:?}: the request was in the default pool");
        release(&mut device);
        device.serve(0, 60 * MIB);
        assert_eq!(given_back(&device), 60 * MIB, "{policy:?}");
    }
}

/// Refuses segments for the shards from one on.
fn refused_from<const FIRST: u32>(step: &Step) -> Option<Outcome> {
    matches!(step, Step::Reserve { shard, .. } if shard.0 >= FIRST).then_some(Outcome::Refused)
}

#[test]
fn a_source_without_memory_is_named() {
    for policy in POLICIES {
        let mut device = under(policy);
        // Under `paged` the default pool has one home, and otherwise a shard of each stream.
        let refuses: [fn(&Step) -> Option<Outcome>; 2] = [refused_from::<1>, refused_from::<2>];
        device.gpu.answers = refuses[device.lanes[2].shard.0 as usize - 1];
        let report = device.try_serve(2, 3 * MIB).expect_err("the source has none");
        assert!(report.has_source && !report.moves_pages, "{policy:?}");
        assert_eq!(report.beyond_limit_bytes(), 0, "{policy:?}: it was the source that refused");
        assert_eq!((report.tried_bytes, report.pool), (20 * MIB, POOL), "{policy:?}");
        assert!(taken(&device).len() >= 2, "{policy:?}: it is asked again once what can go has gone");
        device.serve(0, 3 * MIB);
    }
}

#[test]
fn the_flags_of_a_pool_hold() {
    for policy in POLICIES {
        let mut device = under(policy);
        let flags = PoolFlags { no_split: true, use_on_oom: true };
        device.coordinator.set_pool_flags(POOL, flags, &mut device.shards);
        let whole = device.serve(2, 3 * MIB);
        assert_eq!(whole.size, 20 * MIB, "{policy:?}: it is not cut");
        device.free(whole, 1);
        device.set_limit(20 * MIB);
        let lent = device.serve(0, 18 * MIB);
        assert_eq!(lent.shard, whole.shard, "{policy:?}: it serves the default pool before a refusal");
        device.free(lent, 2);
    }
}

/// A shard that a pool has left serves another pool of the same kind only, as the rules of the two kinds differ.
#[test]
fn shards_go_to_pools_of_the_same_kind() {
    let mut device = under(Policy::paged(Growth::Balanced));
    release(&mut device);
    let plain = device.coordinator.create_pool();
    let reopened = device.coordinator.reopen_shard(StreamId(0), plain, |_| true, &mut device.shards);
    assert_eq!(reopened, None);
    let sourced = device.coordinator.create_pool_with_source();
    let reopened = device.coordinator.reopen_shard(StreamId(0), sourced, |_| true, &mut device.shards);
    assert_eq!(reopened, Some(device.lanes[2].shard));
    device.serve(2, 3 * MIB);
    assert_eq!(taken(&device), [20 * MIB]);
}

/// What a source supplies is no matter of the slack, which the policy of the device keeps.
#[test]
fn the_slack_is_without_it() {
    for policy in [Policy::paged(Growth::Balanced), Policy::paged(Growth::Tight)] {
        let mut device = under(policy);
        device.serve(0, 40 * MIB);
        let before = device.slack();
        let held = device.serve(2, 400 * MIB);
        device.free(held, 1);
        let after = device.slack();
        assert_eq!((before.beyond_bytes, after.beyond_bytes), (0, 0), "{policy:?}");
        assert_eq!(before.bound_bytes, after.bound_bytes, "{policy:?}");
    }
}

/// Nor is it one of the bound on segments under `classic` with a slack, which would give back more for it.
#[test]
fn the_bound_on_segments_is_without_it() {
    let mut device = under(Policy::Classic(Segments::Snug(0.125)));
    let idle = device.serve(0, 40 * MIB);
    device.free(idle, 1);
    device.serve(2, 400 * MIB);
    assert_eq!(given_back(&device), 0);
    device.serve(0, 2 * MIB);
    assert_eq!((taken(&device), given_back(&device)), (vec![2 * MIB], 0));
}

/// Memory is handed out at an address that the program names if all of it is free there, in segments and at homes.
#[test]
fn a_block_is_handed_out_where_the_program_wants_it() {
    for policy in POLICIES {
        let mut device = under(policy);
        for shard in [0, 2] {
            let [low, high] = [3, 4].map(|mib| device.serve(shard, mib * MIB));
            let address = high.base + high.offset;
            assert!(allocate_at(&mut device, shard, 4 * MIB, address).is_err(), "{policy:?}: it is live");
            [low, high].into_iter().for_each(|held| device.free(held, 1));
            let again = allocate_at(&mut device, shard, 4 * MIB, address).expect("it is free");
            assert_eq!((again.place(), again.size), (high.place(), 4 * MIB), "{policy:?}");
            assert!(
                allocate_at(&mut device, shard, 2 * MIB, address + 2 * MIB).is_err(),
                "{policy:?}: a part of it is live"
            );
            assert!(
                allocate_at(&mut device, shard ^ 1, 2 * MIB, address + 4 * MIB).is_err(),
                "{policy:?}: another stream"
            );
            device.free(again, 3);
        }
    }
}
