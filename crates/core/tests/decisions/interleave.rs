//! Operations of other threads between two steps of a plan, each made by hand.

use millpond_backend::{PageCaps, Point, Reuse, StreamId, Tick};
use millpond_core::settings::{Policy, Segments, Settings};
use millpond_core::{Coordinator, DeviceFacts, Freed, Grant, Outcome, Plan, PoolId, Shard, ShardId, Sizes, Step};

use crate::meddle::Meddled;

const MIB: u64 = 1 << 20;
const HOME: ShardId = ShardId(0);

struct Device {
    coordinator: Coordinator,
    shards: Vec<Shard>,
    sizes: Sizes,
}

impl Device {
    fn new(settings: Settings) -> Self {
        let facts = DeviceFacts {
            total_bytes: 1 << 30,
            reuse: Reuse::InOrder,
            pages: Some(PageCaps::new(2 * MIB)),
            stream_wait: true,
        };
        let mut coordinator = Coordinator::new(settings, facts);
        let shards = vec![coordinator.open_shard(StreamId(0), PoolId::default())];
        let sizes = coordinator.sizes().clone();
        Self { coordinator, shards, sizes }
    }

    fn plan(&self, bytes: u64) -> Plan {
        Plan::allocate(HOME, self.sizes.want(bytes).expect("a size that exists"), [0; 2])
    }

    /// Runs a plan to its end. `meanwhile` is called with each step just before the next one is asked for.
    fn run(&mut self, plan: &mut Plan, mut meanwhile: impl FnMut(&mut Self, &Step)) -> Option<Grant> {
        loop {
            let step = self.coordinator.next(plan, &mut self.shards);
            let outcome = match &step {
                Step::Grant(grant) | Step::Lend { grant, .. } => return Some(*grant),
                Step::Done | Step::Refuse(_) => return None,
                Step::Reserve { .. } | Step::ReserveRange { .. } => Outcome::Reserved { address: 0 },
                Step::Wait(points) => Outcome::Reached(points.clone()),
                Step::Synchronize(stream) => Outcome::Reached(vec![Point { stream: *stream, tick: Tick(1000) }]),
                Step::Poll(_) | Step::Budget | Step::Pause { .. } => panic!("{step:?} is not expected here"),
                Step::StreamWait { .. } => Outcome::Waits(Tick(1)),
                Step::Pages(_) | Step::Release { .. } | Step::ReleaseRange { .. } => Outcome::Done,
            };
            self.coordinator.learn(plan, outcome, &mut self.shards);
            meanwhile(self, &step);
        }
    }

    fn allocate(&mut self, bytes: u64) -> Grant {
        let mut plan = self.plan(bytes);
        self.run(&mut plan, |_, _| ()).expect("there is room")
    }

    fn free(&mut self, grant: &Grant) {
        let freed = self.shards[0].free(grant.block, Tick(1), 0);
        assert_eq!(freed, Freed::Done { unsettled: false });
    }
}

/// A block that is freed behind one that is being extended is joined with the remainder of that one.
#[test]
fn a_neighbour_is_freed_before_an_extended_block_is_served() {
    let mut device = Device::new(Settings { policy: Policy::Classic(Segments::Expandable), ..Settings::default() });
    let _first = device.allocate(20 * MIB);
    let hole = device.allocate(20 * MIB);
    let last = device.allocate(20 * MIB);
    device.free(&hole);
    device.run(&mut Plan::empty_cache([0; 2]), |_, _| ());
    device.coordinator.check(&mut device.shards);

    // A request for 8 MiB is served by mapping the hole again. Once that is done, and before the block is handed out,
    // the block behind the hole is freed.
    let mut plan = device.plan(8 * MIB);
    let mut freed = false;
    let served = device.run(&mut plan, |device, step| {
        if matches!(step, Step::Pages(_)) && !freed {
            device.free(&last);
            freed = true;
        }
    });
    assert!(freed && served.is_some_and(|grant| grant.offset == hole.offset), "{served:?}");
    device.coordinator.check(&mut device.shards);
}

/// Neighbours are freed while addresses are being mapped, and then the mapping fails. Everything is then as if it had
/// never been tried.
#[test]
fn nothing_is_lost_when_mapping_fails_beside_a_freed_neighbour() {
    let mut device = Device::new(Settings { policy: Policy::Classic(Segments::Expandable), ..Settings::default() });
    let first = device.allocate(20 * MIB);
    let hole = device.allocate(20 * MIB);
    let last = device.allocate(20 * MIB);
    device.free(&hole);
    device.run(&mut Plan::empty_cache([0; 2]), |_, _| ());

    let mut plan = device.plan(30 * MIB);
    let step = device.coordinator.next(&mut plan, &mut device.shards);
    assert!(matches!(step, Step::Pages(_)), "{step:?}");
    device.free(&first);
    device.free(&last);
    device.coordinator.learn(&mut plan, Outcome::Stopped { done: 0, refused: false }, &mut device.shards);
    device.coordinator.check(&mut device.shards);
    assert_eq!(device.coordinator.reserved_bytes(), 40 * MIB);
}

/// Garbage collection chooses a segment, and another thread takes it before it is claimed: it is no longer garbage. The
/// thread may take it between any two looks of the plan at the shard.
#[test]
fn garbage_is_taken_by_another_thread_between_two_looks() {
    for looks in 0..6 {
        let settings = Settings { gc_threshold: 0.01, ..Settings::default() };
        let mut device = Device::new(settings);
        let old = device.allocate(64 * MIB);
        device.free(&old);
        let mut plan = device.plan(128 * MIB);
        let again = device.sizes.want(64 * MIB).expect("a size that exists");
        let mut taken = None;
        let mut shards = Meddled {
            shards: &mut device.shards,
            looks,
            meddle: Some(|shards: &mut Vec<Shard>| taken = shards[0].allocate(&again, 0, Tick(u64::MAX))),
        };
        let step = device.coordinator.next(&mut plan, &mut shards);
        match (&step, taken) {
            (Step::Reserve { .. }, Some(_)) | (Step::Wait(_) | Step::Release { .. }, None) => {}
            other => panic!("after {looks} looks: {other:?}"),
        }
    }
}
