//! The comparison on a device: on the simulated driver, beside a program that stands in for the peers. A program of
//! its own, because a process has one driver.

#![cfg(target_os = "linux")] // Where the simulated driver is.

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use millpond_benches::gpu::case::{GPU_CASES, GpuCase};
use millpond_benches::gpu::compare::{Comparison, Outcome, Row, Single};
use millpond_benches::gpu::contest::{Closer, Contestant, Effort, Turn};
use millpond_benches::gpu::own::{Open, Own};
use millpond_benches::gpu::page::{CSV_HEAD, csv, table};
use millpond_benches::gpu::peer::{Peer, served};
use millpond_benches::gpu::task::Scratch;
use millpond_benches::measure::Meter;
use millpond_benches::scale::{self, streams, threads};
use millpond_benches::subject::{CLASSIC, EXPANDABLE, PAGED};
use millpond_benches::workload::read_trace;
use millpond_cuda::Cuda;
use millpond_replay::Replay;

const STAND_IN: &str = env!("CARGO_BIN_EXE_stand-in-peer");

/// Returns a comparison of this allocator's variants and some peers; `name` is unique among the tests.
fn comparison(name: &str, peers: &[&str]) -> Comparison {
    millpond_cuda_driver::install().expect("the simulator is built with the tests");
    let open: Open<Cuda> = Rc::new(|| Ok(Cuda::open(0)?));
    let meter = Rc::new(Meter::new());
    let mut contestants: Vec<Box<dyn Contestant>> = Vec::new();
    for variant in [PAGED, CLASSIC, EXPANDABLE] {
        contestants.push(Box::new(Own::new(variant, Rc::clone(&open), Rc::clone(&meter))));
    }
    for peer in peers {
        contestants.push(Box::new(Peer::new(Path::new(STAND_IN), peer, 0)));
    }
    Comparison {
        contestants,
        effort: Effort { rounds: 2, ..Effort::QUICK },
        threads: vec![1, 2],
        traces: PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/corpus/traces"),
        device_bytes: 8 << 30,
        scratch: Scratch::new(name).expect("the system's temporary folder can be written"),
    }
}

fn case(name: &str) -> &'static GpuCase {
    GPU_CASES.iter().find(|case| case.name == name).expect(name)
}

fn single(comparison: &mut Comparison, name: &str) -> (Single, String) {
    let outcome = comparison.case(case(name)).expect("nothing but subjects can fail");
    let page = table(&outcome);
    let lines = csv(&outcome);
    let fields = |text: &str| text.lines().map(|line| line.split(',').count()).collect::<Vec<_>>();
    assert_eq!(fields(&lines), vec![fields(CSV_HEAD)[0]; comparison.contestants.len()], "{lines}");
    match outcome {
        Outcome::Single(single) => (single, page),
        other => panic!("{name} has one thread: {other:?}"),
    }
}

/// Returns what only the first turn of a subject measures.
fn closer(row: &Row<Turn>) -> Closer {
    row.turns[0].closer.unwrap_or_else(|| panic!("{}: the first turn looks closer", row.name))
}

/// Returns the number of blocks that a subject was checked to grant in one pass.
fn checked(row: &Row<Turn>) -> u64 {
    closer(row).blocks
}

#[test]
fn everybody_does_the_same_work_from_an_empty_cache() {
    let mut all = comparison("same-work", &["malloc", "cudaMalloc"]);
    let expected = [("hit/4KiB", 10_001, 101), ("churn/1000/1MiB", 51_000, 1100)];
    for (name, blocks, short_blocks) in expected {
        let (single, page) = single(&mut all, name);
        let found: Vec<_> = single.rows.iter().map(checked).collect();
        assert_eq!(found, [blocks, blocks, blocks, blocks, short_blocks], "{page}");
        for row in &single.rows {
            assert!(row.note.is_none() && (1..=2).contains(&row.turns.len()), "{row:?}");
            assert!(row.turns.iter().all(|turn| turn.cold_ns > 0.0 && turn.pass_ns > 0.0), "{row:?}");
            assert!(row.turns[1..].iter().all(|turn| turn.closer.is_none()), "{row:?}");
        }
        // What the stand-in answers: 1.5 ns for an operation, and 11.5 behind an eviction.
        let told = closer(&single.rows[3]);
        assert_eq!((told.latency.p50, told.evicted.p50), (1.5, 11.5), "{told:?}");
        assert!(single.rows[..3].iter().all(|row| closer(row).evicted.max > 0.0), "{page}");
        let own = single.rows[0].turns[0].reserved.expect("this allocator counts");
        assert!(own >= single.live && own < single.live + (64 << 20), "{own} bytes for {}", single.live);
        assert_eq!(single.rows[3].turns[0].reserved, Some(4096));
        assert!(page.contains("- cudaMalloc: the first 200 operations of the list only\n"), "{page}");
    }
}

#[test]
fn a_trace_is_played_cold_and_warm() {
    let mut all = comparison("trace", &["malloc", "cudaMalloc"]);
    let (single, page) = single(&mut all, "trace/serving_kv");
    let blocks: Vec<_> = single.rows[..4].iter().map(checked).collect();
    assert!(blocks[0] > 20_000 && blocks.iter().all(|count| *count == blocks[0]), "{blocks:?}");
    assert!(single.rows[4].turns.is_empty() && page.contains("- cudaMalloc: left out: a driver call"), "{page}");
    assert!(page.contains("Goal: warm, at least 8 times faster than torch. Measured: nothing.\n"), "{page}");
}

#[test]
fn threads_race_with_lists_of_their_own() {
    let mut all = comparison("race", &["malloc", "cudaMalloc"]);
    let outcome = all.case(case("threads/hit/1MiB")).expect("nothing but subjects can fail");
    let (page, lines) = (table(&outcome), csv(&outcome));
    let Outcome::Threaded(threaded) = outcome else { panic!("threads raced: {page}") };
    assert_eq!(threaded.rows.len(), 5);
    for row in &threaded.rows {
        assert!(row.note.is_none() && !row.turns.is_empty(), "{row:?}");
        assert!(row.turns.iter().all(|races| races.len() == 2 && races.iter().all(|race| race.wall_ns > 0.0)));
    }
    // The stand-in reports 100 ns on one thread and 50 on two.
    assert!(page.contains("| malloc | 1 | 10.000 | 0 % |") && page.contains("| malloc | 2 | 20.000 | 0 % |"), "{page}");
    assert!(page.contains(" | 2.00 | 100.0 | "), "{page}");
    assert_eq!(lines.lines().count(), 10, "{lines}");
}

#[test]
fn who_fails_is_named_and_the_others_go_on() {
    let mut all = comparison("failures", &["refuses", "dies", "babbles", "skips", "malloc"]);
    // In the second case, the processes that have ended are started anew.
    for name in ["hit/4KiB", "hit/1MiB"] {
        let (single, page) = single(&mut all, name);
        let notes: Vec<_> = single.rows[3..].iter().map(|row| row.note.as_deref().unwrap_or("none")).collect();
        let expected = [
            "failed: there is no memory to speak of",
            "failed: the program ended without an answer to `passes 1 0`",
            "failed: the program's answer has `soon` for a number",
            "failed: the program checked 10000 blocks of 10001: it did other work",
            "none",
        ];
        assert_eq!(notes, expected, "{page}");
        assert!(page.contains(&format!("- dies: {}\n", expected[1])), "{page}");
    }
}

#[test]
fn what_the_device_has_no_room_for_is_left_out() {
    let mut all = comparison("room", &[]);
    let outcome = all.case(case("churn/1000/64MiB")).expect("nothing but subjects can fail");
    let page = table(&outcome);
    assert!(page.contains("Left out: its blocks take 3") && page.contains("and the device has 8.00 GiB."), "{page}");
    assert_eq!(csv(&outcome), "");
}

#[test]
fn the_program_says_whom_it_serves() {
    let names = served(Path::new(STAND_IN)).expect("it lists them");
    assert_eq!(names[..2], ["malloc", "cudaMalloc"]);
    let error = served(Path::new("/nonexistent/peers")).expect_err("there is none");
    assert!(error.to_string().starts_with("/nonexistent/peers cannot be started: "), "{error}");
}

#[test]
fn streams_and_threads_are_measured_on_a_device() {
    millpond_cuda_driver::install().expect("the simulator is built with the tests");
    let open = || Ok(Cuda::open(0)?);
    let timing = streams::Timing { warm: Duration::ZERO, turn: Duration::ZERO, rounds: 1 };
    let cells = streams::measure(open, (PAGED, 4 << 20, streams::Start::AtPeak), &[1, 3], timing).expect("it fits");
    assert!(cells.iter().all(|cell| cell.pair_ns.len() == 1) && cells.len() == 2);
    // Several streams that share a home ask for each other's work.
    assert!(cells[0].driver_calls == 0.0 && cells[1].driver_calls < 1.0, "{}", cells[1].driver_calls);

    let replay = Replay::new(&read_trace("prefetch").expect("the corpus has it").scaled_down(8));
    let timing = threads::Timing { rounds: 1, turn: Duration::ZERO, bound: Duration::MAX };
    let measured = threads::measure(open, &replay, 2, timing).expect("it fits");
    let seen = measured.map(|measured| (measured.slowest.warm.len(), measured.cpu.warm.len(), measured.refused));
    assert_eq!(seen, [(1, 1, 0); 2]);

    let traces = PathBuf::from("unused");
    let effort = scale::Effort { operations: 1, churn: 1, bound: Duration::ZERO, traces };
    for case in scale::Table::ALL.into_iter().flat_map(scale::Table::cases).filter(|case| !case.is_for_devices()) {
        assert!(case.rows_on(open, &effort).is_err(), "{} is for the simulated device alone", case.name());
    }
}
