//! The last use that a grant gives for its memory, and the memory that a stream may use at another address.

use millpond_backend::{PageCaps, Point, Reuse, Tick};
use millpond_core::settings::{Growth, Policy, Scrub, Settings};
use millpond_core::{Freed, LastUse};

use crate::driver::{Device, Facts, Held, MIB};

/// Returns an allocator of two streams, of whose work nothing is over yet. A wait of the host for work that was never
/// submitted comes back without it.
fn by(settings: Settings, pages: PageCaps, limit: u64) -> Device {
    let facts = Facts { pages: Some(pages), limit: Some(limit), ..Facts::new(settings, 2) };
    let mut device = Device::of(&facts);
    (device.gpu.reached, device.gpu.open) = (vec![Tick::ZERO; 2], vec![Tick(1); 2]);
    device.gpu.waits_in_vain = true;
    device
}

/// Returns one under `tight`, which uses what is free before it creates pages.
fn tight(pages: PageCaps, limit: u64) -> Device {
    by(Settings { policy: Policy::paged(Growth::Tight), ..Settings::default() }, pages, limit)
}

fn allocate(device: &mut Device, shard: usize, bytes: u64) -> Option<Held> {
    if let Some(held) = device.hit(shard, bytes) {
        return Some(held);
    }
    let mut plan = device.plan(shard, bytes).with_open_tick(device.gpu.open[shard]);
    let end = device.end(&mut plan);
    device.granted(&end, shard)
}

/// Frees a block of a stream, in the open tick of each stream that it is used on.
fn free(device: &mut Device, stream: usize, held: Held) {
    match device.take_back(held, device.gpu.open[stream].0) {
        Freed::Pending(uses) => {
            let at = |stream| Point { stream, tick: device.gpu.open[stream.0 as usize] };
            let points: Vec<_> = uses.streams.iter().copied().map(at).collect();
            device.pend(held, &points);
        }
        freed => device.note_freed(held, freed, 0),
    }
}

/// Takes all that the limit allows on a stream, and frees it there in its open tick.
fn use_all(device: &mut Device, shard: usize, bytes: u64) {
    let held = allocate(device, shard, bytes).expect("there is room");
    assert!(held.last_use.is_never(), "{held:?}");
    free(device, shard, held);
}

fn pages(aliasing: bool, alias_reuse: Reuse) -> PageCaps {
    PageCaps::new(2 * MIB).with_aliasing(aliasing).with_alias_reuse(alias_reuse)
}

/// Memory that another stream used comes where it lies, or through a window. No part of it counts as unused.
#[test]
fn no_part_of_memory_that_another_stream_used_says_that_it_was_never_used() {
    for (aliasing, blocks) in [(true, &[16][..]), (false, &[16]), (true, &[4, 2, 4, 2, 4])] {
        let mut device = tight(pages(aliasing, Reuse::InOrder), 16 * MIB);
        device.gaps(0, blocks, 1);
        device.gpu.reached[0] = Tick(1);
        for bytes in [5 * MIB / 2, 5 * MIB / 4, 6 * MIB] {
            let grant = allocate(&mut device, 1, bytes).unwrap();
            assert_eq!(grant.last_use, LastUse::at(Tick::ZERO), "{bytes} bytes, aliasing {aliasing}, {blocks:?}");
        }
        assert_eq!(device.reserved(), 16 * MIB, "no page was created");
        let gathered = device.page_stats().moved;
        assert_eq!(gathered > 0, blocks.len() > 1, "{gathered} pages are in windows");
        device.check();
    }
}

/// A page call for a window fails at each position in turn. What was to be gathered was used, at its home as well as in
/// the window that is left.
#[test]
fn nor_does_what_is_left_of_a_request_that_failed() {
    for calls in 0..6 {
        let mut device = tight(pages(true, Reuse::InOrder), 16 * MIB);
        device.gaps(0, &[4, 2, 4, 2, 4], 1);
        device.gpu.reached[0] = Tick(1);
        device.gpu.calls_left = calls;
        assert_eq!(allocate(&mut device, 1, 12 * MIB), None);
        device.gpu.calls_left = usize::MAX;
        for bytes in [2, 6, 4] {
            let grant = allocate(&mut device, 1, bytes * MIB).unwrap();
            assert!(!grant.last_use.is_never(), "call {calls} failed: {grant:?}");
        }
        device.check();
    }
}

/// New pages in a window beside memory that was used: all of it counts as used, and as much is left of the new pages at
/// home as was never used.
#[test]
fn a_window_with_new_pages_was_used_as_the_rest_of_it() {
    let mut device = tight(pages(true, Reuse::InOrder), 20 * MIB);
    device.gaps(0, &[4, 2, 4, 2], 1);
    device.gpu.reached[0] = Tick(1);
    let grant = allocate(&mut device, 1, 14 * MIB + MIB / 2).unwrap();
    assert_eq!((grant.last_use, device.reserved()), (LastUse::at(Tick::ZERO), 20 * MIB));
    let rest = allocate(&mut device, 1, MIB + MIB / 2).unwrap();
    assert!(rest.last_use.is_never(), "{rest:?}");
    device.check();
}

#[test]
fn memory_from_the_driver_was_never_used_beside_memory_that_was() {
    let mut device = tight(PageCaps::new(2 * MIB), 64 * MIB);
    use_all(&mut device, 0, 4 * MIB);
    let used = allocate(&mut device, 0, 4 * MIB).unwrap();
    assert_eq!(used.last_use, LastUse::at(Tick(1)));
    let fresh = allocate(&mut device, 0, 4 * MIB).unwrap();
    assert!(fresh.last_use.is_never(), "{fresh:?}");
}

/// Pages went back to the driver, and other pages come to the same addresses.
#[test]
fn memory_from_the_driver_was_never_used_where_other_memory_was() {
    let mut device = tight(PageCaps::new(2 * MIB), 64 * MIB);
    let _kept = allocate(&mut device, 0, 4 * MIB).unwrap();
    use_all(&mut device, 0, 8 * MIB);
    device.gpu.reached[0] = Tick(1);
    assert_eq!(device.empty(), 4 * MIB);
    let fresh = allocate(&mut device, 0, 8 * MIB).unwrap();
    assert!(fresh.last_use.is_never(), "{fresh:?}");
}

/// Frees two blocks that have memory between them, and requests a larger one. It fits only at other addresses, where
/// the stream can use the memory as soon as the device keeps the order.
fn gathered_on_its_own_stream(alias_reuse: Reuse, submitted: bool, reached: bool) -> Option<Held> {
    let mut device = tight(pages(true, alias_reuse), 12 * MIB);
    let [low, _kept, high] = [4, 4, 4].map(|mib| allocate(&mut device, 0, mib * MIB).unwrap());
    device.gpu.open[0] = Tick(3);
    free(&mut device, 0, low);
    free(&mut device, 0, high);
    if submitted {
        device.gpu.open[0] = Tick(4);
    }
    if reached {
        device.gpu.reached[0] = Tick(3);
    }
    let grant = allocate(&mut device, 0, 8 * MIB);
    assert_eq!(device.page_stats().moved > 0, grant.is_some());
    device.check();
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

/// Memory whose use is not submitted stays where it is while there is other memory: what another stream is done with,
/// or new pages.
#[test]
fn what_is_not_submitted_is_spared() {
    let mut device = tight(pages(true, Reuse::AfterSubmit), 24 * MIB);
    device.gpu.open[0] = Tick(3);
    device.gaps(0, &[2, 2, 2, 2], 3);
    use_all(&mut device, 1, 8 * MIB);
    device.gpu.reached[1] = Tick(1);
    let grant = allocate(&mut device, 0, 4 * MIB).unwrap();
    assert_eq!((grant.offset, device.page_stats().moved, device.reserved()), (8 * MIB, 0, 16 * MIB));
    assert_eq!(grant.last_use, LastUse::at(Tick::ZERO));
    // The other stream has left nothing this time.
    let mut device = tight(pages(true, Reuse::AfterSubmit), 24 * MIB);
    device.gaps(0, &[4, 4, 4], 1);
    assert!(allocate(&mut device, 0, 8 * MIB).is_some());
    assert!(device.page_stats().moved == 0, "{:?}", device.page_stats());
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
        let mut device = tight(pages(true, alias_reuse), 12 * MIB);
        device.gaps(0, &[4, 4, 4], 1);
        (device.gpu.open[0], device.gpu.reached[0]) = (Tick(2), Tick(1));
        let first = allocate(&mut device, 0, 8 * MIB).unwrap();
        free(&mut device, 0, first);
        // The work through the window is over, and the memory is used at home once more.
        (device.gpu.open[0], device.gpu.reached[0]) = (Tick(3), Tick(2));
        device.poll();
        let again = allocate(&mut device, 0, 4 * MIB).unwrap();
        free(&mut device, 0, again);
        if submitted {
            device.gpu.open[0] = Tick(4);
        }
        if reached {
            device.gpu.reached[0] = Tick(3);
        }
        let grant = allocate(&mut device, 0, 8 * MIB);
        let context = format!("{alias_reuse:?}, submitted {submitted}, reached {reached}: {grant:?}");
        assert_eq!(
            grant.map(|grant| (grant.offset, grant.last_use)),
            serves.then_some((0, LastUse::at(Tick(3)))),
            "{context}"
        );
        assert_eq!(device.page_stats().returned, u64::from(serves), "{context}");
        device.check();
    }
}

/// Returns an allocator of two streams that has what another stream left overwritten.
fn scrubbing(limit: u64) -> Device {
    let policy = Policy::paged(Growth::Tight);
    by(Settings { policy, scrub: Scrub::OtherStreams, ..Settings::default() }, PageCaps::new(2 * MIB), limit)
}

/// Overwrites what has to be of a block that was granted. Returns the bytes of that.
fn scrub(device: &mut Device, held: &Held) -> u64 {
    let shard = &mut device.shards[held.shard];
    let stream = shard.user_of(held.block);
    let block = shard.extent(held.block);
    let parts = shard.to_scrub(block, stream);
    shard.scrubbed(block, stream);
    parts.into_iter().map(|part| part.bytes).sum()
}

/// Data that another stream left there has to be overwritten, even where all of the memory had been overwritten before.
#[test]
fn what_comes_from_another_stream_is_to_be_overwritten() {
    let mut device = scrubbing(40 * MIB);
    let first = allocate(&mut device, 1, 40 * MIB).unwrap();
    assert_eq!((scrub(&mut device, &first), scrub(&mut device, &first)), (40 * MIB, 0));
    free(&mut device, 1, first);
    device.gpu.reached[1] = Tick(1);
    for (bytes, why) in [(40 * MIB, "stream 1 has used it"), (0, "it is its own by now")] {
        let second = allocate(&mut device, 0, 40 * MIB).unwrap();
        assert!(!second.last_use.is_never());
        assert_eq!(scrub(&mut device, &second), bytes, "{why}");
        free(&mut device, 0, second);
        device.gpu.reached[0] = Tick(1);
        device.poll();
    }
    let third = allocate(&mut device, 1, 40 * MIB).unwrap();
    assert_eq!((third.offset, scrub(&mut device, &third)), (first.offset, 40 * MIB));
}

/// The same holds for what is gathered: each time that a stream gets it through a window, and when it is back at home.
#[test]
fn what_is_gathered_from_another_stream_is_to_be_overwritten() {
    let mut device = scrubbing(44 * MIB);
    let [low, fixed, high] = [20, 4, 20].map(|mib| allocate(&mut device, 1, mib * MIB).unwrap());
    for grant in [low, fixed, high] {
        assert_eq!(scrub(&mut device, &grant), grant.size);
    }
    free(&mut device, 1, low);
    free(&mut device, 1, high);
    device.gpu.reached.fill(Tick(1));
    for _ in 0..2 {
        let gathered = allocate(&mut device, 0, 40 * MIB).unwrap();
        assert_eq!(scrub(&mut device, &gathered), 40 * MIB);
        free(&mut device, 0, gathered);
        device.poll();
        for (bytes, why) in [(20 * MIB, "stream 0 has used it"), (0, "it is its own by now")] {
            let home = [20, 20].map(|mib| allocate(&mut device, 1, mib * MIB).unwrap());
            for grant in home {
                assert_eq!(scrub(&mut device, &grant), bytes, "{why}");
                free(&mut device, 1, grant);
            }
        }
    }
    assert_eq!(device.page_stats().returned, 1);
}

/// What a stream gathers of its own has to be overwritten only where others had it.
#[test]
fn what_is_gathered_from_the_same_stream_is_its_own() {
    let mut device = scrubbing(44 * MIB);
    let [low, fixed, high] = [20, 4, 20].map(|mib| allocate(&mut device, 0, mib * MIB).unwrap());
    assert_eq!(scrub(&mut device, &low), 20 * MIB);
    assert_eq!(scrub(&mut device, &fixed), 4 * MIB);
    // The third one was never overwritten. After the window was, it is at home as well.
    free(&mut device, 0, low);
    free(&mut device, 0, high);
    for bytes in [20 * MIB, 0] {
        let gathered = allocate(&mut device, 0, 40 * MIB).unwrap();
        assert_eq!(scrub(&mut device, &gathered), bytes);
        free(&mut device, 0, gathered);
    }
    assert_eq!(device.page_stats().returned, 1);
}
