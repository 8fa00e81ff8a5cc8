//! The allocator against the naive model, operation by operation.
//!
//! A failure prints its seed and the fewest operations that show it; `MILLPOND_SEED=565` runs one seed alone.

use std::panic::{AssertUnwindSafe, catch_unwind};

use millpond_conformance::language::{Generator, Operation, shrink};
use millpond_tests::mix::generator;
use millpond_tests::pair::{Checks, Pair, Reached, Setup};
use millpond_trace::Random;

const OPERATIONS: usize = 400;
/// The number of runs of each part; the parts run in parallel.
const RUNS: u64 = 1000;
const CHECKS: Checks = Checks { layout_every: 8, invariants_every: 64 };
/// The most programs that are tried to shorten one that differs.
const TRIALS_MAX: u32 = 3000;

/// Returns the configuration and the operations that a seed stands for.
fn drawn(seed: u64) -> (Setup, Generator) {
    let mut random = Random::new(seed);
    let setup = Setup::draw(&mut random);
    let operations = generator(random, setup.streams, setup.largest);
    (setup, operations)
}

/// Returns what a run reached, or its first difference, whether that was returned or the allocator panicked. The
/// operations are added to `trail`.
fn outcome(
    setup: &Setup,
    checks: Checks,
    next: &mut dyn FnMut(&[u32]) -> Option<Operation>,
    trail: &mut Vec<Operation>,
) -> Result<Reached, String> {
    catch_unwind(AssertUnwindSafe(|| Pair::run(setup, checks, next, trail))).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without words");
        Err(format!("panic: {text}"))
    })
}

/// Returns the first difference that these operations show.
fn difference(setup: &Setup, operations: &[Operation]) -> Option<String> {
    let mut operations = operations.iter().copied();
    outcome(setup, Checks::ALL, &mut |_| operations.next(), &mut Vec::new()).err()
}

/// Runs the first operations of a seed. A failure is reduced to the fewest and smallest operations that show it.
fn run_seed(seed: u64, count: usize, checks: Checks) -> Reached {
    let (setup, mut generator) = drawn(seed);
    let (mut left, mut trail) = (count, Vec::new());
    let mut next = |held: &[u32]| {
        left = left.checked_sub(1)?;
        Some(generator.next(held))
    };
    outcome(&setup, checks, &mut next, &mut trail).unwrap_or_else(|what| {
        let at = trail.len();
        let with = |streams: usize| Setup { streams, ..setup.clone() };
        let mut fails = |streams: usize, operations: &[Operation]| difference(&with(streams), operations).is_some();
        let least = shrink(setup.streams, trail, TRIALS_MAX, &mut fails);
        let still = difference(&with(least.streams), &least.operations);
        let operations: String = least.operations.iter().map(|operation| format!("\n  {operation:?}")).collect();
        panic!("seed {seed}, operation {at}: {what}\n{setup:?}\nthe least that differs: {operations}\n{still:?}");
    })
}

/// Runs all seeds of a part, or the one that the environment names.
fn run_part(part: u64) {
    if let Ok(seed) = std::env::var("MILLPOND_SEED") {
        let seed = seed.parse().unwrap_or_else(|error| panic!("MILLPOND_SEED is {seed:?}: {error}"));
        run_seed(seed, OPERATIONS, CHECKS);
        return;
    }
    let mut reached = Reached::default();
    (0..RUNS).for_each(|run| reached.add(&run_seed(part * RUNS + run, OPERATIONS, CHECKS)));
    for (rule, count) in reached.rows() {
        assert!(count > 20, "{rule}: only {count} in {RUNS} runs, so the runs prove little");
    }
}

#[test]
fn seeded_runs_agree_part_1() {
    run_part(0);
}

#[test]
fn seeded_runs_agree_part_2() {
    run_part(1);
}

#[test]
fn seeded_runs_agree_part_3() {
    run_part(2);
}

#[test]
fn seeded_runs_agree_part_4() {
    run_part(3);
}

/// Everything is compared and checked after every operation.
#[test]
fn short_runs_agree_after_every_operation() {
    for seed in 4 * RUNS..4 * RUNS + 48 {
        run_seed(seed, 120, Checks::ALL);
    }
}
