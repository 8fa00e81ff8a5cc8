//! Inputs that a copy stream brings while the device works on those before: upload, have the other stream wait, free.

use millpond::backend::Closing;
use millpond::settings::Growth;
use millpond::{Allocator, Stream};
use millpond_sim::{Completion, Sim};

use super::device::{GROWTHS, MIB, allocator, device, streams, written};

const WEIGHTS: u64 = 256 * MIB;

/// Brings the inputs of a step, each used by `compute`, whose work on it is under way when it is freed.
fn step(sim: &Sim, copy: &Stream<Sim>, compute: &Stream<Sim>, sizes: &[u64]) {
    for &bytes in sizes {
        let input = written(sim, copy, bytes);
        let there = copy.submit().unwrap_or_else(|error| panic!("{error}"));
        compute.wait_for(there).unwrap_or_else(|error| panic!("{error}"));
        input.record_stream(compute).unwrap_or_else(|error| panic!("{error}"));
        sim.busy(compute.id());
        compute.submit().unwrap_or_else(|error| panic!("{error}"));
    }
}

/// Runs steps of which up to `lag` are under way, beside weights that stay. Returns the allocator and what it had
/// reserved at most after a tenth of the steps.
fn run((closing, growth): (Closing, Growth), sizes: &[u64], copies: usize, lag: usize) -> (Allocator<Sim>, u64) {
    let sim = device(64 << 30, Completion::Manual).closing(closing).build();
    let allocator = allocator(&sim, growth);
    let streams = streams(&allocator, copies + 1);
    let (compute, copies) = streams.split_first().unwrap_or_else(|| panic!("no stream"));
    let _weights = compute.allocate(WEIGHTS).unwrap_or_else(|error| panic!("{error}"));
    let (steps, mut early) = (640, 0);
    for at in 0..steps {
        step(&sim, &copies[at % copies.len()], compute, sizes);
        if at % lag == lag - 1 {
            sim.complete_all();
        }
        if at == steps / 10 {
            early = allocator.max_memory_reserved();
        }
    }
    allocator.check();
    (allocator, early)
}

/// What is under way keeps no more than its own bytes: a small input takes no page of its own, whoever closes ticks.
/// Reserved is what was live and under way at a time, what may be created first, and for each stream a page that is in
/// use in part.
#[test]
fn inputs_under_way_take_their_own_bytes() {
    let small: [&[u64]; 4] = [&[1 << 10], &[64 << 10], &[700_000], &[1 << 10, 300_000, 17_000]];
    for closing in [Closing::Backend, Closing::Submit] {
        for growth in GROWTHS {
            for sizes in small {
                for (copies, lag) in [(1, 1), (1, 8), (3, 8), (1, 64), (3, 64)] {
                    let what = format!("{closing:?}, {growth:?}, {sizes:?}, {copies} copy streams, {lag} steps");
                    let (allocator, early) = run((closing, growth), sizes, copies, lag);
                    // Blocks of 700,000 bytes: two fit in a slab of 2 MiB.
                    let pending = sizes.iter().sum::<u64>() * lag as u64 * 3 / 2;
                    let pages = 2 * MIB * (2 * copies as u64 + 1);
                    let most = WEIGHTS * 102 / 100 + 8 * MIB + pending + pages;
                    let peak = allocator.max_memory_reserved();
                    assert!(peak <= most, "{what}: {peak} bytes reserved, {most} at most");
                    assert!(peak <= early + pages, "{what}: {early} bytes reserved after a tenth, {peak} at the end");
                }
            }
        }
    }
}
