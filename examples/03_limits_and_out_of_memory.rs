//! Limits, configuration, and an out-of-memory error that explains itself.
//!
//! Run it with `cargo run -p millpond-examples --example 03_limits_and_out_of_memory`.

use std::error::Error;

use millpond::Allocator;
use millpond::text::format_bytes;
use millpond_sim::Sim;

fn main() -> Result<(), Box<dyn Error>> {
    let sim = Sim::builder().total_bytes(1 << 30).build();
    let allocator = Allocator::builder(sim.clone()).conf("max_split_size_mb:64").limit(200 << 20).build()?;
    let stream = allocator.create_stream()?;

    // Twenty blocks of 8 MiB, of which every second is freed: the free memory is there, but in pieces.
    let mut blocks: Vec<_> = (0..20).map(|_| stream.allocate(8 << 20)).collect::<Result<_, _>>()?;
    let mut number = 0;
    blocks.retain(|_| {
        number += 1;
        number % 2 == 0
    });
    println!(
        "{} live, {} reserved, limit {}",
        format_bytes(allocator.memory_allocated()),
        format_bytes(allocator.memory_reserved()),
        format_bytes(allocator.limit().unwrap_or(0))
    );

    match stream.allocate(60 << 20) {
        Ok(_) => println!("60 MiB fitted after all"),
        Err(error) => println!("\n60 MiB more: {error}\n"),
    }

    // The same program on expandable segments: free memory is not bound to segments there.
    let expandable = Allocator::builder(sim).conf("expandable_segments:True").limit(200 << 20).build()?;
    let stream = expandable.create_stream()?;
    let mut blocks: Vec<_> = (0..20).map(|_| stream.allocate(8 << 20)).collect::<Result<_, _>>()?;
    let mut number = 0;
    blocks.retain(|_| {
        number += 1;
        number % 2 == 0
    });
    match stream.allocate(20 << 20) {
        Ok(buffer) => println!("with expandable_segments:True, 20 MiB more: {}", format_bytes(buffer.capacity())),
        Err(error) => println!("with expandable_segments:True, 20 MiB more: {error}"),
    }

    // A mistake in a configuration is refused, with its position and what is accepted.
    let mistake = Allocator::builder(Sim::new()).conf("max_split_size:64").build();
    println!("\nmax_split_size:64 -> {}", mistake.err().map_or(String::new(), |error| error.to_string()));
    Ok(())
}

#[test]
fn runs() {
    main().unwrap();
}
