//! One driver call fails, at each place where one can, while pages are created, moved, moved behind a wait, taken back
//! and released. Nothing leaks, no byte of any block changes, and all memory can be used afterwards.

use millpond::Error;
use millpond::backend::{Fault, PageCaps};
use millpond::settings::Growth;
use millpond::stats::PageStats;
use millpond_conformance::language::Operation;
use millpond_sim::{CallKind, Completion, SimError};
use millpond_tests::program::leaked;

use super::device::{MIB, builder, device};
use super::held::Hands;

const TOTAL: u64 = 64 * MIB;
const KIB: u64 = 1 << 10;

/// The calls that a program under `paged` makes and that can fail. Unmapping and releasing cannot.
const FALLIBLE: [CallKind; 6] = [
    CallKind::ReserveRange,
    CallKind::CreatePage,
    CallKind::Map,
    CallKind::StreamWait,
    CallKind::Reached,
    CallKind::Wait,
];

const fn take(block: u32, stream: usize, bytes: u64) -> Operation {
    Operation::Allocate { block, bytes, stream }
}

const fn free(block: u32) -> Operation {
    Operation::Free { block }
}

const fn hold(stream: usize) -> Operation {
    Operation::Hold { stream }
}

/// A script that reaches every way in which `paged` gets memory, on three streams.
const SCRIPT: [Operation; 35] = [
    // Pages are created, on both sides.
    take(0, 0, 10 * MIB),
    take(1, 0, 14 * MIB),
    take(2, 0, 6 * MIB),
    take(3, 1, 700 * KIB),
    take(4, 1, 700 * KIB),
    take(5, 1, 700 * KIB),
    take(6, 1, 20 * MIB),
    // Pages are moved out of a hole of another stream, for want of memory.
    free(1),
    take(7, 2, 17 * MIB),
    // Pages are moved behind a wait.
    hold(2),
    free(7),
    take(8, 1, 9 * MIB),
    take(9, 0, 5 * MIB),
    Operation::Sync,
    // Pages are taken back.
    free(8),
    free(9),
    take(10, 2, 16 * MIB),
    free(10),
    take(1, 0, 14 * MIB),
    // A request uses a window of a free block and the hole behind it; small blocks use memory that was large.
    free(0),
    free(1),
    take(11, 0, 30 * MIB),
    free(6),
    take(12, 2, 900 * KIB),
    take(13, 2, 900 * KIB),
    take(14, 2, 900 * KIB),
    // Pages are released, in part and whole, and created anew.
    free(11),
    Operation::Trim { bytes: 28 * MIB },
    take(15, 1, 12 * MIB),
    Operation::EmptyCache,
    take(16, 2, 21 * MIB),
    hold(1),
    free(15),
    take(17, 0, 19 * MIB),
    take(18, 2, 8 * MIB),
];

#[derive(Clone, Copy, Debug)]
struct Case {
    growth: Growth,
    aliasing: bool,
    limit: Option<u64>,
}

const LIMIT: Option<u64> = Some(56 * MIB);

const CASES: [Case; 4] = [
    Case { growth: Growth::Balanced, aliasing: true, limit: None },
    Case { growth: Growth::Tight, aliasing: true, limit: LIMIT },
    Case { growth: Growth::Tight, aliasing: true, limit: None },
    Case { growth: Growth::Balanced, aliasing: false, limit: LIMIT },
];

fn hands(case: Case) -> Hands {
    let pages = PageCaps::new(2 * MIB).with_aliasing(case.aliasing);
    let sim = device(TOTAL, Completion::Immediate).pages(Some(pages)).build();
    let builder = builder(&sim, case.growth);
    let builder = if let Some(limit) = case.limit { builder.limit(limit) } else { builder };
    let allocator = builder.build().unwrap_or_else(|error| panic!("{case:?}: {error}"));
    Hands::new(sim, allocator, 3, 20)
}

/// Performs an operation; hands have the numbers of blocks. A block whose stream is held is freed unread, because
/// reading would wait for the device.
fn perform(hands: &mut Hands, held: &mut Vec<usize>, operation: Operation) -> Result<(), Error<SimError>> {
    match operation {
        Operation::Allocate { block, bytes, stream } => hands.take(block as usize, stream, bytes)?,
        Operation::Free { block } => hands.free_but_read(block as usize, |stream| !held.contains(&stream)),
        Operation::Hold { stream } => {
            hands.sim.busy(hands.streams[stream].id());
            held.push(stream);
        }
        Operation::Sync => {
            hands.sim.synchronize();
            held.clear();
        }
        Operation::EmptyCache => hands.allocator.empty_cache()?,
        Operation::Trim { bytes } => drop(hands.allocator.trim(bytes)?),
        other => unreachable!("the script has no {other:?}"),
    }
    Ok(())
}

/// Runs the script, of which refusals are a part. Returns the driver's errors that its operations returned. The costly
/// check is made from the call of that kind on, for a limited number of operations.
fn run(hands: &mut Hands, case: Case, from: (CallKind, u64)) -> Vec<Error<SimError>> {
    let (mut errors, mut looks, mut held) = (Vec::new(), 6, Vec::new());
    for operation in SCRIPT {
        match perform(hands, &mut held, operation) {
            Ok(()) | Err(Error::OutOfMemory(_)) => {}
            Err(error @ Error::Driver { .. }) => errors.push(error),
            Err(error) => panic!("{case:?}, {operation:?}: {error}"),
        }
        if looks > 0 && hands.sim.calls().of(from.0) >= from.1 {
            hands.allocator.check();
            looks -= 1;
        }
    }
    errors
}

/// Checks that all memory that the limit allows can be allocated in one piece on that stream.
fn all_is_usable(hands: &mut Hands, case: Case, stream: usize) -> Result<(), Error<SimError>> {
    hands.free_all();
    hands.allocator.check();
    hands.take(0, stream, case.limit.unwrap_or(TOTAL))?;
    hands.allocator.check();
    hands.free(0);
    hands.allocator.empty_cache()?;
    assert_eq!(hands.allocator.memory_reserved(), 0, "{case:?}: {:?}", hands.allocator.layout());
    let stats = hands.allocator.page_stats();
    assert_eq!((stats.pages, stats.shadows, stats.created), (0, 0, stats.released), "{case:?}: {stats:?}");
    Ok(())
}

/// Runs the script and lets the `nth` call of a kind fail. Returns how many calls of the kind were made.
fn strike(case: Case, kind: CallKind, nth: u64, fault: Fault) -> u64 {
    let at = format!("{case:?}, {kind} {nth}, {fault:?}");
    let mut hands = hands(case);
    hands.sim.fail(kind, nth, fault);
    let mut errors = run(&mut hands, case, (kind, nth));
    hands.read_all();
    let calls = hands.sim.calls().of(kind);
    if fault != Fault::Lost {
        // The failure may happen only now; then there is no other.
        let stream = (nth % 3) as usize;
        if let Err(error) = all_is_usable(&mut hands, case, stream) {
            errors.push(error);
            all_is_usable(&mut hands, case, stream).unwrap_or_else(|error| panic!("{at}: {error}"));
        }
        assert!(errors.len() <= 1, "{at}: one failure, {} errors: {errors:?}", errors.len());
    }
    if fault != Fault::OutOfMemory && nth <= calls {
        assert!(errors.iter().any(|error| error.fault() == fault), "{at}: nobody was told: {errors:?}");
    }
    let sim = hands.give_up();
    assert_eq!(sim.violations(), [], "{at}");
    if fault != Fault::Lost {
        assert_eq!(leaked(&sim), 0, "{at}: bytes leaked");
    }
    calls
}

fn strike_each(fault: Fault) {
    for case in CASES {
        for kind in FALLIBLE {
            let mut nth = 1;
            while strike(case, kind, nth, fault) >= nth {
                nth += 1;
            }
        }
    }
}

#[test]
fn each_call_fails_once() {
    strike_each(Fault::Other);
}

#[test]
fn each_call_finds_no_memory_once() {
    strike_each(Fault::OutOfMemory);
}

#[test]
fn the_device_is_lost_at_each_call() {
    strike_each(Fault::Lost);
}

/// The script does what its comments say.
#[test]
fn the_script_reaches_every_way_to_get_memory() {
    let mut sum = PageStats::default();
    for case in CASES {
        let mut hands = hands(case);
        assert_eq!(run(&mut hands, case, (CallKind::Map, 1)).len(), 0, "{case:?}");
        hands.read_all();
        let stats = hands.allocator.page_stats();
        sum.created += stats.created;
        sum.moved += stats.moved;
        sum.moved_behind_wait += stats.moved_behind_wait;
        sum.returned += stats.returned;
        sum.released += stats.released;
        sum.unmapped += stats.unmapped;
        all_is_usable(&mut hands, case, 1).unwrap_or_else(|error| panic!("{case:?}: {error}"));
    }
    for ways in [sum.created, sum.moved, sum.moved_behind_wait, sum.returned, sum.released, sum.unmapped] {
        assert!(ways >= 2, "{sum:?}");
    }
}
