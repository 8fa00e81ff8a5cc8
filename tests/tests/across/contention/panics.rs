//! A backend that panics in the middle of a plan: the panic reaches the caller, the memory that the plan held is given
//! back, and other threads go on.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use millpond::{Allocator, Error, Stream};
use millpond_sim::{CallKind, CostModel, Sim, SimError, Work};
use millpond_tests::program::leaked;

use super::cases::Kind;

const MIB: u64 = 1 << 20;
const LIMIT: u64 = 120 * MIB;
/// The time limit of a wait, which is far more than it takes.
const PATIENCE: Duration = Duration::from_secs(60);

const KINDS: [Kind; 6] = [Kind::Classic, Kind::Expandable, Kind::Oversize, Kind::Direct, Kind::Balanced, Kind::Tight];

const CALLS: [CallKind; 9] = [
    CallKind::Reserve,
    CallKind::Release,
    CallKind::ReserveRange,
    CallKind::ReleaseRange,
    CallKind::CreatePage,
    CallKind::ReleasePage,
    CallKind::Map,
    CallKind::Unmap,
    CallKind::Wait,
];

/// Fills the limit, frees, and then allocates enough on another stream that cached memory has to be released or moved.
fn program(sim: &Sim, streams: &[Stream<Sim>]) -> Result<(), Error<SimError>> {
    let blocks = [20, 30, 40].map(|mib| streams[0].allocate(mib * MIB));
    let [first, second, third] = blocks;
    sim.launch(streams[0].id(), Work::Busy);
    drop((first?, third?));
    let large = streams[1].allocate(60 * MIB)?;
    drop((large, second?));
    streams[1].allocate(100 * MIB).map(drop)
}

/// Runs the program with a panic at the `nth` call of a kind. Returns whether that call was made.
fn run(kind: Kind, call: CallKind, nth: u64) -> bool {
    let sim = Sim::builder().cost(CostModel::free()).build();
    let allocator = Allocator::builder(sim.clone()).settings(kind.settings()).limit(LIMIT).build();
    let allocator = allocator.unwrap_or_else(|error| panic!("{kind:?}: {error}"));
    let streams: Vec<_> = (0..3).map(|_| allocator.create_stream().expect("a stream")).collect();
    sim.panic_in(call, nth);
    let ended = catch_unwind(AssertUnwindSafe(|| program(&sim, &streams)));
    sim.forget_panics();
    match &ended {
        Ok(result) => assert!(result.is_ok(), "{kind:?}, {call} {nth}: {result:?}"),
        Err(panic) => {
            let message = panic.downcast_ref::<String>().map_or("", String::as_str);
            assert!(message.contains("as planned"), "{kind:?}, {call} {nth}: another panic: {message:?}");
        }
    }
    // Another thread then has to release what is cached. It would wait for plans that still hold memory: there is none.
    let (done, ended_well) = channel();
    let (other, device) = (streams[2].clone(), sim.clone());
    let thread = thread::spawn(move || {
        let served = other.allocate(LIMIT - 10 * MIB).map(drop);
        drop((other, device));
        done.send(served.map_err(|error| error.to_string())).expect("somebody waits for the answer");
    });
    match ended_well.recv_timeout(PATIENCE) {
        Ok(served) => assert_eq!(served, Ok(()), "{kind:?}, {call} {nth}: the memory did not come back"),
        Err(RecvTimeoutError::Timeout) => panic!("{kind:?}, {call} {nth}: another thread waits for ever"),
        Err(RecvTimeoutError::Disconnected) => panic!("{kind:?}, {call} {nth}: another thread panicked"),
    }
    thread.join().expect("it has sent its answer");
    allocator.check();
    assert_eq!(allocator.stats().allocated_bytes.all.current, 0, "{kind:?}, {call} {nth}");
    let panicked = ended.is_err();
    drop((streams, allocator));
    assert_eq!((leaked(&sim), sim.violations()), (0, vec![]), "{kind:?}, {call} {nth}");
    panicked
}

#[test]
fn what_a_plan_held_goes_back_when_a_call_of_its_panics() {
    let mut panics = 0;
    for kind in KINDS {
        for call in CALLS {
            let struck = (1..6).take_while(|&nth| run(kind, call, nth)).count();
            panics += struck;
        }
    }
    assert!(panics > 60, "{panics} panics: the programs reach too few calls");
}
