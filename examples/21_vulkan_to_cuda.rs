//! A block of Vulkan's that CUDA reads and writes: its segment's memory is exported, and imported there.
//!
//! Run it with `cargo run --release -p millpond-examples --example 21_vulkan_to_cuda`. It needs Vulkan, and NVIDIA's
//! driver for the part in CUDA.

#[cfg(unix)]
fn main() -> millpond_examples::engine::Result<()> {
    use millpond::Allocator;
    use millpond_examples::present;
    use millpond_examples::vulkan_to_cuda::{InCuda, context};
    use millpond_vulkan::{ExportKind, Vulkan};

    const BYTES: u64 = 1 << 20;
    let Some(info) = Vulkan::devices().ok().and_then(|devices| devices.into_iter().next()) else {
        return present::vulkan().map(drop);
    };
    if !info.exports.contains(&ExportKind::OpaqueFd) {
        eprintln!("SKIPPED: {} exports no memory", info.name);
        return Ok(());
    }
    let Some(device) = present::vulkan_with(Vulkan::builder().exports(ExportKind::OpaqueFd))? else { return Ok(()) };
    let log = device.validation().cloned();
    // Pages are not exported, and this policy has segments.
    let allocator = Allocator::builder(device.clone()).conf("policy:classic").build()?;
    let stream = allocator.create_stream()?;
    let buffer = stream.allocate(BYTES)?;
    stream.fill(&buffer, 0, BYTES, 7)?;
    // Each side waits on the host before the other goes on.
    let mut bytes = vec![0; BYTES as usize];
    stream.download(&buffer, 0, &mut bytes)?;
    let exported = device.export(buffer.segment().ok_or("no bytes, no segment")?)?;
    println!("{}: {} bytes, with the block at {}", info.name, exported.bytes, buffer.offset());
    let cuda = if present::cuda()?.is_some() { context(info.uuid)? } else { None };
    if let Some(cuda) = cuda {
        let there = InCuda::import(&cuda, exported)?;
        if there.read(buffer.offset(), BYTES)? != bytes {
            return Err("CUDA reads something else than Vulkan wrote".into());
        }
        there.fill(buffer.offset(), BYTES, 9)?;
        stream.download(&buffer, 0, &mut bytes)?;
        if bytes.iter().any(|&byte| byte != 9) {
            return Err("Vulkan reads something else than CUDA wrote".into());
        }
        println!("CUDA has read and written it");
    }
    drop((buffer, stream, allocator, device));
    present::expect_no_objection(&log.map_or_else(Vec::new, |log| log.errors()))
}

#[cfg(not(unix))]
fn main() {
    eprintln!("SKIPPED: file descriptors are of Unix");
}

#[cfg(unix)]
#[test]
fn runs() {
    main().unwrap();
}
