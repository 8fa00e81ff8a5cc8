//! One engine, written once, on every device there is: its results are compared across them.
//!
//! Run it with `cargo run --release -p millpond-examples --example 08_one_engine_many_backends`. It runs everywhere:
//! where there is no GPU, on the simulated device, whose kernels the host computes.

use millpond::backend::Backend;
use millpond_examples::engine::{
    Example, Kernels, Network, OnCuda, OnHost, OnVulkan, OnWgpu, Result, Session, largest_difference, print_statistics,
};
use millpond_examples::present;

fn main() -> Result<()> {
    let example = Example::new();
    let host = OnHost::new();
    let mut results = vec![("simulated", run(&example, host.clone())?)];
    if !host.sim().violations().is_empty() {
        return Err(format!("memory was touched too early: {:?}", host.sim().violations()).into());
    }
    if let Some(device) = present::vulkan()? {
        let log = device.validation().cloned();
        results.push(("Vulkan", run(&example, OnVulkan::new(device)?)?));
        present::expect_no_objection(&log.map_or_else(Vec::new, |log| log.errors()))?;
    }
    if let Some(device) = present::wgpu()? {
        results.push(("wgpu", run(&example, OnWgpu::new(device.clone()))?));
        present::expect_no_objection(&device.errors())?;
    }
    if let Some(device) = present::cuda()?
        && present::cuda_kernels(&device)?
    {
        results.push(("CUDA", run(&example, OnCuda::new(device)?)?));
    }

    let expected = example.expected(0);
    for (index, (name, result)) in results.iter().enumerate() {
        let error = largest_difference(result, &expected);
        println!("{name}: error against the host {error:e}");
        for (other, others) in &results[..index] {
            println!("  largest difference from {other}: {:e}", largest_difference(result, others));
        }
        if error > 1e-4 {
            return Err(format!("{name} computes something else: {error:e} off").into());
        }
    }
    Ok(())
}

/// Runs the engine on any device: this code names none.
fn run<K: Kernels>(example: &Example, kernels: K) -> Result<Vec<f32>> {
    let session = Session::new(kernels);
    let allocator = session.allocator();
    let stream = allocator.create_stream()?;
    let network = Network::new(&session, &stream, &example.model, example.rows)?;
    let input = session.upload(&stream, &example.batch(0))?;
    let output = network.forward(&session, &stream, input)?;
    let result = session.download(&stream, &output)?;

    println!("on {}:", allocator.backend().caps().name);
    print_statistics(allocator);
    drop((output, network));
    stream.submit()?;
    Ok(result)
}

#[test]
fn runs() {
    main().unwrap();
}
