//! Bugs planted in the core, and the checks that must catch each. The same runs find nothing where nothing is planted.
//!
//! The checks run apart from each other, so that the table below shows which of them can detect which bug.

use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};

use millpond::plant::Plant;
use millpond::settings::{Growth, Policy, Settings};
use millpond_conformance::language::{Generator, Noted, Operation};
use millpond_conformance::{Trouble, Watched};
use millpond_tests::mix::generator;
use millpond_tests::pair::{Checks, Pair, Setup};
use millpond_tests::program::{Program, leaked};
use millpond_trace::Random;

/// The number of seeds for each check: few, as every bug shows with some of them.
const RUNS: u64 = 24;
const OPERATIONS: usize = 300;
const GROWTHS: [Growth; 2] = [Growth::Balanced, Growth::Tight];

/// A check that may detect a bug.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Check {
    /// The allocator's own invariants.
    Invariants,
    /// The naive model: statistics, places and layout.
    Model,
    /// The shadow oracle: grants of memory that is still in use.
    Oracle,
    /// The device: accesses that nothing orders.
    Device,
    /// The device's memory after the allocator is gone.
    Leak,
}

/// Every bug, and every check that detects it.
const TABLE: [(Plant, &[Check]); 5] = [
    (Plant::EarlyReuse, &[Check::Model, Check::Oracle, Check::Device]),
    (Plant::MissedMerge, &[Check::Invariants, Check::Model]),
    (Plant::OffByOneTick, &[Check::Model, Check::Oracle, Check::Device]),
    (Plant::LeakedSegment, &[Check::Model, Check::Leak]),
    (Plant::WrongCounter, &[Check::Invariants, Check::Model]),
];

/// The same under `paged`, which the model does not describe and which takes no segments.
const PAGED_TABLE: [(Plant, &[Check]); 4] = [
    (Plant::EarlyReuse, &[Check::Oracle, Check::Device]),
    (Plant::MissedMerge, &[Check::Invariants]),
    (Plant::OffByOneTick, &[Check::Oracle, Check::Device]),
    (Plant::WrongCounter, &[Check::Invariants]),
];

const CHECKS: [Check; 5] = [Check::Invariants, Check::Model, Check::Oracle, Check::Device, Check::Leak];

/// Returns the configuration with a bug in it, under its own policy or under `paged`.
fn settings(setup: &Setup, plant: Option<Plant>, paged: Option<Growth>) -> Settings {
    let settings = Settings { plant, ..setup.settings() };
    match paged {
        Some(growth) => Settings { policy: Policy::paged(growth), ..settings },
        None => settings,
    }
}

fn program(setup: &Setup, settings: Settings) -> Program {
    let (sim, allocator) = setup.build(settings);
    Program::new(sim, allocator, setup.streams)
}

/// Runs something that may panic. After a panic the subject is not dropped, as a second panic would end the process.
fn survives<T>(subject: T, run: impl FnOnce(&mut T) -> bool) -> Result<(bool, T), ()> {
    let mut subject = ManuallyDrop::new(subject);
    match catch_unwind(AssertUnwindSafe(|| run(&mut subject))) {
        Ok(answer) => Ok((answer, ManuallyDrop::into_inner(subject))),
        Err(_) => Err(()),
    }
}

/// Returns whether a check detects something wrong in a run.
fn catches(check: Check, plant: Option<Plant>, paged: Option<Growth>, seed: u64) -> bool {
    let mut random = Random::new(seed);
    let setup = Setup::draw(&mut random);
    let settings = settings(&setup, plant, paged);
    let mut generator = generator(random, setup.streams, setup.largest);
    match check {
        Check::Model => return paged.is_none() && model_differs(&setup, settings, &mut generator),
        Check::Oracle => return oracle_objects(&setup, settings, &mut generator),
        Check::Invariants | Check::Device | Check::Leak => {}
    }
    let ran = survives(program(&setup, settings), |program| {
        for _ in 0..OPERATIONS {
            let operation = program.draw(&mut generator);
            program.do_or_refuse(operation);
            if check == Check::Invariants {
                program.allocator().check();
            }
        }
        program.free_all();
        true
    });
    // A failed assertion of the allocator itself counts for the invariants.
    let Ok((_, program)) = ran else { return check == Check::Invariants };
    let sim = program.give_up();
    match check {
        Check::Device => !sim.violations().is_empty(),
        Check::Leak => leaked(&sim) > 0,
        Check::Model | Check::Oracle | Check::Invariants => false,
    }
}

fn model_differs(setup: &Setup, settings: Settings, generator: &mut Generator) -> bool {
    // The invariants are never checked: operations are counted from 1.
    let pair = Pair::with(setup, settings, Checks { layout_every: 4, invariants_every: usize::MAX });
    let ran = survives(pair, |pair| {
        (1..=OPERATIONS).any(|at| {
            let operation = generator.next(&pair.held());
            pair.step(at, operation).is_err()
        })
    });
    match ran {
        Ok((true, pair)) => {
            // Its blocks differ from the model's: dropping them may trip an assertion.
            std::mem::forget(pair);
            true
        }
        Ok((false, _)) | Err(()) => false,
    }
}

/// Returns whether the shadow oracle reports a violation in a run. No other check is made.
fn oracle_objects(setup: &Setup, settings: Settings, generator: &mut Generator) -> bool {
    let (sim, allocator) = setup.build(settings);
    let open = |id| allocator.stream(id).unwrap_or_else(|error| panic!("{error}"));
    let streams: Vec<_> = sim.open_streams(setup.streams).into_iter().map(open).collect();
    let subject = (Watched::new(allocator), Vec::new());
    let ran = survives(subject, |(watched, live)| {
        let mut objects = false;
        for _ in 0..OPERATIONS {
            let held: Vec<u32> = live.iter().map(|(number, _)| *number).collect();
            let at = |block: u32| held.iter().position(|number| *number == block);
            match generator.next(&held) {
                Operation::Allocate { block, bytes, stream } => match watched.allocate(&streams[stream], bytes) {
                    Ok(tenancy) => live.push((block, tenancy)),
                    Err(trouble) => objects |= matches!(trouble, Trouble::Violation(_)),
                },
                Operation::Free { block } => drop(at(block).map(|at| watched.free(live.swap_remove(at).1))),
                Operation::Use { block, stream, noted, keep } => {
                    if let Some(at) = at(block) {
                        sim.busy(streams[stream].id());
                        let noted = match noted {
                            Noted::Until => watched.used_until(&live[at].1, streams[stream].point()),
                            _ => watched.record_stream(&live[at].1, &streams[stream]),
                        };
                        assert!(noted.is_ok(), "a use was refused");
                        if !keep {
                            watched.free(live.swap_remove(at).1);
                        }
                    }
                }
                Operation::Unhold { stream } => drop(sim.complete(streams[stream].id())),
                Operation::Sync => sim.synchronize(),
                Operation::EmptyCache => {
                    assert!(watched.allocator().empty_cache().is_ok(), "the driver failed unasked")
                }
                _ => {}
            }
        }
        live.drain(..).for_each(|(_, tenancy)| watched.free(tenancy));
        objects
    });
    ran.is_ok_and(|(objects, _)| objects)
}

fn caught_by(plant: Option<Plant>, paged: Option<Growth>) -> Vec<Check> {
    CHECKS.into_iter().filter(|check| (0..RUNS).any(|seed| catches(*check, plant, paged, seed))).collect()
}

#[test]
fn every_planted_bug_is_caught() {
    let named: Vec<Plant> = TABLE.iter().map(|(plant, _)| *plant).collect();
    assert_eq!(named, Plant::ALL, "each bug has its row");
    for (plant, expected) in TABLE {
        assert_eq!(caught_by(Some(plant), None), expected, "{plant:?}");
    }
}

#[test]
fn every_planted_bug_is_caught_under_paged() {
    for growth in GROWTHS {
        for (plant, expected) in PAGED_TABLE {
            assert_eq!(caught_by(Some(plant), Some(growth)), expected, "{plant:?}, {growth:?}");
        }
    }
}

#[test]
fn nothing_is_caught_where_nothing_is_planted() {
    for paged in [None, Some(Growth::Balanced), Some(Growth::Tight)] {
        assert_eq!(caught_by(None, paged), [], "{paged:?}");
    }
}
