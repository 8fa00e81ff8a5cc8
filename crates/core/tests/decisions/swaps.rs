//! A free that is put off, and a block that is freed and handed out again: any other operation ends the short path.

use millpond_backend::{Reuse, StreamId, Tick};
use millpond_core::settings::Settings;
use millpond_core::{Coordinator, DeviceFacts, Freed, Grant, Outcome, Plan, PoolId, Shard, ShardId, Step};

const MIB: u64 = 1 << 20;

/// An allocator of one stream.
struct Device {
    coordinator: Coordinator,
    shards: Vec<Shard>,
}

impl Device {
    fn new(settings: Settings) -> Self {
        let facts = DeviceFacts { total_bytes: 1 << 30, reuse: Reuse::InOrder, pages: None, stream_wait: true };
        let mut coordinator = Coordinator::new(settings, facts);
        let shards = vec![coordinator.open_shard(StreamId(0), PoolId::default())];
        Self { coordinator, shards }
    }

    /// Allocates with a plan, which looks at the shard from outside the hot path.
    fn plan(&mut self, bytes: u64) -> (Grant, Vec<Step>) {
        let want = self.coordinator.sizes().want(bytes).expect("a size");
        let (mut plan, mut steps) = (Plan::allocate(ShardId(0), want, [0; 2]), Vec::new());
        for _ in 0..100 {
            let step = self.coordinator.next(&mut plan, &mut self.shards);
            steps.push(step.clone());
            let outcome = match step {
                Step::Grant(grant) => return (grant, steps),
                Step::Reserve { .. } => Outcome::Reserved { address: 0 },
                Step::Wait(points) => Outcome::Reached(points),
                Step::Release { .. } => Outcome::Done,
                other => panic!("{other:?}"),
            };
            self.coordinator.learn(&mut plan, outcome, &mut self.shards);
        }
        panic!("a plan without an end: {plan:?}");
    }

    fn hit(&mut self, mib: u64) -> Grant {
        let want = self.coordinator.sizes().want(mib * MIB).expect("a size");
        self.shards[0].allocate(&want, 0, Tick(u64::MAX)).expect("a block")
    }

    fn free(&mut self, grant: &Grant) {
        if self.shards[0].free(grant.block, Tick(1), 0) == (Freed::Done { unsettled: true }) {
            self.coordinator.settle(ShardId(0), &mut self.shards);
        }
    }

    /// Frees two blocks and allocates them again, so that no peak rises when that happens once more.
    fn warm(&mut self, blocks: [(Grant, u64); 2]) -> [Grant; 2] {
        blocks.iter().for_each(|(grant, _)| self.free(grant));
        blocks.map(|(grant, mib)| {
            let again = self.hit(mib);
            assert_eq!(again.offset, grant.offset);
            again
        })
    }

    /// Frees a block and allocates it again: from then on it is the block to swap.
    fn swap(&mut self, grant: &Grant, mib: u64) {
        self.free(grant);
        assert_eq!(self.hit(mib).block, grant.block);
    }
}

/// The search would find the block together with the free one before it.
#[test]
fn a_block_beside_a_free_one_is_joined_with_it() {
    let mut device = Device::new(Settings::default());
    let low = device.plan(2 * MIB).0;
    let (block, _behind) = (device.hit(4), device.hit(2));
    let [low, block] = device.warm([(low, 2), (block, 4)]);
    device.free(&low);
    device.free(&block);
    assert_eq!(device.hit(4).offset, 0);
    device.shards[0].tidied().check();
}

/// The search would find another block, which fits better than this one joined with the free memory behind it.
#[test]
fn a_block_that_fits_better_is_handed_out_instead() {
    let mut device = Device::new(Settings::default());
    let better = device.plan(4 * MIB).0;
    let (_between, block) = (device.hit(2), device.hit(4));
    let [better, block] = device.warm([(better, 4), (block, 4)]);
    device.free(&better);
    device.free(&block);
    assert_eq!(device.hit(4).offset, better.offset);
    device.shards[0].tidied().check();
}

/// Both frees are put off, one after the other, without a look at the shard between them.
#[test]
fn a_free_of_another_block_ends_a_swap() {
    let mut device = Device::new(Settings::default());
    let first = device.plan(4 * MIB).0;
    let second = device.hit(6);
    let [first, second] = device.warm([(first, 4), (second, 6)]);
    device.swap(&first, 4);
    device.free(&second);
    device.free(&first);
    device.shards[0].tidied().check();
    assert_eq!(device.hit(20).offset, 0);
}

/// A plan takes the memory behind the block, so its free changes other counters from then on.
#[test]
fn a_look_at_the_shard_ends_a_swap() {
    let mut device = Device::new(Settings::default());
    let first = device.plan(4 * MIB).0;
    device.swap(&first, 4);
    // The first free raised a peak, and was not put off.
    device.swap(&first, 4);
    let rest = device.plan(16 * MIB).0;
    assert_eq!((rest.slot, rest.offset), (first.slot, 4 * MIB));
    let risen = |device: &mut Device| device.coordinator.stats(&mut device.shards).inactive_split_bytes.all.allocated;
    let before = risen(&mut device);
    device.free(&first);
    assert_eq!(device.hit(4).block, first.block);
    assert_eq!(risen(&mut device) - before, 4 * MIB);
}
