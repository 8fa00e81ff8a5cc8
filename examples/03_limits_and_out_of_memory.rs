//! Limits, configuration, and an out-of-memory error that explains itself.
//!
//! Run it with `cargo run -p millpond-examples --example 03_limits_and_out_of_memory`.

use std::error::Error;

use millpond::text::format_bytes;
use millpond::{Allocator, Buffer, Stream};
use millpond_sim::Sim;

fn main() -> Result<(), Box<dyn Error>> {
    // Under `classic`, which is PyTorch's allocator, a free block stays in its segment: free memory of two segments
    // never serves one request.
    let sim = Sim::builder().total_bytes(1 << 30).build();
    let classic = Allocator::builder(sim).conf("policy:classic,max_split_size_mb:64").limit(200 << 20).build()?;
    let stream = classic.create_stream()?;
    let _kept = every_second_block(&stream)?;
    println!(
        "{} live, {} reserved, limit {}",
        format_bytes(classic.memory_allocated()),
        format_bytes(classic.memory_reserved()),
        format_bytes(classic.limit().unwrap_or(0))
    );
    match stream.allocate(60 << 20) {
        Ok(_) => println!("60 MiB fitted after all"),
        Err(error) => println!("\n60 MiB more: {error}\n"),
    }

    // The same program under `paged`, the default where the device has virtual memory, as the simulated one has: its
    // free pages are mapped together where they are needed.
    let paged = Allocator::builder(Sim::builder().total_bytes(1 << 30).build()).limit(200 << 20).build()?;
    let stream = paged.create_stream()?;
    let _kept = every_second_block(&stream)?;
    let _large = stream.allocate(60 << 20)?;
    println!("under paged there are 60 MiB more, with {} reserved", format_bytes(paged.memory_reserved()));
    match stream.allocate(80 << 20) {
        Ok(_) => println!("80 MiB fitted after all"),
        Err(error) => println!("\nand 80 MiB more: {error}"),
    }

    // A mistake in a configuration is refused, with its position and what is accepted.
    let mistake = Allocator::builder(Sim::new()).conf("max_split_size:64").build();
    println!("\nmax_split_size:64 -> {}", mistake.err().map_or(String::new(), |error| error.to_string()));
    Ok(())
}

/// Allocates twenty blocks of 8 MiB and frees every second one: the free memory is there, but in pieces.
fn every_second_block(stream: &Stream<Sim>) -> Result<Vec<Buffer<Sim>>, Box<dyn Error>> {
    let blocks: Vec<_> = (0..20).map(|_| stream.allocate(8 << 20)).collect::<Result<_, _>>()?;
    Ok(blocks.into_iter().step_by(2).collect())
}

#[test]
fn runs() {
    main().unwrap();
}
