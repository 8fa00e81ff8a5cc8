//! What an operation costs, and what memory of the host it leaves, by the number of streams, pools, windows, allocators
//! and operations before it. Costs are counted, never timed: how many shards, streams, pages, free blocks and windows
//! the core looks at. The process is the test's own, since its memory is measured, and so is here what readers take
//! for files that someone has damaged.
//!
//! Each limit is a slope: how much more one more thing may cost. Figures named `TODAY` are far from what they should
//! be, and may only fall.

mod counting;
mod readers;

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use millpond::{Allocator, Buffer, Stream, looks};
use millpond_sim::{CallKind, Completion, CostModel, Sim};
use millpond_trace::Random;

use counting::host_bytes;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const POLICIES: [&str; 4] =
    ["policy:classic", "policy:classic,expandable_segments:True", "policy:paged", "policy:paged,growth:tight"];

/// Returns the turn of a test, so that no other one takes memory meanwhile.
pub(crate) fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn allocator(conf: &str) -> Allocator<Sim> {
    let sim = Sim::builder().total_bytes(140 * GIB).cost(CostModel::free()).completion(Completion::Immediate).build();
    Allocator::builder(sim).conf(conf).build().unwrap_or_else(|error| panic!("{conf}: {error}"))
}

fn stream(allocator: &Allocator<Sim>) -> Stream<Sim> {
    allocator.create_stream().unwrap_or_else(|error| panic!("{error}"))
}

fn allocate(stream: &Stream<Sim>, bytes: u64) -> Buffer<Sim> {
    stream.allocate(bytes).unwrap_or_else(|error| panic!("{bytes} bytes: {error}"))
}

/// Returns the number of looks that one of `count` operations takes.
fn looks_of(count: usize, mut operation: impl FnMut(usize)) -> f64 {
    let before = looks::looks();
    (0..count).for_each(&mut operation);
    (looks::looks() - before) as f64 / count as f64
}

/// Does something so many times, and returns the bytes of the host that one of them has left.
fn left_by(count: usize, one: impl FnMut(usize)) -> f64 {
    let before = host_bytes();
    (0..count).for_each(one);
    (host_bytes() - before) as f64 / count as f64
}

/// What each number of things costs, with the slope between the first and the last.
struct Costs(Vec<(usize, f64)>);

impl Costs {
    fn of(numbers: &[usize], mut cost: impl FnMut(usize) -> f64) -> Self {
        Self(numbers.iter().map(|&number| (number, cost(number))).collect())
    }

    /// Prints the costs, and checks that one more thing adds no more than `limit` looks to an operation.
    fn rise_by_less_than(&self, limit: f64, what: &str) {
        let [first, .., last] = self.0[..] else { panic!("{what}: too few numbers") };
        let slope = (last.1 - first.1) / (last.0 - first.0) as f64;
        let costs: Vec<String> = self.0.iter().map(|(number, cost)| format!("{number}: {cost:.1}")).collect();
        println!("{what}: looks an operation by number: {}; {slope:.4} for each more", costs.join(", "));
        assert!(slope <= limit, "{what}: one more adds {slope:.4} looks to an operation, and {limit} are allowed");
    }
}

/// One thread, N streams in turn, with each counter at its peak all the time: a shard that needs room asks the others.
#[test]
fn a_pair_at_the_peak_costs_as_much_with_many_streams() {
    const LIMIT: f64 = 0.01;
    let _turn = turn();
    for conf in POLICIES {
        let cost = |streams: usize| {
            let allocator = allocator(conf);
            let streams: Vec<_> = (0..streams).map(|_| stream(&allocator)).collect();
            let pair = |at: usize| drop(allocate(&streams[at % streams.len()], 4 * KIB));
            (0..4 * streams.len()).for_each(pair);
            looks_of(4 * streams.len(), pair)
        };
        Costs::of(&[4, 16, 64, 256], cost).rise_by_less_than(LIMIT, &format!("settle, {conf}"));
    }
}

/// The same with blocks that are held until half of the streams have had their turn since: one stream frees what
/// another one needs room for. At the peak means that peaks were reset while all blocks were free.
#[test]
fn a_held_block_costs_as_much_with_many_streams() {
    const LIMIT: f64 = 0.01;
    let _turn = turn();
    for conf in POLICIES {
        for (bytes, at_peak) in [(4 * KIB, false), (4 * KIB, true), (4 * MIB, false), (4 * MIB, true)] {
            let cost = |number: usize| {
                let allocator = allocator(conf);
                let streams: Vec<_> = (0..number).map(|_| stream(&allocator)).collect();
                let had = streams.iter().flat_map(|stream| [(); 4].map(|()| allocate(stream, bytes.max(MIB))));
                drop(had.collect::<Vec<_>>());
                if at_peak {
                    allocator.reset_peak_stats();
                }
                let mut held = VecDeque::new();
                let mut turn = |at: usize| {
                    held.push_back(allocate(&streams[at % number], bytes));
                    held.drain(..held.len().saturating_sub(number / 2));
                };
                (0..4 * number).for_each(&mut turn);
                looks_of(4 * number, turn)
            };
            let what = format!("held, {conf}, {bytes} bytes, at the peak: {at_peak}");
            Costs::of(&[4, 16, 64, 256], cost).rise_by_less_than(LIMIT, &what);
        }
    }
}

/// The same far below the peak, where no counter needs room.
#[test]
fn a_pair_below_the_peak_costs_as_much_with_many_streams() {
    const LIMIT: f64 = 0.01;
    let _turn = turn();
    for conf in POLICIES {
        let cost = |streams: usize| {
            let allocator = allocator(conf);
            let streams: Vec<_> = (0..streams).map(|_| stream(&allocator)).collect();
            drop(streams.iter().map(|stream| allocate(stream, 8 * KIB)).collect::<Vec<_>>());
            let _stays = allocate(&streams[0], MIB);
            let pair = |at: usize| drop(allocate(&streams[at % streams.len()], 4 * KIB));
            (0..16 * streams.len()).for_each(pair);
            looks_of(4 * streams.len(), pair)
        };
        Costs::of(&[4, 16, 64, 256], cost).rise_by_less_than(LIMIT, &format!("below the peak, {conf}"));
    }
}

/// Programs whose sizes are always new, and which are at their peak all the time: what an operation looks at, by the
/// number of operations before it.
#[test]
fn a_miss_costs_as_much_when_the_program_is_old() {
    const WINDOWS: usize = 10;
    /// How many times as much as in the second window an operation may cost in the last one. Under `paged` windows
    /// become more until there are as many mappings as the driver bears.
    const TODAY: [f64; 4] = [1.0, 1.0, 2.5, 2.5];
    let _turn = turn();
    for (conf, limit) in POLICIES.into_iter().zip(TODAY) {
        let mut costs = [0.0; WINDOWS];
        for seed in 8..11 {
            add_costs_by_age(conf, seed, &mut costs);
        }
        println!("age, {conf}: looks an operation, in three programs together: {costs:.0?}");
        let (second, last) = (costs[1].max(1.0), costs[WINDOWS - 1]);
        assert!(last <= limit * second, "{conf}: {last} looks an operation, {second} in the second window");
    }
}

/// Adds what an operation of a program looks at, for each window of operations.
fn add_costs_by_age(conf: &str, seed: u64, costs: &mut [f64]) {
    const LIVE_BYTES: u64 = 4 * GIB;
    const WINDOW: usize = 15_000;
    let allocator = allocator(conf);
    let stream = stream(&allocator);
    let mut random = Random::new(seed);
    let (mut live, mut bytes) = (Vec::new(), 0);
    let mut one = |_| {
        let low = (4 * KIB) << random.below(12);
        let size = random.between(low, 2 * low);
        while bytes + size > LIVE_BYTES {
            let gone: Buffer<Sim> = live.swap_remove(random.index(live.len()));
            bytes -= gone.len();
        }
        live.push(allocate(&stream, size));
        bytes += size;
    };
    for cost in costs {
        *cost += looks_of(WINDOW, &mut one);
    }
}

/// Returns what four misses of a stream look at, each by itself.
fn looks_of_misses(allocator: &Allocator<Sim>, stream: &Stream<Sim>) -> f64 {
    looks_of(4, |at| {
        drop(allocate(stream, (at as u64 + 3) * MIB));
        allocator.empty_cache().unwrap_or_else(|error| panic!("{error}"));
    })
}

/// A miss beside streams that live, each with memory of its own, and beside private pools that do.
#[test]
fn a_miss_costs_as_much_beside_many_streams_and_pools() {
    const TODAY: [[f64; 2]; 4] = [[3.1, 1.1], [3.1, 1.1], [1.6, 7.6], [1.6, 7.6]];
    let _turn = turn();
    for (conf, limits) in POLICIES.into_iter().zip(TODAY) {
        for (in_pools, limit) in [false, true].into_iter().zip(limits) {
            let cost = |number: usize| {
                let allocator = allocator(conf);
                let main = stream(&allocator);
                let mut pools = Vec::new();
                let mut beside = || match in_pools {
                    false => stream(&allocator),
                    true => {
                        pools.push(allocator.create_pool().unwrap_or_else(|error| panic!("{error}")));
                        let pool = &pools[pools.len() - 1];
                        pool.stream(main.id()).unwrap_or_else(|error| panic!("{error}"))
                    }
                };
                let _live: Vec<_> = (0..number).map(|_| allocate(&beside(), MIB)).collect();
                looks_of_misses(&allocator, &main)
            };
            let what = if in_pools { "pools" } else { "streams" };
            Costs::of(&[16, 64, 256], cost).rise_by_less_than(limit, &format!("a miss beside {what}, {conf}"));
        }
    }
}

/// Streams that are made, used and dropped, beside one that stays.
#[test]
fn streams_that_are_gone_cost_nothing() {
    /// Looks of a miss elsewhere for each stream that is gone, and bytes of the host.
    const LIMITS: (f64, f64) = (0.01, 256.0);
    let _turn = turn();
    for conf in POLICIES {
        let allocator = allocator(conf);
        let main = stream(&allocator);
        let mut gone = 0;
        let mut pass = |count: usize| {
            let one = |_| drop(allocate(&stream(&allocator), MIB));
            let left = left_by(count - gone, one);
            gone = count;
            (looks_of_misses(&allocator, &main), left)
        };
        let passes: Vec<_> = [50, 200, 500].map(|count| (count, pass(count))).into();
        let left = passes[passes.len() - 1].1.1;
        println!("streams that are gone, {conf}: {:.0} bytes of the host each", left);
        assert!(left <= LIMITS.1, "{conf}: a stream that is gone leaves {left} bytes of the host");
        let costs = Costs(passes.into_iter().map(|(count, (looks, _))| (count, looks)).collect());
        costs.rise_by_less_than(LIMITS.0, &format!("streams that are gone, {conf}"));
    }
}

/// Private pools that are made, used, dropped and emptied.
#[test]
fn pools_that_are_gone_cost_nothing() {
    const LIMITS: (f64, f64) = (0.01, 256.0);
    let _turn = turn();
    for conf in POLICIES {
        let allocator = allocator(conf);
        let main = stream(&allocator);
        let mut gone = 0;
        let mut pass = |count: usize| {
            let one = |_| {
                let pool = allocator.create_pool().unwrap_or_else(|error| panic!("{error}"));
                let id = pool.id();
                let graph = pool.stream(main.id()).unwrap_or_else(|error| panic!("{error}"));
                drop((allocate(&graph, MIB), allocate(&graph, 3 * MIB)));
                drop((graph, pool));
                allocator.empty_cache_of(id).unwrap_or_else(|error| panic!("{error}"));
            };
            let left = left_by(count - gone, one);
            gone = count;
            (looks_of_misses(&allocator, &main), left)
        };
        let passes: Vec<_> = [50, 200, 500].map(|count| (count, pass(count))).into();
        let left = passes[passes.len() - 1].1.1;
        println!("pools that are gone, {conf}: {:.0} bytes of the host each", left);
        assert!(left <= LIMITS.1, "{conf}: a pool that is gone leaves {left} bytes of the host");
        let costs = Costs(passes.into_iter().map(|(count, (looks, _))| (count, looks)).collect());
        costs.rise_by_less_than(LIMITS.0, &format!("pools that are gone, {conf}"));
    }
}

/// Caches of page-locked memory that are made, used and dropped: one stream is set aside for all of them.
#[test]
fn caches_of_page_locked_memory_that_are_gone_cost_nothing() {
    const LIMIT: f64 = 64.0;
    let _turn = turn();
    let sim = Sim::new();
    let allocator = Allocator::new(sim.clone());
    let one = |_| {
        let pinned = allocator.pinned().unwrap_or_else(|error| panic!("{error}"));
        drop(pinned.allocate(4 * MIB).unwrap_or_else(|error| panic!("{error}")));
    };
    (0..10).for_each(one);
    let left = left_by(1000, one);
    println!("caches of page-locked memory that are gone: {left:.0} bytes of the host each");
    assert!(left <= LIMIT, "a cache that is gone leaves {left} bytes of the host");
    assert_eq!(sim.calls().of(CallKind::CreateStream), 1, "streams set aside");
}

/// Allocators on one device that are made, used and dropped.
#[test]
fn allocators_that_are_gone_leave_no_memory_of_the_host() {
    const LIMIT: f64 = 1024.0;
    let _turn = turn();
    for conf in POLICIES {
        let sim = Sim::builder().total_bytes(140 * GIB).cost(CostModel::free()).build();
        let id = sim.open_streams(1)[0];
        let left = left_by(2000, |_| {
            let allocator =
                Allocator::builder(sim.clone()).conf(conf).build().unwrap_or_else(|error| panic!("{error}"));
            let stream = allocator.stream(id).unwrap_or_else(|error| panic!("{error}"));
            drop((allocate(&stream, MIB), allocate(&stream, 3 * MIB)));
        });
        println!("allocators that are gone, {conf}: {left:.0} bytes of the host each");
        assert!(left <= LIMIT, "{conf}: an allocator that is gone leaves {left} bytes of the host");
    }
}

/// Operations that repeat themselves: neither looks nor memory of the host.
#[test]
fn operations_that_are_over_leave_nothing() {
    const OPERATIONS: usize = 400_000;
    let _turn = turn();
    for conf in POLICIES {
        let allocator = allocator(conf);
        let streams = [stream(&allocator), stream(&allocator)];
        let mut live: Vec<Buffer<Sim>> = Vec::new();
        let mut one = |at: usize| {
            live.push(allocate(&streams[at % 2], [KIB, 40 * KIB, 3 * MIB, 700 * KIB][at / 2 % 4]));
            if live.len() == 64 {
                live.clear();
            }
        };
        // The lists of a program at work have the room that they need by then.
        (0..OPERATIONS / 4).for_each(&mut one);
        let before = looks::looks();
        let left = left_by(OPERATIONS, one);
        let looks = (looks::looks() - before) as f64 / OPERATIONS as f64;
        println!("operations, {conf}: {left:.4} bytes of the host each, {looks:.3} looks");
        assert!(left <= 0.01, "{conf}: an operation leaves {left} bytes of the host");
    }
}

/// Windows that are kept: what a request looks at that none of them serves, by their number.
#[test]
fn kept_windows_cost_a_bounded_search() {
    const TODAY: f64 = 32.0;
    let _turn = turn();
    for conf in ["policy:paged", "policy:paged,growth:tight"] {
        let cost = |windows: usize| {
            let allocator = allocator(conf);
            let stream = stream(&allocator);
            // Every other block is free: nothing larger than one of them lies in one piece, and nothing may be created.
            let mut blocks: Vec<_> = (0..8 * windows).map(|_| Some(allocate(&stream, 4 * MIB))).collect();
            blocks.iter_mut().step_by(2).for_each(|block| *block = None);
            allocator.set_limit(Some(allocator.memory_reserved()));
            // Each window is in use while the next one is made, and all are kept.
            drop((0..windows).map(|_| allocate(&stream, 7 * MIB)).collect::<Vec<_>>());
            let cost = looks_of(8, |at| drop(allocate(&stream, (9 + at as u64) * MIB)));
            println!("{windows} windows, {conf}: {:?}", allocator.page_stats());
            cost
        };
        Costs::of(&[16, 64, 256], cost).rise_by_less_than(TODAY, &format!("kept windows, {conf}"));
    }
}
