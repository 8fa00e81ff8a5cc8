//! A compute engine on Vulkan: two streams, kernels recorded through the device, tensors in Millpond.
//!
//! Run it with `cargo run --release -p millpond-examples --example 06_engine_on_vulkan`.

use millpond::Stream;
use millpond::backend::{Backend, StreamWait};
use millpond_examples::engine::{
    Model, Network, OnVulkan, Result, Session, largest_difference, print_statistics, reference, sample,
};
use millpond_examples::present;
use millpond_vulkan::Vulkan;

const ROWS: u32 = 300;
const STEPS: u64 = 6;

fn main() -> Result<()> {
    let Some(device) = present::vulkan()? else { return Ok(()) };
    println!("on {}, validation {}", device.caps().name, if device.validation().is_some() { "on" } else { "off" });
    let log = device.validation().cloned();
    run(device)?;
    // The device is gone, and whatever it had left undestroyed would have been reported.
    present::expect_no_objection(&log.map_or_else(Vec::new, |log| log.errors()))
}

fn run(device: Vulkan) -> Result<()> {
    let session = Session::new(OnVulkan::new(device.clone())?);
    // Both streams may be on one queue or on two. Each has a timeline of its own.
    let (copies, compute) = (session.allocator().create_stream()?, session.allocator().create_stream()?);
    let model = Model::new(&[67, 131, 131, 131, 131, 10]);
    let network = Network::new(&session, &compute, &model, ROWS)?;

    let mut worst = 0.0_f32;
    for step in 0..STEPS {
        let batch: Vec<f32> = sample(100 + step, (ROWS * model.inputs()) as usize).collect();
        let before = session.allocator().driver_activity();
        let result = step_on(&session, &device, (&copies, &compute), &network, &batch)?;
        let calls = session.allocator().driver_activity().since(before).calls;
        worst = worst.max(largest_difference(&result, &reference(&model, &batch)));
        println!("step {step}: the allocator called the driver {calls} times");
        if step > 0 && calls > 0 {
            return Err("a step that was there before needs nothing from the driver".into());
        }
    }
    println!("largest error against the host: {worst:e}");
    print_statistics(session.allocator());

    // The last blocks go back before the last submit, so that the allocator can give everything to the driver.
    drop(network);
    session.submit(&compute)?;
    session.submit(&copies)?;
    if worst < 1e-4 { Ok(()) } else { Err(format!("the device computes something else: {worst:e} off").into()) }
}

/// One batch: uploaded on one stream, computed on the other, which waits for it on the device.
fn step_on(
    session: &Session<OnVulkan>,
    device: &Vulkan,
    (copies, compute): (&Stream<Vulkan>, &Stream<Vulkan>),
    network: &Network<OnVulkan>,
    batch: &[f32],
) -> Result<Vec<f32>> {
    let input = session.upload(copies, batch)?;
    let uploaded = copies.point();
    session.submit(copies)?;
    StreamWait::stream_wait(device, compute.id(), uploaded)?;
    // The input belongs to the stream of the copies. Saying that the other one uses it is all there is to it: `forward`
    // drops it as soon as its last use is recorded, long before that runs.
    input.record_stream(compute)?;
    let output = network.forward(session, compute, input)?;
    session.download(compute, &output)
}

#[test]
fn runs() {
    main().unwrap();
}
