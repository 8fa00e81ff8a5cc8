//! A program that alternates between training and generating on a device that cannot hold what both need: while it does
//! the one, the memory of the other sleeps.
//!
//! Run it with `cargo run -p millpond-examples --example 18_sleep`.

use std::error::Error;

use millpond::text::format_bytes;
use millpond::{Allocator, Buffer, Group, Keep, Stream};
use millpond_sim::Sim;

const MIB: u64 = 1 << 20;

/// A group with the one buffer that this example needs in it.
struct Part {
    group: Group<Sim>,
    stream: Stream<Sim>,
    buffer: Buffer<Sim>,
}

impl Part {
    fn new(allocator: &Allocator<Sim>, name: &str, bytes: u64) -> Result<Self, Box<dyn Error>> {
        let group = allocator.group(name)?;
        let stream = group.stream(allocator.create_stream()?.id())?;
        let buffer = stream.allocate(bytes)?;
        stream.fill(&buffer, 0, bytes, 0)?;
        Ok(Self { group, stream, buffer })
    }

    /// Returns the first byte, and adds 1 to it: this stands for the real work.
    fn work(&self) -> Result<u8, Box<dyn Error>> {
        let mut byte = [0];
        self.stream.download(&self.buffer, 0, &mut byte)?;
        self.stream.upload(&self.buffer, 0, &[byte[0].wrapping_add(1)])?;
        Ok(byte[0])
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let allocator = Allocator::builder(Sim::new()).limit(256 * MIB).build()?;
    // Both use the weights. They stay.
    let weights = allocator.create_stream()?.allocate(60 * MIB)?;
    // The optimizer's state has to survive; the KV cache is computed anew.
    let optimizer = Part::new(&allocator, "optimizer", 120 * MIB)?;
    optimizer.group.pause(Keep::Host)?;
    let cache = Part::new(&allocator, "kv", 150 * MIB)?;
    let address = cache.buffer.address();

    for turn in 0..3 {
        println!("turn {turn}");
        cache.work()?;
        println!("  generated with {} reserved", format_bytes(allocator.memory_reserved()));
        cache.group.pause(Keep::Discard)?;

        optimizer.group.resume()?;
        let steps = optimizer.work()?;
        println!("  trained step {}, with {} reserved", steps + 1, format_bytes(allocator.memory_reserved()));
        assert_eq!(steps, turn, "the state of the optimizer was kept");

        // They do not fit together. The cache stays paused, and the error says what is missing.
        if let Err(error) = cache.group.resume() {
            println!("  {error}");
        }
        optimizer.group.pause(Keep::Host)?;
        cache.group.resume()?;
    }
    assert_eq!(cache.buffer.address(), address, "pointers to the cache are still valid");
    drop(weights);
    Ok(())
}

#[test]
fn runs() {
    main().unwrap();
}
