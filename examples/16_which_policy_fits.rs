//! From an empty program to the first out-of-memory error that explains itself: who is in the way, what would help, and
//! which policy would have fitted.
//!
//! Run it with `cargo run -p millpond-examples --example 16_which_policy_fits`.

use std::error::Error;

use millpond::history::Recording;
use millpond::text::format_bytes;
use millpond::{Allocator, Buffer, Stream, with_tag};
use millpond_replay::which_policies_fit;
use millpond_sim::Sim;

const MIB: u64 = 1 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    // PyTorch's allocator with 64 MiB, which remembers its last 100,000 events.
    let allocator = Allocator::builder(Sim::new()).conf("policy:classic").limit(64 * MIB).build()?;
    allocator.record_history(Recording::all(100_000));
    let stream = allocator.create_stream()?;

    let _weights = with_tag("weights", || layers(&stream))?;
    match with_tag("batch", || stream.allocate(24 * MIB)) {
        Ok(_) => println!("24 MiB fitted after all"),
        Err(error) => println!("{error}\n"),
    }

    // The one call: the history is replayed under every policy, on a simulated device with the same limit.
    println!("{}\n", which_policies_fit(&allocator.snapshot(), Sim::new)?);

    // The same program under the policy that it named.
    let paged = Allocator::builder(Sim::new()).conf("policy:paged").limit(64 * MIB).build()?;
    let stream = paged.create_stream()?;
    let _weights = layers(&stream)?;
    let _batch = stream.allocate(24 * MIB)?;
    println!("under paged it fits, with {} reserved", format_bytes(paged.memory_reserved()));
    Ok(())
}

/// Allocates nine layers and frees every other one: 30 MiB are free, in pieces of 6 MiB.
fn layers(stream: &Stream<Sim>) -> Result<Vec<Buffer<Sim>>, Box<dyn Error>> {
    let all: Vec<_> = (0..9).map(|_| stream.allocate(6 * MIB)).collect::<Result<_, _>>()?;
    Ok(all.into_iter().skip(1).step_by(2).collect())
}

#[test]
fn runs() {
    main().unwrap();
}
