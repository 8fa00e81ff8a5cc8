//! An engine's own images and buffers in memory of Millpond's.
//!
//! Run it with `cargo run --release -p millpond-examples --example 20_images_on_vulkan`.

use millpond::backend::Backend;
use millpond_examples::engine::Result;
use millpond_examples::present;
use millpond_examples::vulkan_memory::{EngineMemory, Location};
use millpond_examples::vulkan_picture::{BYTES, buffer, copy_through, image};
use millpond_vulkan::Vulkan;

fn main() -> Result<()> {
    let Some(device) = present::vulkan()? else { return Ok(()) };
    println!("on {}", device.caps().name);
    let log = device.validation().cloned();
    run(&device)?;
    // Every allocator is dropped, so the device must have all of its memory back.
    println!("{} bytes are held", device.held_bytes());
    if device.held_bytes() > 0 {
        return Err("something was not given back".into());
    }
    drop(device);
    present::expect_no_objection(&log.map_or_else(Vec::new, |log| log.errors()))
}

fn run(device: &Vulkan) -> Result<()> {
    let memory = EngineMemory::new(device.clone())?;
    let mut from = buffer(&memory, Location::Upload)?;
    let to = buffer(&memory, Location::Readback)?;
    for round in 0..3u8 {
        let picture: Vec<u8> = (0..BYTES).map(|at| (at as u8).wrapping_mul(7).wrapping_add(round)).collect();
        from.memory.write(&picture);
        // The second image has the memory of the first, and so on: images come and go without the driver.
        let image = image(&memory)?;
        println!("round {round}: the image is at offset {} of {:?}", image.memory.offset, image.memory.memory);
        copy_through(&memory, &from, &image, &to)?;
        let point = memory.stream().submit()?;
        if device.wait(point)? < point.tick {
            return Err("the work waits for other work".into());
        }
        if to.memory.read(BYTES) != picture {
            return Err("the picture has changed on its way".into());
        }
    }
    Ok(())
}

#[test]
fn runs() {
    main().unwrap();
}
