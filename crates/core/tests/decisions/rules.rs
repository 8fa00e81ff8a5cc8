//! One test for each rule of time: the last use of a block, and the streams that may have it at a time.

mod loans;
mod room;

use millpond_backend::{PageCaps, Point, Reuse, StreamId, Tick};
use millpond_core::settings::{Growth, Policy, Segments, Settings};
use millpond_core::{
    Coordinator, DeviceFacts, Freed, Grant, LastUse, Outcome, PageCall, Plan, PoolId, Shard, ShardId, Step,
};

use crate::meddle::Meddled;

const MIB: u64 = 1 << 20;

/// The last tick of each stream that there is when it is asked how far it is: behind all that a test frees.
const ASKED: Tick = Tick(1 << 40);
const ANY: Tick = Tick(u64::MAX);

struct Device {
    coordinator: Coordinator,
    shards: Vec<Shard>,
    /// The ticks that are reached when they are queried or waited for, by stream.
    reached: Vec<Tick>,
    /// The tick that covers waits that were queued.
    covers: Tick,
    /// The bytes that the budget leaves.
    left: Option<u64>,
    steps: Vec<Step>,
}

impl Device {
    fn new(settings: Settings, reuse: Reuse, pools: &[u64]) -> Self {
        let pages = Some(PageCaps::new(2 * MIB));
        let facts = DeviceFacts { total_bytes: 1 << 30, reuse, pages, stream_wait: true };
        let mut coordinator = Coordinator::new(settings, facts);
        let open = |(at, &pool): (usize, &u64)| coordinator.open_shard(StreamId(at as u32), PoolId(pool));
        let shards: Vec<_> = pools.iter().enumerate().map(open).collect();
        let reached = vec![Tick(100); pools.len()];
        Self { coordinator, shards, reached, covers: Tick(50), left: None, steps: Vec::new() }
    }

    fn classic(reuse: Reuse) -> Self {
        Self::new(Settings::default(), reuse, &[0, 0])
    }

    fn paged(growth: Growth) -> Self {
        Self::new(Settings { policy: Policy::paged(growth), ..Settings::default() }, Reuse::InOrder, &[0, 0, 0])
    }

    fn outcome(&self, step: &Step) -> Outcome {
        let at = |stream: StreamId| Point { stream, tick: self.reached[stream.0 as usize] };
        match step {
            Step::Reserve { .. } | Step::ReserveRange { .. } => Outcome::Reserved { address: 0 },
            Step::Poll(streams) => {
                let reached = streams.iter().map(|&stream| at(stream)).collect();
                let asked = streams.iter().map(|&stream| Point { stream, tick: ASKED }).collect();
                Outcome::Polled { reached, open: Vec::new(), closed: Vec::new(), asked, time: None }
            }
            Step::Wait(points) => Outcome::Reached(points.iter().map(|point| at(point.stream)).collect()),
            Step::Synchronize(stream) => Outcome::Reached(vec![at(*stream)]),
            Step::StreamWait { .. } => Outcome::Waits(self.covers),
            Step::Budget => Outcome::Left(self.left),
            _ => Outcome::Done,
        }
    }

    /// Runs a plan to its end. Returns `None` if it is refused, or had nothing to grant.
    fn run(&mut self, plan: &mut Plan) -> Option<(ShardId, Grant)> {
        self.steps.clear();
        for _ in 0..200 {
            let step = self.coordinator.next(plan, &mut self.shards);
            self.steps.push(step.clone());
            match step {
                Step::Grant(grant) => return Some((ShardId(u32::MAX), grant)),
                Step::Lend { lender, grant } => return Some((lender, grant)),
                Step::Refuse(_) | Step::Done => return None,
                step => {
                    let outcome = self.outcome(&step);
                    self.coordinator.learn(plan, outcome, &mut self.shards);
                }
            }
        }
        panic!("a plan without an end: {:?}", self.steps);
    }

    fn plan(&self, shard: u32, bytes: u64) -> Plan {
        Plan::allocate(ShardId(shard), self.coordinator.sizes().want(bytes).expect("a size"), [0; 2])
    }

    fn miss(&mut self, shard: u32, bytes: u64) -> Grant {
        let mut plan = self.plan(shard, bytes);
        self.run(&mut plan).expect("there is room").1
    }

    fn hit(&mut self, shard: u32, bytes: u64, usable: Tick) -> Option<Grant> {
        let want = self.coordinator.sizes().want(bytes).expect("a size");
        self.shards[shard as usize].allocate(&want, 0, usable)
    }

    fn free(&mut self, shard: u32, grant: &Grant, tick: u64) -> Freed {
        self.shards[shard as usize].free(grant.block, Tick(tick), 0)
    }

    fn empty(&mut self) {
        assert!(self.run(&mut Plan::empty_cache([0; 2])).is_none());
    }

    fn waited_for(&self) -> Vec<Point> {
        self.steps
            .iter()
            .filter_map(|step| if let Step::Wait(points) = step { Some(points) } else { None })
            .flatten()
            .copied()
            .collect()
    }
}

fn point(stream: u32, tick: u64) -> Point {
    Point { stream: StreamId(stream), tick: Tick(tick) }
}

/// Three neighbours are freed, in each order and with each of them used last. Each grant of their memory covers the
/// latest use.
#[test]
fn a_joined_block_has_the_latest_of_its_parts_last_uses() {
    for latest in 0..3 {
        for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            let mut device = Device::classic(Reuse::InOrder);
            let parts: Vec<Grant> =
                (0..3).map(|_| device.hit(0, 4 * MIB, ANY).unwrap_or_else(|| device.miss(0, 4 * MIB))).collect();
            for at in order {
                // A free in between is put off, and is done when the next one comes.
                device.free(0, &parts[at], if at == latest { 9 } else { 5 });
            }
            device.shards[0].tidied();
            let whole = device.hit(0, 12 * MIB, ANY).expect("the three are joined");
            assert_eq!((whole.offset, whole.last_use.tick()), (parts[0].offset, Tick(9)), "{order:?}, last {latest}");
            let rest = device.hit(0, 2 * MIB, ANY).expect("the remainder");
            assert!(rest.last_use.tick() <= Tick(9));
        }
    }
}

#[test]
fn what_is_cut_off_keeps_the_last_use_of_the_whole() {
    let mut device = Device::classic(Reuse::InOrder);
    let whole = device.miss(0, 20 * MIB);
    device.free(0, &whole, 7);
    for _ in 0..4 {
        assert_eq!(device.hit(0, 4 * MIB, ANY).map(|grant| grant.last_use.tick()), Some(Tick(7)));
    }
}

/// The same block is freed and handed out, over and over. It and the memory behind it have the newest tick.
#[test]
fn a_swapped_block_and_its_remainder_have_the_newest_last_use() {
    let mut device = Device::classic(Reuse::InOrder);
    let first = device.miss(0, 4 * MIB);
    for tick in 3..8 {
        device.free(0, &first, tick);
        let again = device.hit(0, 4 * MIB, ANY).expect("a block");
        assert_eq!((again.block, again.last_use.tick()), (first.block, Tick(tick)));
    }
    let rest = device.hit(0, 8 * MIB, ANY).expect("the remainder");
    assert_eq!(rest.last_use.tick(), Tick(7));
    device.free(0, &first, 9);
    device.shards[0].tidied().check();
    assert_eq!(device.hit(0, 4 * MIB, ANY).map(|grant| grant.last_use.tick()), Some(Tick(9)));
}

/// Two blocks are swapped by turns, and one is looked at in between. Each keeps its own tick.
#[test]
fn a_swap_ends_with_anything_else() {
    let mut device = Device::classic(Reuse::InOrder);
    let (first, second) = (device.miss(0, 4 * MIB), device.hit(0, 6 * MIB, ANY).expect("the remainder"));
    for tick in [3, 4] {
        device.free(0, &first, tick);
        assert_eq!(device.hit(0, 4 * MIB, ANY).map(|grant| grant.block), Some(first.block));
    }
    device.free(0, &second, 5);
    device.shards[0].tidied().check();
    device.free(0, &first, 6);
    device.shards[0].tidied().check();
    let all = device.hit(0, 20 * MIB, ANY).expect("the whole segment");
    assert_eq!((all.offset, all.last_use.tick()), (0, Tick(6)));
    device.shards[0].tidied().check();
}

/// A block that was swapped before is used on another stream now, and waits for it.
#[test]
fn a_swapped_block_waits_for_other_streams() {
    let mut device = Device::classic(Reuse::InOrder);
    let first = device.miss(0, 4 * MIB);
    for tick in [3, 4] {
        device.free(0, &first, tick);
        assert!(device.hit(0, 4 * MIB, ANY).is_some());
    }
    device.shards[0].record_stream(first.block, StreamId(1));
    assert!(matches!(device.free(0, &first, 5), Freed::Pending(_)));
    assert_ne!(device.hit(0, 4 * MIB, ANY).map(|grant| grant.offset), Some(0));
}

#[test]
fn a_block_waits_for_all_of_its_points() {
    let mut device = Device::classic(Reuse::InOrder);
    let held = device.miss(0, 12 * MIB);
    device.shards[0].record_stream(held.block, StreamId(1));
    for tick in [8, 6, 7] {
        device.shards[0].used_until(held.block, point(1, tick));
    }
    let Freed::Pending(uses) = device.free(0, &held, 4) else { panic!("it was used elsewhere") };
    assert_eq!((&uses.streams[..], &uses.points.into_vec()[..]), (&[StreamId(1)][..], &[point(1, 8)][..]));
    device.coordinator.pend(ShardId(0), held.block, [point(1, 5), point(1, 8)], [0; 2], &mut device.shards);
    for (reached, is_free) in [(4, false), (5, false), (7, false), (8, true)] {
        device.coordinator.note_reached(StreamId(1), Tick(reached));
        // A tick that is known to be reached stays reached.
        device.coordinator.note_reached(StreamId(1), Tick(1));
        device.coordinator.retire_ready([0; 2], &mut device.shards);
        device.coordinator.check(&mut device.shards);
        assert_eq!(device.coordinator.waiters() == 0, is_free, "at {reached}");
        assert_eq!(device.hit(0, 12 * MIB, ANY).is_some(), is_free, "at {reached}");
    }
}

/// Two threads report points out of order. The earlier points are not kept waiting behind the later ones.
#[test]
fn waiters_of_a_stream_stand_in_order() {
    let mut device = Device::classic(Reuse::InOrder);
    let held: Vec<Grant> = (0..3).map(|_| device.miss(0, 12 * MIB)).collect();
    for (grant, tick) in held.iter().zip([9, 3, 6]) {
        device.shards[0].record_stream(grant.block, StreamId(1));
        device.free(0, grant, 1);
        device.coordinator.pend(ShardId(0), grant.block, [point(1, tick)], [0; 2], &mut device.shards);
    }
    device.coordinator.check(&mut device.shards);
    assert_eq!(device.coordinator.outstanding(&mut device.shards), [point(1, 9)]);
    device.coordinator.note_reached(StreamId(1), Tick(6));
    device.coordinator.retire_ready([0; 2], &mut device.shards);
    assert_eq!(device.coordinator.waiters(), 1);
}

#[test]
fn a_settling_block_waits_for_its_own_tick() {
    for reuse in [Reuse::AfterSubmit, Reuse::AfterDone] {
        let mut device = Device::classic(reuse);
        let held: Vec<Grant> = (0..3).map(|_| device.miss(0, 12 * MIB)).collect();
        for (grant, tick) in held.iter().zip([7, 5, 9]) {
            assert_eq!(device.free(0, grant, tick), Freed::Settling);
        }
        device.shards[0].check();
        let mut ready = |usable| device.hit(0, 12 * MIB, Tick(usable)).map(|grant| grant.last_use.tick().0);
        assert_eq!(
            [ready(4), ready(5), ready(6), ready(7), ready(8), ready(9)],
            [None, Some(5), None, Some(7), None, Some(9)]
        );
    }
}

/// Where memory is not reused in order, a block that waited for another stream waits for its home stream as well.
#[test]
fn a_block_waits_for_other_streams_and_then_for_its_home() {
    let mut device = Device::classic(Reuse::AfterDone);
    let held = device.miss(0, 12 * MIB);
    device.shards[0].record_stream(held.block, StreamId(1));
    assert!(matches!(device.free(0, &held, 6), Freed::Pending(_)));
    device.coordinator.pend(ShardId(0), held.block, [point(1, 3)], [0; 2], &mut device.shards);
    assert_eq!(device.coordinator.outstanding(&mut device.shards), [point(1, 3), point(0, 6)]);
    device.coordinator.note_reached(StreamId(1), Tick(3));
    device.coordinator.retire_ready([0; 2], &mut device.shards);
    assert!(device.hit(0, 12 * MIB, Tick(5)).is_none(), "its home stream is at 5 of 6");
    assert!(device.hit(0, 12 * MIB, Tick(6)).is_some());
}

/// With several blocks that settle, all are waited for. The coordinator frees those that are reached and no others.
#[test]
fn a_flush_waits_for_the_last_tick_of_each_home() {
    let mut device = Device::classic(Reuse::AfterDone);
    let held: Vec<(u32, Grant)> = [0, 0, 1].map(|shard| (shard, device.miss(shard, 12 * MIB))).into();
    for ((shard, grant), tick) in held.iter().zip([4, 8, 6]) {
        device.free(*shard, grant, tick);
    }
    assert_eq!(device.coordinator.outstanding(&mut device.shards), [point(0, 8), point(1, 6)]);
    device.coordinator.note_reached(StreamId(0), Tick(5));
    device.coordinator.note_reached(StreamId(1), Tick(5));
    device.coordinator.retire_ready([0; 2], &mut device.shards);
    assert_eq!(device.coordinator.outstanding(&mut device.shards), [point(0, 8), point(1, 6)]);
    assert_eq!(device.hit(0, 12 * MIB, Tick(0)).map(|grant| grant.last_use.tick()), Some(Tick(4)));
    assert!(device.hit(1, 12 * MIB, Tick(0)).is_none());
}

/// A segment goes back exactly when its last use is over, and stays cached until then.
#[test]
fn a_sweep_releases_what_is_over_and_nothing_else() {
    for (reached, is_released) in [(4, false), (5, true), (6, true)] {
        let mut device = Device::classic(Reuse::InOrder);
        let held = device.miss(0, 12 * MIB);
        device.free(0, &held, 5);
        device.reached = vec![Tick(reached); 2];
        device.empty();
        assert_eq!(device.waited_for(), [point(0, 5)]);
        assert_eq!(device.coordinator.reserved_bytes() == 0, is_released, "5 was the last use, {reached} is reached");
        device.coordinator.check(&mut device.shards);
        assert!(!device.coordinator.is_held());
        assert_eq!(device.hit(0, 12 * MIB, ANY).is_some(), !is_released);
    }
}

/// Memory was used through a window of another stream. It is released only when that work and the work at home are
/// over.
#[test]
fn memory_in_a_window_goes_when_the_work_on_both_streams_is_over() {
    for (home, window, is_released) in [(4, 60, false), (5, 50, false), (5, 51, true)] {
        let mut device = Device::paged(Growth::Tight);
        device.coordinator.set_limit(Some(44 * MIB));
        device.reached = vec![Tick(0); 3];
        let [low, _fixed, high] = [20, 4, 20].map(|mib| device.miss(0, mib * MIB));
        device.free(0, &low, 4);
        device.free(0, &high, 5);
        let gathered = device.miss(1, 40 * MIB);
        assert!(
            device.steps.iter().any(|step| matches!(step, Step::StreamWait { points, .. } if points == &[point(0, 5)]))
        );
        assert_eq!(gathered.last_use.tick(), Tick(50), "the tick that covers the wait");
        let Freed::Pending(uses) = device.free(1, &gathered, 51) else { panic!("the memory is another stream's") };
        assert_eq!(uses.streams, [StreamId(1)]);
        device.coordinator.pend(ShardId(1), gathered.block, [point(1, 51)], [0; 2], &mut device.shards);
        device.reached = vec![Tick(home), Tick(window), Tick(0)];
        device.empty();
        assert!(device.waited_for().contains(&point(0, 5)) || window < 51, "{:?}", device.waited_for());
        let left = if is_released { 4 } else { 44 };
        let low_alone = if home == 4 { 20 } else { 0 };
        assert_eq!(device.coordinator.reserved_bytes(), (left - low_alone) * MIB, "at {home} and {window}");
        device.coordinator.check(&mut device.shards);
    }
}

/// Free memory beside a block that waits is stranded. It is ready when the block does not wait any more.
#[test]
fn a_waiting_block_pins_its_segment() {
    let mut device = Device::classic(Reuse::InOrder);
    let held = device.miss(0, 4 * MIB);
    device.shards[0].record_stream(held.block, StreamId(1));
    device.free(0, &held, 1);
    device.coordinator.pend(ShardId(0), held.block, [point(1, 3)], [0; 2], &mut device.shards);
    let ledger = device.coordinator.ledger(&mut device.shards);
    assert_eq!((ledger.waiting_bytes, ledger.stranded_bytes, ledger.ready_bytes), (4 * MIB, 16 * MIB, 0));
    device.coordinator.note_reached(StreamId(1), Tick(3));
    device.coordinator.retire_ready([0; 2], &mut device.shards);
    assert_eq!(device.coordinator.ledger(&mut device.shards).ready_bytes, 20 * MIB);
}

#[test]
fn reset_peaks_are_what_is_there() {
    let mut device = Device::classic(Reuse::InOrder);
    let (first, second) = (device.miss(0, 12 * MIB), device.miss(1, 12 * MIB));
    device.free(0, &first, 1);
    device.coordinator.reset_peaks(&mut device.shards);
    device.coordinator.check(&mut device.shards);
    assert_eq!(device.coordinator.stats(&mut device.shards).allocated_bytes.all.peak, second.size);
}

/// The slack is a share of the most that was live since the peaks were reset.
#[test]
fn reset_peaks_make_the_slack_small() {
    for resets in [false, true] {
        let settings = Settings { policy: Policy::Classic(Segments::Snug(0.125)), ..Settings::default() };
        let mut device = Device::new(settings, Reuse::InOrder, &[0]);
        let held = device.miss(0, 400 * MIB);
        device.free(0, &held, 1);
        if resets {
            device.coordinator.reset_peaks(&mut device.shards);
        }
        device.miss(0, 40 * MIB);
        let released = device.steps.iter().any(|step| matches!(step, Step::Release { .. }));
        assert_eq!(released, resets, "{:?}", device.steps);
    }
}

/// Memory of a private pool is neither lent to another pool nor gathered for it.
#[test]
fn private_pools_keep_their_memory() {
    for growth in [Growth::Balanced, Growth::Tight] {
        let settings = Settings { policy: Policy::paged(growth), ..Settings::default() };
        let mut device = Device::new(settings, Reuse::InOrder, &[0, 7, 0]);
        let held = device.miss(1, 40 * MIB);
        device.free(1, &held, 5);
        let mut plan = device.plan(0, 30 * MIB);
        let (lender, grant) = device.run(&mut plan).expect("there is room");
        assert_eq!((lender, grant.last_use), (ShardId(u32::MAX), LastUse::NEVER), "{growth:?}: new memory of its own");
        assert_eq!(device.coordinator.reserved_bytes(), 70 * MIB);
    }
}

/// At some look of a plan that is lent an idle block, another thread uses the block once more. The block is lent behind
/// that use then, or not at all.
#[test]
fn a_block_is_lent_behind_a_use_between_two_looks() {
    let (mut in_vain, mut behind, mut idle) = (0, 0, 0);
    for looks in 0..100 {
        let mut device = Device::paged(if looks % 2 == 0 { Growth::Balanced } else { Growth::Tight });
        device.reached = vec![Tick(0); 3];
        let held = device.miss(1, 40 * MIB);
        device.free(1, &held, 5);
        device.reached = vec![Tick(0), Tick(5), Tick(0)];
        let mut plan = device.plan(0, 40 * MIB);
        let want = device.coordinator.sizes().want(40 * MIB).expect("a size");
        let (mut struck, mut looks, mut waits) = (false, looks / 2, false);
        let step = loop {
            let meddle = |shards: &mut Vec<Shard>| {
                if let Some(again) = shards[1].allocate(&want, 0, ANY) {
                    shards[1].free(again.block, Tick(6), 0);
                    struck = true;
                }
            };
            let meddle = (looks < u32::MAX / 2).then_some(meddle);
            let mut shards = Meddled { shards: &mut device.shards, looks, meddle };
            let step = device.coordinator.next(&mut plan, &mut shards);
            looks = if shards.meddle.is_some() { shards.looks } else { u32::MAX };
            waits |= matches!(&step, Step::StreamWait { points, .. } if points == &[point(1, 6)]);
            if step.is_end() {
                break step;
            }
            let outcome = device.outcome(&step);
            device.coordinator.learn(&mut plan, outcome, &mut device.shards);
        };
        device.coordinator.check(&mut device.shards);
        match step {
            Step::Lend { grant, .. } if struck => {
                assert!(waits, "after {looks} looks: {grant:?} is in use up to 6, and 5 is reached");
                behind += 1;
            }
            Step::Lend { .. } => idle += 1,
            _ => in_vain += u32::from(struck),
        }
    }
    assert!(
        in_vain > 0 && behind > 0 && idle > 0,
        "{in_vain} times not lent, {behind} times behind, {idle} times idle"
    );
}

/// New memory was never used, even at addresses that were in use before. Memory of another stream was used.
#[test]
fn only_new_memory_is_fresh() {
    let mut device = Device::paged(Growth::Tight);
    let held = device.miss(0, 20 * MIB);
    assert_eq!(held.last_use, LastUse::NEVER);
    device.free(0, &held, 5);
    device.empty();
    assert_eq!(device.coordinator.reserved_bytes(), 0);
    let again = device.miss(0, 20 * MIB);
    assert_eq!((again.offset, again.last_use), (held.offset, LastUse::NEVER), "the same addresses, with new pages");
    device.free(0, &again, 6);
    device.reached = vec![Tick(6), Tick(0), Tick(0)];
    device.coordinator.set_limit(Some(20 * MIB));
    let lent = device.miss(1, 20 * MIB);
    assert_ne!(lent.last_use, LastUse::NEVER, "stream 0 had it before");
}

/// A plan fails after its page was created. The page is spare, is counted, and is used before others are created.
#[test]
fn a_page_that_was_created_in_vain_is_spare() {
    let mut device = Device::paged(Growth::Tight);
    let mut plan = device.plan(0, 20 * MIB);
    let calls = loop {
        match device.coordinator.next(&mut plan, &mut device.shards) {
            Step::Pages(calls) => break calls,
            step => {
                let outcome = device.outcome(&step);
                device.coordinator.learn(&mut plan, outcome, &mut device.shards);
            }
        }
    };
    let PageCall::Create { page, bytes } = calls[0] else { panic!("{calls:?}") };
    let stopped = Outcome::Stopped { done: 1, refused: false };
    device.coordinator.learn(&mut plan, stopped, &mut device.shards);
    assert!(device.run(&mut plan).is_none());
    device.coordinator.check(&mut device.shards);
    assert_eq!(device.coordinator.reserved_bytes(), bytes);
    assert_eq!(device.coordinator.ledger(&mut device.shards).ready_bytes, bytes);
    assert_eq!(device.coordinator.page_stats().pages, 1);
    device.miss(0, 20 * MIB);
    let maps = |call: &PageCall| matches!(call, PageCall::Map { page: mapped, .. } if *mapped == page);
    let mapped = |step: &Step| matches!(step, Step::Pages(calls) if calls.iter().any(maps));
    assert!(device.steps.iter().any(mapped), "{:?}", device.steps);
    assert_eq!(device.coordinator.reserved_bytes(), 20 * MIB);
}

/// A budget is what the device reports as left, in addition to what is reserved already.
#[test]
fn a_budget_is_what_is_left_beside_what_is_reserved() {
    for (left, is_released) in [(4, true), (12, false)] {
        let mut device = Device::classic(Reuse::InOrder);
        let _held = device.miss(0, 20 * MIB);
        let cached = device.miss(1, 12 * MIB);
        device.free(1, &cached, 5);
        device.left = Some(left * MIB);
        let mut plan = device.plan(0, 12 * MIB).within_budget();
        assert!(device.run(&mut plan).is_some());
        let released = device.steps.iter().any(|step| matches!(step, Step::Release { .. }));
        assert_eq!(released, is_released, "{left} MiB are left: {:?}", device.steps);
    }
}

/// Two plans ask the driver at the same time. The bytes that the first asks for are counted already.
#[test]
fn bytes_under_way_count_against_the_limit() {
    for paged in [false, true] {
        let mut device = if paged { Device::paged(Growth::Tight) } else { Device::classic(Reuse::InOrder) };
        device.coordinator.set_limit(Some(60 * MIB));
        let (mut first, mut second) = (device.plan(0, 40 * MIB), device.plan(1, 40 * MIB));
        loop {
            let step = device.coordinator.next(&mut first, &mut device.shards);
            if matches!(step, Step::Reserve { .. } | Step::Pages(_)) {
                break;
            }
            let outcome = device.outcome(&step);
            device.coordinator.learn(&mut first, outcome, &mut device.shards);
        }
        for _ in 0..100 {
            let step = device.coordinator.next(&mut second, &mut device.shards);
            let asks = match &step {
                Step::Reserve { .. } => true,
                Step::Pages(calls) => calls.iter().any(|call| matches!(call, PageCall::Create { .. })),
                _ => false,
            };
            assert!(!asks, "paged {paged}: {step:?} while 40 of 60 MiB are under way");
            if matches!(step, Step::Refuse(_) | Step::Pause { .. }) {
                break;
            }
            let outcome = device.outcome(&step);
            device.coordinator.learn(&mut second, outcome, &mut device.shards);
        }
    }
}
