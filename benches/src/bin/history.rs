//! What a history costs: `history off|state|all|tagged PAIRS` times an allocation from the cache and its free, and
//! nothing else, for a profiler that counts instructions as well; `history threads PAIRS` does so on four streams, a
//! thread for each; `history snapshot BLOCKS` times a snapshot of as many blocks and 100,000 entries. It is a program
//! of its own, because a second caller of what `hotpath` calls would change how that is inlined.

use std::error::Error;
use std::hint::black_box;
use std::time::Instant;

use millpond::history::Recording;
use millpond::{Allocator, Stream, with_tag};
use millpond_sim::Sim;

const USAGE: &str = "usage: history off|state|all|tagged|threads|snapshot NUMBER";
const ENTRIES: usize = 100_000;

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let (name, number) = (words.next(), words.next().and_then(|word| word.parse::<u64>().ok()));
    let number = number.ok_or(USAGE)?;
    let allocator = Allocator::builder(Sim::new()).conf("policy:classic").build()?;
    let stream = allocator.create_stream()?;
    match name.as_deref() {
        Some("off") => {}
        Some("state") => allocator.record_history(Recording::state()),
        Some("all" | "tagged" | "threads") => allocator.record_history(Recording::all(ENTRIES)),
        Some("snapshot") => return snapshot(&allocator, &stream, number),
        _ => return Err(USAGE.into()),
    }
    let nanos = match name.as_deref() {
        Some("threads") => threads(&allocator, number)?,
        Some("tagged") => with_tag("model", || with_tag("layer3", || pairs(&stream, number)))?,
        _ => pairs(&stream, number)?,
    };
    println!("{nanos:.1} ns for a pair");
    Ok(())
}

/// Returns the nanoseconds that a pair takes.
fn pairs(stream: &Stream<Sim>, pairs: u64) -> Result<f64, Box<dyn Error>> {
    let begun = Instant::now();
    for _ in 0..pairs {
        drop(black_box(stream.allocate(black_box(32 << 20))?));
    }
    Ok(begun.elapsed().as_nanos() as f64 / pairs.max(1) as f64)
}

/// Returns the mean over four threads.
fn threads(allocator: &Allocator<Sim>, number: u64) -> Result<f64, Box<dyn Error>> {
    let streams = (0..4).map(|_| allocator.create_stream()).collect::<Result<Vec<_>, _>>()?;
    let nanos: Result<Vec<f64>, String> = std::thread::scope(|scope| {
        let run = |stream: Stream<Sim>| scope.spawn(move || pairs(&stream, number).map_err(|error| error.to_string()));
        let running: Vec<_> = streams.into_iter().map(run).collect();
        running.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err("a thread failed".into()))).collect()
    });
    let nanos = nanos?;
    Ok(nanos.iter().sum::<f64>() / nanos.len() as f64)
}

fn snapshot(allocator: &Allocator<Sim>, stream: &Stream<Sim>, blocks: u64) -> Result<(), Box<dyn Error>> {
    allocator.record_history(Recording::all(ENTRIES));
    let names: Vec<_> = (0..100).map(|layer| format!("layer{layer}")).collect();
    let block = |at: u64| with_tag(&names[at as usize % names.len()], || stream.allocate(512 + at % 7 * 4096));
    let held = (0..blocks).map(block).collect::<Result<Vec<_>, _>>()?;
    for at in 0..ENTRIES as u64 {
        drop(block(at)?);
    }
    let mut times: Vec<_> = (0..21)
        .map(|_| {
            let begun = Instant::now();
            black_box(allocator.snapshot());
            begun.elapsed().as_secs_f64() * 1e3
        })
        .collect();
    times.sort_by(f64::total_cmp);
    let taken = allocator.snapshot();
    let blocks: usize = taken.segments.iter().map(|segment| segment.blocks.len()).sum();
    let (entries, lost) = (taken.history.entries.len(), taken.history.lost);
    println!(
        "{blocks} blocks, {entries} entries, {lost} lost: {:.2} ms (median), {:.2} ms (most)",
        times[10], times[20]
    );
    drop(held);
    Ok(())
}
