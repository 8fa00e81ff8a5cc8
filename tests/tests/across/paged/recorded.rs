//! Recorded programs fit into little more than they hold.

use std::path::Path;

use millpond::Allocator;
use millpond::settings::{Growth, Policy, Segments, Settings};
use millpond_replay::Replay;
use millpond_sim::Completion;
use millpond_trace::Trace;

use super::device::{GIB, builder, changes, device, streams};

const TRACES: [&str; 7] =
    ["bert_multistream", "gnn", "gpt2_train", "llm_generate", "prefetch", "resnet50_amp", "serving_kv"];

pub(crate) fn replay(name: &str) -> Replay {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/traces").join(format!("{name}.trace.gz"));
    Replay::new(&Trace::read(&path).unwrap_or_else(|error| panic!("{name}: {error}")))
}

/// Runs one pass with an eighth more than the live peak as limit. Returns the number of refusals, and the peak of
/// reserved over the peak of live bytes.
fn pass(name: &str, replay: &Replay, growth: Option<Growth>, expandable: bool) -> (u64, f64) {
    let sim = device(140 * GIB, Completion::Immediate).build();
    let builder = match growth {
        Some(growth) => builder(&sim, growth),
        None => {
            let segments = if expandable { Segments::Expandable } else { Segments::Plain };
            let settings = Settings { policy: Policy::Classic(segments), ..Settings::default() };
            Allocator::builder(sim.clone()).settings(settings)
        }
    };
    let limit = replay.live_peak() + replay.live_peak() / 8;
    let allocator = builder.limit(limit).build().unwrap_or_else(|error| panic!("{name}: {error}"));
    let streams = streams(&allocator, replay.streams() as usize);
    let pass = replay.pass(&allocator, &streams).unwrap_or_else(|error| panic!("{name}: {error}"));
    allocator.check();
    (pass.ooms, allocator.max_memory_reserved() as f64 / replay.live_peak() as f64)
}

/// With an eighth more than the program ever holds, nothing is refused. What the other policies refuse is printed.
#[test]
fn an_eighth_more_than_is_live_is_enough() {
    for name in TRACES {
        let replay = replay(name);
        for growth in super::device::GROWTHS {
            let (ooms, ratio) = pass(name, &replay, Some(growth), false);
            println!("{name}, paged, {growth:?}: {ooms} refused, {ratio:.3} reserved over live");
            assert_eq!(ooms, 0, "{name}, {growth:?}");
        }
        for expandable in [false, true] {
            let (ooms, ratio) = pass(name, &replay, None, expandable);
            println!("{name}, classic, expandable {expandable}: {ooms} refused, {ratio:.3} reserved over live");
        }
    }
}

/// Programs of other people's libraries reserve little more than they hold, in each of three passes.
#[test]
fn programs_of_other_libraries_reserve_little_more_than_is_live() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let folder = |name| std::fs::read_dir(corpus.join(name)).expect("the corpus");
    let traces: Vec<_> =
        folder("third").chain(folder("libraries")).map(|entry| entry.expect("a file").path()).collect();
    assert!(traces.len() >= 16, "{traces:?}");
    for path in traces {
        let name = path.display();
        let replay = Replay::new(&Trace::read(&path).unwrap_or_else(|error| panic!("{name}: {error}")));
        for growth in super::device::GROWTHS {
            let sim = device(140 * GIB, Completion::Immediate).build();
            let allocator = builder(&sim, growth).build().unwrap_or_else(|error| panic!("{error}"));
            let streams = streams(&allocator, replay.streams() as usize);
            for _ in 0..3 {
                let pass = replay.pass(&allocator, &streams).unwrap_or_else(|error| panic!("{name}: {error}"));
                assert_eq!(pass.ooms, 0, "{name}, {growth:?}");
            }
            let ratio = allocator.max_memory_reserved() as f64 / replay.live_peak() as f64;
            assert!((1.0..=1.12).contains(&ratio), "{name}, {growth:?}: {ratio:.4}");
            allocator.check();
        }
    }
}

/// A training run whose blocks come and go in the same order each time makes no driver call after its second pass.
#[test]
fn a_repeated_training_step_calls_the_driver_no_more() {
    let replay = replay("resnet50_amp");
    for growth in super::device::GROWTHS {
        let sim = device(140 * GIB, Completion::Immediate).build();
        let allocator = builder(&sim, growth).build().unwrap_or_else(|error| panic!("{error}"));
        let streams = streams(&allocator, replay.streams() as usize);
        let calls = [(); 4].map(|()| {
            let before = sim.calls();
            let pass = replay.pass(&allocator, &streams).unwrap_or_else(|error| panic!("{growth:?}: {error}"));
            assert_eq!(pass.ooms, 0, "{growth:?}");
            changes(&sim.calls().since(&before))
        });
        assert_eq!(calls[2..], [0; 2], "{growth:?}: {calls:?}");
    }
}
