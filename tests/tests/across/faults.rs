//! Every driver call fails once, in programs that reach every kind of call, and the allocator continues to work.

use millpond::backend::{Fault, PageCaps};
use millpond::settings::{Growth, Policy, Segments, Settings};
use millpond::{Allocator, Error};
use millpond_conformance::language::Operation;
use millpond_sim::{CallKind, CostModel, Sim, SimError};
use millpond_tests::mix::generator;
use millpond_tests::program::{Program, leaked};
use millpond_trace::Random;

const MIB: u64 = 1 << 20;
const OPERATIONS: usize = 160;
const STREAMS: usize = 2;
const LARGEST: u64 = 24 * MIB;
/// A number that no drawn block has.
const LAST: u32 = 1 << 16;

/// One kind of allocator.
struct Case {
    name: &'static str,
    settings: Settings,
    limit: Option<u64>,
    /// The bytes of the device: few, so that it runs out.
    total: u64,
    /// Whether a page may be mapped in several places.
    aliasing: bool,
}

fn cases() -> [Case; 10] {
    let case = |name, settings, limit| Case { name, settings, limit, total: 96 * MIB, aliasing: true };
    let expandable = Settings { policy: Policy::Classic(Segments::Expandable), ..Settings::default() };
    let direct = Settings { policy: Policy::Direct, ..Settings::default() };
    let paged = |growth| Settings { policy: Policy::paged(growth), ..Settings::default() };
    let strict = Settings { max_split_bytes: Some(20 * MIB), gc_threshold: 0.5, ..Settings::default() };
    [
        case("classic", Settings::default(), None),
        case("classic under a limit", strict, Some(64 * MIB)),
        case("expandable", expandable.clone(), None),
        case("expandable under a limit", expandable, Some(70 * MIB)),
        case("direct", direct, Some(48 * MIB)),
        case("paged", paged(Growth::Balanced), None),
        case("paged under a limit", paged(Growth::Balanced), Some(64 * MIB)),
        case("paged, tight", paged(Growth::Tight), Some(80 * MIB)),
        case("paged, collecting", Settings { gc_threshold: 0.5, ..paged(Growth::Tight) }, Some(90 * MIB)),
        Case { aliasing: false, ..case("paged without aliasing", paged(Growth::Tight), Some(70 * MIB)) },
    ]
}

fn program(case: &Case) -> Program {
    let pages = PageCaps::new(2 * MIB).with_aliasing(case.aliasing);
    let sim = Sim::builder().total_bytes(case.total).pages(Some(pages)).cost(CostModel::free()).build();
    let builder = Allocator::builder(sim.clone()).settings(case.settings.clone());
    let builder = if let Some(limit) = case.limit { builder.limit(limit) } else { builder };
    let allocator = builder.build().unwrap_or_else(|error| panic!("{}: {error}", case.name));
    Program::new(sim, allocator, STREAMS)
}

/// Returns the operations of a case, drawn while they run with no failure planned.
fn script(case: &Case) -> Vec<Operation> {
    let mut generator = generator(Random::new(11), STREAMS, LARGEST);
    let mut operations = program(case).record(&mut generator, OPERATIONS);
    // At the end everything is freed, so that whole ranges are released, and some memory is allocated again.
    operations.extend((0..OPERATIONS as u32).map(|block| Operation::Free { block }));
    operations.extend([Operation::Sync, Operation::EmptyCache]);
    // Most of the memory moves to another stream while work still runs on it.
    let allocate = |block, bytes, stream| Operation::Allocate { block: LAST + block, bytes, stream };
    let free = |block| Operation::Free { block: LAST + block };
    operations.extend([allocate(0, 60 * MIB, 0), Operation::Hold { stream: 0 }, free(0)]);
    operations.extend([allocate(1, 50 * MIB, 1), free(1)]);
    operations.extend([allocate(2, 1, 1), allocate(3, MIB, 1), allocate(4, 12 * MIB, 1)]);
    operations
}

/// Returns the number of driver calls so far that can fail.
fn fallible(sim: &Sim) -> u64 {
    let calls = sim.calls();
    CallKind::ALL.iter().filter(|kind| kind.fallible()).map(|kind| calls.of(*kind)).sum()
}

/// Returns how many calls that can fail the program makes when none does, opening streams left out.
fn calls_of(case: &Case, operations: &[Operation]) -> u64 {
    let mut program = program(case);
    let before = fallible(program.sim());
    operations.iter().for_each(|operation| program.do_or_refuse(*operation));
    program.free_all();
    fallible(program.sim()) - before
}

/// Runs the program with one failure planned, and returns the driver's errors that its operations returned.
fn errors_of(case: &Case, operations: &[Operation], nth: u64, fault: Fault) -> Vec<Error<SimError>> {
    let at = format!("{}, call {nth}, {fault:?}", case.name);
    let mut program = program(case);
    program.sim().fail_any(nth, fault);
    let (mut errors, mut looks) = (Vec::new(), 20);
    for operation in operations {
        match program.step(*operation) {
            Ok(()) | Err(Error::OutOfMemory(_)) => {}
            Err(error @ Error::Driver { .. }) => errors.push(error),
            Err(error) => panic!("{at}: {operation:?} failed with {error:?}, which is no driver's error"),
        }
        // The costly check is made after the failure only, and for a limited number of operations.
        if !errors.is_empty() && looks > 0 {
            program.allocator().check();
            looks -= 1;
        }
    }
    program.free_all();
    program.allocator().check();
    if fault != Fault::Lost {
        recovers(&mut program, &mut errors, &at);
    }
    let sim = program.give_up();
    assert_eq!(sim.violations(), [], "{at}");
    if fault != Fault::Lost {
        assert_eq!(leaked(&sim), 0, "{at}: bytes leaked");
    }
    errors
}

/// Checks that everything works after the failure: the cache empties and what then fits is granted.
fn recovers(program: &mut Program, errors: &mut Vec<Error<SimError>>, at: &str) {
    // The planned failure may happen here; then there is no other.
    if let Err(error) = program.step(Operation::EmptyCache) {
        errors.push(error);
        program
            .step(Operation::EmptyCache)
            .unwrap_or_else(|error| panic!("{at}: the cache does not empty twice: {error}"));
    }
    program.allocator().check();
    let stats = program.allocator().stats();
    assert_eq!((stats.reserved_bytes.all.current, stats.active.all.current), (0, 0), "{at}: {stats:?}");
    let again = Operation::Allocate { block: LAST + 5, bytes: 2 * MIB, stream: 0 };
    let mut outcome = program.step(again);
    if let Err(error @ Error::Driver { .. }) = outcome {
        errors.push(error);
        outcome = program.step(again);
    }
    assert!(outcome.is_ok(), "{at}: {outcome:?}");
    program.free_all();
    program.allocator().check();
}

#[test]
fn every_call_fails_once_and_says_so() {
    for case in cases() {
        let operations = script(&case);
        let calls = calls_of(&case, &operations);
        assert!(calls >= 20, "{}: only {calls} calls", case.name);
        let mut told = 0;
        for nth in 1..=calls {
            let errors = errors_of(&case, &operations, nth, Fault::Other);
            assert!(errors.len() <= 1, "{}: one failure, {} errors: {errors:?}", case.name, errors.len());
            told += errors.len() as u64;
            for error in errors {
                assert!(matches!(&error, Error::Driver { lost: false, .. }), "{}: {error:?}", case.name);
                assert_eq!(error.fault(), Fault::Other, "{}: {error:?}", case.name);
            }
        }
        // Frees under `direct` release memory and have no caller that an error could be returned to.
        let heard = if case.settings.policy == Policy::Direct { calls / 4 } else { calls };
        assert!(told >= heard, "{}: {calls} calls failed and {told} errors came", case.name);
    }
}

#[test]
fn every_call_runs_out_of_memory_once() {
    for case in cases() {
        let operations = script(&case);
        for nth in 1..=calls_of(&case, &operations) {
            let errors = errors_of(&case, &operations, nth, Fault::OutOfMemory);
            assert!(errors.len() <= 1, "{}: one failure, {} errors: {errors:?}", case.name, errors.len());
        }
    }
}

#[test]
fn a_lost_device_is_told_as_lost_and_breaks_nothing() {
    for case in cases() {
        let operations = script(&case);
        for nth in 1..=calls_of(&case, &operations) {
            for error in errors_of(&case, &operations, nth, Fault::Lost) {
                assert!(matches!(&error, Error::Driver { lost: true, .. }), "{}: {error:?}", case.name);
            }
        }
    }
}

#[test]
fn the_programs_reach_every_call_that_allocators_make() {
    let mut reached = Vec::new();
    for case in cases() {
        let mut program = program(&case);
        script(&case).into_iter().for_each(|operation| program.do_or_refuse(operation));
        let calls = program.sim().calls();
        reached.extend(CallKind::ALL.iter().filter(|kind| calls.of(**kind) > 0));
    }
    use CallKind::*;
    let memory = [Reserve, Release, ReserveRange, ReleaseRange, CreatePage, ReleasePage, Map, Unmap];
    for kind in memory.into_iter().chain([Reached, Wait, StreamWait]) {
        assert!(reached.contains(&kind), "no program calls {kind}");
    }
}
