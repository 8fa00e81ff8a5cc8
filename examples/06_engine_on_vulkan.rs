//! The same engine on Vulkan: two streams, kernels recorded through the device, a wait on the device between them.
//!
//! Run it with `cargo run --release -p millpond-examples --example 06_engine_on_vulkan`.

use millpond::Stream;
use millpond::backend::Backend;
use millpond_examples::engine::{Example, Network, OnVulkan, Result, Session, largest_difference, print_statistics};
use millpond_examples::present;
use millpond_vulkan::Vulkan;

fn main() -> Result<()> {
    let Some(device) = present::vulkan()? else { return Ok(()) };
    println!("on {}, validation {}", device.caps().name, if device.validation().is_some() { "on" } else { "off" });
    let log = device.validation().cloned();
    run(device)?;
    // The device has been dropped, and anything that it had left undestroyed would have been reported.
    present::expect_no_objection(&log.map_or_else(Vec::new, |log| log.errors()))
}

fn run(device: Vulkan) -> Result<()> {
    let session = Session::new(OnVulkan::new(device)?);
    // Both streams may be on one queue or on two. Each has a timeline of its own.
    let (copies, compute) = (session.allocator().create_stream()?, session.allocator().create_stream()?);
    let example = Example::new();
    let network = Network::new(&session, &compute, &example.model, example.rows)?;

    for step in 0..3 {
        let before = session.allocator().driver_activity();
        let result = step_on(&session, (&copies, &compute), &network, &example.batch(step))?;
        let calls = session.allocator().driver_activity().since(before).calls;
        let error = largest_difference(&result, &example.expected(step));
        println!("step {step}: {calls} driver calls by the allocator, error {error:e}");
        if error > 1e-4 {
            return Err(format!("the device computes something else: {error:e} off").into());
        }
        if step > 0 && calls > 0 {
            return Err("a step like the one before needs nothing from the driver".into());
        }
    }
    print_statistics(session.allocator());

    // The last blocks are freed before the last submit, so that the allocator can release everything to the driver.
    drop(network);
    compute.submit()?;
    copies.submit()?;
    Ok(())
}

/// Computes one batch: it is uploaded on one stream and computed on the other, which waits for the upload on the
/// device.
fn step_on(
    session: &Session<OnVulkan>,
    (copies, compute): (&Stream<Vulkan>, &Stream<Vulkan>),
    network: &Network<OnVulkan>,
    batch: &[f32],
) -> Result<Vec<f32>> {
    let input = session.upload(copies, batch)?;
    compute.wait_for(copies.submit()?)?;
    // The input belongs to the stream of the copies. To record its use on the other stream is all that is needed:
    // `forward` drops it as soon as its last use is recorded, long before that use runs.
    input.record_stream(compute)?;
    let output = network.forward(session, compute, input)?;
    let result = session.download(compute, &output)?;
    // The download has waited for everything: the allocator may know it before it misses memory.
    session.allocator().poll()?;
    Ok(result)
}

#[test]
fn runs() {
    main().unwrap();
}
