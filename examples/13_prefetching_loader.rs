//! A prefetching loader: batches come through page-locked memory, on a stream of their own, while the device computes.
//!
//! Run it with `cargo run --release -p millpond-examples --example 13_prefetching_loader`. It runs everywhere: where
//! there is no GPU, on the simulated device. The loader is `examples/src/loader.rs`.
//!
//! Every batch is verified. On devices with a time of their own the example then measures what a batch takes, with
//! everything done one after the other and with the loader, and how much of what could be hidden was hidden.

use std::time::{Duration, Instant};

use millpond::backend::Backend;
use millpond::text::format_bytes;
use millpond::{Allocator, Buffer, Stream};
use millpond_examples::engine::Result;
use millpond_examples::loader::{Batch, Loader};
use millpond_examples::present;
use millpond_sim::{Completion, Sim};

/// The number of batches that may wait to be taken.
const AHEAD: usize = 3;
/// The number of bytes at the beginning and at the end of a batch that are compared.
const SAMPLE: u64 = 8;

fn main() -> Result<()> {
    run(false)
}

/// Verifies and measures on all devices there are, with small batches if it is to be quick.
fn run(quick: bool) -> Result<()> {
    // A device whose work completes late and in a random order, so that memory that is used too early is found.
    let sim = Sim::builder().completion(Completion::Seeded(3)).build();
    verify(sim.clone(), (64 << 10, 200))?;
    if !sim.violations().is_empty() {
        return Err(format!("memory was touched too early: {:?}", sim.violations()).into());
    }
    let shape = if quick { (1 << 20, 5) } else { (32 << 20, 20) };
    if let Some(device) = present::vulkan()? {
        let log = device.validation().cloned();
        verify(device.clone(), shape)?;
        measure(device, shape)?;
        present::expect_no_objection(&log.map_or_else(Vec::new, |log| log.errors()))?;
    }
    if let Some(device) = present::wgpu()? {
        verify(device.clone(), shape)?;
        measure(device.clone(), shape)?;
        present::expect_no_objection(&device.errors())?;
    }
    if let Some(device) = present::cuda()? {
        verify(device.clone(), shape)?;
        measure(device, shape)?;
    }
    Ok(())
}

/// Fills a batch, as a file or a decoder would: every word is the number of the batch.
fn read_batch(number: u64, bytes: &mut [u8]) {
    for word in bytes.chunks_exact_mut(8) {
        word.copy_from_slice(&number.to_le_bytes());
    }
}

/// Takes batches from the loader and verifies that each of them has arrived whole before its work began.
fn verify<B: Backend + Clone>(device: B, (bytes, count): (u64, u64)) -> Result<()> {
    let allocator = Allocator::new(device);
    let (copies, compute) = (allocator.create_stream()?, allocator.create_stream()?);
    let results = compute.allocate(count * 2 * SAMPLE)?;
    for batch in Loader::start(&allocator, &copies, (count, bytes, AHEAD), read_batch)? {
        sample(&batch?, bytes, &compute, &results)?;
        compute.submit()?;
    }
    let mut samples = vec![0; usize::try_from(results.len())?];
    compute.download(&results, 0, &mut samples)?;
    for (at, word) in samples.chunks_exact(8).enumerate() {
        if word != (at as u64 / 2).to_le_bytes() {
            return Err(format!("batch {} came as {word:?}", at / 2).into());
        }
    }
    let name = &allocator.backend().caps().name;
    println!("{name}: {count} batches of {} arrived whole", format_bytes(bytes));
    Ok(())
}

/// Queues copies of the beginning and the end of a batch. The batch is dropped by the caller before they have run.
fn sample<B: Backend>(batch: &Batch<B>, bytes: u64, compute: &Stream<B>, results: &Buffer<B>) -> Result<()> {
    let (buffer, at) = (batch.on(compute)?, batch.number() * 2 * SAMPLE);
    compute.copy((buffer, 0), (results, at), SAMPLE)?;
    compute.copy((buffer, bytes - SAMPLE), (results, at + SAMPLE), SAMPLE)?;
    Ok(())
}

/// What is measured: batches of a size, and work on each of them.
struct Bench<B: Backend> {
    allocator: Allocator<B>,
    copies: Stream<B>,
    compute: Stream<B>,
    work: Buffer<B>,
    bytes: u64,
    count: u64,
}

/// Measures a batch: read, copied and computed on, one after the other and with the loader. The work on a batch are
/// fills of memory that take about as long as to read and copy it: then there is most to hide.
fn measure<B: Backend + Clone>(device: B, (bytes, count): (u64, u64)) -> Result<()> {
    let allocator = Allocator::new(device);
    let (copies, compute) = (allocator.create_stream()?, allocator.create_stream()?);
    let bench = Bench { work: compute.allocate(bytes)?, allocator, copies, compute, bytes, count };
    bench.with_loader(0)?;
    let loading = bench.with_loader(0)?;
    bench.fills(8)?;
    let fills = (loading.as_nanos() * 32 / bench.fills(32)?.as_nanos().max(1)).clamp(1, 10_000) as u64;
    let computing = bench.fills(fills * 4)? / 4;
    let (serial, overlapped) = (bench.one_after_the_other(fills)?, bench.with_loader(fills)?);

    let (least, most) = (loading.max(computing), loading + computing);
    let hidden = most.saturating_sub(overlapped).as_secs_f64() / (most - least).as_secs_f64().max(1e-9);
    println!("  to load a batch takes {loading:.2?}, the work on it {computing:.2?}");
    println!("  a batch takes {serial:.2?} one after the other, {overlapped:.2?} with the loader");
    println!("  of what can be hidden, {:.0} % is", 100.0 * hidden);
    Ok(())
}

impl<B: Backend + Clone> Bench<B> {
    fn queue_fills(&self, fills: u64) -> Result<()> {
        for _ in 0..fills {
            self.compute.fill(&self.work, 0, self.bytes, 7)?;
        }
        Ok(())
    }

    /// Returns the time of some fills alone.
    fn fills(&self, fills: u64) -> Result<Duration> {
        let began = Instant::now();
        self.queue_fills(fills)?;
        self.compute.synchronize()?;
        Ok(began.elapsed())
    }

    /// Returns the time of a batch that the loader brings, with that many fills as its work.
    fn with_loader(&self, fills: u64) -> Result<Duration> {
        let began = Instant::now();
        for batch in Loader::start(&self.allocator, &self.copies, (self.count, self.bytes, AHEAD), read_batch)? {
            batch?.on(&self.compute)?;
            self.queue_fills(fills)?;
            self.compute.submit()?;
        }
        self.compute.synchronize()?;
        Ok(began.elapsed() / u32::try_from(self.count)?)
    }

    /// Returns the time of a batch where the host waits for the work on each before it reads the next one.
    fn one_after_the_other(&self, fills: u64) -> Result<Duration> {
        let began = Instant::now();
        for number in 0..self.count {
            let read = move |_, bytes: &mut [u8]| read_batch(number, bytes);
            for batch in Loader::start(&self.allocator, &self.copies, (1, self.bytes, 1), read)? {
                batch?.on(&self.compute)?;
            }
            self.queue_fills(fills)?;
            self.compute.synchronize()?;
        }
        Ok(began.elapsed() / u32::try_from(self.count)?)
    }
}

#[test]
fn runs() {
    run(true).unwrap();
}
