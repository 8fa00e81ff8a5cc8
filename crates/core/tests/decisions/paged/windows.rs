//! Windows: what is used through them, when it comes home, and when they serve again.

use millpond_backend::{PageCaps, Reuse, Tick};
use millpond_core::settings::Growth;
use millpond_core::{LastUse, Outcome, Step};

use crate::driver::{Device, Facts, MIB, empty_cache, gaps_on, is_pages, is_reserve, is_stream_wait, point, with_gaps};

/// The memory of a window is at home as soon as its block is freed, and the window serves again, without driver calls.
#[test]
fn a_window_serves_the_same_request_again_without_driver_calls() {
    for (owner, growth) in [(0, Growth::Tight), (1, Growth::Tight), (0, Growth::Balanced), (1, Growth::Balanced)] {
        let (mut device, _) = with_gaps(growth, owner, &[8, 4, 10]);
        let mut held = device.allocate(0, 18 * MIB);
        assert_eq!((held.shard, device.in_windows(), device.reserved()), (0, 9, 22 * MIB));
        for tick in 2..6 {
            assert!(device.hit(owner, 2 * MIB).is_none(), "it is in use through the window");
            device.free(held, tick);
            let at_home = [10, 8].map(|mib| device.hit(owner, mib * MIB).expect("it has come home"));
            at_home.into_iter().for_each(|held| device.free(held, tick));
            let again = device.allocate_at_no_cost(0, 18 * MIB);
            assert_eq!(again.place(), held.place());
            held = again;
        }
        assert_eq!((device.page_stats().returned, device.in_windows()), (4, 9), "owner {owner}");
    }
}

/// A shorter request gets the front of a window. What lies behind it is free at home, also while the window is in use.
#[test]
fn a_window_serves_shorter_requests_with_its_front() {
    let (mut device, _) = with_gaps(Growth::Tight, 0, &[8, 4, 10]);
    let held = device.use_until(0, 18 * MIB, 2);
    let shorter = device.allocate_at_no_cost(0, 13 * MIB);
    assert_eq!((shorter.place(), shorter.size), (held.place(), 13 * MIB));
    let rest = device.hit(0, 5 * MIB).expect("the rest of the memory");
    assert!(device.try_allocate(0, 18 * MIB).is_none(), "all memory is in use");
    device.free(shorter, 3);
    assert!(device.try_allocate(0, 18 * MIB).is_none(), "a part of it is");
    device.free(rest, 3);
    assert_eq!(device.allocate_at_no_cost(0, 18 * MIB).place(), held.place());
}

/// A window begins with the tail of a page whose head is in use at home. Another block begins in the same window with
/// the tail of a page whose head the first one uses, and the window is lengthened for it.
#[test]
fn a_page_serves_several_blocks_at_the_same_time() {
    let mut device = Device::new(Growth::Tight, 24 * MIB);
    let [head, tail, _, middle, _, end, _] = [3, 5, 4, 4, 4, 2, 2].map(|mib| device.allocate(0, mib * MIB));
    assert_eq!((device.reserved(), tail.offset), (24 * MIB, 3 * MIB));
    device.free(tail, 1);
    device.free(middle, 1);
    let first = device.allocate(0, 5 * MIB + MIB / 2);
    assert_eq!((first.offset, first.size), (MIB, 5 * MIB + MIB / 2), "the head of its first page is not its own");
    device.free(end, 1);
    let second = device.allocate(0, 5 * MIB + MIB / 2);
    assert_eq!(second.offset, first.offset + first.size);
    // Each comes home on its own, and can be used there beside the others.
    device.free(first, 2);
    let at_home = device.hit(0, 5 * MIB).expect("it has come home");
    assert_eq!(at_home.place(), tail.place());
    device.free(second, 3);
    let again = device.allocate_at_no_cost(0, 5 * MIB + MIB / 2);
    assert_eq!(again.offset, second.offset - MIB / 2, "the head of its first page is free now");
    device.free(head, 3);
    assert_eq!(device.hit(0, 3 * MIB).map(|held| held.offset), Some(0), "the head of the first page");
}

/// New memory completes what is free. It has its home at the requesting stream, whatever else is in the window.
#[test]
fn a_window_has_free_memory_and_new_pages() {
    for owner in [0, 1] {
        let (mut device, _) = with_gaps(Growth::Tight, owner, &[8, 4, 10, 4]);
        device.set_limit(32 * MIB);
        let held = device.allocate(0, 23 * MIB);
        assert_eq!((held.shard, device.reserved(), device.in_windows()), (0, 32 * MIB, 12));
        assert_eq!(held.last_use.tick(), if owner == 0 { Tick(1) } else { Tick(100) });
        assert!(device.hit(0, MIB + MIB / 2).is_none() && device.hit(0, MIB).is_none());
        device.free(held, 2);
        let new = device.hit(0, 6 * MIB).expect("the new pages have their home here");
        device.free(new, 2);
        assert_eq!(device.allocate_at_no_cost(0, 23 * MIB).place(), held.place());
    }
}

/// Returns a device of up to this many bytes with 20 MiB of pages of 2 MiB. Free are 5.5 MiB that end with a page, 1.75
/// MiB at the end of another one, and 3.5 MiB that begin with a page.
fn with_ends_of_pages(limit: u64) -> Device {
    const QUARTER: u64 = MIB / 4;
    let mut device = Device::new(Growth::Tight, limit);
    let blocks = [10, 22, 9, 7, 8, 14, 10].map(|quarters| device.allocate(0, quarters * QUARTER));
    assert_eq!(device.reserved(), 20 * MIB);
    assert_eq!(blocks.map(|held| held.offset / QUARTER), [0, 10, 32, 41, 48, 56, 70], "they follow each other");
    [1, 3, 5].into_iter().for_each(|at: usize| device.free(blocks[at], 1));
    device
}

/// Where no more may be created, a window begins with the most that is free in front of a page, and ends with the most
/// that is free behind one.
#[test]
fn the_ends_of_pages_are_gathered_before_memory_is_created() {
    let mut device = with_ends_of_pages(1 << 30);
    device.allocate(0, 9 * MIB + MIB / 4);
    assert_eq!((device.reserved(), device.in_windows()), (22 * MIB, 5), "within the slack one is created");
    let mut device = with_ends_of_pages(20 * MIB);
    let held = device.allocate(0, 9 * MIB + MIB / 4);
    assert_eq!(
        (device.reserved(), device.in_windows()),
        (20 * MIB, 5),
        "a tail, two pages, and two of which one is whole"
    );
    assert!(device.hit(0, 2 * MIB).is_none(), "what is left is in front of a page");
    device.free(held, 2);
    assert_eq!(device.allocate_at_no_cost(0, 9 * MIB + MIB / 4).place(), held.place());
    device.check();
}

/// New pages are in front of the last piece, if fewer are created then.
#[test]
fn a_window_has_new_pages_in_front_of_its_last_piece() {
    let mut device = with_ends_of_pages(22 * MIB);
    let held = device.allocate(0, 11 * MIB + MIB / 4);
    assert_eq!((device.reserved(), device.in_windows()), (22 * MIB, 6));
    assert!(device.hit(0, 2 * MIB).is_none(), "what is left is in front of a page");
    device.free(held, 2);
    assert!(device.hit(0, 2 * MIB).is_some(), "all has come home");
    device.check();
}

/// Memory of another stream that was used through a window comes home at the free, guarded by the point of the window's
/// stream. Every other stream waits for that point, its own one too.
#[test]
fn memory_of_another_stream_comes_home_behind_the_work_through_the_window() {
    let (mut device, _) = with_gaps(Growth::Tight, 1, &[8, 4, 10]);
    device.use_until(0, 18 * MIB, 200);
    for (stream, bytes) in [(1, 10 * MIB), (2, 8 * MIB)] {
        assert!(device.hit(stream, bytes).is_none());
        device.steps.clear();
        let mut plan = device.plan(stream, bytes);
        let step = device.until(&mut plan, is_stream_wait);
        let points = if let Step::StreamWait { points, .. } = step { points } else { panic!("{step:?}") };
        assert!(points.contains(&point(0, 200)), "stream {stream} waits for {points:?}");
        device.learn(&mut plan, Outcome::Failed);
        assert_eq!(device.next(&mut plan), Step::Done);
    }
    device.gpu.reached[0] = Tick(200);
    device.poll();
    device.check();
    let home = device.hit(1, 10 * MIB).expect("it has come home");
    assert_eq!(home.last_use, LastUse::at(Tick::ZERO), "what another stream did there is over");
}

/// The stream's own memory waits for the stream as well, where the device does not keep its order at other addresses.
#[test]
fn own_memory_comes_home_at_once_only_where_the_device_keeps_order() {
    for alias_reuse in [Reuse::InOrder, Reuse::AfterSubmit, Reuse::AfterDone] {
        let pages = PageCaps::new(2 * MIB).with_alias_reuse(alias_reuse);
        let device = Device::of(&Facts { pages: Some(pages), ..Facts::paged(Growth::Tight, 22 * MIB) });
        let (mut device, _) = gaps_on(device, 0, &[8, 4, 10]);
        device.use_until(0, 18 * MIB, 200);
        let in_order = alias_reuse == Reuse::InOrder;
        let at_home = if in_order { device.hit(0, 10 * MIB) } else { device.hit_at(0, 10 * MIB, 199) };
        assert_eq!(at_home.is_some(), in_order, "{alias_reuse:?}");
        at_home.into_iter().for_each(|held| device.free(held, 200));
        device.gpu.reached[0] = Tick(200);
        device.poll();
        let at_home = device.hit_at(0, 10 * MIB, 199).expect("the work through the window is over");
        assert_eq!(at_home.last_use, LastUse::at(if in_order { Tick(200) } else { Tick::ZERO }));
    }
}

/// A window of another stream's memory is used behind a wait, each time that the memory was used at home meanwhile.
#[test]
fn a_kept_window_waits_for_later_uses_at_home() {
    let (mut device, _) = with_gaps(Growth::Tight, 1, &[8, 4, 10]);
    let held = device.use_until(0, 18 * MIB, 2);
    let at_home = device.hit(1, 10 * MIB).expect("it has come home");
    device.free(at_home, 300);
    let again = device.allocate_at_no_cost(0, 18 * MIB);
    let waits: Vec<_> = device.steps.iter().filter(|step| is_stream_wait(step)).collect();
    let stream = millpond_backend::StreamId(0);
    assert_eq!(waits, [&Step::StreamWait { stream, points: vec![point(1, 300)] }]);
    assert_eq!(again.place(), held.place());
}

/// Behind a window in one block as many addresses are vacant as it has. The addresses are vacant again when the windows
/// end.
#[test]
fn addresses_of_windows_that_ended_are_used_again() {
    let (mut device, _) = with_gaps(Growth::Tight, 0, &[4, 4, 4, 4, 4, 4, 4, 4, 4]);
    let [first, second] = [8, 12].map(|mib| device.allocate(0, mib * MIB));
    assert_eq!((first.slot, second.offset), (second.slot, 16 * MIB));
    [first, second].into_iter().for_each(|held| device.free(held, 2));
    assert_eq!((device.empty(), device.in_windows()), (16 * MIB, 0));
    device.steps.clear();
    let again: Vec<_> = [4, 4, 4, 4, 4].map(|mib| device.allocate(0, mib * MIB)).into();
    again.into_iter().for_each(|held| device.free(held, 3));
    device.steps.clear();
    let whole = device.allocate(0, 20 * MIB);
    assert_eq!(whole.place(), first.place());
    assert!(device.steps.iter().any(is_pages) && !device.steps.iter().any(is_reserve), "{:?}", device.steps);
}

/// There are no addresses for a window. What is idle is released, and its addresses as well.
#[test]
fn without_addresses_for_a_window_what_is_idle_is_released() {
    let pages = PageCaps::new(2 * MIB).with_address_bytes(30 * MIB);
    let device = Device::of(&Facts { pages: Some(pages), ..Facts::paged(Growth::Tight, 22 * MIB) });
    let (mut device, _) = gaps_on(device, 0, &[8, 4, 10]);
    let held = device.allocate(0, 18 * MIB);
    assert_eq!((device.in_windows(), device.reserved()), (0, 22 * MIB));
    assert!(held.last_use.is_never(), "what was idle was released");
}

#[test]
fn a_plan_to_give_everything_back_ends_all_windows() {
    let (mut device, between) = with_gaps(Growth::Tight, 1, &[8, 4, 10]);
    device.use_until(0, 18 * MIB, 2);
    between.into_iter().for_each(|held| device.free(held, 2));
    let mut plan = empty_cache();
    device.finish(&mut plan, 0);
    assert_eq!((device.reserved(), device.in_windows(), device.page_stats().pages), (0, 0, 0));
    assert_eq!(device.coordinator.mappings(), []);
}

/// The tail of a page is the first part of a window and the head of the same page the last one. Once the whole page is
/// free, the window is no longer than its memory: a longer request gets other memory.
#[test]
fn a_window_has_no_byte_twice() {
    const EIGHTH: u64 = MIB / 8;
    let mut device = Device::new(Growth::Tight, 12 * MIB);
    let [front, middle, back, _end] = [19, 10, 19, 16].map(|eighths| device.allocate(0, eighths * EIGHTH));
    assert_eq!([middle, back].map(|held| held.offset / EIGHTH), [19, 29], "they follow each other");
    let other = device.allocate(1, 4 * MIB);
    // What is free is the head of the second page, with a little in front of it, and its tail with the third page.
    device.free(front, 1);
    let _front = device.hit(0, 15 * EIGHTH).expect("it fits");
    device.free(back, 1);
    let held = device.allocate(0, 21 * EIGHTH);
    assert_eq!((held.shard, device.in_windows()), (0, 3), "the second page is there twice");
    device.free(held, 2);
    device.free(middle, 2);
    device.free(other, 1);
    device.steps.clear();
    let held = device.allocate(0, 34 * EIGHTH);
    assert_eq!(held.shard, 0);
    assert!(!device.steps.iter().any(|step| matches!(step, Step::Wait(_) | Step::Pause { .. })), "{:?}", device.steps);
    assert_eq!(device.page_stats().released, 0);
}
