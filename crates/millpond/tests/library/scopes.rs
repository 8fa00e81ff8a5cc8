//! Peaks of parts of a program, which a brute-force model measures too: for each scope another allocator serves the
//! same requests, and has its peaks reset when the scope is opened.

use std::thread;

use millpond::{Allocator, Buffer, MemoryStats, PeakScope, Stream};
use millpond_sim::{Completion, Sim};
use millpond_trace::Random;

const MIB: u64 = 1 << 20;
const CONFS: [&str; 6] = [
    "policy:paged",
    "policy:paged,growth:tight",
    "policy:classic",
    "policy:classic,max_split_size_mb:32",
    "policy:classic,expandable_segments:True",
    "policy:direct",
];
/// The most scopes that are open at a time.
const SCOPES: usize = 4;

/// One of several allocators that do the same.
struct Twin {
    sim: Sim,
    allocator: Allocator<Sim>,
    streams: [Stream<Sim>; 3],
    live: Vec<Buffer<Sim>>,
}

/// What all of them do.
#[derive(Clone, Copy, Debug)]
enum Act {
    Allocate { on: usize, bytes: u64 },
    UseElsewhere { at: usize, on: usize },
    Free { at: usize },
    Complete,
    Poll,
    Trim { bytes: u64 },
}

impl Twin {
    fn new(conf: &str) -> Self {
        let sim = Sim::builder().total_bytes(1 << 32).completion(Completion::Manual).build();
        let allocator = Allocator::builder(sim.clone()).conf(conf).build().unwrap();
        let streams = [(); 3].map(|()| allocator.create_stream().unwrap());
        Self { sim, allocator, streams, live: Vec::new() }
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::Allocate { on, bytes } => self.live.push(self.streams[on].allocate(bytes).unwrap()),
            Act::UseElsewhere { at, on } => {
                self.live[at].record_stream(&self.streams[on]).unwrap();
                self.streams[on].point();
            }
            Act::Free { at } => drop(self.live.swap_remove(at)),
            Act::Complete => self.sim.complete_all(),
            Act::Poll => _ = self.allocator.poll().unwrap(),
            Act::Trim { bytes } => _ = self.allocator.trim(bytes).unwrap(),
        }
    }
}

fn next(random: &mut Random, live: usize) -> Act {
    let bytes = if random.one_in(2) { random.between(1, MIB) } else { random.between(MIB, 40 * MIB) };
    match random.below(20) {
        0 => Act::Complete,
        1 => Act::Poll,
        2 if random.one_in(4) => Act::Trim { bytes: random.below(300 * MIB) },
        3..=4 if live > 0 => Act::UseElsewhere { at: random.index(live), on: random.index(3) },
        5..=11 if live > 0 => Act::Free { at: random.index(live) },
        _ if live > 40 => Act::Free { at: random.index(live) },
        _ => Act::Allocate { on: random.index(3), bytes },
    }
}

/// What the buffers alone say of a scope.
#[derive(Clone, Copy, Debug, Default)]
struct Most {
    blocks: u64,
    bytes: u64,
}

impl Most {
    fn see(&mut self, live: &[Buffer<Sim>]) {
        self.blocks = self.blocks.max(live.len() as u64);
        self.bytes = self.bytes.max(live.iter().map(Buffer::capacity).sum());
    }

    fn is_of(self, stats: &MemoryStats) -> bool {
        (self.blocks, self.bytes) == (stats.allocation.all.peak, stats.allocated_bytes.all.peak)
    }
}

/// A scope that is open, and what it is compared with.
struct Open {
    scope: PeakScope<Sim>,
    most: Most,
    twin: usize,
}

/// Scopes that are nested, overlap and end in any order, with resets of all peaks between.
#[test]
fn a_scope_measures_what_a_reset_at_its_opening_would() {
    for (conf, seed) in CONFS.iter().flat_map(|conf| (0..12).map(move |seed| (*conf, seed))) {
        let mut random = Random::new(seed);
        let (mut own, mut plain) = (Twin::new(conf), Twin::new(conf));
        let mut twins: Vec<_> = (0..SCOPES).map(|_| Twin::new(conf)).collect();
        let mut open: Vec<Open> = Vec::new();
        for _ in 0..400 {
            match random.below(16) {
                0 if open.len() < SCOPES => {
                    let is_taken = |at: &usize| open.iter().any(|open| open.twin == *at);
                    let twin = (0..SCOPES).find(|at| !is_taken(at)).unwrap();
                    twins[twin].allocator.reset_peak_stats();
                    let mut most = Most::default();
                    most.see(&own.live);
                    open.push(Open { scope: own.allocator.peak_scope(), most, twin });
                }
                1 if !open.is_empty() => {
                    let Open { scope, most, twin } = open.swap_remove(random.index(open.len()));
                    let stats = scope.end();
                    assert!(most.is_of(&stats), "{conf}, seed {seed}: {most:?} of {stats:?}");
                    assert_eq!(stats, twins[twin].allocator.stats(), "{conf}, seed {seed}");
                }
                2 if random.one_in(4) => {
                    own.allocator.reset_peak_stats();
                    plain.allocator.reset_peak_stats();
                }
                3 if !open.is_empty() => {
                    let Open { scope, twin, .. } = &open[random.index(open.len())];
                    assert_eq!(scope.stats(), twins[*twin].allocator.stats(), "{conf}, seed {seed}");
                    assert_eq!(own.allocator.stats(), plain.allocator.stats(), "{conf}, seed {seed}");
                }
                _ => {
                    let act = next(&mut random, own.live.len());
                    [&mut own, &mut plain].into_iter().chain(&mut twins).for_each(|twin| twin.act(act));
                    open.iter_mut().for_each(|open| open.most.see(&own.live));
                }
            }
        }
        own.allocator.check();
        assert_eq!(own.allocator.stats(), plain.allocator.stats(), "{conf}, seed {seed}: nothing has changed");
    }
}

#[test]
fn neither_a_reset_nor_another_scope_lowers_a_peak() {
    for conf in CONFS {
        let allocator = Allocator::builder(Sim::new()).conf(conf).build().unwrap();
        let stream = allocator.create_stream().unwrap();
        let outer = allocator.peak_scope();
        drop(stream.allocate(40 * MIB).unwrap());
        allocator.empty_cache().unwrap();
        let inner = allocator.peak_scope();
        allocator.reset_peak_stats();
        drop(stream.allocate(10 * MIB).unwrap());
        drop(allocator.peak_scope());
        let seen = [&outer, &inner].map(|scope| (scope.allocated_bytes() / MIB, scope.reserved_bytes() >= 40 * MIB));
        assert_eq!(seen, [(40, true), (10, false)], "{conf}");
        assert_eq!(allocator.max_memory_allocated(), 10 * MIB, "{conf}");
        drop(outer);
        assert_eq!((inner.active_bytes() / MIB, inner.requested_bytes() / MIB), (10, 10), "{conf}");
        allocator.check();
    }
}

/// The peak that decides how much page-locked memory stays cached is not one of the statistics.
#[test]
fn a_scope_does_not_change_what_a_cache_of_host_memory_keeps() {
    let reserved_after = |scoped: bool| {
        let pinned = Allocator::new(Sim::new()).pinned().unwrap();
        drop([(); 4].map(|()| pinned.allocate(16 * MIB).unwrap()));
        pinned.cache().poll().unwrap();
        let scope = scoped.then(|| pinned.cache().peak_scope());
        drop(pinned.allocate(17 * MIB).unwrap());
        drop(scope);
        pinned.cache().memory_reserved()
    };
    assert_eq!(reserved_after(false), reserved_after(true));
}

/// Threads open and end scopes at once: none lowers another one's, and all that is there at the end is in it.
#[test]
fn scopes_of_several_threads_do_not_disturb_each_other() {
    const THREADS: u64 = 4;
    let allocator = Allocator::new(Sim::new());
    let all = allocator.peak_scope();
    thread::scope(|scope| {
        for at in 0..THREADS {
            let (allocator, stream) = (&allocator, allocator.create_stream().unwrap());
            scope.spawn(move || {
                for round in 1..100 {
                    let part = allocator.peak_scope();
                    let held: Vec<_> = (0..8).map(|_| stream.allocate(MIB).unwrap()).collect();
                    assert!(part.allocated_bytes() >= 8 * MIB, "thread {at} in round {round}");
                    drop(held);
                    let stats = part.end();
                    assert!((8 * MIB..=8 * THREADS * MIB).contains(&stats.allocated_bytes.all.peak), "{stats:?}");
                }
            });
        }
    });
    assert!((8 * MIB..=8 * THREADS * MIB).contains(&all.allocated_bytes()));
    assert_eq!(all.allocated_bytes(), allocator.max_memory_allocated());
    allocator.check();
}

#[test]
fn a_scope_may_outlive_the_handles_and_end_elsewhere() {
    let allocator = Allocator::new(Sim::new());
    let stream = allocator.create_stream().unwrap();
    let scope = allocator.peak_scope();
    drop(stream.allocate(3 * MIB).unwrap());
    drop((stream, allocator));
    assert_eq!(thread::spawn(move || scope.end()).join().unwrap().allocated_bytes.all.peak, 3 * MIB);
}
