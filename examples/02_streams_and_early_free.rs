//! Streams, and freeing a buffer while another stream still uses it.
//!
//! Run it with `cargo run -p millpond-examples --example 02_streams_and_early_free`.

use std::error::Error;

use millpond::Allocator;
use millpond_sim::{Completion, Sim};

fn main() -> Result<(), Box<dyn Error>> {
    // A device whose work runs until it is completed by hand, to show what happens meanwhile.
    let sim = Sim::builder().completion(Completion::Manual).build();
    let allocator = Allocator::new(sim.clone());
    let (compute, copies) = (allocator.create_stream()?, allocator.create_stream()?);

    // On its own stream a buffer is reused at once: later work there is ordered after earlier work. `busy` queues a
    // long kernel on a stream.
    let (first, _neighbour) = (compute.allocate(4096)?, compute.allocate(4096)?);
    let place = first.address();
    sim.busy(compute.id());
    drop(first);
    let second = compute.allocate(4096)?;
    println!(
        "same stream, kernel still running: same place again = {}, {:?}",
        second.address() == place,
        second.readiness()
    );

    // Another stream uses it too. Say so before freeing it: the pool then waits for that stream.
    sim.busy(copies.id());
    second.record_stream(&copies)?;
    drop(second);
    let third = compute.allocate(4096)?;
    println!("used on another stream that still works: same place again = {}", third.address() == place);
    println!("  meanwhile {} bytes are free behind that stream's work", allocator.ledger().guarded_bytes);

    // A request that finds nothing else asks how far the streams are. `poll` does so at once.
    sim.complete(copies.id());
    allocator.poll()?;
    let fourth = compute.allocate(4096)?;
    println!("the other stream is done: same place again = {}", fourth.address() == place);

    // `record_stream` covers everything queued until the free. A point says precisely how far the use went.
    fourth.used_until(copies.point())?;
    sim.complete(copies.id());
    sim.busy(copies.id());
    drop(fourth);
    allocator.poll()?;
    let fifth = compute.allocate(4096)?;
    println!("used until a point, with later work still queued there: same place again = {}", fifth.address() == place);

    assert!(sim.violations().is_empty(), "the simulated device watches for early reuse");
    Ok(())
}

#[test]
fn runs() {
    main().unwrap();
}
