//! The first allocation: a pool, a stream, a buffer, and what the pool does with them.
//!
//! Run it with `cargo run -p millpond-examples --example 01_first_allocation`.

use std::error::Error;

use millpond::Allocator;
use millpond::text::format_bytes;
use millpond_sim::Sim;

fn main() -> Result<(), Box<dyn Error>> {
    // A simulated device stands in for the GPU. A real one may take its place, such as `millpond_cuda::Cuda::open(0)?`:
    // the rest stays as it is.
    let allocator = Allocator::new(Sim::new());
    let stream = allocator.create_stream()?;

    // Requests are rounded up to 512 bytes. A block lies in a segment, which is what the driver gave: here 2 MiB.
    let buffer = stream.allocate(1_000_000)?;
    println!("asked for {} bytes, got a block of {}", buffer.len(), buffer.capacity());
    println!("  at offset {} of its segment, device address {:#x}", buffer.offset(), buffer.address().unwrap_or(0));
    println!("  how it may be used: {:?}", buffer.readiness());
    println!("the driver gave {} for it", format_bytes(allocator.memory_reserved()));

    // Copies in and out run in the order of the stream. The simulated device stores the bytes, too.
    stream.upload(&buffer, 0, b"millpond")?;
    let mut bytes = [0; 8];
    stream.download(&buffer, 0, &mut bytes)?;
    assert_eq!(&bytes, b"millpond");
    println!("what was uploaded came back: {}", String::from_utf8_lossy(&bytes));

    // Dropping a buffer gives the block back to the pool, not to the driver.
    drop(buffer);
    let before = allocator.driver_activity();
    println!("after the drop: {} allocated, {} reserved", allocator.memory_allocated(), allocator.memory_reserved());

    // So the next million allocations call no driver at all.
    for bytes in 1..=1_000_000 {
        drop(stream.allocate(bytes)?);
    }
    println!("a million allocations later: {} driver calls more", allocator.driver_activity().since(before).calls);

    let large = stream.allocate(64 << 20)?;
    print!("\n{}", allocator.memory_summary(true));
    println!("\nwhere the reserved bytes are:");
    for (name, bytes) in allocator.ledger().parts() {
        println!("  {name:<9} {:>12}", format_bytes(bytes));
    }

    drop(large);
    allocator.empty_cache()?;
    println!("after empty_cache: {} reserved", allocator.memory_reserved());
    Ok(())
}

#[test]
fn runs() {
    main().unwrap();
}
