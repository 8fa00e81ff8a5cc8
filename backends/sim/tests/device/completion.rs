//! The orders in which queued work may complete.

use millpond_backend::{Backend, Closing, Point, StreamWait, Tick};
use millpond_sim::{Completion, Sim, Work};

fn manual() -> Sim {
    Sim::builder().completion(Completion::Manual).build()
}

#[test]
fn manual_work_completes_one_by_one_and_in_order() {
    let sim = manual();
    let stream = sim.create_stream().unwrap();
    let ticks: Vec<Tick> = (0..3)
        .map(|_| {
            sim.launch(stream, Work::Kernel);
            sim.mark(stream)
        })
        .collect();
    for (index, tick) in ticks.iter().enumerate() {
        assert_eq!(sim.reached(stream).unwrap(), Tick(index as u64));
        assert!(sim.complete_one(stream));
        assert_eq!(sim.reached(stream).unwrap(), *tick);
    }
    assert!(!sim.complete_one(stream));
}

#[test]
fn manual_completion_of_one_stream_stops_at_a_device_side_wait() {
    let sim = manual();
    let [a, b] = sim.open_streams(2)[..] else { panic!("two streams") };
    sim.launch(a, Work::Kernel);
    let point = Point { stream: a, tick: sim.mark(a) };
    sim.launch(b, Work::Busy);
    StreamWait::wait_for(&sim, b, point).unwrap();
    sim.launch(b, Work::Kernel);
    assert_eq!(sim.complete(b), 1, "only what stands before the wait");
    assert_eq!(sim.complete(b), 0);
    assert_eq!(sim.complete(a), 1);
    assert_eq!(sim.complete(b), 1);
    assert_eq!(sim.queued(), 0);
}

#[test]
fn a_manual_host_wait_completes_what_it_needs_and_no_more() {
    let sim = manual();
    let [a, b] = sim.open_streams(2)[..] else { panic!("two streams") };
    sim.launch(a, Work::Kernel);
    let needed = Point { stream: a, tick: sim.mark(a) };
    sim.launch(a, Work::Kernel);
    StreamWait::wait_for(&sim, b, needed).unwrap();
    sim.launch(b, Work::Kernel);
    let goal = Point { stream: b, tick: sim.mark(b) };
    sim.launch(b, Work::Kernel);
    assert_eq!(sim.wait(goal).unwrap(), goal.tick);
    assert_eq!(sim.queued(), 2, "the later kernel of each stream still runs");
    sim.complete_all();
    assert_eq!(sim.queued(), 0);
}

#[test]
fn unsubmitted_work_does_not_complete() {
    let sim = Sim::builder().closing(Closing::Submit).completion(Completion::Manual).build();
    let stream = sim.create_stream().unwrap();
    sim.launch(stream, Work::Kernel);
    sim.synchronize();
    assert_eq!(sim.complete(stream), 0);
    sim.submit(stream).unwrap();
    assert_eq!(sim.complete(stream), 1);
}

/// Returns what a seeded run of four streams shows from outside, one entry per poll.
fn history(seed: u64) -> Vec<u64> {
    let sim = Sim::builder().completion(Completion::Seeded(seed)).build();
    let streams = sim.open_streams(4);
    let mut seen = Vec::new();
    for round in 0..20 {
        for stream in &streams {
            sim.launch(*stream, Work::Kernel);
            sim.mark(*stream);
        }
        let stream = streams[round % 4];
        seen.push(sim.reached(stream).unwrap().0);
    }
    seen
}

#[test]
fn seeded_runs_repeat_exactly_and_differ_by_seed() {
    assert_eq!(history(7), history(7));
    let different: std::collections::BTreeSet<Vec<u64>> = (0..8).map(history).collect();
    assert!(different.len() > 4, "eight seeds gave {} histories", different.len());
}

#[test]
fn seeded_lanes_overtake_each_other_but_honour_waits() {
    let mut overtaken = 0;
    for seed in 0..32 {
        let sim = Sim::builder().completion(Completion::Seeded(seed)).build();
        let [a, b, c] = sim.open_streams(3)[..] else { panic!("three streams") };
        for _ in 0..10 {
            sim.launch(a, Work::Kernel);
        }
        let first = sim.mark(a);
        StreamWait::wait_for(&sim, b, Point { stream: a, tick: first }).unwrap();
        sim.launch(b, Work::Kernel);
        sim.launch(c, Work::Kernel);
        let (behind, free) = (sim.mark(b), sim.mark(c));
        for _ in 0..200 {
            sim.step();
            // Each poll lets some work complete, so what is not done at a later poll was not done at an earlier one.
            let free_done = sim.reached(c).unwrap() == free;
            let behind_done = sim.reached(b).unwrap() == behind;
            let first_done = sim.reached(a).unwrap() == first;
            assert!(!behind_done || first_done, "seed {seed}: stream b passed its wait");
            overtaken += u32::from(free_done && !first_done);
        }
        assert_eq!(sim.queued(), 0, "seed {seed}: all work ends at last");
    }
    assert!(overtaken > 0, "the last stream was never ahead of the first");
}

#[test]
fn seeded_steps_do_not_end_busy_work() {
    let sim = Sim::builder().completion(Completion::Seeded(1)).build();
    let stream = sim.create_stream().unwrap();
    sim.busy(stream);
    let tick = sim.mark(stream);
    for _ in 0..50 {
        assert!(sim.reached(stream).unwrap() < tick);
    }
    assert_eq!(sim.wait(Point { stream, tick }).unwrap(), tick);
}
