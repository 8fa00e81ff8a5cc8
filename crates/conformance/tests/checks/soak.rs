//! A thousand runs of the soak; `millpond conformance --soak` makes any number of runs.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use millpond_conformance::DeviceUnderTest as _;
use millpond_conformance::scenario::POLICIES;
use millpond_conformance::soak::{OPERATIONS, Run, run};
use millpond_conformance::swarm::Tally;

const RUNS: u64 = 1000;

#[test]
fn a_thousand_runs() {
    let mut by_policy: BTreeMap<&str, (u64, Tally)> = BTreeMap::new();
    let mut failed = Vec::new();
    run(0..RUNS, OPERATIONS, 2, &mut |done| {
        let swarm = done.run.swarm;
        match done.result {
            Ok(tally) => {
                let sum = by_policy.entry(swarm.policy.variant_name()).or_default();
                sum.0 += 1;
                sum.1 += tally;
            }
            Err(text) => failed.push(format!("seed {} on {}: {text}", swarm.seed, done.run.device.name())),
        }
        ControlFlow::Continue(())
    });
    println!("{by_policy:#?}");
    assert!(failed.is_empty(), "{} runs failed:\n{}", failed.len(), failed.join("\n"));
    assert_eq!(by_policy.values().map(|(runs, _)| runs).sum::<u64>(), RUNS);
    for policy in POLICIES.iter() {
        let (runs, tally) = by_policy[policy.variant_name()];
        // Runs with few grants prove nothing.
        assert!(runs > RUNS / 10 && tally.grants > 20 * runs, "{}: {runs} runs, {tally:?}", policy.variant_name());
        assert!(
            tally.refusals > runs / 4 && tally.failures > runs / 8,
            "{}: {runs} runs, {tally:?}",
            policy.variant_name()
        );
        assert!(tally.evidence > 100, "{}: {tally:?}", policy.variant_name());
        assert!(tally.restored > runs / 2, "{}: {runs} runs, {tally:?}", policy.variant_name());
    }
    let moved = |name| (by_policy[name].1.moved, by_policy[name].1.moved_behind_wait);
    assert!(moved("paged").0 > RUNS / 2 && moved("paged").1 > 0, "{:?} pages gathered under paged", moved("paged"));
    assert!(
        moved("tight").0 > RUNS / 2 && moved("tight").1 > RUNS / 20,
        "{:?} pages gathered under tight",
        moved("tight")
    );
    assert_eq!(moved("expandable"), (0, 0));
}

#[test]
fn a_seed_is_the_same_run_wherever_it_stands() {
    let mut among = BTreeMap::new();
    run(40..46, OPERATIONS, 2, &mut |done| {
        among.insert(done.run.swarm.seed, done.result);
        ControlFlow::Continue(())
    });
    assert_eq!(among.len(), 6);
    for (seed, result) in among {
        assert_eq!(Run::new(seed, OPERATIONS).run(), result, "seed {seed}");
    }
}

#[test]
fn enough_is_enough() {
    let mut seen = 0;
    run(0..1_000_000, 20, 2, &mut |_| {
        seen += 1;
        if seen == 5 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert_eq!(seen, 5);
}
