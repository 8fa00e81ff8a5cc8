//! Recording what a program asks of its allocator, and replaying it with other settings.
//!
//! Run it with `cargo run -p millpond-examples --example 04_record_and_replay`. The file that it writes can be replayed
//! with the command line too: `millpond replay FILE --compare`.

use std::error::Error;

use millpond::Allocator;
use millpond_replay::{Recorder, Replay};
use millpond_sim::Sim;
use millpond_trace::Trace;

fn main() -> Result<(), Box<dyn Error>> {
    // A program: layers that allocate activations going forward and free them going back, with batches that grow.
    let allocator = Allocator::new(Sim::builder().build());
    let (compute, loader) = (allocator.create_stream()?, allocator.create_stream()?);
    Recorder::start(&allocator);
    for step in 0..20_u64 {
        let batch = loader.allocate((4 + step) << 20)?;
        batch.record_stream(&compute)?;
        let activations: Vec<_> =
            (1..12).map(|layer| compute.allocate((layer * 3 + step) << 20)).collect::<Result<_, _>>()?;
        drop(batch);
        activations.into_iter().rev().for_each(drop);
    }
    let trace = Recorder::finish(&allocator).ok_or("the recording was on")?;

    let file = std::env::temp_dir().join("millpond-example.trace.gz");
    trace.write(&file)?;
    println!("recorded {} events on {} streams", trace.events.len(), trace.streams);
    println!("  {} bytes in {}", std::fs::metadata(&file)?.len(), file.display());

    // The file is the bug report, the benchmark and the test: it can be replayed anywhere, on any policy.
    let replay = Replay::new(&Trace::read(&file)?);
    println!("\n{:<48} {:>14} {:>9} {:>7} {:>12}", "configuration", "peak reserved", "/ live", "calls", "driver time");
    for conf in [
        "policy:paged",
        "policy:classic",
        "policy:classic,roundup_power2_divisions:4",
        "policy:classic,expandable_segments:True",
        "policy:direct",
    ] {
        let allocator = Allocator::builder(Sim::builder().build()).conf(conf).build()?;
        let result = replay.run(&allocator, 0)?;
        println!(
            "{conf:<48} {:>10} MiB {:>9.3} {:>7} {:>9} us",
            result.stats.reserved_bytes.all.peak >> 20,
            result.reserved_over_live(),
            result.driver.calls,
            result.driver.time.as_micros()
        );
    }
    println!("\nreplay the file with: millpond replay {} --compare", file.display());
    Ok(())
}

#[test]
fn runs() {
    main().unwrap();
}
