//! Checkpoints of private pools in the core alone: what stands in the way, what is waited for, and which sides are
//! restored.

use millpond_backend::{PageCaps, Point, Reuse, StreamId, Tick};
use millpond_core::settings::{Growth, Policy, Segments, Settings};
use millpond_core::{
    BlockState, Checkpoint, Coordinator, DeviceFacts, Freed, Grant, Obstacle, Outcome, Plan, PoolId, Shard, ShardId,
    Step, Uses,
};

const MIB: u64 = 1 << 20;
const POOL: PoolId = PoolId(1);
const POLICIES: [Policy; 4] = [
    Policy::Classic(Segments::Plain),
    Policy::Classic(Segments::Expandable),
    Policy::paged(Growth::Balanced),
    Policy::paged(Growth::Tight),
];

/// Two streams in one held pool: shards 0 and 1.
struct Device {
    coordinator: Coordinator,
    shards: Vec<Shard>,
}

impl Device {
    fn new(policy: Policy) -> Self {
        Self::with(policy, Reuse::InOrder)
    }

    fn with(policy: Policy, reuse: Reuse) -> Self {
        let pages = Some(PageCaps { alias_reuse: reuse, ..PageCaps::new(2 * MIB) });
        let facts = DeviceFacts { total_bytes: 1 << 30, reuse, pages, stream_wait: true };
        let mut coordinator = Coordinator::new(Settings { policy, ..Settings::default() }, facts);
        let shards = (0..2).map(|stream| coordinator.open_shard(StreamId(stream), POOL)).collect();
        coordinator.hold_pool(POOL);
        Self { coordinator, shards }
    }

    /// Has a plan go on until a step that `stops` names, or its end. Every call succeeds, and nothing is reached.
    fn run(&mut self, plan: &mut Plan, stops: impl Fn(&Step) -> bool) -> Step {
        for _ in 0..200 {
            let step = self.coordinator.next(plan, &mut self.shards);
            if step.is_end() || stops(&step) {
                return step;
            }
            let outcome = match &step {
                Step::Reserve { .. } | Step::ReserveRange { .. } => Outcome::Reserved { address: 0 },
                Step::Poll(_) | Step::Wait(_) | Step::Synchronize(_) => Outcome::Reached(Vec::new()),
                Step::StreamWait { .. } => Outcome::Waits(Tick(50)),
                Step::Budget => Outcome::Left(None),
                _ => Outcome::Done,
            };
            self.coordinator.learn(plan, outcome, &mut self.shards);
        }
        panic!("a plan without an end");
    }

    fn plan(&self, shard: u32, bytes: u64) -> Plan {
        Plan::allocate(ShardId(shard), self.coordinator.sizes().want(bytes).expect("a size"), [0; 2])
    }

    fn allocate(&mut self, shard: u32, bytes: u64) -> Grant {
        let want = self.coordinator.sizes().want(bytes).expect("a size");
        if let Some(grant) = self.shards[shard as usize].allocate(&want, 0, Tick(u64::MAX)) {
            return grant;
        }
        let mut plan = self.plan(shard, bytes);
        match self.run(&mut plan, |_| false) {
            Step::Grant(grant) => grant,
            step => panic!("{step:?}"),
        }
    }

    fn free(&mut self, shard: u32, grant: Grant, tick: u64) {
        let uses = self.begin_free(shard, grant, tick);
        self.note_free(shard, grant, uses, tick);
    }

    /// Has the shard take a block back, as a thread does that has not come to the coordinator yet. Returns what the
    /// coordinator is about to learn.
    fn begin_free(&mut self, shard: u32, grant: Grant, tick: u64) -> Option<Box<Uses>> {
        match self.shards[shard as usize].free(grant.block, Tick(tick), 0) {
            Freed::Pending(uses) => Some(uses),
            Freed::Done { .. } | Freed::Settling => None,
        }
    }

    /// Has the coordinator learn what a freed block waits for.
    fn note_free(&mut self, shard: u32, grant: Grant, uses: Option<Box<Uses>>, tick: u64) {
        if let Some(uses) = uses {
            let points: Vec<_> = uses.streams.iter().map(|&stream| Point { stream, tick: Tick(tick) }).collect();
            self.coordinator.pend(ShardId(shard), grant.block, points, [0; 2], &mut self.shards);
        }
    }

    /// Notes that both streams have reached a tick, and makes free what waited for it.
    fn reach(&mut self, tick: u64) {
        [0, 1].into_iter().for_each(|stream| self.coordinator.note_reached(StreamId(stream), Tick(tick)));
        self.coordinator.retire_ready([0; 2], &mut self.shards);
    }

    fn take(&mut self) -> Checkpoint {
        self.coordinator.checkpoint(POOL, &mut self.shards)
    }

    fn restore(&mut self, to: &Checkpoint) -> Result<Vec<(u32, u64, u64)>, Obstacle> {
        let restored = self.coordinator.restore(POOL, to, &mut self.shards);
        self.coordinator.check(&mut self.shards);
        let mut places: Vec<_> =
            restored?.iter().map(|block| (block.grant.slot.0, block.grant.offset, block.grant.size)).collect();
        places.sort_unstable();
        Ok(places)
    }

    fn live(&mut self) -> Vec<(u32, u64, u64)> {
        let views = self.coordinator.layout(&mut self.shards);
        let mut live: Vec<_> = views
            .iter()
            .flat_map(|view| view.blocks.iter().map(move |block| (view.slot.0, block)))
            .filter(|(_, block)| block.state == BlockState::ActiveAllocated)
            .map(|(slot, block)| (slot, block.offset, block.size))
            .collect();
        live.sort_unstable();
        live
    }
}

#[test]
fn blocks_of_both_sides_come_back_where_they_were() {
    for policy in POLICIES {
        let mut device = Device::new(policy);
        let mut held: Vec<_> = [100_000, 512, 3 * MIB, 900_000, 30 * MIB, 700, 5 * MIB, 40_000]
            .iter()
            .map(|&bytes| device.allocate(0, bytes))
            .collect();
        device.free(0, held.remove(3), 1);
        device.free(0, held.remove(1), 1);
        let (checkpoint, live) = (device.take(), device.live());
        assert_eq!((checkpoint.len(), checkpoint.pool(), checkpoint.is_empty()), (6, POOL, false), "{policy:?}");
        for (others, bytes) in [(12, 4 * MIB), (90, 90_000)] {
            held.drain(..).for_each(|grant| device.free(0, grant, 2));
            let more: Vec<_> = (0..others).map(|_| device.allocate(0, bytes)).collect();
            more.into_iter().for_each(|grant| device.free(0, grant, 3));
            assert_eq!(device.restore(&checkpoint), Ok(live.clone()), "{policy:?}");
            assert_eq!(device.live(), live);
            let blocks = device.coordinator.restore(POOL, &checkpoint, &mut device.shards);
            assert!(matches!(blocks, Err(Obstacle::Taken { .. })), "{policy:?}: {blocks:?}");
            // The blocks are found again by their places, as the grants of this test are gone.
            let again = device.coordinator.checkpoint(POOL, &mut device.shards);
            assert_eq!(again, checkpoint, "{policy:?}: the same blocks, in the same places");
            let ids: Vec<_> = live_ids(&mut device);
            ids.into_iter().for_each(|id| {
                device.shards[0].free(id, Tick(4), 0);
            });
            assert!(device.live().is_empty());
        }
    }
}

/// Returns the numbers of the live blocks of shard 0, by trying: those that may leave.
fn live_ids(device: &mut Device) -> Vec<millpond_core::BlockId> {
    let live = device.live();
    let at = |shard: &Shard, id| {
        let (slot, offset, size) = shard.extent(id);
        (slot.0, offset, size)
    };
    let mut ids = Vec::new();
    for number in 0..2000 {
        let id = millpond_core::BlockId(number);
        let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| at(&device.shards[0], id)));
        let Ok(place) = found else { break };
        if live.contains(&place) && !ids.iter().any(|&known| at(&device.shards[0], known) == place) {
            ids.push(id);
        }
    }
    ids
}

/// What comes back is live beside what was allocated since: the slack of the pool goes by both.
#[test]
fn what_comes_back_was_live() {
    let mut device = Device::new(Policy::paged(Growth::Tight));
    let first = device.allocate(0, 6 * MIB);
    let checkpoint = device.take();
    device.free(0, first, 1);
    device.allocate(1, 7 * MIB);
    let bound = |device: &mut Device| device.coordinator.slack_stats(&mut device.shards).bound_bytes;
    let before = bound(&mut device);
    assert!(before.is_some_and(|bound| bound < 13 * MIB), "{before:?}");
    assert_eq!(device.restore(&checkpoint).map(|blocks| blocks.len()), Ok(1));
    let after = bound(&mut device);
    assert!(after.is_some_and(|bound| bound >= 13 * MIB), "{after:?}");
}

#[test]
fn what_other_streams_use_is_named_and_not_taken() {
    for policy in POLICIES {
        let mut device = Device::new(policy);
        let grant = device.allocate(0, 6 * MIB);
        let checkpoint = device.take();
        device.shards[0].record_stream(grant.block, StreamId(1));
        device.free(0, grant, 7);
        let until = Point { stream: StreamId(1), tick: Tick(7) };
        assert_eq!(device.restore(&checkpoint), Err(Obstacle::InUse(vec![until])), "{policy:?}");
        assert!(device.live().is_empty());
        device.coordinator.note_reached(StreamId(1), Tick(6));
        device.coordinator.retire_ready([0; 2], &mut device.shards);
        assert!(device.restore(&checkpoint).is_err(), "{policy:?}: one tick is missing");
        device.coordinator.note_reached(StreamId(1), Tick(7));
        device.coordinator.retire_ready([0; 2], &mut device.shards);
        assert_eq!(device.restore(&checkpoint).map(|blocks| blocks.len()), Ok(1), "{policy:?}");
    }
}

/// A thread has freed a block in its shard, and the coordinator does not know yet what it waits for: nothing is named
/// to wait for, and nothing is taken.
#[test]
fn a_free_that_is_not_noted_yet_is_not_taken() {
    for policy in POLICIES {
        let mut device = Device::new(policy);
        let grant = device.allocate(0, 6 * MIB);
        let checkpoint = device.take();
        device.shards[0].record_stream(grant.block, StreamId(1));
        let uses = device.begin_free(0, grant, 7);
        assert!(uses.is_some(), "{policy:?}: it waits");
        assert_eq!(device.restore(&checkpoint), Err(Obstacle::InUse(Vec::new())), "{policy:?}");
        assert!(device.coordinator.may_restore(POOL, &checkpoint, &[], &mut device.shards).is_ok());
        device.note_free(0, grant, uses, 7);
        let until = Point { stream: StreamId(1), tick: Tick(7) };
        assert_eq!(device.restore(&checkpoint), Err(Obstacle::InUse(vec![until])), "{policy:?}");
        device.reach(7);
        assert_eq!(device.restore(&checkpoint).map(|blocks| blocks.len()), Ok(1), "{policy:?}");
    }
}

/// The point of a freed block is reached, and the block is not free yet, as while a plan is about to be refused.
#[test]
fn a_block_whose_point_is_reached_is_not_taken_before_it_is_free() {
    for (policy, reuse) in
        POLICIES.into_iter().flat_map(|policy| [Reuse::InOrder, Reuse::AfterDone].map(|r| (policy, r)))
    {
        let mut device = Device::with(policy, reuse);
        let grant = device.allocate(0, 6 * MIB);
        let checkpoint = device.take();
        device.shards[0].record_stream(grant.block, StreamId(1));
        device.free(0, grant, 7);
        [0, 1].into_iter().for_each(|stream| device.coordinator.note_reached(StreamId(stream), Tick(7)));
        let is_guarded = matches!(policy, Policy::Paged { .. }) && reuse == Reuse::InOrder;
        let expected = if is_guarded { Ok(1) } else { Err(Obstacle::InUse(Vec::new())) };
        assert_eq!(device.restore(&checkpoint).map(|blocks| blocks.len()), expected, "{policy:?}, {reuse:?}");
        if !is_guarded {
            device.reach(7);
            assert_eq!(device.restore(&checkpoint).map(|blocks| blocks.len()), Ok(1), "{policy:?}, {reuse:?}");
        }
    }
}

/// Memory of the checkpoint was used through a window, by its own stream or by another one. It is home only once the
/// coordinator has learned that the window is freed.
#[test]
fn memory_that_is_not_home_yet_is_not_taken() {
    for (reuse, user) in [(Reuse::InOrder, 0), (Reuse::InOrder, 1), (Reuse::AfterDone, 0), (Reuse::AfterDone, 1)] {
        let what = format!("{reuse:?}, used by shard {user}");
        let mut device = Device::with(Policy::paged(Growth::Tight), reuse);
        device.coordinator.set_limit(Some(14 * MIB));
        let [first, between, last] = [6, 2, 6].map(|mib| device.allocate(0, mib * MIB));
        device.free(0, between, 1);
        let (checkpoint, live) = (device.take(), device.live());
        device.reach(1);
        device.allocate(0, 2 * MIB);
        [first, last].into_iter().for_each(|grant| device.free(0, grant, 2));
        device.reach(2);
        let window = device.allocate(user, 12 * MIB);
        assert!(window.slot != first.slot || user == 1, "{what}: it is in a window: {window:?}");
        device.shards[user as usize].record_stream(window.block, StreamId(1 - user));
        let uses = device.begin_free(user, window, 3);
        let waits = device.restore(&checkpoint);
        assert!(matches!(&waits, Err(Obstacle::InUse(_))), "{what}: {waits:?}");
        device.note_free(user, window, uses, 3);
        let waits = device.restore(&checkpoint);
        assert!(matches!(&waits, Err(Obstacle::InUse(points)) if !points.is_empty()), "{what}: {waits:?}");
        assert_eq!(device.coordinator.may_restore(POOL, &checkpoint, &[], &mut device.shards), Ok(()), "{what}");
        device.reach(3);
        assert_eq!(device.restore(&checkpoint), Ok(live), "{what}");
    }
}

#[test]
fn a_block_in_the_way_a_capture_and_another_pool_are_told() {
    for policy in POLICIES {
        let mut device = Device::new(policy);
        let grant = device.allocate(0, 6 * MIB);
        let checkpoint = device.take();
        let leaving = [(ShardId(0), grant.block)];
        assert_eq!(device.restore(&checkpoint), Err(Obstacle::Taken { bytes: 6 * MIB }), "{policy:?}");
        assert!(device.coordinator.may_restore(POOL, &checkpoint, &leaving, &mut device.shards).is_ok());
        device.free(0, grant, 1);
        assert!(device.coordinator.begin_capture(StreamId(1), POOL, Tick(3)));
        assert_eq!(device.restore(&checkpoint), Err(Obstacle::Capturing), "{policy:?}");
        device.coordinator.end_capture(StreamId(1), POOL);
        let other = device.coordinator.create_pool();
        let found = device.coordinator.restore(other, &checkpoint, &mut device.shards);
        assert_eq!(found, Err(Obstacle::OtherPool(POOL)));
        assert!(device.restore(&checkpoint).is_ok());
    }
}

/// A plan of another thread has claimed the memory: it is in no index, and nothing is in use.
#[test]
fn a_plan_in_progress_is_told() {
    let mut device = Device::new(Policy::paged(Growth::Tight));
    let grants = [device.allocate(0, 6 * MIB), device.allocate(0, 2 * MIB), device.allocate(0, 6 * MIB)];
    let checkpoint = device.take();
    device.free(0, grants[0], 1);
    device.free(0, grants[2], 1);
    let mut plan = device.plan(0, 12 * MIB);
    let step = device.run(&mut plan, |step| matches!(step, Step::Pages(_)));
    assert!(matches!(step, Step::Pages(_)), "{step:?}");
    let leaving = [(ShardId(0), grants[1].block)];
    let found = device.coordinator.may_restore(POOL, &checkpoint, &leaving, &mut device.shards);
    assert_eq!(found, Err(Obstacle::Busy));
}

/// The range stays with a live block, and its pages go and come again: they are others than those of the checkpoint.
#[test]
fn pages_that_went_and_came_again_are_others() {
    let mut device = Device::new(Policy::paged(Growth::Tight));
    let (stays, goes) = (device.allocate(0, 6 * MIB), device.allocate(0, 10 * MIB));
    let checkpoint = device.take();
    device.free(0, goes, 1);
    device.coordinator.release_pool(POOL, &mut device.shards);
    device.coordinator.note_reached(StreamId(0), Tick(9));
    assert_eq!(device.run(&mut Plan::empty_cache([0; 2]), |_| false), Step::Done);
    device.coordinator.hold_pool(POOL);
    let leaving = [(ShardId(0), stays.block)];
    let gone = Err(Obstacle::Gone { bytes: 10 * MIB });
    assert_eq!(device.coordinator.may_restore(POOL, &checkpoint, &leaving, &mut device.shards), gone);
    let again = device.allocate(0, 10 * MIB);
    assert_eq!((again.slot, again.offset), (goes.slot, goes.offset), "at the same addresses");
    let leaving = [leaving[0], (ShardId(0), again.block)];
    assert_eq!(device.coordinator.may_restore(POOL, &checkpoint, &leaving, &mut device.shards), gone);
}

/// A small block that stays keeps its slab on the small side, and a large one of the checkpoint ends in that slab.
#[test]
fn a_large_block_gets_memory_of_a_slab() {
    let mut device = Device::new(Policy::paged(Growth::Tight));
    let large = device.allocate(0, 3 * MIB);
    let checkpoint = device.take();
    device.free(0, large, 1);
    let mut small: Vec<_> = (0..8).map(|_| device.allocate(0, MIB / 2)).collect();
    let last = small.pop().expect("eight blocks");
    assert_eq!((last.slot, last.offset), (large.slot, 3 * MIB + MIB / 2), "the end of the second slab");
    small.into_iter().for_each(|grant| device.free(0, grant, 2));
    assert_eq!(device.restore(&checkpoint), Ok(vec![(large.slot.0, large.offset, large.size)]));
    assert_eq!(device.live().len(), 2);
}
