//! Training in mixed precision: the same network in 32 bits, with activations of 16 bits and a scaled loss, and with
//! activations of 16 bits alone.
//!
//! Run it with `cargo run --release -p millpond-examples --example 14_mixed_precision`. It runs everywhere: where there
//! is no GPU, on the simulated device, whose kernels the host computes. The network is `examples/src/training`.

use millpond::backend::Backend;
use millpond::live::Tracking;
use millpond::text::format_bytes;
use millpond_examples::engine::{Kernels, Model, OnCuda, OnHost, OnVulkan, OnWgpu, Result, Session, reference, sample};
use millpond_examples::present;
use millpond_examples::training::{Batch, Precision, Scaler, Trainer};
use millpond_wgpu::Wgpu;

/// The numbers of values between the layers of the network that is trained.
const WIDTHS: [u32; 6] = [32, 64, 64, 64, 64, 16];
/// What the loss counts, as one of several in a larger training. It makes gradients small, most of them too small for
/// 16 bits, as large batches and many layers do.
const WEIGHT: f32 = 1e-5;
/// What a step changes the weights by, for each unit of the gradient.
const RATE: f32 = 0.5 / WEIGHT;

fn main() -> Result<()> {
    run(2048, 30)
}

/// Trains on all devices there are, with batches of a number of rows.
fn run(rows: u32, steps: u64) -> Result<()> {
    let host = OnHost::new();
    compare(&host, 32, steps.min(10))?;
    if !host.sim().violations().is_empty() {
        return Err(format!("memory was touched too early: {:?}", host.sim().violations()).into());
    }
    if let Some(device) = present::vulkan()? {
        let log = device.validation().cloned();
        compare(&OnVulkan::new(device)?, rows, steps)?;
        present::expect_no_objection(&log.map_or_else(Vec::new, |log| log.errors()))?;
    }
    if let Some(device) = present::wgpu()? {
        on_wgpu(&device, rows, steps)?;
        present::expect_no_objection(&device.errors())?;
    }
    if let Some(device) = present::cuda()?
        && present::cuda_kernels(&device)?
    {
        compare(&OnCuda::new(device)?, rows, steps)?;
    }
    Ok(())
}

/// Trains on wgpu: with numbers of 16 bits in its shaders where the adapter has `shader-f16`, and unpacked from words.
fn on_wgpu(device: &Wgpu, rows: u32, steps: u64) -> Result<()> {
    let kernels = OnWgpu::new(device.clone());
    println!("shader-f16: {}", if kernels.has_f16() { "there" } else { "not there, halves are unpacked from words" });
    let loss = compare(&kernels, rows, steps)?;
    if kernels.has_f16() {
        println!("the same without shader-f16, halves are unpacked from words");
        let unpacked = compare(&OnWgpu::without_f16(device.clone()), rows, steps)?;
        if (loss - unpacked).abs() > 0.02 * unpacked {
            return Err(format!("with shader-f16 the loss ends at {loss:e}, without it at {unpacked:e}").into());
        }
    }
    Ok(())
}

/// Trains three times on a device, and prints losses and bytes. Returns the loss of 16 bits with a scale.
fn compare<K: Kernels>(kernels: &K, rows: u32, steps: u64) -> Result<f64> {
    println!("{}: {rows} rows a batch, {steps} steps", kernels.device().caps().name);
    println!("  activations          loss before    after   most bytes at a time   most reserved   steps left out");
    let full = train(kernels, "32 bits", (Precision::Full, Scaler::none()), (rows, steps))?;
    let mixed = train(kernels, "16 bits, scaled", (Precision::Mixed, Scaler::new(65536.0)), (rows, steps))?;
    let plain = train(kernels, "16 bits, not scaled", (Precision::Mixed, Scaler::none()), (rows, steps))?;
    if (mixed - full).abs() > 0.02 * full {
        return Err(format!("16 bits with a scale end at a loss of {mixed:e}, 32 bits at {full:e}").into());
    }
    println!(
        "  without the scale the loss is {:.3} times that of 32 bits, with it {:.3} times",
        plain / full,
        mixed / full
    );
    Ok(mixed)
}

fn train<K: Kernels>(
    kernels: &K,
    name: &str,
    (precision, scaler): (Precision, Scaler),
    (rows, steps): (u32, u64),
) -> Result<f64> {
    let session = Session::new(kernels);
    session.allocator().track_live(Tracking::Labels);
    let teacher = Model::new(&[WIDTHS[0], 24, WIDTHS[5]]);
    let mut trainer = Trainer::new(session, &Model::new(&WIDTHS), precision, scaler)?;
    let mut losses = Vec::new();
    for step in 0..steps {
        let inputs: Vec<f32> = sample(step % 4, rows as usize * WIDTHS[0] as usize).collect();
        let targets = reference(&teacher, &inputs);
        losses.push(trainer.step(Batch { inputs: &inputs, targets: &targets, weight: WEIGHT }, RATE)?);
    }
    let (allocator, last) = (trainer.session().allocator(), losses[losses.len() - 1]);
    println!(
        "  {name:20} {:11.3e} {last:8.1e} {:>22} {:>15} {:>16}",
        losses[0],
        format_bytes(allocator.max_memory_allocated()),
        format_bytes(allocator.max_memory_reserved()),
        trainer.scaler().skipped()
    );
    Ok(last)
}

#[test]
fn runs() {
    run(64, 8).unwrap();
}
