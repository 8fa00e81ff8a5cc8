//! Loans of what is known to be ready, for which no stream is asked how far it is.

use millpond_backend::{PageCaps, StreamId, Tick};
use millpond_core::settings::{Growth, Policy, Settings};
use millpond_core::stats::Sharing;
use millpond_core::{Freed, Outcome, Step};

use crate::driver::{ASKED, Device, Facts, Held, MIB, is_pages, is_pause, is_poll, point};

/// Returns a device of which stream 0 has all memory, free and used up to tick 5, which is known to be reached.
fn lender(growth: Growth, mib: u64) -> Device {
    let mut device = Device::new(growth, mib * MIB);
    device.use_until(0, mib * MIB, 5);
    device.poll();
    device.steps.clear();
    device
}

/// Frees a block of stream 0 that another stream has borrowed and uses up to a point, without a question to the device.
fn give_back(device: &mut Device, held: Held, (stream, tick): (u32, u64)) {
    assert_eq!(held.shard, 0, "it is the lender's");
    let Freed::Pending(uses) = device.take_back(held, 6) else { panic!("it is lent") };
    assert_eq!(uses.streams, [StreamId(stream)]);
    device.pend(held, &[point(stream, tick)]);
    device.check();
}

/// Makes a request that misses, and returns how often the device was asked for it.
fn ask(device: &mut Device, shard: usize, bytes: u64) -> (Held, usize) {
    device.steps.clear();
    let held = device.allocate(shard, bytes);
    let polls = device.steps.iter().filter(|step| is_poll(step)).count();
    (held, polls)
}

fn place(held: Held) -> (usize, u64) {
    (held.shard, held.offset)
}

/// What was free when the streams were asked last is lent without a question, and so is what the same stream has
/// borrowed and given back since, as its own work is in order, however often. The device is asked once another stream
/// has used the place.
#[test]
fn what_is_known_to_be_ready_is_lent_without_a_question() {
    for bytes in [4 * MIB, 512] {
        let mut device = lender(Growth::Tight, 40);
        let (first, _) = ask(&mut device, 1, bytes);
        give_back(&mut device, first, (1, 1000));
        for times in 1..130_u64 {
            let (held, polls) = ask(&mut device, 1, bytes);
            assert_eq!((place(held), polls), (place(first), 0), "after {times} in a row");
            give_back(&mut device, held, (1, 1000 + times));
        }
        let (other, _) = ask(&mut device, 2, bytes);
        give_back(&mut device, other, (2, 5000));
        let (held, polls) = ask(&mut device, 1, 40 * MIB);
        assert_eq!((place(held), polls), ((0, 0), 1), "stream 2 may use it, which was asked");
    }
}

/// The block that fits best may be in use. Another one that is known to be ready does not stand in for it before the
/// device was asked: the place is chosen by what is free.
#[test]
fn what_is_known_does_not_come_before_what_fits() {
    let mut device = Device::new(Growth::Tight, 80 * MIB);
    let (well, ill) = (device.allocate(0, 34 * MIB), device.allocate(2, 46 * MIB));
    device.free(ill, 5);
    device.poll();
    device.gpu.reached = vec![Tick(100), Tick(100), Tick(300)];
    device.free(well, 200);
    let (held, polls) = ask(&mut device, 1, 30 * MIB);
    assert_eq!((held.shard, polls), (0, 1), "it fits best, and is used behind a wait");
}

/// A stream that has free memory of its own, which another one may still use, gets that and borrows nothing.
#[test]
fn what_is_known_does_not_come_before_own_memory() {
    let mut device = Device::new(Growth::Tight, 80 * MIB);
    let (own, others) = (device.allocate(1, 40 * MIB), device.allocate(0, 40 * MIB));
    device.free(others, 5);
    device.poll();
    device.free_behind(own, 6, &[point(2, 200)]);
    let (held, polls) = ask(&mut device, 1, 30 * MIB);
    assert_eq!((held.shard, polls), (1, 1));
}

/// As long as the slack and the limit let the home of a stream grow, it borrows nothing.
#[test]
fn what_is_known_does_not_come_before_new_memory_within_the_slack() {
    for (limit, shard) in [(1 << 30, 1), (40 * MIB, 0)] {
        let mut device = Device::new(Growth::Tight, limit);
        device.use_until(0, 40 * MIB, 5);
        device.poll();
        let (held, _) = ask(&mut device, 1, 4 * MIB);
        assert_eq!(held.shard, shard, "within {limit} bytes");
    }
}

/// Garbage is given back before anything is lent.
#[test]
fn what_is_known_does_not_come_before_garbage() {
    for (gc_threshold, shard) in [(0.0, 0), (0.01, 1)] {
        let settings = Settings { policy: Policy::paged(Growth::Tight), gc_threshold, ..Settings::default() };
        let mut device = Device::of(&Facts { limit: Some(40 * MIB), ..Facts::new(settings, 3) });
        device.use_until(0, 40 * MIB, 5);
        device.poll();
        let (held, _) = ask(&mut device, 1, 4 * MIB);
        assert_eq!(held.shard, shard, "with a threshold of {gc_threshold}");
        assert_eq!(device.steps.iter().any(is_pages), shard == 1);
    }
}

/// While a plan waits for its turn, another one takes nothing that the first could need, not even what is lent at once.
#[test]
fn what_is_known_does_not_come_before_a_plan_that_waits_for_its_turn() {
    let policy = Policy::Paged { growth: Growth::Tight, slack: 0.0 };
    let mut device = Device::of(&Facts { limit: Some(60 * MIB), ..Facts::under(policy, 3) });
    let all = device.allocate(0, 20 * MIB);
    let mut creates = device.plan(1, 30 * MIB);
    let (step, _) = device.until_calls(&mut creates);
    device.free_unchecked(all, 5);
    device.poll();
    let mut waits = device.plan(2, 45 * MIB);
    for _ in 0..100 {
        device.past(&mut waits, is_pause);
    }
    let pause = device.until(&mut waits, is_pause);
    let mut borrows = device.plan(2, 4 * MIB);
    let next = device.next(&mut borrows);
    assert!(is_pause(&pause) && is_pause(&next), "{pause:?}, {next:?}");
    device.learn(&mut creates, Outcome::Stopped { done: 0, refused: false });
    assert_eq!(device.end(&mut creates), Step::Done, "after {step:?} failed");
    device.done(&mut borrows, &next);
    device.done(&mut waits, &pause);
    assert!(device.finish(&mut waits, 2).is_some(), "there is room for it now");
}

/// Frees a block of stream 1 that stream 2 uses up to tick 200, which it is not known to have reached.
fn free_in_use(device: &mut Device, held: Held) {
    device.free_behind(held, 6, &[point(2, 200)]);
}

/// Has stream 2 borrow from stream 0 what is known to be ready, and give it back.
fn borrow_unasked(device: &mut Device) {
    let (held, polls) = ask(device, 2, 5 * MIB);
    assert_eq!((held.shard, polls), (0, 0));
    give_back(device, held, (2, 210));
}

/// A small request goes past memory that other streams still use. As long as it is not known that they do, and again
/// after each loan, the request asks first: else its place would depend on when they were asked last.
#[test]
fn small_requests_ask_before_they_go_past_anything() {
    // A free small block is in use, and another one in the same slab is not; or a slab is, and another one is not.
    for of_slabs in [false, true] {
        let mut device = Device::new(Growth::Tight, if of_slabs { 48 } else { 42 } * MIB);
        let others = device.allocate(0, 40 * MIB);
        let used = if of_slabs {
            let used = device.allocate(1, 2 * MIB);
            let [_between, free] = [2, 4].map(|mib| device.allocate(1, mib * MIB));
            device.free(free, 1);
            used
        } else {
            let used = device.allocate(1, MIB / 4);
            let _between = device.hit(1, MIB / 4).expect("it is in the slab");
            used
        };
        device.free(others, 5);
        device.poll();
        free_in_use(&mut device, used);
        assert!(device.hit(1, MIB / 4).is_none(), "stream 2 may be done with it");
        let (past, polls) = ask(&mut device, 1, MIB / 4);
        assert_eq!((past.shard, polls), (1, 1));
        assert_ne!(place(past), place(used), "it is not");
        device.free(past, 7);
        let again = device.hit(1, MIB / 4).expect("that is known now");
        assert_eq!(place(again), place(past));
        device.free(again, 7);
        borrow_unasked(&mut device);
        assert!(device.hit(1, MIB / 4).is_none(), "stream 2 may be done with it");
        device.gpu.reached[2] = Tick(300);
        let (held, polls) = ask(&mut device, 1, MIB / 4);
        assert_eq!((place(held), polls), (place(used), 1), "slabs: {of_slabs}");
    }
}

/// Once the streams were asked, small requests go past what is in use.
#[test]
fn small_requests_go_past_what_is_in_use_once_that_was_asked() {
    let mut device = Device::new(Growth::Tight, 42 * MIB);
    let others = device.allocate(0, 40 * MIB);
    let used = device.allocate(1, MIB / 4);
    let _between = device.hit(1, MIB / 4).expect("it is in the slab");
    device.free(others, 5);
    device.poll();
    free_in_use(&mut device, used);
    borrow_unasked(&mut device);
    let (held, polls) = ask(&mut device, 1, MIB / 4);
    assert_eq!((held.shard, polls), (1, 1));
    assert_ne!(place(held), place(used), "stream 2 is behind");
    let next = device.hit(1, MIB / 4).expect("something is ready");
    assert_ne!(place(next), place(used));
}

/// One question tells of all guards which are over: the next request finds its place without another one.
#[test]
fn what_one_request_asked_is_known_to_the_next() {
    let mut device = Device::new(Growth::Tight, 42 * MIB);
    let others = device.allocate(0, 40 * MIB);
    let first = device.allocate(1, MIB / 4);
    let [_between, second, _behind] = [0; 3].map(|_| device.hit(1, MIB / 4).expect("it is in the slab"));
    device.free(others, 5);
    device.poll();
    free_in_use(&mut device, first);
    free_in_use(&mut device, second);
    device.gpu.reached[2] = Tick(300);
    let (held, polls) = ask(&mut device, 1, MIB / 4);
    assert_eq!((place(held), polls), (place(first), 1));
    let next = device.hit(1, MIB / 4).expect("stream 2 is done with it, too");
    assert_eq!(place(next), place(second));
}

/// Loses what is known of the lender: it uses the front of its memory once more.
fn use_front(device: &mut Device, tick: u64) {
    let held = device.hit(0, 4 * MIB).expect("all of it is free");
    device.free(held, tick);
}

/// Makes a request of stream 1 for which the device has to be asked, and tells then that stream 0 is behind. Each block
/// that is lent comes back at once.
fn tell_behind(device: &mut Device, (reached, closed): (u64, u64), time: u64) {
    let mut plan = device.plan(1, 4 * MIB);
    device.reach(&mut plan, is_poll);
    let outcome = Outcome::Polled {
        reached: [0, 1, 2].map(|stream| point(stream, reached)).to_vec(),
        open: Vec::new(),
        closed: vec![point(0, closed)],
        asked: [0, 1, 2].map(|stream| point(stream, ASKED)).to_vec(),
        time: Some(time),
    };
    device.learn(&mut plan, outcome);
    let held = device.finish(&mut plan, 1).expect("there is room");
    give_back(device, held, (1, 10));
}

/// As long as `balanced` finds out how streams share the device, it asks for each loan, as it knows the sooner the more
/// often it asks. `tight` has no use for that.
#[test]
fn balanced_asks_while_it_finds_out() {
    for (growth, expected) in [(Growth::Balanced, 1), (Growth::Tight, 0)] {
        let mut device = lender(growth, 40);
        for (tick, time) in [(150, 1_000), (250, 2_000)] {
            use_front(&mut device, tick);
            tell_behind(&mut device, (tick + 50, tick + 150), time);
        }
        assert_eq!(device.slack().sharing, Sharing::Unknown);
        let (held, polls) = ask(&mut device, 1, 4 * MIB);
        assert_eq!((held.shard, polls), (0, expected), "{growth:?}");
    }
}

/// Where all streams are done with what they had at each look, the looks tell nothing, and most loans are made without
/// one. Once the device is behind, each of them asks again.
#[test]
fn balanced_seldom_asks_a_device_that_is_done() {
    let mut device = lender(Growth::Balanced, 40);
    let asking = |device: &mut Device| {
        let loans = (0..128).map(|_| {
            let (held, polls) = ask(device, 1, 4 * MIB);
            assert_eq!(held.shard, 0);
            give_back(device, held, (1, 10));
            polls
        });
        loans.sum::<usize>()
    };
    device.gpu.reached.fill(Tick(ASKED));
    asking(&mut device);
    assert_eq!(asking(&mut device), 2, "each 64th of 128");
    device.gpu.asked = ASKED + 100;
    asking(&mut device);
    assert_eq!(asking(&mut device), 128);
}

/// Where streams do not keep their order at other addresses nothing is known without a question.
#[test]
fn a_device_without_order_is_asked() {
    let facts = PageCaps { alias_reuse: millpond_backend::Reuse::AfterDone, ..PageCaps::new(2 * MIB) };
    let mut device = Device::of(&Facts { pages: Some(facts), ..Facts::paged(Growth::Tight, 40 * MIB) });
    device.use_until(0, 40 * MIB, 5);
    device.poll();
    let (held, polls) = ask(&mut device, 1, 4 * MIB);
    assert_eq!((held.shard, polls), (0, 1));
}
