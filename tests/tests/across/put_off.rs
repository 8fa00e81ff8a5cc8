//! A free that is put off until the next request has no visible effect.
//!
//! Reading the statistics or the layout finishes a free that was put off, so a test that reads them after every
//! operation never has one. Here one allocator is read after every operation and its twin is not: both must have made
//! the same decisions and have the same numbers at the end.

use millpond::events::Event;
use millpond::{Allocator, MemoryStats, SegmentView};
use millpond_conformance::language::{Generator, Kind, Mix, Sizes};
use millpond_replay::DecisionLog;
use millpond_sim::{CostModel, Sim};
use millpond_tests::program::Program;
use millpond_trace::Random;

const STREAMS: usize = 2;

/// Returns a mix with few sizes, so that the same one is often freed and requested at once, and with near ones, so that
/// others fit better.
fn mix() -> Mix {
    let exact = vec![512, 1000, 4096, 4608, 1 << 20, (1 << 20) + 1, 3 << 20, 11 << 20, 21 << 20, 40 << 20];
    Mix {
        weights: vec![
            (Kind::Again, 40),
            (Kind::Free, 30),
            (Kind::Trim, 1),
            (Kind::ResetPeaks, 1),
            (Kind::Allocate, 28),
        ],
        sizes: Sizes { exact, ranges: Vec::new() },
        streams: STREAMS,
        live_max: usize::MAX,
        limit: 256 << 20,
    }
}

fn run(seed: u64, conf: &str, looks: bool) -> (Vec<Event>, MemoryStats, Vec<SegmentView>) {
    let sim = Sim::builder().total_bytes(512 << 20).cost(CostModel::free()).build();
    let allocator = Allocator::builder(sim.clone()).conf(conf).build().unwrap();
    DecisionLog::start(&allocator);
    let mut program = Program::new(sim, allocator.clone(), STREAMS);
    let mut generator = Generator::new(Random::new(seed), mix());
    for step in 0..600 {
        let operation = program.draw(&mut generator);
        program.do_or_refuse(operation);
        if looks {
            // Reading the counters is enough; the full check is made at intervals.
            let _ = allocator.stats();
            if step % 50 == 0 {
                allocator.check();
            }
        }
    }
    let stats = allocator.stats();
    allocator.check();
    (DecisionLog::finish(&allocator), stats, allocator.layout())
}

#[test]
fn nobody_sees_a_free_that_was_put_off() {
    let confs =
        ["", "expandable_segments:True", "max_split_size_mb:20", "garbage_collection_threshold:0.3", "policy:paged"];
    for (seed, conf) in (1..120).flat_map(|seed| confs.map(|conf| (seed, conf))) {
        let (seen, unseen) = (run(seed, conf, true), run(seed, conf, false));
        let first = seen.0.iter().zip(&unseen.0).position(|(a, b)| a != b);
        assert_eq!(first, None, "seed {seed}, {conf:?}: decision {:?}", first.map(|at| (&seen.0[at], &unseen.0[at])));
        assert_eq!(seen.1, unseen.1, "seed {seed}, {conf:?}: statistics");
        assert_eq!(seen.2, unseen.2, "seed {seed}, {conf:?}: layout");
    }
}
