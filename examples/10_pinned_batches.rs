//! Batches that reach the device through page-locked memory: queued, dropped at once, and never overwritten early.
//!
//! Run it with `cargo run -p millpond-examples --example 10_pinned_batches`. It runs everywhere: where there is no GPU,
//! on the simulated device.

use std::collections::VecDeque;

use millpond::backend::Backend;
use millpond::text::format_bytes;
use millpond::{Allocator, PinnedBuffer};
use millpond_examples::engine::Result;
use millpond_examples::present;
use millpond_sim::{Completion, Sim};

const STEPS: u32 = 200;
/// The number of batches by which the host runs ahead of the device.
const AHEAD: usize = 4;
/// The number of bytes of each batch that are copied back.
const RESULT: u64 = 4096;

fn main() -> Result<()> {
    // A device whose work completes late and in a random order.
    let sim = Sim::builder().completion(Completion::Seeded(1)).build();
    run(sim.clone())?;
    if !sim.violations().is_empty() {
        return Err(format!("memory was touched too early: {:?}", sim.violations()).into());
    }
    if let Some(device) = present::cuda()? {
        run(device)?;
    }
    if let Some(device) = present::vulkan()? {
        run(device)?;
    }
    Ok(())
}

fn run<B: Backend + Clone>(backend: B) -> Result<()> {
    let allocator = Allocator::new(backend);
    // One cache for the device: every thread and stream takes from it.
    let pinned = allocator.pinned()?;
    let (copies, compute) = (allocator.create_stream()?, allocator.create_stream()?);
    let mut results = VecDeque::new();
    for step in 0..STEPS {
        let bytes = size(step);
        let mut batch = pinned.allocate(bytes)?;
        // All earlier copies from and to this memory are done, so the host may write.
        read_batch(step, batch.bytes_mut()?);

        let on_device = copies.allocate(bytes)?;
        copies.upload_pinned((&batch, 0), (&on_device, 0), bytes)?;
        // The copy has hardly begun. The memory is granted again only once the copy is done.
        drop(batch);

        compute.wait_for(copies.submit()?)?;
        // An engine's kernels would run here. The end of the batch is copied back.
        let mut result = pinned.allocate(RESULT)?;
        compute.download_pinned((&on_device, bytes - RESULT), (&mut result, 0), RESULT)?;
        on_device.used_until(compute.submit()?)?;
        results.push_back((step, result));
        if results.len() > AHEAD
            && let Some((step, result)) = results.pop_front()
        {
            check(step, &result)?;
        }
    }
    for (step, result) in results {
        check(step, &result)?;
    }

    let (cache, stats) = (pinned.cache(), pinned.cache().stats());
    println!(
        "{}: {STEPS} batches; of page-locked memory at most {} live and {} reserved; {} segments taken",
        allocator.backend().caps().name,
        format_bytes(stats.requested_bytes.all.peak),
        format_bytes(cache.max_memory_reserved()),
        stats.num_device_alloc
    );
    Ok(())
}

/// Returns the size of a batch in bytes. Sizes differ by a quarter at most, as sequences of tokens do.
fn size(step: u32) -> u64 {
    (1 << 20) + u64::from(step * 7919 % 61) * RESULT
}

/// Fills a batch, as a file or a decoder would.
fn read_batch(step: u32, bytes: &mut [u8]) {
    for word in bytes.chunks_mut(4) {
        word.copy_from_slice(&step.to_le_bytes()[..word.len()]);
    }
}

fn check<B: Backend>(step: u32, result: &PinnedBuffer<B>) -> Result<()> {
    // Before the wait is over, `bytes` fails, as the device may still be writing.
    result.wait()?;
    if result.bytes()?.chunks(4).all(|word| word == step.to_le_bytes()) {
        Ok(())
    } else {
        Err(format!("batch {step} came back as another").into())
    }
}

#[test]
fn runs() {
    main().unwrap();
}
