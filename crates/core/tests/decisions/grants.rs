//! The last use that a grant gives for its memory, and the memory that a stream may use at another address.

use millpond_backend::{PageCaps, Point, Reuse, StreamId, Tick};
use millpond_core::settings::{Growth, Policy, Scrub, Settings};
use millpond_core::{
    Coordinator, DeviceFacts, Freed, Grant, LastUse, Outcome, PageCall, Plan, PoolId, Shard, ShardId, Step,
};

const MIB: u64 = 1 << 20;

/// An allocator of two streams under `tight`, which uses what is free before it creates pages.
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
        let settings = Settings { policy: Policy::paged(Growth::Tight), ..Settings::default() };
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

    /// Frees a block, in the open tick of each stream that it is used on.
    fn free(&mut self, shard: usize, grant: Grant) {
        match self.shards[shard].free(grant.block, self.open[shard], 0) {
            Freed::Pending(uses) => {
                let at = |stream: &StreamId| Point { stream: *stream, tick: self.open[stream.0 as usize] };
                let points: Vec<_> = uses.streams.iter().map(at).collect();
                self.coordinator.pend(ShardId(shard as u32), grant.block, points, [0; 2], &mut self.shards);
            }
            freed => assert_eq!(freed, Freed::Done { unsettled: false }),
        }
    }

    /// Has the coordinator learn how far the streams are.
    fn poll(&mut self) {
        for (stream, &tick) in self.reached.iter().enumerate() {
            self.coordinator.note_reached(StreamId(stream as u32), tick);
        }
        self.coordinator.retire_ready([0; 2], &mut self.shards);
        self.coordinator.check(&mut self.shards);
    }

    /// Takes blocks of these lengths in MiB on a stream, and frees every other one there in the open tick, beginning
    /// with the first. Returns the others.
    fn gaps(&mut self, shard: usize, mib: &[u64]) -> Vec<Grant> {
        let blocks: Vec<_> = mib.iter().map(|mib| self.allocate(shard, mib * MIB).expect("there is room")).collect();
        let (free, kept): (Vec<_>, Vec<_>) = (0..).zip(blocks).partition(|(at, _)| at % 2 == 0);
        free.into_iter().for_each(|(_, grant)| self.free(shard, grant));
        kept.into_iter().map(|(_, grant)| grant).collect()
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

/// Memory that another stream used comes as a loan, or through a window. No part of it counts as unused.
#[test]
fn no_part_of_memory_that_another_stream_used_says_that_it_was_never_used() {
    for (aliasing, blocks) in [(true, &[16][..]), (false, &[16]), (true, &[4, 2, 4, 2, 4])] {
        let mut device = Device::new(pages(aliasing, Reuse::InOrder), 16 * MIB);
        device.gaps(0, blocks);
        device.reached[0] = Tick(1);
        for bytes in [5 * MIB / 2, 5 * MIB / 4, 6 * MIB] {
            let grant = device.allocate(1, bytes).unwrap();
            assert_eq!(grant.last_use, LastUse::at(Tick::ZERO), "{bytes} bytes, aliasing {aliasing}, {blocks:?}");
        }
        assert_eq!(device.coordinator.reserved_bytes(), 16 * MIB, "no page was created");
        let gathered = device.coordinator.page_stats().moved;
        assert_eq!(gathered > 0, blocks.len() > 1, "{gathered} pages are in windows");
        device.coordinator.check(&mut device.shards);
    }
}

/// A page call for a window fails at each position in turn. What was to be gathered was used, at its home as well as in
/// the window that is left.
#[test]
fn nor_does_what_is_left_of_a_request_that_failed() {
    for calls in 0..6 {
        let mut device = Device::new(pages(true, Reuse::InOrder), 16 * MIB);
        device.gaps(0, &[4, 2, 4, 2, 4]);
        device.reached[0] = Tick(1);
        device.calls_left = calls;
        assert_eq!(device.allocate(1, 12 * MIB), None);
        device.calls_left = usize::MAX;
        for bytes in [2, 6, 4] {
            let grant = device.allocate(1, bytes * MIB).unwrap();
            assert!(!grant.last_use.is_never(), "call {calls} failed: {grant:?}");
        }
        device.coordinator.check(&mut device.shards);
    }
}

/// New pages in a window beside memory that was used: all of it counts as used, and as much is left of the new pages at
/// home as was never used.
#[test]
fn a_window_with_new_pages_was_used_as_the_rest_of_it() {
    let mut device = Device::new(pages(true, Reuse::InOrder), 20 * MIB);
    device.gaps(0, &[4, 2, 4, 2]);
    device.reached[0] = Tick(1);
    let grant = device.allocate(1, 14 * MIB + MIB / 2).unwrap();
    assert_eq!((grant.last_use, device.coordinator.reserved_bytes()), (LastUse::at(Tick::ZERO), 20 * MIB));
    let rest = device.allocate(1, MIB + MIB / 2).unwrap();
    assert!(rest.last_use.is_never(), "{rest:?}");
    device.coordinator.check(&mut device.shards);
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
/// the stream can use the memory as soon as the device keeps the order.
fn gathered_on_its_own_stream(alias_reuse: Reuse, submitted: bool, reached: bool) -> Option<Grant> {
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
        let grant = gathered_on_its_own_stream(alias_reuse, submitted, reached);
        assert_eq!(grant.is_some(), comes, "{alias_reuse:?}, submitted {submitted}, reached {reached}: {grant:?}");
        if let Some(grant) = grant {
            assert_eq!(grant.last_use, LastUse::at(Tick(3)));
        }
    }
}

/// Memory whose use is not submitted stays where it is while there is other memory: another stream's, or new pages.
#[test]
fn what_is_not_submitted_is_spared() {
    let mut device = Device::new(pages(true, Reuse::AfterSubmit), 24 * MIB);
    device.open[0] = Tick(3);
    device.use_all(1, 8 * MIB);
    device.gaps(0, &[2, 2, 2, 2]);
    device.reached[1] = Tick(1);
    let grant = device.allocate(0, 4 * MIB).unwrap();
    assert_eq!((device.coordinator.page_stats().lent, device.coordinator.reserved_bytes()), (1, 16 * MIB));
    assert_eq!(grant.last_use, LastUse::at(Tick::ZERO));
    // The other stream has nothing to give this time.
    let mut device = Device::new(pages(true, Reuse::AfterSubmit), 24 * MIB);
    device.gaps(0, &[4, 4, 4]);
    assert!(device.allocate(0, 8 * MIB).is_some());
    assert!(device.coordinator.page_stats().moved == 0, "{:?}", device.coordinator.page_stats());
}

/// The use of a kept window also changes the address of the memory behind it.
#[test]
fn a_kept_window_serves_again_only_in_order() {
    for (alias_reuse, submitted, reached, serves) in [
        (Reuse::InOrder, false, false, true),
        (Reuse::AfterSubmit, false, false, false),
        (Reuse::AfterSubmit, true, false, true),
        (Reuse::AfterDone, true, false, false),
        (Reuse::AfterDone, true, true, true),
    ] {
        let mut device = Device::new(pages(true, alias_reuse), 12 * MIB);
        device.gaps(0, &[4, 4, 4]);
        (device.open[0], device.reached[0]) = (Tick(2), Tick(1));
        let first = device.allocate(0, 8 * MIB).unwrap();
        device.free(0, first);
        // The work through the window is over, and the memory is used at home once more.
        (device.open[0], device.reached[0]) = (Tick(3), Tick(2));
        device.poll();
        let again = device.allocate(0, 4 * MIB).unwrap();
        device.free(0, again);
        if submitted {
            device.open[0] = Tick(4);
        }
        if reached {
            device.reached[0] = Tick(3);
        }
        let grant = device.allocate(0, 8 * MIB);
        let context = format!("{alias_reuse:?}, submitted {submitted}, reached {reached}: {grant:?}");
        assert_eq!(
            grant.map(|grant| (grant.offset, grant.last_use)),
            serves.then_some((0, LastUse::at(Tick(3)))),
            "{context}"
        );
        assert_eq!(device.coordinator.page_stats().returned, u64::from(serves), "{context}");
        device.coordinator.check(&mut device.shards);
    }
}

/// An allocator of two streams that has what another stream left overwritten.
fn scrubbing(limit: u64) -> Device {
    let mut device = Device::new(PageCaps::new(2 * MIB), limit);
    let policy = Policy::paged(Growth::Tight);
    let settings = Settings { policy, scrub: Scrub::OtherStreams, ..Settings::default() };
    let pages = Some(PageCaps::new(2 * MIB));
    let facts = DeviceFacts { total_bytes: 1 << 30, reuse: Reuse::InOrder, pages, stream_wait: true };
    device.coordinator = Coordinator::new(settings, facts);
    device.coordinator.set_limit(Some(limit));
    let open = |stream| device.coordinator.open_shard(StreamId(stream), PoolId::default());
    device.shards = (0..2).map(open).collect();
    device
}

/// Overwrites what has to be of a block that was granted by `owner` for `borrower`. Returns the bytes of that.
fn scrub(device: &mut Device, owner: usize, grant: &Grant, borrower: u32) -> u64 {
    let shard = &mut device.shards[owner];
    let parts = shard.to_scrub(grant.slot, grant.offset, grant.size);
    shard.scrubbed(grant.slot, grant.offset, grant.size, ShardId(borrower));
    parts.into_iter().map(|(_, bytes)| bytes).sum()
}

/// Data that another stream left there has to be overwritten, even where all of the memory had been overwritten before.
#[test]
fn what_comes_from_another_stream_is_to_be_overwritten() {
    let mut device = scrubbing(40 * MIB);
    let first = device.allocate(1, 40 * MIB).unwrap();
    assert_eq!((scrub(&mut device, 1, &first, 1), scrub(&mut device, 1, &first, 1)), (40 * MIB, 0));
    device.free(1, first);
    device.reached[1] = Tick(1);
    for _ in 0..2 {
        let second = device.allocate(0, 40 * MIB).unwrap();
        assert!(!second.last_use.is_never());
        assert_eq!(scrub(&mut device, 1, &second, 0), 40 * MIB);
        device.free(1, second);
        device.reached[0] = Tick(1);
        device.poll();
    }
    let third = device.allocate(1, 40 * MIB).unwrap();
    assert_eq!((device.coordinator.page_stats().lent, scrub(&mut device, 1, &third, 1)), (2, 40 * MIB));
}

/// The same holds for what is gathered: each time that a stream gets it through a window, and when it is back at home.
#[test]
fn what_is_gathered_from_another_stream_is_to_be_overwritten() {
    let mut device = scrubbing(44 * MIB);
    let [low, fixed, high] = [20, 4, 20].map(|mib| device.allocate(1, mib * MIB).unwrap());
    for grant in [low, fixed, high] {
        assert_eq!(scrub(&mut device, 1, &grant, 1), grant.size);
    }
    device.free(1, low);
    device.free(1, high);
    device.reached = [Tick(1); 2];
    for _ in 0..2 {
        let gathered = device.allocate(0, 40 * MIB).unwrap();
        assert_eq!(scrub(&mut device, 0, &gathered, 0), 40 * MIB);
        device.free(0, gathered);
        device.poll();
        for (bytes, why) in [(20 * MIB, "stream 0 has used it"), (0, "it is its own by now")] {
            let home = [20, 20].map(|mib| device.allocate(1, mib * MIB).unwrap());
            for grant in home {
                assert_eq!(scrub(&mut device, 1, &grant, 1), bytes, "{why}");
                device.free(1, grant);
            }
        }
    }
    assert_eq!(device.coordinator.page_stats().returned, 1);
}

/// What a stream gathers of its own has to be overwritten only where others had it.
#[test]
fn what_is_gathered_from_the_same_stream_is_its_own() {
    let mut device = scrubbing(44 * MIB);
    let [low, fixed, high] = [20, 4, 20].map(|mib| device.allocate(0, mib * MIB).unwrap());
    assert_eq!(scrub(&mut device, 0, &low, 0), 20 * MIB);
    assert_eq!(scrub(&mut device, 0, &fixed, 0), 4 * MIB);
    // The third one was never overwritten. After the window was, it is at home as well.
    device.free(0, low);
    device.free(0, high);
    for bytes in [20 * MIB, 0] {
        let gathered = device.allocate(0, 40 * MIB).unwrap();
        assert_eq!(scrub(&mut device, 0, &gathered, 0), bytes);
        device.free(0, gathered);
    }
    assert_eq!(device.coordinator.page_stats().returned, 1);
}
