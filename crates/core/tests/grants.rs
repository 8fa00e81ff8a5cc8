//! The last use that a grant gives for its memory, and the memory that a stream may use at another address.

use millpond_backend::{PageCaps, Point, Reuse, StreamId, Tick};
use millpond_core::settings::{Growth, Policy, Scrub, Settings};
use millpond_core::{
    Coordinator, DeviceFacts, Freed, Grant, LastUse, Outcome, PageCall, Plan, PoolId, Shard, ShardId, Step,
};

const MIB: u64 = 1 << 20;

/// An allocator of two streams under `tight`, which lends nothing and moves pages before it creates any.
struct Device {
    coordinator: Coordinator,
    shards: Vec<Shard>,
    /// The ticks that are reported as reached when they are queried, and the open ticks, by stream.
    reached: [Tick; 2],
    open: [Tick; 2],
    /// The number of page calls that succeed before one fails.
    calls_left: usize,
    waits: Vec<Point>,
}

impl Device {
    fn new(pages: PageCaps, limit: u64) -> Self {
        let facts = DeviceFacts { total_bytes: 1 << 30, reuse: Reuse::InOrder, pages: Some(pages), stream_wait: true };
        let settings = Settings { policy: Policy::Paged(Growth::Tight), ..Settings::default() };
        let mut coordinator = Coordinator::new(settings, facts);
        coordinator.set_limit(Some(limit));
        let shards = (0..2).map(|stream| coordinator.open_shard(StreamId(stream), PoolId::default())).collect();
        let (reached, open) = ([Tick::ZERO; 2], [Tick(1); 2]);
        Self { coordinator, shards, reached, open, calls_left: usize::MAX, waits: Vec::new() }
    }

    fn allocate(&mut self, shard: usize, bytes: u64) -> Option<Grant> {
        let want = self.coordinator.sizes().want(bytes).expect("a size that exists");
        if let Some(grant) = self.shards[shard].allocate(&want, 0, Tick(u64::MAX)) {
            return Some(grant);
        }
        let mut plan = Plan::allocate(ShardId(shard as u32), want, [0; 2]).with_open_tick(self.open[shard]);
        for _ in 0..1000 {
            let outcome = match self.coordinator.next(&mut plan, &mut self.shards) {
                Step::Grant(grant) | Step::Lend { grant, .. } => return Some(grant),
                Step::Refuse(_) | Step::Done => return None,
                step => self.perform(step),
            };
            self.coordinator.learn(&mut plan, outcome, &mut self.shards);
        }
        panic!("a plan without an end: {plan:?}");
    }

    fn perform(&mut self, step: Step) -> Outcome {
        let known = |stream: StreamId| Point { stream, tick: self.reached[stream.0 as usize] };
        match step {
            Step::Reserve { .. } | Step::ReserveRange { .. } => Outcome::Reserved { address: 0 },
            Step::Poll(streams) => Outcome::Reached(streams.into_iter().map(known).collect()),
            // A device reports this for work that was never submitted.
            Step::Wait(points) => Outcome::Reached(points.into_iter().map(|point| known(point.stream)).collect()),
            Step::StreamWait { stream, points } => {
                self.waits.extend(points);
                Outcome::Waits(self.open[stream.0 as usize])
            }
            Step::Pages(calls) => {
                let fallible = |call: &PageCall| matches!(call, PageCall::Create { .. } | PageCall::Map { .. });
                let at = calls.iter().enumerate().filter(|(_, call)| fallible(call)).map(|(at, _)| at);
                let fails = at.clone().nth(self.calls_left);
                self.calls_left = self.calls_left.saturating_sub(at.count());
                fails.map_or(Outcome::Done, |done| Outcome::Stopped { done, refused: false })
            }
            _ => Outcome::Done,
        }
    }

    fn free(&mut self, shard: usize, grant: Grant) {
        let freed = self.shards[shard].free(grant.block, self.open[shard], 0);
        assert_eq!(freed, Freed::Done { unsettled: false });
    }

    /// Takes all that the limit allows on a stream, and frees it there in its open tick.
    fn use_all(&mut self, shard: usize, bytes: u64) {
        let grant = self.allocate(shard, bytes).expect("there is room");
        assert!(grant.last_use.is_never(), "{grant:?}");
        self.free(shard, grant);
    }
}

fn pages(aliasing: bool, alias_reuse: Reuse) -> PageCaps {
    PageCaps { aliasing, alias_reuse, ..PageCaps::new(2 * MIB) }
}

#[test]
fn no_part_of_pages_that_another_stream_used_says_that_it_was_never_used() {
    for aliasing in [true, false] {
        let mut device = Device::new(pages(aliasing, Reuse::InOrder), 16 * MIB);
        device.use_all(0, 16 * MIB);
        device.reached[0] = Tick(1);
        // Two pages come. What the first request leaves of them serves the second.
        for bytes in [5 * MIB / 2, 5 * MIB / 4] {
            let grant = device.allocate(1, bytes).unwrap();
            assert_eq!(grant.last_use, LastUse::at(Tick::ZERO), "{bytes} bytes, aliasing {aliasing}");
        }
        assert_eq!(device.coordinator.reserved_bytes(), 16 * MIB, "no page was created");
        device.coordinator.check(&mut device.shards);
    }
}

/// A page call fails at each position in turn. What arrived before stays as free memory or as spare pages, which were
/// used.
#[test]
fn nor_does_what_is_left_of_a_request_that_failed() {
    for aliasing in [true, false] {
        for calls in 0..5 {
            let mut device = Device::new(pages(aliasing, Reuse::InOrder), 16 * MIB);
            device.use_all(0, 16 * MIB);
            device.reached[0] = Tick(1);
            device.calls_left = calls;
            assert_eq!(device.allocate(1, 12 * MIB), None);
            device.calls_left = usize::MAX;
            for _ in 0..6 {
                let grant = device.allocate(1, 2 * MIB).unwrap();
                assert!(!grant.last_use.is_never(), "call {calls} failed, aliasing {aliasing}: {grant:?}");
            }
            device.coordinator.check(&mut device.shards);
        }
    }
}

#[test]
fn memory_from_the_driver_was_never_used_beside_memory_that_was() {
    let mut device = Device::new(PageCaps::new(2 * MIB), 64 * MIB);
    device.use_all(0, 4 * MIB);
    let used = device.allocate(0, 4 * MIB).unwrap();
    assert_eq!(used.last_use, LastUse::at(Tick(1)));
    let fresh = device.allocate(0, 4 * MIB).unwrap();
    assert!(fresh.last_use.is_never(), "{fresh:?}");
}

/// Pages went back to the driver, and other pages come to the same addresses.
#[test]
fn memory_from_the_driver_was_never_used_where_other_memory_was() {
    let mut device = Device::new(PageCaps::new(2 * MIB), 64 * MIB);
    let _kept = device.allocate(0, 4 * MIB).unwrap();
    device.use_all(0, 8 * MIB);
    device.reached[0] = Tick(1);
    let mut empty = Plan::empty_cache([0; 2]);
    loop {
        match device.coordinator.next(&mut empty, &mut device.shards) {
            Step::Done => break,
            step => {
                let outcome = device.perform(step);
                device.coordinator.learn(&mut empty, outcome, &mut device.shards);
            }
        }
    }
    assert_eq!(device.coordinator.reserved_bytes(), 4 * MIB);
    let fresh = device.allocate(0, 8 * MIB).unwrap();
    assert!(fresh.last_use.is_never(), "{fresh:?}");
}

/// Frees two blocks that have memory between them, and requests a larger one. It fits only at other addresses, where
/// the pages come as soon as the device keeps the order.
fn moved_on_its_own_stream(alias_reuse: Reuse, submitted: bool, reached: bool) -> Option<Grant> {
    let mut device = Device::new(pages(true, alias_reuse), 12 * MIB);
    let [low, _kept, high] = [4, 4, 4].map(|mib| device.allocate(0, mib * MIB).unwrap());
    device.open[0] = Tick(3);
    device.free(0, low);
    device.free(0, high);
    if submitted {
        device.open[0] = Tick(4);
    }
    if reached {
        device.reached[0] = Tick(3);
    }
    let grant = device.allocate(0, 8 * MIB);
    assert_eq!(device.coordinator.page_stats().moved > 0, grant.is_some());
    device.coordinator.check(&mut device.shards);
    grant
}

#[test]
fn a_stream_reaches_its_memory_at_another_address_once_the_device_keeps_order_there() {
    for (alias_reuse, submitted, reached, comes) in [
        (Reuse::InOrder, false, false, true),
        (Reuse::AfterSubmit, false, false, false),
        (Reuse::AfterSubmit, true, false, true),
        (Reuse::AfterSubmit, true, true, true),
        (Reuse::AfterDone, false, false, false),
        (Reuse::AfterDone, true, false, false),
        (Reuse::AfterDone, true, true, true),
    ] {
        let grant = moved_on_its_own_stream(alias_reuse, submitted, reached);
        assert_eq!(grant.is_some(), comes, "{alias_reuse:?}, submitted {submitted}, reached {reached}: {grant:?}");
        if let Some(grant) = grant {
            assert_eq!(grant.last_use, LastUse::at(Tick(3)));
        }
    }
}

/// Memory whose use is not submitted stays where it is while there is other memory: pages of another stream, or new
/// ones.
#[test]
fn what_is_not_submitted_is_spared() {
    let mut device = Device::new(pages(true, Reuse::AfterSubmit), 24 * MIB);
    let [low, _kept, high] = [4, 4, 4].map(|mib| device.allocate(0, mib * MIB).unwrap());
    device.use_all(1, 8 * MIB);
    device.reached[1] = Tick(1);
    device.free(0, low);
    device.free(0, high);
    let grant = device.allocate(0, 8 * MIB).unwrap();
    assert_eq!(device.coordinator.reserved_bytes(), 20 * MIB);
    assert_eq!(grant.last_use, LastUse::at(Tick(1)), "its own free block behind came along");
    // The other stream has nothing to give this time.
    let mut device = Device::new(pages(true, Reuse::AfterSubmit), 24 * MIB);
    let [low, _kept, high] = [4, 4, 4].map(|mib| device.allocate(0, mib * MIB).unwrap());
    device.free(0, low);
    device.free(0, high);
    assert!(device.allocate(0, 8 * MIB).is_some());
    assert!(device.coordinator.page_stats().moved == 0, "{:?}", device.coordinator.page_stats());
}

/// A page that comes back to addresses where it is still mapped also changes its address.
#[test]
fn a_page_comes_back_only_in_order() {
    for submitted in [false, true] {
        let mut device = Device::new(pages(true, Reuse::AfterSubmit), 12 * MIB);
        let [low, kept, high] = [4, 4, 4].map(|mib| device.allocate(0, mib * MIB).unwrap());
        device.open[0] = Tick(2);
        device.free(0, low);
        device.free(0, high);
        device.open[0] = Tick(3);
        let moved = device.allocate(0, 8 * MIB).unwrap();
        device.free(0, moved);
        // Its front is handed out again, so that the pages that moved lie behind it, and their shadows before it.
        let front = device.allocate(0, 4 * MIB).unwrap();
        assert_eq!(front.offset, moved.offset);
        device.free(0, kept);
        if submitted {
            device.open[0] = Tick(4);
        }
        let grant = device.allocate(0, 8 * MIB);
        assert_eq!(grant.is_some(), submitted, "{grant:?}");
        assert_eq!(device.coordinator.page_stats().returned, if submitted { 2 } else { 0 });
        device.coordinator.check(&mut device.shards);
    }
}

/// Data that another stream left there has to be overwritten, even where all of the memory had been overwritten before.
#[test]
fn what_comes_from_another_stream_is_to_be_overwritten() {
    for (growth, is_lent) in [(Growth::Balanced, true), (Growth::Tight, false)] {
        let mut device = Device::new(PageCaps::new(2 * MIB), 40 * MIB);
        let settings = Settings { policy: Policy::Paged(growth), scrub: Scrub::OtherStreams, ..Settings::default() };
        let pages = Some(PageCaps::new(2 * MIB));
        let facts = DeviceFacts { total_bytes: 1 << 30, reuse: Reuse::InOrder, pages, stream_wait: true };
        device.coordinator = Coordinator::new(settings, facts);
        device.coordinator.set_limit(Some(40 * MIB));
        let open = |stream| device.coordinator.open_shard(StreamId(stream), PoolId::default());
        device.shards = (0..2).map(open).collect();
        let first = device.allocate(1, 40 * MIB).unwrap();
        device.shards[1].scrubbed(first.slot, first.offset, first.size, ShardId(1));
        assert_eq!(device.shards[1].to_scrub(first.slot, first.offset, first.size), []);
        device.free(1, first);
        device.reached[1] = Tick(1);
        let second = device.allocate(0, 40 * MIB).unwrap();
        assert_eq!(
            (device.coordinator.page_stats().lent, second.last_use),
            (u64::from(is_lent), LastUse::at(Tick::ZERO))
        );
        let owner = usize::from(is_lent);
        let parts = device.shards[owner].to_scrub(second.slot, second.offset, second.size);
        assert_eq!(parts, [(second.offset, second.size)], "lent: {is_lent}");
    }
}
