//! What it costs to pause and to resume groups on a CUDA device, beside plain page-locked copies of the same bytes.

use std::error::Error;
use std::time::{Duration, Instant};

use clap::Parser;
use millpond::{Allocator, Buffer, Group, Keep, Stream};
use millpond_cuda::Cuda;

const GIB: u64 = 1 << 30;
const MIB: u64 = 1 << 20;

/// Measures how fast a group is paused and resumed on a CUDA device.
#[derive(Parser)]
struct Options {
    /// GiB whose contents are kept on the host.
    #[arg(long, default_value_t = 20)]
    kept: u64,
    /// GiB whose contents are discarded.
    #[arg(long, default_value_t = 40)]
    discarded: u64,
    /// MiB of each buffer.
    #[arg(long, default_value_t = 512)]
    buffer: u64,
    /// How often everything is measured.
    #[arg(long, default_value_t = 4)]
    rounds: u32,
    /// Keep the host memory from one round to the next.
    #[arg(long)]
    keep_host_memory: bool,
    /// Measure the growth of a buffer of 1 GiB in steps of 2 MiB instead.
    #[arg(long)]
    grow: bool,
}

/// Grows a buffer to 1 GiB in steps, and prints what that took.
fn grow(allocator: &Allocator<Cuda>) -> Result<(), Box<dyn Error>> {
    let stream = allocator.create_stream()?;
    let before = allocator.driver_activity();
    let mut cache = stream.allocate_growable(2 * MIB, GIB)?;
    let address = cache.address();
    stream.fill(&cache, 0, cache.len(), 1)?;
    let (mut times, steps) = (Vec::new(), GIB / (2 * MIB) - 1);
    for step in 0..steps {
        let from = cache.len();
        let begin = Instant::now();
        cache.grow(2 * MIB)?;
        times.push(begin.elapsed());
        stream.fill(&cache, from, 2 * MIB, (step + 2) as u8)?;
    }
    let calls = allocator.driver_activity().calls - before.calls;
    let mut byte = [0];
    for step in 0..=steps {
        stream.download(&cache, step * 2 * MIB + 7, &mut byte)?;
        assert_eq!(byte[0], (step + 1) as u8, "contents of step {step}");
    }
    assert_eq!(cache.address(), address);
    let mean = |part: &[Duration]| part.iter().sum::<Duration>().as_secs_f64() * 1e6 / part.len() as f64;
    println!(
        "grew to {} MiB at one address in {steps} steps: {:.1} us a step among the first 50, {:.1} among the last 50, \
         {calls} driver calls, {} MiB reserved",
        cache.len() / MIB,
        mean(&times[..50]),
        mean(&times[times.len() - 50..]),
        allocator.memory_reserved() / MIB
    );
    Ok(())
}

/// A group with its buffers.
struct Filled {
    group: Group<Cuda>,
    stream: Stream<Cuda>,
    buffers: Vec<Buffer<Cuda>>,
}

impl Filled {
    fn new(allocator: &Allocator<Cuda>, name: &str, gib: u64, buffer: u64) -> Result<Self, Box<dyn Error>> {
        let group = allocator.group(name)?;
        let stream = group.stream(allocator.create_stream()?.id())?;
        let mut buffers = Vec::new();
        for at in 0..gib * GIB / (buffer * MIB) {
            let buffer = stream.allocate(buffer * MIB)?;
            stream.fill(&buffer, 0, buffer.len(), at as u8)?;
            buffers.push(buffer);
        }
        Ok(Self { group, stream, buffers })
    }

    /// Returns whether the buffers still hold what they were filled with.
    fn is_whole(&self) -> Result<bool, Box<dyn Error>> {
        let mut bytes = vec![0; 1 << 20];
        for (at, buffer) in self.buffers.iter().enumerate() {
            for offset in [0, buffer.len() / 2 + 12345, buffer.len() - bytes.len() as u64] {
                self.stream.download(buffer, offset, &mut bytes)?;
                if bytes.iter().any(|&byte| byte != at as u8) {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }
}

/// A plain copy of the same bytes, through page-locked memory.
struct Plain {
    out: Duration,
    back: Duration,
}

fn plain(allocator: &Allocator<Cuda>, of: &Filled) -> Result<Plain, Box<dyn Error>> {
    let pinned = allocator.pinned()?;
    let mut host = pinned.allocate(of.buffers[0].len())?;
    let begin = Instant::now();
    for buffer in &of.buffers {
        of.stream.download_pinned((buffer, 0), (&mut host, 0), buffer.len())?;
    }
    host.wait()?;
    let out = begin.elapsed();
    let begin = Instant::now();
    let spare = of.stream.allocate(host.len())?;
    for _ in &of.buffers {
        of.stream.upload_pinned((&host, 0), (&spare, 0), host.len())?;
    }
    host.wait()?;
    Ok(Plain { out, back: begin.elapsed() })
}

fn timed<T>(
    call: impl FnOnce() -> Result<T, millpond::Error<millpond_cuda::CudaError>>,
) -> Result<Duration, Box<dyn Error>> {
    let begin = Instant::now();
    call()?;
    Ok(begin.elapsed())
}

fn rate(bytes: u64, time: Duration) -> f64 {
    bytes as f64 / GIB as f64 / time.as_secs_f64()
}

fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::parse();
    let allocator = Allocator::builder(Cuda::open(0)?).conf("policy:paged").build()?;
    if options.grow {
        return grow(&allocator);
    }
    let held = |allocator: &Allocator<Cuda>| -> Result<u64, Box<dyn Error>> {
        let usage = allocator.memory_usage()?.ok_or("the driver reports no use of memory")?;
        Ok(usage.total_bytes - usage.free_bytes)
    };
    let before = held(&allocator)?;
    let kept = Filled::new(&allocator, "weights", options.kept, options.buffer)?;
    let discarded = Filled::new(&allocator, "kv", options.discarded, options.buffer)?;
    kept.group.keep_host_memory(options.keep_host_memory);
    let mut sizes = std::collections::BTreeMap::new();
    for page in allocator.layout().iter().flat_map(|segment| &segment.pages).filter(|page| page.is_home) {
        *sizes.entry(page.bytes / MIB).or_insert(0_u32) += 1;
    }
    println!("pages by MiB: {sizes:?}");
    println!("round  out GiB/s  plain   back GiB/s  plain   discard ms  remake ms  left MiB  whole");
    for round in 0..options.rounds {
        let plain = plain(&allocator, &kept)?;
        let bytes = kept.buffers.iter().map(Buffer::len).sum();
        let out = timed(|| kept.group.pause(Keep::Host))?;
        let discard = timed(|| discarded.group.pause(Keep::Discard))?;
        let left = held(&allocator)?.saturating_sub(before) / MIB;
        // The driver overwrites what it got back, which takes bandwidth. Programs do something else meanwhile.
        std::thread::sleep(Duration::from_millis(300));
        let back = timed(|| kept.group.resume())?;
        let remake = timed(|| discarded.group.resume())?;
        println!(
            "{round:5}  {:9.1}  {:5.1}   {:10.1}  {:5.1}   {:10.1}  {:9.1}  {left:8}  {}",
            rate(bytes, out),
            rate(bytes, plain.out),
            rate(bytes, back),
            rate(bytes, plain.back),
            discard.as_secs_f64() * 1e3,
            remake.as_secs_f64() * 1e3,
            kept.is_whole()?
        );
    }
    Ok(())
}
