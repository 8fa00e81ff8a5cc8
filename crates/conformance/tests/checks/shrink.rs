//! A run that fails is reduced to the few operations that its failure needs: for every bug that can be planted and that
//! a run of the swarm can find.

use millpond::plant::Plant;
use millpond::settings::Policy;
use millpond::settings::Settings;
use millpond_backend::{Closing, Reuse};
use millpond_conformance::SimDevice;
use millpond_conformance::language::Operation;
use millpond_conformance::scenario;
use millpond_conformance::swarm::{Case, Program, Shrunk, Swarm};
use millpond_sim::Completion;

/// The number of seeds that are tried until one fails.
const SEEDS: u64 = 200;
const OPERATIONS: u32 = 120;

/// The most operations that remain of a failing run whose bug needs only a handful of them.
const A_HANDFUL: usize = 8;

fn policy(name: &str) -> Policy {
    Policy::variant(name).expect("a policy of this name")
}

fn manual() -> SimDevice {
    SimDevice::new(Closing::Backend, Reuse::InOrder, Completion::Manual)
}

/// Returns the first seed that fails with the bug planted, and checks that it passes without the bug.
fn failing(device: &SimDevice, policy: Policy, plant: Plant) -> (Swarm, Program) {
    let sound = Case::new(device, policy);
    let planted = Case { settings: Settings { plant: Some(plant), ..Settings::default() }, ..sound.clone() };
    let found = (0..SEEDS).find_map(|seed| {
        let swarm = Swarm { seed, operations: OPERATIONS, policy, faults: false, check_every: 4 };
        let (program, result) = planted.record(&swarm);
        result.err().map(|_| (swarm, program))
    });
    let (swarm, program) = found.unwrap_or_else(|| panic!("{SEEDS} seeds do not see {plant:?}"));
    assert!(sound.record(&swarm).1.is_ok(), "seed {} fails without a bug", swarm.seed);
    (swarm, program)
}

fn shrink(device: &SimDevice, policy: Policy, plant: Plant) -> Shrunk {
    let (swarm, program) = failing(device, policy, plant);
    let case = Case { settings: Settings { plant: Some(plant), ..Settings::default() }, ..Case::new(device, policy) };
    let shrunk = case.shrink(&program).expect("it fails again");
    println!(
        "{plant:?} under {}: seed {}, {} operations; {shrunk}",
        policy.variant_name(),
        swarm.seed,
        program.operations.len()
    );
    assert!(shrunk.program.operations.len() <= A_HANDFUL, "{shrunk}");
    // The planted bug is the cause of the failure, and the shortened program reproduces it.
    assert!(Case::new(device, policy).replay(&shrunk.program).is_ok(), "{shrunk}");
    assert_eq!(case.replay(&shrunk.program).err(), Some(shrunk.failed.clone()));
    shrunk
}

#[test]
fn every_planted_bug_comes_down_to_a_handful_of_operations() {
    let device = manual();
    for plant in Plant::ALL {
        shrink(&device, policy("classic"), plant);
    }
    for plant in [Plant::EarlyReuse, Plant::MissedMerge, Plant::OffByOneTick, Plant::WrongCounter] {
        shrink(&device, policy("paged"), plant);
    }
}

#[test]
fn a_failure_that_needs_nothing_else_becomes_a_scenario() {
    let shrunk = shrink(&manual(), policy("classic"), Plant::EarlyReuse);
    let text = shrunk.scenario.as_deref().expect("freed while another stream uses it: the corpus has words for that");
    let scenarios = scenario::load(text).expect("it is in the corpus' language");
    assert_eq!((scenarios.len(), &scenarios[0].policies[..]), (1, &[policy("classic")][..]), "{text}");
    assert!(shrunk.to_string().contains(text), "{shrunk}");
}

#[test]
fn a_failure_beyond_the_corpus_words_is_printed_as_a_program() {
    let operations = vec![Operation::Advance { stream: 0 }];
    let program = Program { streams: 1, limit: 32 << 20, check_every: 1, operations };
    let device = manual();
    assert!(Case::new(&device, policy("classic")).shrink(&program).is_none(), "it does not fail");
}
