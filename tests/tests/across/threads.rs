//! Threads: on streams of their own, all on one stream, and passing buffers around.

use std::sync::Barrier;
use std::sync::mpsc::channel;
use std::thread;

use millpond::backend::{Backend, PageCaps};
use millpond::settings::{Growth, Policy, Segments, Settings};
use millpond::stats::MemoryStats;
use millpond::{Allocator, Buffer, Error, Stream};
use millpond_sim::{Access, Completion, CostModel, Sim};
use millpond_tests::program::leaked;
use millpond_trace::Random;

const MIB: u64 = 1 << 20;
const ROUNDS: u64 = 400;

fn device() -> Sim {
    device_with(true)
}

fn device_with(aliasing: bool) -> Sim {
    let pages = PageCaps::new(2 * MIB).with_aliasing(aliasing);
    Sim::builder().pages(Some(pages)).cost(CostModel::free()).completion(Completion::Seeded(7)).build()
}

fn allocator(sim: &Sim, settings: Settings) -> Allocator<Sim> {
    Allocator::builder(sim.clone()).settings(settings).build().unwrap_or_else(|error| panic!("{error}"))
}

fn streams(allocator: &Allocator<Sim>, count: usize) -> Vec<Stream<Sim>> {
    (0..count).map(|_| allocator.create_stream().unwrap_or_else(|error| panic!("{error}"))).collect()
}

/// Writes all of the buffer with a kernel of its stream, so that the device detects other work that uses these bytes.
fn write(sim: &Sim, stream: &Stream<Sim>, buffer: &Buffer<Sim>) {
    let segment = buffer.segment().expect("a buffer with bytes lies in a segment");
    sim.use_range(stream.id(), segment, buffer.offset(), buffer.len(), Access::Write);
}

/// Allocates and frees at random, and keeps some buffers for a while. At the end it frees all of them.
fn churn(sim: &Sim, stream: &Stream<Sim>, seed: u64) {
    let mut random = Random::new(seed);
    let mut kept: Vec<Buffer<Sim>> = Vec::new();
    for _ in 0..ROUNDS {
        if kept.len() < 24 && !random.one_in(3) {
            let most = random.pick(&[2000, MIB, 8 * MIB, 40 * MIB]);
            let buffer =
                stream.allocate(random.between(1, most)).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            write(sim, stream, &buffer);
            kept.push(buffer);
        } else if !kept.is_empty() {
            drop(kept.swap_remove(random.index(kept.len())));
        }
    }
}

/// Checks that nothing is live, that the counters add up, that the invariants hold, and that the device has detected no
/// violation. Returns the statistics.
fn settles(sim: &Sim, allocator: &Allocator<Sim>) -> MemoryStats {
    sim.synchronize();
    allocator.poll().unwrap_or_else(|error| panic!("{error}"));
    allocator.check();
    let stats = allocator.stats();
    for (family, by_pool) in stats.families() {
        for stat in [by_pool.all, by_pool.small_pool, by_pool.large_pool] {
            assert_eq!(stat.allocated - stat.freed, stat.current, "{family}: {stat:?}");
            assert!(stat.peak >= stat.current, "{family}: {stat:?}");
        }
    }
    for family in [stats.allocation, stats.allocated_bytes, stats.active, stats.active_bytes, stats.requested_bytes] {
        assert_eq!(family.all.current, 0, "{family:?}");
    }
    assert_eq!(sim.violations(), []);
    stats
}

/// Drops the allocator, and checks that the device has all its memory back.
fn gives_back(sim: &Sim, allocator: Allocator<Sim>) {
    drop(allocator);
    assert_eq!(leaked(sim), 0, "bytes leaked");
    assert_eq!(sim.violations(), []);
}

fn paged(growth: Growth) -> Settings {
    Settings { policy: Policy::paged(growth), ..Settings::default() }
}

fn each_kind(test: impl Fn(&Sim, Settings)) {
    test(&device(), Settings::default());
    test(&device(), Settings { policy: Policy::Classic(Segments::Expandable), ..Settings::default() });
    test(&device(), Settings { policy: Policy::Direct, ..Settings::default() });
    test(&device(), Settings { max_split_bytes: Some(20 * MIB), gc_threshold: 0.001, ..Settings::default() });
    test(&device(), paged(Growth::Balanced));
    test(&device(), paged(Growth::Tight));
    test(&device(), Settings { gc_threshold: 0.001, ..paged(Growth::Tight) });
    test(&device_with(false), paged(Growth::Tight));
}

#[test]
fn threads_on_streams_of_their_own() {
    for threads in [1, 2, 4, 8] {
        each_kind(|sim, settings| {
            let allocator = allocator(sim, settings);
            let streams = streams(&allocator, threads);
            thread::scope(|scope| {
                for (seed, stream) in streams.iter().enumerate() {
                    let sim = &sim;
                    scope.spawn(move || churn(sim, stream, seed as u64));
                }
            });
            settles(sim, &allocator);
            drop(streams);
            gives_back(sim, allocator);
        });
    }
}

#[test]
fn what_a_thread_gets_does_not_depend_on_the_others() {
    // Without a limit streams are independent, so each ends with the statistics of its own run, summed up.
    let alone: Vec<MemoryStats> = (0..4)
        .map(|seed| {
            let (sim, settings) = (device(), Settings::default());
            let allocator = allocator(&sim, settings);
            churn(&sim, &streams(&allocator, 1)[0], seed);
            settles(&sim, &allocator)
        })
        .collect();
    let sim = device();
    let together = allocator(&sim, Settings::default());
    let streams = streams(&together, 4);
    thread::scope(|scope| {
        for (seed, stream) in streams.iter().enumerate() {
            let sim = &sim;
            scope.spawn(move || churn(sim, stream, seed as u64));
        }
    });
    let stats = settles(&sim, &together);
    let sum = |value: fn(&MemoryStats) -> u64| alone.iter().map(value).sum::<u64>();
    assert_eq!(stats.allocation.all.allocated, sum(|stats| stats.allocation.all.allocated));
    assert_eq!(stats.allocated_bytes.all.allocated, sum(|stats| stats.allocated_bytes.all.allocated));
    assert_eq!(stats.reserved_bytes.all.current, sum(|stats| stats.reserved_bytes.all.current));
    assert_eq!(stats.segment.all.allocated, sum(|stats| stats.segment.all.allocated));
    assert_eq!(stats.num_device_alloc, sum(|stats| stats.num_device_alloc));
}

#[test]
fn eight_threads_hammer_one_stream() {
    each_kind(|sim, settings| {
        let allocator = allocator(sim, settings);
        let stream = &streams(&allocator, 1)[0];
        thread::scope(|scope| {
            for seed in 0..8 {
                let sim = &sim;
                scope.spawn(move || churn(sim, stream, seed));
            }
        });
        settles(sim, &allocator);
    });
}

#[test]
fn buffers_travel_and_are_dropped_elsewhere() {
    each_kind(|sim, settings| {
        let allocator = allocator(sim, settings);
        let streams = streams(&allocator, 4);
        thread::scope(|scope| {
            let (send, receive) = channel::<Buffer<Sim>>();
            for (seed, stream) in streams.iter().enumerate() {
                let (sim, send) = (&sim, send.clone());
                scope.spawn(move || {
                    let mut random = Random::new(seed as u64);
                    for _ in 0..ROUNDS {
                        let buffer = stream.allocate(random.between(1, 3 * MIB)).unwrap_or_else(|e| panic!("{e}"));
                        write(sim, stream, &buffer);
                        send.send(buffer).unwrap_or_else(|_| panic!("nobody receives"));
                    }
                });
            }
            drop(send);
            scope.spawn(move || receive.into_iter().for_each(drop));
        });
        let stats = settles(sim, &allocator);
        assert_eq!(stats.allocation.all.allocated, 4 * ROUNDS);
    });
}

#[test]
fn buffers_are_used_on_the_streams_of_other_threads() {
    each_kind(|sim, settings| {
        let allocator = allocator(sim, settings);
        let streams = streams(&allocator, 2);
        let (own, other) = (&streams[0], &streams[1]);
        thread::scope(|scope| {
            let (send, receive) = channel::<Buffer<Sim>>();
            let device = &sim;
            scope.spawn(move || {
                let mut random = Random::new(3);
                for _ in 0..ROUNDS {
                    let buffer = own.allocate(random.between(1, 2 * MIB)).unwrap_or_else(|e| panic!("{e}"));
                    write(device, own, &buffer);
                    send.send(buffer).unwrap_or_else(|_| panic!("nobody receives"));
                }
            });
            scope.spawn(move || {
                for (round, buffer) in receive.into_iter().enumerate() {
                    // The other stream waits on the device until the buffer is written, then writes it as well.
                    let waits = device.stream_wait().expect("the simulated device has device-side waits");
                    waits.wait_for(other.id(), own.point()).unwrap_or_else(|error| panic!("{error}"));
                    write(device, other, &buffer);
                    if round % 2 == 0 {
                        buffer.record_stream(other).unwrap_or_else(|error| panic!("{error}"));
                    } else {
                        buffer.used_until(other.point()).unwrap_or_else(|error| panic!("{error}"));
                    }
                }
            });
        });
        settles(sim, &allocator);
    });
}

#[test]
fn the_handle_goes_while_buffers_live_on_other_threads() {
    each_kind(|sim, settings| {
        for round in 0..40 {
            let allocator = allocator(sim, settings.clone());
            let streams = streams(&allocator, 2);
            let start = Barrier::new(5);
            thread::scope(|scope| {
                for thread in 0..4 {
                    let stream = &streams[thread % 2];
                    let buffer = stream.allocate(1000 + round).unwrap_or_else(|error| panic!("{error}"));
                    buffer.record_stream(&streams[0]).unwrap_or_else(|error| panic!("{error}"));
                    let start = &start;
                    scope.spawn(move || {
                        start.wait();
                        drop(buffer);
                    });
                }
                drop(allocator);
                start.wait();
            });
            drop(streams);
            assert_eq!(leaked(sim), 0, "round {round}: bytes leaked");
        }
    });
}

/// Runs four threads, each on a stream of its own and with at most 12 MiB at a time: no request may be refused.
fn share(sim: &Sim, settings: Settings, limit: u64) {
    let limited = Allocator::builder(sim.clone()).settings(settings).limit(limit).build();
    let allocator = limited.unwrap_or_else(|error| panic!("{error}"));
    let streams = streams(&allocator, 4);
    thread::scope(|scope| {
        for stream in &streams {
            let allocator = &allocator;
            scope.spawn(move || {
                for round in 0..60 {
                    let buffer = stream.allocate(12 * MIB).unwrap_or_else(|error| panic!("round {round}: {error}"));
                    write(sim, stream, &buffer);
                    drop(buffer);
                    if round % 7 == 0 {
                        allocator.empty_cache().unwrap_or_else(|error: Error<_>| panic!("{error}"));
                    }
                }
            });
        }
    });
    let stats = settles(sim, &allocator);
    assert!(stats.reserved_bytes.all.peak <= limit, "{:?}", stats.reserved_bytes.all);
}

#[test]
fn threads_under_a_limit_share_what_there_is() {
    share(&device(), Settings::default(), 64 * MIB);
}

/// With pages, a limit of exactly the live bytes is enough.
#[test]
fn threads_under_the_least_limit_share_pages() {
    for seed in 0..8 {
        for growth in [Growth::Balanced, Growth::Tight] {
            let sim = Sim::builder().cost(CostModel::free()).completion(Completion::Seeded(seed)).build();
            share(&sim, paged(growth), 48 * MIB);
        }
    }
}
