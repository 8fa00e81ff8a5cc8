//! A program that repeats itself soon calls the driver no more.

use millpond::settings::Growth;
use millpond::{Allocator, Buffer, Stream};
use millpond_conformance::language::Operation;
use millpond_sim::{Calls, Completion, Sim};
use millpond_trace::Random;

use super::device::{GIB, MIB, allocator, changes, device, streams, written};

const SEEDS: u64 = 12;
const OPERATIONS: usize = 240;
const LIVE_MAX: u64 = 3 * GIB;
const KEPT: usize = 24;

/// Returns a size from 512 bytes to 200 MiB, with an even chance for each octave.
fn size(random: &mut Random) -> u64 {
    let low = 512 << random.below(19);
    random.between(low, 2 * low).min(200 * MIB)
}

/// A program under construction.
#[derive(Default)]
struct Script {
    operations: Vec<Operation>,
    allocated: u32,
    /// The live blocks, with their sizes.
    live: Vec<(u32, u64)>,
}

impl Script {
    fn allocate(&mut self, bytes: u64, stream: usize) {
        self.operations.push(Operation::Allocate { block: self.allocated, bytes, stream });
        self.live.push((self.allocated, bytes));
        self.allocated += 1;
    }

    /// Frees the block at that place among the live blocks.
    fn free(&mut self, at: usize) {
        let (block, _) = self.live.swap_remove(at);
        self.operations.push(Operation::Free { block });
    }

    /// Frees the live blocks, newest first, and returns the operations.
    fn end(mut self) -> Vec<Operation> {
        (0..self.live.len()).rev().for_each(|at| self.free(at));
        self.operations
    }
}

/// Returns allocations with frees in between, in random order; at the end nothing is live.
fn shuffled(seed: u64, streams: usize) -> Vec<Operation> {
    let mut random = Random::new(seed);
    let mut script = Script::default();
    for left in (0..OPERATIONS).rev() {
        let bytes = size(&mut random);
        let has_room = script.live.iter().map(|(_, bytes)| bytes).sum::<u64>() + bytes <= LIVE_MAX;
        if has_room && left > script.live.len() && !random.one_in(3) {
            script.allocate(bytes, random.index(streams));
        } else if !script.live.is_empty() {
            script.free(random.index(script.live.len()));
        }
    }
    script.end()
}

/// Returns the operations of training a network: layer by layer forward, each with a block that is freed at once, and
/// the layers' blocks freed backward.
fn stacked(seed: u64, streams: usize) -> Vec<Operation> {
    let mut random = Random::new(seed);
    let mut script = Script::default();
    for _ in 0..OPERATIONS / 4 {
        let (bytes, stream) = (size(&mut random), random.index(streams));
        script.allocate(bytes, stream);
        script.allocate(bytes / 2 + 1, stream);
        script.free(script.live.len() - 1);
    }
    script.end()
}

/// A program on a device of its own, ready to be repeated.
struct Repeated {
    what: String,
    sim: Sim,
    allocator: Allocator<Sim>,
    streams: Vec<Stream<Sim>>,
    kept: Vec<Buffer<Sim>>,
    operations: Vec<Operation>,
}

impl Repeated {
    fn new(seed: u64, growth: Growth, keeps: bool, shape: fn(u64, usize) -> Vec<Operation>) -> Repeated {
        let sim = device(140 * GIB, Completion::Immediate).build();
        let allocator = allocator(&sim, growth);
        let count = 1 + (seed % 4) as usize;
        let streams = streams(&allocator, count);
        let mut random = Random::new(1000 + seed);
        let kept = (0..if keeps { KEPT } else { 0 })
            .map(|at| written(&sim, &streams[at % count], size(&mut random)))
            .collect();
        let what = format!("seed {seed}, {count} streams, {growth:?}, {KEPT} blocks kept: {keeps}");
        Repeated { what, sim, allocator, streams, kept, operations: shape(seed, count) }
    }

    fn all(shape: fn(u64, usize) -> Vec<Operation>, growth: Growth, keeps: bool) -> impl Iterator<Item = Repeated> {
        (0..SEEDS).map(move |seed| Repeated::new(seed, growth, keeps, shape))
    }

    /// Runs one repetition and returns its driver calls.
    fn once(&self) -> Calls {
        let before = self.sim.calls();
        let mut live = Vec::new();
        for operation in &self.operations {
            match *operation {
                Operation::Allocate { block, bytes, stream } => {
                    live.push((block, written(&self.sim, &self.streams[stream], bytes)));
                }
                Operation::Free { block } => {
                    let at = live.iter().position(|(number, _)| *number == block);
                    drop(at.map(|at| live.swap_remove(at)));
                }
                other => unreachable!("no such program has {other:?}"),
            }
        }
        assert!(live.is_empty(), "{}: a repetition leaves {} blocks", self.what, live.len());
        self.sim.calls().since(&before)
    }

    /// Checks that nothing was used too early, and that all memory can be released.
    fn ends(mut self) {
        self.allocator.check();
        self.kept.clear();
        self.allocator.empty_cache().unwrap_or_else(|error| panic!("{}: {error}", self.what));
        assert_eq!((self.allocator.memory_reserved(), self.sim.violations()), (0, vec![]), "{}", self.what);
    }
}

/// Checks that the first round of a program that creates no page and follows one that created none either is the last
/// one that calls the driver, that this comes soon, and that little more is reserved than is live.
fn settles(shape: fn(u64, usize) -> Vec<Operation>, growth: Growth, keeps: bool) {
    for program in Repeated::all(shape, growth, keeps) {
        let rounds: Vec<Calls> = (0..8).map(|_| program.once()).collect();
        let calls: Vec<u64> = rounds.iter().map(changes).collect();
        // A round that begins with the same pages as the last one, and ends with them.
        let same = rounds.iter().position(|round| round.create_page == 0);
        let settled = same.map_or(rounds.len(), |at| at + 1);
        assert!(calls[settled..].iter().all(|&calls| calls == 0), "{}: calls by round {calls:?}", program.what);
        // One of 357 such programs takes six rounds, and all others at most four.
        assert!(settled <= 6, "{}: calls by round {calls:?}", program.what);
        let gone: u64 = rounds.iter().map(|calls| calls.release_page + calls.release_range).sum();
        assert_eq!(gone, 0, "{}: something was given back", program.what);
        let stats = program.allocator.stats();
        let (reserved, live) = (stats.reserved_bytes.all.peak, stats.allocated_bytes.all.peak);
        println!("{}: {calls:?} calls, {:.3} reserved over live", program.what, reserved as f64 / live as f64);
        assert!(reserved <= live + live / 10, "{}: {reserved} reserved for {live} live", program.what);
        program.ends();
    }
}

#[test]
fn a_program_that_works_as_a_stack_settles() {
    settles(stacked, Growth::Tight, false);
    settles(stacked, Growth::Balanced, false);
}

#[test]
fn a_program_that_works_as_a_stack_beside_what_it_keeps_settles() {
    settles(stacked, Growth::Tight, true);
}

#[test]
fn a_program_that_frees_in_any_order_settles() {
    settles(shuffled, Growth::Tight, false);
    settles(shuffled, Growth::Balanced, false);
}

#[test]
fn a_program_that_frees_in_any_order_beside_what_it_keeps_settles() {
    settles(shuffled, Growth::Tight, true);
}
