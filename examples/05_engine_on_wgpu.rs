//! A compute engine on wgpu whose tensors live in Millpond, compared with the same engine without reuse.
//!
//! Run it with `cargo run --release -p millpond-examples --example 05_engine_on_wgpu`.

use millpond::backend::Backend;
use millpond::text::format_bytes;
use millpond_examples::engine::{Example, Network, OnWgpu, Result, Session, largest_difference};
use millpond_examples::present;

fn main() -> Result<()> {
    let Some(device) = present::wgpu()? else { return Ok(()) };
    println!("on {}", device.caps().name);
    let kernels = OnWgpu::new(device.clone());

    let pooled = run("policy:classic", kernels.clone())?;
    let single = run("policy:direct", kernels)?;
    println!(
        "with reuse {} from the driver, without {}: {:.1} times less",
        format_bytes(pooled),
        format_bytes(single),
        single as f64 / pooled as f64
    );
    present::expect_no_objection(&device.errors())?;
    if pooled < single { Ok(()) } else { Err("reuse saves nothing".into()) }
}

/// Runs three steps and returns the most bytes that were reserved.
fn run(conf: &str, kernels: OnWgpu) -> Result<u64> {
    let session = Session::with(kernels, conf)?;
    let stream = session.allocator().create_stream()?;
    let example = Example::new();
    // The weights are uploaded once and stay. Everything else is allocated and freed with each step.
    let network = Network::new(&session, &stream, &example.model, example.rows)?;
    println!("\n{conf}, {} of weights", format_bytes(example.model.bytes()));

    for step in 0..3 {
        let batch = example.batch(step);
        let (calls, allocated) = (session.allocator().driver_activity(), session.allocator().stats());
        let input = session.upload(&stream, &batch)?;
        let output = network.forward(&session, &stream, input)?;
        let result = session.download(&stream, &output)?;
        drop(output);

        let calls = session.allocator().driver_activity().since(calls).calls;
        let bytes = session.allocator().stats().allocated_bytes.all.allocated - allocated.allocated_bytes.all.allocated;
        let error = largest_difference(&result, &example.expected(step));
        println!("step {step}: {} handed out, {calls} driver calls, error {error:e}", format_bytes(bytes));
        if error > 1e-4 {
            return Err(format!("the device computes something else: {error:e} off").into());
        }
        if conf == "policy:classic" && step > 0 && calls > 0 {
            return Err("a step like the one before needs nothing from the driver".into());
        }
    }
    let reserved = session.allocator().max_memory_reserved();
    // The last blocks are freed before the last submit, so that the allocator can release everything to the driver.
    drop(network);
    stream.submit()?;
    Ok(reserved)
}

#[test]
fn runs() {
    main().unwrap();
}
