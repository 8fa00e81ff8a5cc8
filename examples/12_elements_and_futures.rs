//! Elements of a type, views that keep their buffer, downloads that are awaited, and who holds what.
//!
//! Run it with `cargo run -p millpond-examples --example 12_elements_and_futures -- wgpu:0`. Without a name it takes
//! the simulated device.

use millpond_any::millpond::live::Tracking;
use millpond_any::{AnyAllocator, AnyError, AnyView, open};

fn main() -> Result<(), AnyError> {
    let name = std::env::args().nth(1).unwrap_or_else(|| "sim".into());
    let allocator = open(&name, "")?;
    allocator.track_live(Tracking::Labels);
    allocator.on_left_alive(|live| println!("left alive:\n{live}"));
    // Any executor does.
    println!("{:?}", pollster::block_on(run(&allocator))?);
    Ok(())
}

/// Returns the second half of what was uploaded, and the sum of the first.
async fn run(allocator: &AnyAllocator) -> Result<(Vec<u16>, u32), AnyError> {
    let stream = allocator.create_stream()?;
    // Seven elements of 2 bytes: no length is too odd for any device.
    let whole = stream.allocate_from(&[1u16, 2, 3, 4, 5, 6, 7])?;
    whole.buffer().set_label("numbers");
    let whole: AnyView<u16> = whole.share();
    let (first, second) = (whole.slice(..4)?, whole.slice(4..)?);
    drop(whole);

    // Both are on their way at once, and the buffer is kept by what is left of its views.
    let (sum, rest) = (stream.download_async(&first)?, stream.download_async(&second)?);
    drop(first);
    stream.upload_elements(&second, &[0, 0, 0])?;
    let sum = sum.await?.into_iter().map(u32::from).sum();
    println!("alive:\n{}", allocator.live());
    Ok((rest.await?, sum))
}

#[test]
fn elements_come_as_they_were_when_they_were_asked_for() -> Result<(), AnyError> {
    let allocator = open("sim", "")?;
    assert_eq!(pollster::block_on(run(&allocator))?, (vec![5, 6, 7], 10));
    assert_eq!(allocator.memory_allocated(), 0);
    Ok(())
}
