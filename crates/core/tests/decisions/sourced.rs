//! Private pools with a source of their own: PyTorch's segments under every policy, which go back where they came from.

use millpond_backend::{PageCaps, Point, Reuse, StreamId, Tick};
use millpond_core::settings::{Growth, Policy, PoolFlags, Segments, Settings};
use millpond_core::{
    Coordinator, DeviceFacts, Freed, Grant, Obstacle, Outcome, Plan, PoolId, Report, Shard, ShardId, Step,
};

const MIB: u64 = 1 << 20;
const POLICIES: [Policy; 6] = [
    Policy::Classic(Segments::Plain),
    Policy::Classic(Segments::Expandable),
    Policy::Classic(Segments::Snug(0.125)),
    Policy::paged(Growth::Balanced),
    Policy::paged(Growth::Tight),
    Policy::Direct,
];

/// A device with shards 0 and 1 of two streams in the default pool, and 2 and 3 of the same streams in a pool with a
/// source.
struct Device {
    coordinator: Coordinator,
    shards: Vec<Shard>,
    pool: PoolId,
    /// The tick that both streams have reached.
    reached: Tick,
    /// Whether the source has memory.
    supplies: bool,
    /// The address of the next segment.
    next: u64,
    steps: Vec<Step>,
}

type Held = (usize, Grant);

impl Device {
    fn new(settings: Settings) -> Self {
        let pages = Some(PageCaps { alias_reuse: Reuse::InOrder, ..PageCaps::new(2 * MIB) });
        let facts = DeviceFacts { total_bytes: 1 << 30, reuse: Reuse::InOrder, pages, stream_wait: true };
        let mut coordinator = Coordinator::new(settings, facts);
        let pool = coordinator.create_pool_with_source();
        let mut device = Self {
            coordinator,
            shards: Vec::new(),
            pool,
            reached: Tick(100),
            supplies: true,
            next: 1 << 40,
            steps: Vec::new(),
        };
        for (stream, pool) in [(0, PoolId::DEFAULT), (1, PoolId::DEFAULT), (0, pool), (1, pool)] {
            device.open(stream, pool);
        }
        device
    }

    fn under(policy: Policy) -> Self {
        Self::new(Settings { policy, ..Settings::default() })
    }

    fn open(&mut self, stream: u32, pool: PoolId) {
        self.shards.push(self.coordinator.open_shard(StreamId(stream), pool));
    }

    fn end(&mut self, plan: &mut Plan) -> Step {
        self.steps.clear();
        for _ in 0..500 {
            let step = self.coordinator.next(plan, &mut self.shards);
            self.steps.push(step.clone());
            let at = |stream| Point { stream, tick: self.reached };
            let outcome = match &step {
                end if end.is_end() => return step,
                Step::Reserve { shard, .. } if shard.0 >= 2 && !self.supplies => Outcome::Refused,
                Step::Reserve { bytes, .. } | Step::ReserveRange { bytes, .. } => {
                    self.next += bytes;
                    Outcome::Reserved { address: self.next - bytes }
                }
                Step::Poll(streams) => Outcome::Reached(streams.iter().map(|&stream| at(stream)).collect()),
                Step::Wait(points) => Outcome::Reached(points.clone()),
                Step::Synchronize(stream) => Outcome::Reached(vec![at(*stream)]),
                Step::StreamWait { .. } => Outcome::Waits(Tick(50)),
                Step::Budget => Outcome::Left(None),
                _ => Outcome::Done,
            };
            self.coordinator.learn(plan, outcome, &mut self.shards);
        }
        panic!("a plan without an end: {:?}", self.steps);
    }

    fn try_allocate(&mut self, shard: usize, bytes: u64) -> Result<Held, Box<Report>> {
        let want = self.coordinator.sizes().want(bytes).expect("a size");
        self.steps.clear();
        let end = match self.shards[shard].allocate(&want, 0, Tick(u64::MAX)) {
            Some(grant) => Step::Grant(grant),
            None => self.end(&mut Plan::allocate(ShardId(shard as u32), want, [0; 2])),
        };
        self.coordinator.check(&mut self.shards);
        match end {
            Step::Grant(grant) => Ok((shard, grant)),
            Step::Lend { lender, grant } => Ok((lender.0 as usize, grant)),
            Step::Refuse(report) => Err(report),
            step => panic!("{step:?}"),
        }
    }

    fn allocate(&mut self, shard: usize, bytes: u64) -> Held {
        self.try_allocate(shard, bytes).expect("there is room")
    }

    fn allocate_at(&mut self, shard: usize, bytes: u64, address: u64) -> Result<Held, Obstacle> {
        let want = self.coordinator.sizes().want(bytes).expect("a size");
        let granted = self.coordinator.allocate_at(ShardId(shard as u32), &want, address, &mut self.shards);
        self.coordinator.check(&mut self.shards);
        granted.map(|grant| (shard, grant))
    }

    fn free(&mut self, (shard, grant): Held, tick: u64) {
        if let Freed::Pending(uses) = self.shards[shard].free(grant.block, Tick(tick), 0) {
            let points: Vec<_> = uses.streams.iter().map(|&stream| Point { stream, tick: Tick(tick) }).collect();
            self.coordinator.pend(ShardId(shard as u32), grant.block, points, [0; 2], &mut self.shards);
        }
        self.coordinator.check(&mut self.shards);
    }

    /// Returns the bytes of the segments that the last plan took, and panics if it did anything about pages.
    fn reserved(&self) -> Vec<u64> {
        let about_pages = |step: &&Step| matches!(step, Step::ReserveRange { .. } | Step::Pages(_));
        assert_eq!(self.steps.iter().find(about_pages), None);
        let bytes = |step: &Step| if let Step::Reserve { bytes, .. } = step { Some(*bytes) } else { None };
        self.steps.iter().filter_map(bytes).collect()
    }

    /// Returns the bytes of the segments that the last plan gave back.
    fn released(&self) -> u64 {
        let bytes = |step: &Step| if let Step::Release { bytes, .. } = step { *bytes } else { 0 };
        self.steps.iter().map(bytes).sum()
    }

    fn empty(&mut self) -> u64 {
        assert_eq!(self.end(&mut Plan::empty_pool(self.pool, [0; 2])), Step::Done);
        self.coordinator.check(&mut self.shards);
        self.released()
    }

    fn release(&mut self) {
        self.coordinator.release_pool(self.pool, &mut self.shards);
    }
}

fn place(held: &Held) -> (usize, u64, u64) {
    (held.0, u64::from(held.1.slot.0), held.1.offset)
}

#[test]
fn segments_have_pytorchs_sizes_under_every_policy() {
    for policy in POLICIES {
        let mut device = Device::under(policy);
        let segments: Vec<_> = [3 * MIB, 4 * MIB, 13 * MIB, 15 * MIB]
            .map(|bytes| {
                device.allocate(2, bytes);
                device.reserved()
            })
            .into();
        assert_eq!(segments, [vec![20 * MIB], vec![], vec![], vec![16 * MIB]], "{policy:?}");
        let stats = device.coordinator.pool_stats(device.pool, &mut device.shards).expect("it exists");
        assert_eq!(stats.reserved_bytes.all.current, 36 * MIB, "{policy:?}");
        device.allocate(2, 700);
        assert_eq!(device.reserved(), [2 * MIB], "{policy:?}");
    }
}

/// Neither another stream nor another pool gets the memory, and none of theirs serves the pool.
#[test]
fn nothing_is_lent_or_gathered() {
    for policy in POLICIES {
        let mut device = Device::under(policy);
        let default = device.allocate(0, 12 * MIB);
        device.free(default, 1);
        let first = device.allocate(2, 12 * MIB);
        assert_eq!(device.reserved(), [12 * MIB], "{policy:?}: the default pool lends nothing");
        let own = place(&first);
        device.free(first, 2);
        device.allocate(3, 12 * MIB);
        assert_eq!(device.reserved(), [12 * MIB], "{policy:?}: nor does the other stream");
        device.allocate(1, 12 * MIB);
        let again = device.allocate(2, 12 * MIB);
        assert_eq!((place(&again), device.steps.len()), (own, 0), "{policy:?}: it stayed where it was");
    }
}

/// A block that another stream uses waits for that stream, as under `classic`: it is not free behind a guard.
#[test]
fn blocks_wait_for_other_streams() {
    for policy in POLICIES {
        let mut device = Device::under(policy);
        device.reached = Tick(0);
        let held = device.allocate(2, 12 * MIB);
        let own = place(&held);
        device.shards[2].record_stream(held.1.block, StreamId(1));
        device.free(held, 7);
        let ledger = device.coordinator.ledger(&mut device.shards);
        assert_eq!((ledger.waiting_bytes, ledger.guarded_bytes), (12 * MIB, 0), "{policy:?}");
        let next = device.allocate(2, 12 * MIB);
        assert_eq!((device.reserved(), place(&next) == own), (vec![12 * MIB], false), "{policy:?}");
        device.coordinator.note_reached(StreamId(1), Tick(7));
        device.coordinator.retire_ready([0; 2], &mut device.shards);
        assert_eq!(place(&device.allocate(2, 12 * MIB)), own, "{policy:?}");
    }
}

#[test]
fn memory_goes_back_once_the_pool_is_given_up() {
    for policy in POLICIES {
        let mut device = Device::under(policy);
        let (free, live) = (device.allocate(2, 12 * MIB), device.allocate(3, 3 * MIB));
        device.free(free, 1);
        assert_eq!(device.empty(), 0, "{policy:?}: it is held");
        device.release();
        assert_eq!(device.empty(), 12 * MIB, "{policy:?}");
        device.reserved();
        device.free(live, 1);
        assert_eq!(device.empty(), 20 * MIB, "{policy:?}");
        assert_eq!(device.coordinator.reserved_bytes(), 0, "{policy:?}");
    }
}

/// What a pool that was given up has goes back for requests in any pool.
#[test]
fn memory_goes_back_before_a_request_is_refused() {
    for policy in POLICIES {
        let mut device = Device::under(policy);
        device.coordinator.set_limit(Some(100 * MIB));
        let held = device.allocate(2, 60 * MIB);
        device.free(held, 1);
        let refused = device.try_allocate(0, 60 * MIB).expect_err("it is held");
        assert!(!refused.has_source, "{policy:?}: the request was in the default pool");
        device.release();
        device.allocate(0, 60 * MIB);
        assert_eq!(device.released(), 60 * MIB, "{policy:?}");
    }
}

#[test]
fn a_source_without_memory_is_named() {
    for policy in POLICIES {
        let mut device = Device::under(policy);
        device.supplies = false;
        let report = device.try_allocate(2, 3 * MIB).expect_err("the source has none");
        assert!(report.has_source && !report.moves_pages, "{policy:?}");
        assert_eq!(report.beyond_limit_bytes(), 0, "{policy:?}: it was the source that refused");
        assert_eq!((report.tried_bytes, report.pool), (20 * MIB, device.pool), "{policy:?}");
        assert!(device.reserved().len() >= 2, "{policy:?}: it is asked again once what can go has gone");
        device.allocate(0, 3 * MIB);
    }
}

#[test]
fn the_flags_of_a_pool_hold() {
    for policy in POLICIES {
        let mut device = Device::under(policy);
        let flags = PoolFlags { no_split: true, use_on_oom: true };
        device.coordinator.set_pool_flags(device.pool, flags, &mut device.shards);
        let whole = device.allocate(2, 3 * MIB);
        assert_eq!(whole.1.size, 20 * MIB, "{policy:?}: it is not cut");
        device.free(whole, 1);
        device.coordinator.set_limit(Some(20 * MIB));
        let lent = device.allocate(0, 18 * MIB);
        assert_eq!(lent.0, 2, "{policy:?}: it serves the default pool before a refusal");
        device.free(lent, 2);
    }
}

/// A shard that a pool has left serves another pool of the same kind only, as the rules of the two kinds differ.
#[test]
fn shards_go_to_pools_of_the_same_kind() {
    let mut device = Device::under(Policy::paged(Growth::Balanced));
    device.release();
    let plain = device.coordinator.create_pool();
    let reopened = device.coordinator.reopen_shard(StreamId(0), plain, |_| true, &mut device.shards);
    assert_eq!(reopened, None);
    let sourced = device.coordinator.create_pool_with_source();
    let reopened = device.coordinator.reopen_shard(StreamId(0), sourced, |_| true, &mut device.shards);
    assert_eq!(reopened, Some(ShardId(2)));
    device.allocate(2, 3 * MIB);
    assert_eq!(device.reserved(), [20 * MIB]);
}

/// What a source supplies is no matter of the slack, which the policy of the device keeps.
#[test]
fn the_slack_is_without_it() {
    for policy in [Policy::paged(Growth::Balanced), Policy::paged(Growth::Tight)] {
        let mut device = Device::under(policy);
        device.allocate(0, 40 * MIB);
        let before = device.coordinator.slack_stats(&mut device.shards);
        let held = device.allocate(2, 400 * MIB);
        device.free(held, 1);
        let after = device.coordinator.slack_stats(&mut device.shards);
        assert_eq!((before.beyond_bytes, after.beyond_bytes), (0, 0), "{policy:?}");
        assert_eq!(before.bound_bytes, after.bound_bytes, "{policy:?}");
    }
}

/// Nor is it one of the bound on segments under `classic` with a slack, which would give back more for it.
#[test]
fn the_bound_on_segments_is_without_it() {
    let mut device = Device::under(Policy::Classic(Segments::Snug(0.125)));
    let idle = device.allocate(0, 40 * MIB);
    device.free(idle, 1);
    device.allocate(2, 400 * MIB);
    assert_eq!(device.released(), 0);
    device.allocate(0, 2 * MIB);
    assert_eq!((device.reserved(), device.released()), (vec![2 * MIB], 0));
}

/// Memory is handed out at an address that the program names if all of it is free there, in segments and at homes.
#[test]
fn a_block_is_handed_out_where_the_program_wants_it() {
    for policy in POLICIES {
        let mut device = Device::under(policy);
        for shard in [0, 2] {
            let [low, high] = [3, 4].map(|mib| device.allocate(shard, mib * MIB));
            let address = high.1.base + high.1.offset;
            assert!(device.allocate_at(shard, 4 * MIB, address).is_err(), "{policy:?}: it is live");
            [low, high].into_iter().for_each(|held| device.free(held, 1));
            let again = device.allocate_at(shard, 4 * MIB, address).expect("it is free");
            assert_eq!((place(&again), again.1.size), (place(&high), 4 * MIB), "{policy:?}");
            assert!(device.allocate_at(shard, 2 * MIB, address + 2 * MIB).is_err(), "{policy:?}: a part of it is live");
            assert!(device.allocate_at(shard ^ 1, 2 * MIB, address + 4 * MIB).is_err(), "{policy:?}: another stream");
            device.free(again, 3);
        }
    }
}
