//! Finding a race between streams without a GPU: the simulated device knows what is ordered and what is not.
//!
//! Run it with `cargo run -p millpond-examples --example 15_find_a_race`. It needs no device.
//!
//! On a GPU such a mistake shows as wrong numbers now and then, where kernels happen to overlap. Here work is not over
//! before the test says so, and every access is compared with all unfinished work that touches the same bytes. So the
//! first run of the engine's own tests finds it, each time, with the two accesses.

use millpond::Allocator;
use millpond_examples::engine::Result;
use millpond_sim::{Completion, Sim, Violation};

const BYTES: u64 = 1 << 20;

/// What the engine does to be safe.
#[derive(Clone, Copy)]
struct Care {
    /// The consumer waits, on the device, until the producer has written.
    waits: bool,
    /// The tensor's memory is not granted again before the consumer has read it.
    records: bool,
}

fn main() -> Result<()> {
    let cases = [
        ("nothing forgotten", Care { waits: true, records: true }),
        ("the wait is forgotten", Care { waits: false, records: true }),
        ("record_stream is forgotten", Care { waits: true, records: false }),
    ];
    for (name, care) in cases {
        let found = engine(care)?;
        println!("{name}:");
        found.iter().for_each(|violation| println!("  {violation}"));
        if found.is_empty() {
            println!("  nothing is wrong");
        }
        if found.is_empty() != (care.waits && care.records) {
            return Err(format!("{name}: {found:?}").into());
        }
    }
    Ok(())
}

/// Stands for an engine: one stream writes a tensor, and another reads it, which is freed meanwhile.
fn engine(care: Care) -> Result<Vec<Violation>> {
    // Work is over when a test says so, and never by itself: what may overlap does.
    let sim = Sim::builder().completion(Completion::Manual).build();
    let allocator = Allocator::new(sim.clone());
    let (producer, consumer) = (allocator.create_stream()?, allocator.create_stream()?);

    let tensor = producer.allocate(BYTES)?;
    producer.fill(&tensor, 0, BYTES, 1)?;
    if care.waits {
        consumer.wait_for(producer.submit()?)?;
    }
    let result = consumer.allocate(BYTES)?;
    consumer.copy((&tensor, 0), (&result, 0), BYTES)?;
    if care.records {
        tensor.record_stream(&consumer)?;
    }
    drop(tensor);

    // The producer goes on. Unless the allocator knows of the consumer, this is the tensor's memory.
    let next = producer.allocate(BYTES)?;
    producer.fill(&next, 0, BYTES, 2)?;
    Ok(sim.violations())
}

#[test]
fn runs() {
    main().unwrap();
}
