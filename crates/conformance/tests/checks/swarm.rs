//! Two hundred seeds of the swarm on simulated devices whose work does not complete at once.

use millpond_backend::{Closing, Reuse};
use millpond_conformance::SimDevice;
use millpond_conformance::scenario::POLICIES;
use millpond_conformance::swarm::{Swarm, Tally, run};
use millpond_sim::Completion;

const SEEDS: u64 = 200;
const OPERATIONS: u32 = 300;

/// Returns the device of a seed: every kind occurs, and so does every pair of kinds.
fn device(seed: u64) -> SimDevice {
    let closing = [Closing::Backend, Closing::Submit][(seed % 2) as usize];
    // Most devices reuse in order.
    let reuse = [Reuse::InOrder, Reuse::InOrder, Reuse::AfterSubmit, Reuse::AfterDone][(seed / 2 % 4) as usize];
    let completion = if (seed / 8).is_multiple_of(3) { Completion::Seeded(seed) } else { Completion::Manual };
    let device = SimDevice::new(closing, reuse, completion);
    match seed % 7 {
        2 => device.tracking(),
        5 => device.with_barriers(),
        _ => device,
    }
}

fn runs(seeds: std::ops::Range<u64>) -> Tally {
    let mut sum = Tally::default();
    for seed in seeds {
        let policy = POLICIES[(seed % POLICIES.len() as u64) as usize];
        let swarm = Swarm { seed, operations: OPERATIONS, policy, faults: seed % 5 == 0, check_every: 4 };
        match run(&device(seed), &swarm) {
            Ok(Some(tally)) => {
                sum += tally;
            }
            Ok(None) => panic!("seed {seed}: the simulated device serves every policy"),
            Err(text) => panic!("{:?}: {text}", device(seed)),
        }
    }
    sum
}

#[test]
fn two_hundred_seeds() {
    let (first, second) = std::thread::scope(|scope| {
        let first = scope.spawn(|| runs(0..SEEDS / 2));
        let second = runs(SEEDS / 2..SEEDS);
        (first.join(), second)
    });
    let Ok(first) = first else { panic!("the first half failed") };
    println!("seeds 0..{SEEDS}: {first:?} and {second:?}");
    for tally in [first, second] {
        // A swarm with few grants proves nothing.
        assert!(tally.grants > 100 * SEEDS / 4, "{tally:?}");
        assert!(tally.refusals > 0 && tally.failures > 0 && tally.evidence > 1000, "{tally:?}");
        assert!(tally.grown > SEEDS && tally.aligned > SEEDS, "{tally:?}");
    }
}

#[test]
fn a_seed_repeats_its_run() {
    let once = runs(10..14);
    assert_eq!(once, runs(10..14));
}
