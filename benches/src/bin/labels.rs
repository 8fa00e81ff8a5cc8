//! An allocation from the cache with a label and its free, where the label is noted, and nothing else, for a profiler
//! that counts instructions: `labels off|labels|sites PAIRS`. It is a program of its own, because a second caller of
//! what `hotpath` calls would change how that is inlined.

use std::error::Error;
use std::hint::black_box;
use std::time::Instant;

use millpond::Allocator;
use millpond::live::Tracking;
use millpond_sim::Sim;

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let (name, pairs) = (words.next(), words.next().and_then(|word| word.parse::<u64>().ok()));
    let tracking = match name.as_deref() {
        Some("off") => Tracking::Off,
        Some("labels") => Tracking::Labels,
        Some("sites") => Tracking::Sites,
        _ => return Err("usage: labels off|labels|sites PAIRS".into()),
    };
    let pairs = pairs.ok_or("usage: labels off|labels|sites PAIRS")?;
    let allocator = Allocator::builder(Sim::new()).conf("policy:classic").build()?;
    allocator.track_live(tracking);
    let stream = allocator.create_stream()?;
    let begun = Instant::now();
    for _ in 0..pairs {
        drop(black_box(stream.allocate_labelled("label", black_box(32 << 20))?));
    }
    println!("{:.1} ns for a pair", begun.elapsed().as_nanos() as f64 / pairs.max(1) as f64);
    Ok(())
}
