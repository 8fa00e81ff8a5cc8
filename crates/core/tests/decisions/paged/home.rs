//! The home of a pool, which all of its streams share: who gets free memory there, and after what.

use millpond_backend::{Point, Reuse, StreamId, Tick};
use millpond_core::settings::Growth;
use millpond_core::{LastUse, Step};

use crate::driver::{Device, Facts, Held, MIB, is_poll, is_stream_wait, is_wait, point};

const SMALL: u64 = MIB / 2;
const GROWTHS: [Growth; 2] = [Growth::Balanced, Growth::Tight];

// Streams are at tick 100 whenever they are asked: what is freed behind it is not reached.

/// The open tick of each stream, which covers its waits for others.
const OPEN: Tick = Tick(210);

fn device(growth: Growth, limit: u64) -> Device {
    let mut device = Device::new(growth, limit);
    device.gpu.open.fill(OPEN);
    device
}

/// A stream, the length of a block of it in MiB, and the tick at which it is freed.
type Freed = (usize, u64, u64);

/// Makes free blocks, with blocks between them that stay, which are all that the device has.
fn blocks<const N: usize>(device: &mut Device, freed: [Freed; N]) -> [Held; N] {
    let held = freed.map(|(stream, mib, _)| {
        let block = device.allocate(stream, mib * MIB);
        device.allocate(stream, 2 * MIB);
        block
    });
    for (held, (_, _, tick)) in held.into_iter().zip(freed) {
        device.free(held, tick);
    }
    device.steps.clear();
    held
}

/// Returns a device of some blocks, with room for `more` MiB besides.
fn device_of<const N: usize>(growth: Growth, freed: [Freed; N], more: u64) -> (Device, [Held; N]) {
    let mut device = device(growth, 1 << 30);
    let held = blocks(&mut device, freed);
    device.set_limit(device.reserved() + more * MIB);
    (device, held)
}

/// Returns the waits of streams for each other that were queued.
fn waits(device: &Device) -> Vec<(StreamId, Vec<Point>)> {
    let wait = |step: &Step| match step {
        Step::StreamWait { stream, points } => Some((*stream, points.clone())),
        _ => None,
    };
    device.steps.iter().filter_map(wait).collect()
}

/// Returns for which points stream 0 has waited to get a block.
fn waits_of_first(device: &mut Device, mib: u64) -> (Held, Vec<Point>) {
    device.steps.clear();
    let held = device.serve(0, mib * MIB);
    let waits = waits(device);
    assert!(waits.iter().all(|(stream, _)| *stream == StreamId(0)) && waits.len() <= 1, "{waits:?}");
    (held, waits.into_iter().flat_map(|(_, points)| points).collect())
}

#[test]
fn a_stream_gets_its_own_memory_back_without_a_question() {
    for (growth, bytes) in GROWTHS.into_iter().flat_map(|growth| [(growth, SMALL), (growth, 20 * MIB)]) {
        let mut device = device(growth, 1 << 30);
        let first = device.use_until(1, bytes, 150);
        device.steps.clear();
        let again = device.allocate(1, bytes);
        assert_eq!((again.place(), again.last_use), (first.place(), LastUse::at(Tick(150))), "{growth:?}, {bytes}");
        assert!(matches!(device.steps[..], [Step::Grant(_)]), "{:?}", device.steps);
    }
}

/// Where a device keeps no order, a stream gets back at once what it has freed up to the tick that it names.
#[test]
fn a_stream_gets_its_own_memory_back_up_to_a_tick() {
    let (mut device, [block]) = device_of(Growth::Tight, [(1, 20, 150)], 0);
    assert!(device.hit_at(1, 20 * MIB, 149).is_none());
    assert_eq!(device.hit_at(1, 20 * MIB, 150).map(|held| held.place()), Some(block.place()));
}

#[test]
fn memory_of_another_stream_is_a_hit_once_it_is_known_to_be_over() {
    for (growth, bytes) in GROWTHS.into_iter().flat_map(|growth| [(growth, SMALL), (growth, 20 * MIB)]) {
        let mut device = device(growth, 1 << 30);
        let first = device.use_until(1, bytes, 150);
        for reached in [149, 150] {
            device.gpu.reached[1] = Tick(reached);
            let hit = device.hit(0, bytes);
            assert!(hit.is_none(), "it is not known that {reached} is reached: {hit:?}");
            device.poll();
        }
        let again = device.hit(0, bytes).expect("it is over");
        assert_eq!((again.place(), again.last_use), (first.place(), LastUse::at(Tick::ZERO)));
    }
}

/// A stream waits for just the point up to which its memory was used, and for no point that an earlier wait has
/// covered.
#[test]
fn memory_that_is_in_use_comes_behind_one_wait_for_its_point() {
    let freed = [(1, 20, 150), (1, 12, 140), (1, 6, 155), (2, 4, 120)];
    let (mut device, places) = device_of(Growth::Tight, freed, 0);
    let expected: [&[Point]; 4] = [&[point(1, 150)], &[], &[point(1, 155)], &[point(2, 120)]];
    for ((held, points), (_, mib, _)) in places.into_iter().zip(expected).zip(freed) {
        let (got, waited) = waits_of_first(&mut device, mib);
        assert_eq!((got.place(), &waited[..]), (held.place(), points), "{mib} MiB");
        assert_eq!(got.last_use, LastUse::at(OPEN), "the tick that covers the wait");
    }
    assert!(!device.steps.iter().any(is_wait), "{:?}", device.steps);
}

/// The stream that had memory last is the one that is waited for, and not one that had it before.
#[test]
fn the_stream_that_had_a_block_last_is_its_user() {
    let (mut device, [block]) = device_of(Growth::Tight, [(0, 20, 20)], 0);
    device.poll();
    let used = device.hit(1, 20 * MIB).expect("stream 0 is done with it");
    device.free(used, 150);
    assert!(device.hit(0, 20 * MIB).is_none(), "stream 1 is not");
    let (again, waited) = waits_of_first(&mut device, 20);
    assert_eq!((again.place(), &waited[..]), (block.place(), &[point(1, 150)][..]));
    assert_eq!(again.last_use, LastUse::at(OPEN), "the tick that covers the wait");
}

/// Under `tight` the place depends on what is free, and not on how far the device is. Under `balanced` what is ready is
/// taken first.
#[test]
fn under_tight_the_place_goes_by_what_is_free_alone() {
    for reached in [100, 150] {
        for growth in GROWTHS {
            let (mut device, [long, short]) = device_of(growth, [(2, 24, 1), (1, 20, 150)], 0);
            device.gpu.reached[1] = Tick(reached);
            let (got, waited) = waits_of_first(&mut device, 20);
            let takes_ready = growth == Growth::Balanced && reached < 150;
            assert_eq!(got.place(), if takes_ready { long } else { short }.place(), "{growth:?}, at {reached}");
            assert_eq!(waited.is_empty(), takes_ready || reached == 150, "{growth:?}, at {reached}");
        }
    }
}

/// While the device is behind, `balanced` takes a stream's own memory first, then what is ready, then new pages as far
/// as it may, and only then what has to be waited for.
#[test]
fn balanced_waits_last_while_the_device_is_behind() {
    let (mut device, [busy, ready, own]) = device_of(Growth::Balanced, [(1, 20, 150), (2, 22, 1), (0, 24, 150)], 20);
    let before = device.reserved();
    let (first, waited) = waits_of_first(&mut device, 20);
    assert_eq!((first.place(), first.last_use, waited), (own.place(), LastUse::at(Tick(150)), vec![]));
    let (second, waited) = waits_of_first(&mut device, 20);
    assert_eq!((second.place(), waited, device.reserved()), (ready.place(), vec![], before));
    let (third, waited) = waits_of_first(&mut device, 20);
    assert_eq!((third.last_use.is_never(), waited, device.reserved()), (true, vec![], before + 20 * MIB));
    let (fourth, waited) = waits_of_first(&mut device, 20);
    assert_eq!((fourth.place(), waited), (busy.place(), vec![point(1, 150)]));
}

/// Returns a home of 80 MiB that are one free block, of which stream 1 has used the first 40, and stream 2 the others.
fn joined() -> Device {
    let mut device = device(Growth::Tight, 80 * MIB);
    let parts = [1, 2].map(|stream| device.allocate(stream, 40 * MIB));
    assert_eq!(parts.map(|held| held.offset), [0, 40 * MIB]);
    parts.into_iter().zip([150, 160]).for_each(|(held, tick)| device.free(held, tick));
    device
}

/// Of memory that several streams have used and that is one free block, each part has its own point.
#[test]
fn each_part_of_a_joined_block_is_waited_for_alone() {
    let (first, second) = (point(1, 150), point(2, 160));
    for (mib, expected) in [(40, vec![first]), (36, vec![first]), (44, vec![first, second]), (80, vec![first, second])]
    {
        let (held, mut waited) = waits_of_first(&mut joined(), mib);
        waited.sort_by_key(|point| point.stream);
        assert_eq!((held.offset, waited), (0, expected), "{mib} MiB");
    }
    let mut device = joined();
    let [front, rear] = [40, 40].map(|mib| waits_of_first(&mut device, mib));
    assert_eq!((front.1, rear.0.offset, rear.1), (vec![first], 40 * MIB, vec![second]));
}

/// What is left of a joined block keeps the points of its own parts: its stream gets it at once, and no other one.
#[test]
fn the_rest_of_a_joined_block_keeps_its_points() {
    for (stream, comes) in [(0, false), (1, false), (2, true)] {
        let mut device = joined();
        waits_of_first(&mut device, 40);
        let rest = device.hit(stream, 40 * MIB);
        assert_eq!(rest.map(|held| (held.offset, held.last_use.tick())), comes.then_some((40 * MIB, Tick(160))));
    }
    let mut device = joined();
    let front = device.hit(1, 40 * MIB).expect("the front is its own");
    assert_eq!((front.offset, front.last_use), (0, LastUse::at(Tick(150))));
}

/// A request takes a part of what one stream has used, or more than that. What is left keeps its point.
#[test]
fn what_is_cut_off_a_part_keeps_its_point() {
    for (mib, user, other) in [(36, 1, 2), (44, 2, 1)] {
        for (stream, comes) in [(0, false), (other, false), (user, true)] {
            let mut device = joined();
            waits_of_first(&mut device, mib);
            let rest = device.hit(stream, 4 * MIB).map(|held| held.offset);
            assert_eq!(rest, comes.then_some(mib * MIB), "stream {stream} behind {mib} MiB");
        }
    }
}

/// A joined block is ready once all of it is, and its last use is that of the stream that gets it.
#[test]
fn a_joined_block_is_ready_once_all_of_its_parts_are() {
    for (reached, stream, expected) in [
        ([150, 159], 0, None),
        ([149, 160], 0, None),
        ([150, 160], 0, Some(LastUse::at(Tick::ZERO))),
        ([100, 160], 1, Some(LastUse::at(Tick(150)))),
        ([150, 100], 1, None),
        ([150, 100], 2, Some(LastUse::at(Tick(160)))),
    ] {
        let mut device = joined();
        device.gpu.reached[1..].copy_from_slice(&reached.map(Tick));
        device.poll();
        let whole = device.hit(stream, 80 * MIB).map(|held| held.last_use);
        assert_eq!(whole, expected, "stream {stream}, at {reached:?}");
    }
}

/// What is handed out says up to which tick of its stream it was used: that of its own use, 0 for what others did that
/// is over, the tick that covers a wait, and never for what nothing has used.
#[test]
fn a_grant_says_the_last_use_on_its_stream() {
    for growth in GROWTHS {
        let mut device = device(growth, 1 << 30);
        let first = device.serve(0, 20 * MIB);
        assert!(first.last_use.is_never(), "{growth:?}");
        device.free(first, 30);
        let own = device.serve(0, 20 * MIB);
        assert_eq!((own.place(), own.last_use), (first.place(), LastUse::at(Tick(30))), "{growth:?}");
        device.free(own, 60);
        let over = device.serve(1, 20 * MIB);
        assert_eq!((over.place(), over.last_use), (first.place(), LastUse::at(Tick::ZERO)), "{growth:?}");
        device.free(over, 150);
        device.set_limit(device.reserved());
        let waited = device.serve(0, 20 * MIB);
        assert_eq!((waited.place(), waited.last_use), (first.place(), LastUse::at(OPEN)), "{growth:?}");
    }
}

/// Behind a wait, the last use covers both the stream's own work and the wait.
#[test]
fn the_last_use_covers_own_work_beside_what_was_waited_for() {
    for open in [160, 180] {
        let mut device = device(Growth::Tight, 80 * MIB);
        device.gpu.open.fill(Tick(open));
        let parts = [0, 1].map(|stream| device.allocate(stream, 40 * MIB));
        parts.into_iter().zip([170, 150]).for_each(|(held, tick)| device.free(held, tick));
        let (whole, waited) = waits_of_first(&mut device, 80);
        assert_eq!((whole.last_use, waited), (LastUse::at(Tick(open.max(170))), vec![point(1, 150)]));
    }
}

/// What another stream did there says nothing of the last use, once it is over: its ticks are of another clock.
#[test]
fn the_last_use_is_no_tick_of_another_stream() {
    let (mut device, _) = device_of(Growth::Tight, [(0, 20, 5)], 0);
    let held = device.hit(0, 20 * MIB).expect("its own");
    device.free_behind(held, 140, &[point(1, 150)]);
    device.gpu.reached[1] = Tick(150);
    device.poll();
    let again = device.hit(0, 20 * MIB).expect("stream 1 is done with it");
    assert_eq!(again.last_use, LastUse::at(Tick(140)));
}

/// The free that was put off is that of one stream: another one does not get the block by the short way.
#[test]
fn a_block_whose_free_was_put_off_is_not_another_stream_s() {
    for swaps in [false, true] {
        let (mut device, [block]) = device_of(Growth::Tight, [(1, 20, 5)], 0);
        device.poll();
        let mut held = device.hit(1, 20 * MIB).expect("its own");
        if swaps {
            // It was freed and handed out as it was, and would be once more.
            device.free_unchecked(held, 149);
            held = device.hit(1, 20 * MIB).expect("its own");
        }
        device.free_unchecked(held, 150);
        assert!(device.hit(0, 20 * MIB).is_none(), "stream 1 may still use it, swapped before: {swaps}");
        let again = device.hit(1, 20 * MIB).expect("its own");
        assert_eq!((again.place(), again.last_use), (block.place(), LastUse::at(Tick(150))));
    }
}

/// A block is freed and handed out again beside free memory of another stream: that is still the other one's.
#[test]
fn what_is_behind_a_block_that_is_handed_out_again_keeps_its_user() {
    let mut device = device(Growth::Tight, 24 * MIB);
    let [front, behind, _fixed] = [(1, 10), (0, 10), (2, 4)].map(|(stream, mib)| device.allocate(stream, mib * MIB));
    device.free(behind, 150);
    for tick in [151, 152] {
        device.free_unchecked(front, tick);
        let again = device.hit(1, 10 * MIB).expect("its own");
        assert_eq!((again.place(), again.last_use.tick()), (front.place(), Tick(tick)));
    }
    assert!(device.hit(1, 10 * MIB).is_none(), "stream 0 may still use it");
    let own = device.hit(0, 10 * MIB).expect("its own");
    assert_eq!((own.place(), own.last_use), (behind.place(), LastUse::at(Tick(150))));
}

/// A small request gets another small block that is ready, where the best fit is in use.
#[test]
fn a_small_request_passes_over_what_is_in_use() {
    let mut device = device(Growth::Tight, 2 * MIB);
    let [busy, _between, own, _rest] = [1, 2, 0, 2].map(|stream| device.serve(stream, SMALL));
    device.free(busy, 150);
    device.free(own, 150);
    assert!(busy.offset < own.offset);
    assert_eq!(device.hit(0, SMALL).map(|held| held.place()), Some(own.place()));
    assert_eq!(device.hit(0, SMALL), None, "what is left is in use");
}

/// A block that several streams have used is waited for as a whole, its own stream's use too.
#[test]
fn a_block_that_was_used_elsewhere_comes_after_all_of_its_users() {
    let (mut device, [block]) = device_of(Growth::Tight, [(1, 20, 5)], 0);
    let held = device.hit(1, 20 * MIB).expect("its own");
    device.free_behind(held, 150, &[point(2, 170)]);
    let (got, mut waited) = waits_of_first(&mut device, 20);
    waited.sort_by_key(|point| point.stream);
    assert_eq!((got.place(), waited), (block.place(), vec![point(1, 150), point(2, 170)]));
    // The stream itself comes after the other one alone.
    let (mut device, _) = device_of(Growth::Tight, [(0, 20, 5)], 0);
    let held = device.hit(0, 20 * MIB).expect("its own");
    device.free_behind(held, 150, &[point(2, 170)]);
    assert!(device.hit(0, 20 * MIB).is_none());
    let (got, waited) = waits_of_first(&mut device, 20);
    assert_eq!((got.last_use, waited), (LastUse::at(OPEN), vec![point(2, 170)]));
}

/// Where a device keeps no order, no stream waits for another one on the device: the host does, or pages are created.
#[test]
fn without_order_no_stream_waits_on_the_device() {
    for reuse in [Reuse::AfterSubmit, Reuse::AfterDone] {
        for more in [0, 20] {
            let mut device = Device::of(&Facts { reuse, ..Facts::paged(Growth::Tight, 1 << 30) });
            let [block] = blocks(&mut device, [(1, 20, 150)]);
            device.set_limit(device.reserved() + more * MIB);
            let held = device.allocate(0, 20 * MIB);
            assert!(!device.steps.iter().any(is_stream_wait), "{reuse:?}: {:?}", device.steps);
            let host = device.steps.iter().filter(|step| is_wait(step)).cloned().collect::<Vec<_>>();
            let expected = if more == 0 { vec![Step::Wait(vec![point(1, 150)])] } else { vec![] };
            assert_eq!((held.place() == block.place(), host), (more == 0, expected), "{reuse:?}, {more} MiB more");
            assert!(device.steps.iter().any(is_poll));
        }
    }
}

/// What nobody uses any more serves every stream, although its last user still works on what it freed beside it.
#[test]
fn what_is_idle_serves_others_beside_what_is_in_use() {
    let mut device = Device::new(Growth::Tight, 42 * MIB);
    let [idle, used, _other] = [(0, 20), (0, 20), (1, 2)].map(|(stream, mib)| device.allocate(stream, mib * MIB));
    device.free(idle, 50);
    device.poll();
    device.free(used, 150);
    let hit = device.hit(1, 20 * MIB).expect("the device is done with it");
    assert_eq!((hit.offset, hit.last_use), (idle.offset, LastUse::at(Tick::ZERO)));
    assert_eq!(device.hit(1, 20 * MIB), None, "the first stream still uses the rest");
    assert_eq!(device.hit(0, 20 * MIB).map(|held| held.offset), Some(used.offset));
}
