//! The same trace gives the same decisions: in every run, and whether the backend or the application closes the ticks.

use std::path::{Path, PathBuf};

use millpond::backend::{Backend as _, Closing, Fault};
use millpond::events::Event as Told;
use millpond::settings::{Growth, Policy, Settings};
use millpond::{Allocator, Buffer, Stream};
use millpond_replay::DecisionLog;
use millpond_sim::{CostModel, Sim};
use millpond_tests::mix::generator;
use millpond_tests::pair::Setup;
use millpond_tests::program::Program;
use millpond_trace::Random;
use millpond_trace::{Event, Trace};

/// The number of events of each trace that are replayed.
const EVENTS: usize = 12_000;

const TRACES: [&str; 7] =
    ["bert_multistream", "gnn", "gpt2_train", "llm_generate", "prefetch", "resnet50_amp", "serving_kv"];

const CONFS: [&str; 5] = [
    "policy:classic",
    "policy:paged,growth:balanced",
    "policy:paged,growth:tight",
    "policy:classic,expandable_segments:True",
    "policy:classic,max_split_size_mb:32,garbage_collection_threshold:0.6,roundup_power2_divisions:4",
];

fn trace(name: &str) -> Trace {
    let path: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/traces").join(format!("{name}.trace.gz"));
    let mut trace = Trace::read(&path).unwrap_or_else(|error| panic!("{name}: {error}"));
    // A part of a trace from its start is a trace.
    trace.events.truncate(EVENTS);
    trace
}

fn allocator(conf: &str, closing: Closing) -> (Sim, Allocator<Sim>) {
    let sim = Sim::builder().cost(CostModel::free()).closing(closing).build();
    match Allocator::builder(sim.clone()).conf(conf).limit(2 << 30).build() {
        Ok(allocator) => (sim, allocator),
        Err(error) => panic!("{conf:?}: {error}"),
    }
}

/// Replays a trace, submits after every event, and returns the decisions.
fn decisions(trace: &Trace, conf: &str, closing: Closing) -> Vec<Told> {
    let (sim, allocator) = allocator(conf, closing);
    let open = |id| allocator.stream(id).unwrap_or_else(|error| panic!("{error}"));
    let streams: Vec<Stream<Sim>> = sim.open_streams(trace.streams as usize).into_iter().map(open).collect();
    let mut blocks: Vec<Option<Buffer<Sim>>> = Vec::new();
    DecisionLog::start(&allocator);
    let late = late_frees(trace);
    for event in &trace.events {
        match *event {
            Event::Allocate { bytes, stream, .. } => match streams[stream as usize].allocate(bytes) {
                Ok(buffer) => blocks.push(Some(buffer)),
                Err(error) if error.fault() == Fault::OutOfMemory => blocks.push(None),
                Err(error) => panic!("{conf:?}: {error}"),
            },
            Event::Free { id } if !late[id as usize] => blocks[id as usize] = None,
            // The trace records when the device was done with the block, which is freed then.
            Event::Complete { id } => blocks[id as usize] = None,
            _ => {}
        }
        for stream in &streams {
            sim.submit(stream.id()).unwrap();
        }
    }
    DecisionLog::finish(&allocator)
}

/// Returns by block whether the device is done with it later than the free.
fn late_frees(trace: &Trace) -> Vec<bool> {
    let mut late = vec![false; trace.allocations()];
    for event in &trace.events {
        if let Event::Complete { id } = event {
            late[*id as usize] = true;
        }
    }
    late
}

/// What must be the same whoever closes the ticks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Same {
    All,
    /// All but the waits for memory that goes back to the driver. Where a tick is over but not closed, the allocator
    /// cannot know that, and waits.
    ButWaits,
    /// Nothing: where work is under way when a request misses, `paged` decides by what it may do about that, which
    /// differs between the two ways. Such runs are compared with a second one of their own kind.
    Nothing,
}

/// Checks that two runs in which the backend closes ticks decide alike, and that a run with the application's submits
/// does, too, as far as it must. Returns the decisions.
fn agree(name: &str, same: Same, run: impl Fn(Closing) -> Vec<Told>) -> Vec<Told> {
    let first = run(Closing::Backend);
    differ_nowhere(name, "a second run", &first, &run(Closing::Backend));
    let submitted = run(Closing::Submit);
    let other = "the other way to close ticks";
    match same {
        Same::All => differ_nowhere(name, other, &first, &submitted),
        Same::ButWaits => differ_nowhere(name, other, &without_waits(&first), &without_waits(&submitted)),
        Same::Nothing => differ_nowhere(name, "a second run with submits", &submitted, &run(Closing::Submit)),
    }
    first
}

fn without_waits(decisions: &[Told]) -> Vec<Told> {
    let is_wait = |decision: &Told| matches!(decision, Told::Step { name, .. } if *name == "wait");
    decisions.iter().filter(|decision| !is_wait(decision)).cloned().collect()
}

fn differ_nowhere(name: &str, what: &str, first: &[Told], other: &[Told]) {
    let differ = first.iter().zip(other).position(|(a, b)| a != b);
    if let Some(at) = differ {
        panic!("{name}: {what} differs at decision {at}: {:?} against {:?}", first[at], other[at]);
    }
    assert_eq!(first.len(), other.len(), "{name}: {what} makes more or fewer decisions");
}

#[test]
fn recorded_programs_decide_alike() {
    for name in TRACES {
        let trace = trace(name);
        for conf in CONFS {
            let log = agree(name, Same::All, |closing| decisions(&trace, conf, closing));
            assert!(log.len() > trace.events.len() / 2, "{name}: {} decisions", log.len());
            assert!(log.iter().any(|decision| matches!(decision, Told::Step { .. })), "{name}: no driver's step");
        }
    }
}

/// Runs a program with uses on other streams, points, long kernels, waits and a limit, under `paged` with this growth
/// if one is given. Returns the decisions.
fn program_decisions(seed: u64, paged: Option<Growth>, closing: Closing) -> Vec<Told> {
    let mut random = Random::new(seed);
    let setup = Setup::draw(&mut random);
    let builder = Sim::builder().total_bytes(setup.rules.total).cost(CostModel::free()).closing(closing);
    let sim = builder.build();
    let settings = match paged {
        Some(growth) => Settings { policy: Policy::paged(growth), ..setup.settings() },
        None => setup.settings(),
    };
    let mut allocator = Allocator::builder(sim.clone()).settings(settings);
    if let Some(limit) = setup.rules.limit {
        allocator = allocator.limit(limit);
    }
    let allocator = allocator.build().unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    DecisionLog::start(&allocator);
    let mut program = Program::new(sim, allocator.clone(), setup.streams);
    let mut generator = generator(random, setup.streams, setup.largest);
    for _ in 0..300 {
        let operation = program.draw(&mut generator);
        program.do_or_refuse(operation);
        program.submit();
    }
    program.free_all();
    DecisionLog::finish(&allocator)
}

#[test]
fn programs_with_uses_and_points_decide_alike() {
    for seed in 0..120 {
        for paged in [None, Some(Growth::Balanced), Some(Growth::Tight)] {
            let name = format!("seed {seed}, paged {paged:?}");
            let same = if paged.is_some() { Same::Nothing } else { Same::ButWaits };
            agree(&name, same, |closing| program_decisions(seed, paged, closing));
        }
    }
}

#[test]
fn programs_that_differ_decide_differently() {
    for paged in [None, Some(Growth::Tight)] {
        let of = |seed| program_decisions(seed, paged, Closing::Backend);
        assert_ne!(of(1), of(2), "{paged:?}");
    }
}
