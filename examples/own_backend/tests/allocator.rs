//! What an engine does with the device.

use millpond::Allocator;
use own_backend::HostDevice;

#[test]
fn an_allocator_takes_memory_from_it() -> Result<(), Box<dyn std::error::Error>> {
    let allocator = Allocator::new(HostDevice::new(64 << 20));
    let stream = allocator.create_stream()?;
    let buffer = stream.allocate(1000)?;
    stream.upload(&buffer, 0, b"millpond")?;
    let mut back = [0; 8];
    stream.download(&buffer, 0, &mut back)?;
    assert_eq!(&back, b"millpond");
    drop(buffer);
    assert_eq!((allocator.memory_allocated(), allocator.backend().used_bytes()), (0, 2 << 20));

    let error = stream.allocate(100 << 20).expect_err("the device is smaller");
    assert!(error.to_string().contains("100.00 MiB"), "{error}");
    allocator.empty_cache()?;
    assert_eq!(allocator.backend().used_bytes(), 0);
    Ok(())
}
