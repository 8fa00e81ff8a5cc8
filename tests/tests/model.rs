//! The allocator against the naive model, operation by operation.
//!
//! A failure prints its seed and the fewest operations that show it; `MILLPOND_SEED=565` runs one seed alone.

use std::panic::{AssertUnwindSafe, catch_unwind};

use millpond_tests::pair::{Checks, Op, Pair, Reached, Setup};
use millpond_trace::Random;
use proptest::prelude::*;

const OPERATIONS: usize = 400;
/// The number of runs of each part; the parts run in parallel.
const RUNS: u64 = 1000;
const CHECKS: Checks = Checks { layout_every: 8, invariants_every: 64 };

/// Returns the configuration and the operations that a seed stands for.
fn drawn(seed: u64) -> (Setup, Vec<Op>) {
    let mut random = Random::new(seed);
    let setup = Setup::draw(&mut random);
    let ops = Op::sequence(&mut random, OPERATIONS, setup.streams, setup.largest);
    (setup, ops)
}

/// Returns what a run reached, or its first difference, whether that was returned or the allocator panicked.
fn outcome(setup: &Setup, ops: &[Op], checks: Checks) -> Result<Reached, (usize, String)> {
    match catch_unwind(AssertUnwindSafe(|| Pair::run(setup, ops, checks))) {
        Ok(outcome) => outcome,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without words");
            Err((ops.len(), format!("panic: {text}")))
        }
    }
}

fn difference(setup: &Setup, ops: &[Op], checks: Checks) -> Option<(usize, String)> {
    outcome(setup, ops, checks).err()
}

/// Removes operations, from large parts to single ones, as long as there is a difference.
fn minimised(setup: &Setup, ops: &[Op]) -> Vec<Op> {
    let mut ops = ops.to_vec();
    let mut part = ops.len().div_ceil(2);
    while part > 0 {
        let mut start = 0;
        while start < ops.len() {
            let end = (start + part).min(ops.len());
            let fewer = [&ops[..start], &ops[end..]].concat();
            if difference(setup, &fewer, Checks::ALL).is_some() {
                ops = fewer;
            } else {
                start = end;
            }
        }
        part /= 2;
    }
    ops
}

fn run_seed(seed: u64) -> Reached {
    let (setup, ops) = drawn(seed);
    outcome(&setup, &ops, CHECKS).unwrap_or_else(|(at, what)| {
        let ops = minimised(&setup, &ops[..ops.len().min(at + 1)]);
        let (_, least) = difference(&setup, &ops, Checks::ALL).unwrap_or((0, "no difference any more".into()));
        let ops: String = ops.iter().map(|op| format!("\n  {op:?}")).collect();
        panic!("seed {seed}, operation {at}: {what}\n{setup:?}\nthe least that differs: {ops}\n{least}");
    })
}

/// Runs all seeds of a part, or the one that the environment names.
fn run_part(part: u64) {
    if let Ok(seed) = std::env::var("MILLPOND_SEED") {
        run_seed(seed.parse().unwrap_or_else(|error| panic!("MILLPOND_SEED is {seed:?}: {error}")));
        return;
    }
    let mut reached = Reached::default();
    (0..RUNS).for_each(|run| reached.add(&run_seed(part * RUNS + run)));
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

fn operation() -> impl Strategy<Value = Op> {
    let (stream, block) = (0..3_usize, 0..1000_usize);
    prop_oneof![
        8 => (1..48_u64 << 20, stream.clone()).prop_map(|(bytes, stream)| Op::Allocate { bytes, stream }),
        4 => (1..1_u64 << 20, stream.clone()).prop_map(|(bytes, stream)| Op::Allocate { bytes, stream }),
        8 => block.clone().prop_map(|block| Op::Free { block }),
        2 => (block.clone(), stream.clone()).prop_map(|(block, stream)| Op::Record { block, stream }),
        1 => stream.clone().prop_map(|stream| Op::Point { stream }),
        1 => (block, 0..8_usize).prop_map(|(block, point)| Op::Until { block, point }),
        1 => stream.clone().prop_map(|stream| Op::Busy { stream }),
        1 => stream.prop_map(|stream| Op::Complete { stream }),
        1 => Just(Op::Synchronize),
        1 => Just(Op::EmptyCache),
        1 => Just(Op::ResetPeak),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    /// Sequences as data: a difference shrinks to the fewest and smallest operations that show it.
    #[test]
    fn every_sequence_agrees(seed: u64, ops in proptest::collection::vec(operation(), 0..120)) {
        let setup = Setup::draw(&mut Random::new(seed));
        let found = difference(&setup, &ops, Checks::ALL);
        prop_assert!(found.is_none(), "{found:?}\n{setup:?}");
    }
}
