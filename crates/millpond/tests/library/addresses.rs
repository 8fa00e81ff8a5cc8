//! Addresses: pools that come and go, and many streams and pools at once, where the driver has few of them. What fits
//! into the memory is served.

use millpond::backend::{Backend as _, Closing};
use millpond::{Allocator, Buffer, Error};
use millpond_sim::{Completion, Sim, SimError};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const CONFS: [&str; 3] = ["policy:paged", "policy:paged,growth:tight", "policy:classic,expandable_segments:True"];

fn on(sim: &Sim, conf: &str) -> Allocator<Sim> {
    Allocator::builder(sim.clone()).conf(conf).build().unwrap_or_else(|error| panic!("{conf}: {error}"))
}

/// Expects that all is free, and that emptying the cache gives all of it back.
fn expect_all_given_back(allocator: &Allocator<Sim>, what: &str) {
    allocator.check();
    allocator.empty_cache().unwrap();
    allocator.check();
    assert_eq!((allocator.memory_allocated(), allocator.memory_reserved()), (0, 0), "{what}");
}

/// The driver has addresses for 20 ranges of the whole device. What a pool leaves goes back for the next one, so that
/// no more memory stays than two pools have; or, in expandable segments, than there are addresses for.
#[test]
fn pools_that_come_and_go_are_all_served() {
    for conf in CONFS.into_iter().chain(["policy:classic"]) {
        for bytes in [700 * KIB, 4 * MIB] {
            let sim = Sim::builder().total_bytes(64 * GIB).address_space_bytes(20 * 72 * GIB).build();
            let allocator = on(&sim, conf);
            let stream = allocator.create_stream().unwrap();
            for number in 0..10_000 {
                let pool = allocator.create_pool().unwrap();
                let inside = pool.stream(stream.id()).unwrap();
                let buffer = inside.allocate(bytes).unwrap_or_else(|error| panic!("{conf}, pool {number}: {error}"));
                // In the order in which programs drop them, and a block that is there after its pool.
                if number % 2 == 0 {
                    drop((buffer, inside, pool));
                } else {
                    drop((pool, inside, buffer));
                }
            }
            // PyTorch's rules take 20 MiB for a block of 4 MiB. Expandable segments stay until addresses are scarce.
            let unit = if conf.starts_with("policy:paged") || bytes < MIB { 2 * MIB } else { 20 * MIB };
            let pools = if conf.contains("expandable") { 20 } else { 2 };
            assert!(allocator.memory_reserved() <= pools * bytes.next_multiple_of(unit), "{conf}");
            drop(stream);
            expect_all_given_back(&allocator, conf);
        }
    }
}

/// A graph may still run when its pool is over, and no tick says so: the next pool leaves its memory alone.
#[test]
fn the_memory_of_a_graph_stays_when_its_pool_is_over() {
    for is_captured in [false, true] {
        let allocator = on(&Sim::new(), "policy:paged");
        let stream = allocator.create_stream().unwrap();
        let [first, other, second] = [(); 3].map(|()| allocator.create_pool().unwrap());
        let inside = first.stream(stream.id()).unwrap();
        let capture = is_captured.then(|| inside.begin_capture().unwrap());
        drop(inside.allocate(4 * MIB).unwrap());
        drop((capture, inside, first));
        let left = allocator.memory_reserved();
        // What this one has is not a graph's.
        drop(other.stream(stream.id()).unwrap().allocate(4 * MIB).unwrap());
        drop(other);
        let _held = second.stream(stream.id()).unwrap().allocate(4 * MIB).unwrap();
        assert_eq!(allocator.memory_reserved(), if is_captured { 2 * left } else { left }, "captured: {is_captured}");
        allocator.check();
    }
}

/// Serves streams and pools in turn, of which all stay, each with blocks of these sizes.
fn serve_many(sim: &Sim, conf: &str, count: usize, sizes: &[u64]) {
    let allocator = on(sim, conf);
    let first = allocator.create_stream().unwrap();
    let mut held: Vec<Buffer<Sim>> = Vec::new();
    let (mut streams, mut pools) = (Vec::new(), Vec::new());
    let expect = |number: usize, result: Result<Buffer<Sim>, Error<SimError>>| {
        result.unwrap_or_else(|error| panic!("{conf}, number {number}: {error}"))
    };
    for number in 0..count {
        let stream = allocator.create_stream().unwrap();
        let pool = allocator.create_pool().unwrap();
        let inside = pool.stream(first.id()).unwrap();
        for &bytes in sizes {
            held.push(expect(number, stream.allocate(bytes)));
            held.push(expect(number, inside.allocate(bytes)));
        }
        streams.push(stream);
        pools.push((pool, inside));
    }
    allocator.check();
    // Everything goes, and another stream gets nearly all of the memory.
    let total = sim.caps().classes[0].total_bytes;
    held.clear();
    drop((streams, pools));
    held.push(expect(count, first.allocate(total / 8 * 7)));
    held.clear();
    expect_all_given_back(&allocator, conf);
}

#[test]
fn a_thousand_streams_and_a_thousand_pools_at_once_are_served() {
    for conf in CONFS {
        serve_many(&Sim::new(), conf, 1000, &[4 * MIB]);
    }
}

#[test]
fn many_streams_and_pools_are_served_where_addresses_are_scarce() {
    for conf in CONFS {
        for addresses in [0, GIB / 4, 4 * GIB] {
            let sim = Sim::builder().total_bytes(4 * GIB).address_space_bytes(addresses).build();
            serve_many(&sim, conf, 150, &[KIB, 700 * KIB, 4 * MIB, 3 * MIB]);
        }
    }
}

/// One stream after the other takes what the last one had, where no addresses are left for it to be gathered.
#[test]
fn all_of_the_memory_is_served_where_addresses_are_scarce() {
    for conf in CONFS {
        for addresses in [0, 300 * MIB, GIB, 3 * GIB / 2] {
            let sim = Sim::builder().total_bytes(GIB).address_space_bytes(addresses).build();
            let allocator = on(&sim, conf);
            for round in 0..6_u64 {
                let stream = allocator.create_stream().unwrap();
                let sizes = [GIB / 2, 64 * MIB, 600 * KIB, 3 * MIB, 200 * MIB].into_iter().cycle().skip(round as usize);
                let serve = |bytes| {
                    let served = stream.allocate(bytes);
                    served.unwrap_or_else(|error| panic!("{conf}, {addresses} of addresses, round {round}: {error}"))
                };
                let held: Vec<_> = sizes.take(5).map(serve).collect();
                allocator.check();
                drop(held);
            }
            expect_all_given_back(&allocator, conf);
        }
    }
}

/// What the driver refused once it may have later: it is asked again.
#[test]
fn addresses_that_come_free_are_used_again() {
    for conf in CONFS {
        // 9/8 of the device, in whole pages: those of expandable segments have 20 MiB.
        let addresses = if conf.contains("classic") { 58 * 20 * MIB } else { GIB / 8 * 9 };
        let sim = Sim::builder().total_bytes(GIB).address_space_bytes(addresses).build();
        let (one, other) = (on(&sim, conf), on(&sim, conf));
        let (stream, late) = (one.create_stream().unwrap(), other.create_stream().unwrap());
        let ranges = |allocator: &Allocator<Sim>| allocator.layout().iter().filter(|view| view.page_bytes > 0).count();
        drop(stream.allocate(8 * MIB).unwrap());
        drop(late.allocate(8 * MIB).unwrap());
        assert_eq!((ranges(&one), ranges(&other)), (1, 0), "{conf}: one has all the addresses");
        one.empty_cache().unwrap();
        other.empty_cache().unwrap();
        drop(late.allocate(8 * MIB).unwrap());
        assert_eq!((ranges(&one), ranges(&other)), (0, 1), "{conf}");
    }
}

/// There are addresses for windows, and none for the page that a window lacks: what could be gathered goes back, and a
/// segment serves.
#[test]
fn free_pages_go_back_where_a_window_lacks_one_that_has_no_addresses() {
    for conf in ["policy:paged", "policy:paged,growth:tight"] {
        let sim = Sim::builder().total_bytes(256 * MIB).address_space_bytes(60 * MIB).build();
        let allocator = on(&sim, conf);
        let stream = allocator.create_stream().unwrap();
        let mut homes: Vec<_> = (0..3).map(|_| stream.allocate(12 * MIB).unwrap()).collect();
        drop((homes.remove(2), homes.remove(0)));
        allocator.set_limit(Some(36 * MIB));
        drop(stream.allocate(24 * MIB).unwrap());
        homes.push(stream.allocate(4 * MIB).unwrap());
        assert_eq!(allocator.memory_reserved(), 36 * MIB, "{conf}");
        allocator.set_limit(Some(38 * MIB));
        homes.push(stream.allocate(22 * MIB).unwrap_or_else(|error| panic!("{conf}: {error}")));
        homes.clear();
        expect_all_given_back(&allocator, conf);
    }
}

/// A home has room for a request only together with a free block that work of another stream may still use. The request
/// has its memory elsewhere.
#[test]
fn a_home_that_ends_behind_a_block_in_use_does_not_keep_a_request_from_memory() {
    for conf in ["policy:paged", "policy:paged,growth:tight"] {
        // 18 MiB are the first range: a 64th of what is left once 9/8 of the device are refused.
        for addresses in [18 * MIB, 100 * MIB] {
            let sim = Sim::builder().total_bytes(GIB).address_space_bytes(addresses).stream_wait(false);
            let sim = sim.closing(Closing::Submit).build();
            let allocator = on(&sim, conf);
            let (stream, other) = (allocator.create_stream().unwrap(), allocator.create_stream().unwrap());
            let first = stream.allocate(8 * MIB).unwrap();
            sim.busy(other.id());
            first.record_stream(&other).unwrap();
            drop(first);
            let second = stream.allocate(12 * MIB).unwrap_or_else(|error| panic!("{conf}, {addresses}: {error}"));
            drop(second);
            for stream in [stream, other] {
                sim.submit(stream.id()).unwrap();
            }
            sim.complete_all();
            expect_all_given_back(&allocator, conf);
        }
    }
}

/// Work of another stream is in flight in the home whenever its stream asks. What is free in a segment serves then, and
/// no further segment is taken.
#[test]
fn a_free_segment_serves_where_the_best_fit_is_in_use_at_home() {
    for conf in ["policy:paged", "policy:paged,growth:tight"] {
        for (bytes, all) in [(14 * MIB, 28 * MIB), (KIB, 4 * MIB)] {
            // 18 MiB are the first range: a 64th of what is left once 9/8 of the device are refused.
            let sim = Sim::builder().total_bytes(GIB).address_space_bytes(18 * MIB).stream_wait(false);
            let sim = sim.completion(Completion::Manual).build();
            let allocator = on(&sim, conf);
            let (stream, other) = (allocator.create_stream().unwrap(), allocator.create_stream().unwrap());
            let rest = (bytes < MIB).then(|| stream.allocate(16 * MIB).unwrap());
            let reserved = |rest: &Option<Buffer<Sim>>| {
                allocator.memory_reserved() - rest.as_ref().map_or(0, |buffer| buffer.capacity())
            };
            for round in 0..20 {
                let count = if bytes < MIB { 4096 } else { 2 };
                let held: Vec<_> = (0..count).map(|_| stream.allocate(bytes).unwrap()).collect();
                sim.busy(other.id());
                held.iter().take(count / 2).for_each(|buffer| buffer.record_stream(&other).unwrap());
                drop(held);
                let again: Vec<_> = (0..count / 2).map(|_| stream.allocate(bytes).unwrap()).collect();
                allocator.check();
                assert!(reserved(&rest) <= all, "{conf}, round {round}: {}", reserved(&rest));
                sim.complete_all();
                drop(again);
            }
            drop(rest);
            expect_all_given_back(&allocator, conf);
        }
    }
}

/// Where enough is free, and in pieces that only addresses could join, the error says so. Where it is not, it does not.
#[test]
fn a_refusal_names_addresses_where_they_are_the_reason() {
    for conf in ["policy:paged", "policy:paged,growth:tight"] {
        for (addresses, bytes, is_reason) in [(0, 150 * MIB, true), (0, 400 * MIB, false), (1 << 40, 400 * MIB, false)]
        {
            let sim = Sim::builder().total_bytes(GIB).address_space_bytes(addresses).build();
            let allocator = on(&sim, conf);
            let stream = allocator.create_stream().unwrap();
            let rest = stream.allocate(600 * MIB).unwrap();
            drop(stream.allocate(400 * MIB).unwrap());
            let mut parts: Vec<_> = (0..4).map(|_| stream.allocate(100 * MIB).unwrap()).collect();
            drop((parts.remove(2), parts.remove(0)));
            let Err(Error::OutOfMemory(error)) = stream.allocate(bytes) else { panic!("{conf}: {bytes} are served") };
            assert_eq!(error.report().refused_addresses.is_some(), is_reason, "{conf}: {error}");
            assert_eq!(error.to_string().contains("use fewer of them"), is_reason, "{conf}: {error}");
            drop((rest, parts));
            expect_all_given_back(&allocator, conf);
        }
    }
}
