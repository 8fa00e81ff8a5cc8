//! What an engine with a copy stream reserves, and what it has live: `copy-stream DEVICE...`, with the names of
//! `millpond-any`, such as `sim`, `vulkan:0`, `wgpu:0` and `cuda:0`.
//!
//! The engine streams its weights: a layer's are staged on a stream for copies while the layer before computes, the
//! stream that computes waits for them on the device, and they are dropped as soon as their last use is queued. Each
//! run is recorded, and the recording is replayed on the simulated device under the same policy.

use std::collections::VecDeque;
use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use millpond::Allocator;
use millpond::backend::{Backend, Closing, Point};
use millpond_any::{AnyAllocator, AnyBuffer, AnyStream};
use millpond_replay::{AsRecorded, Life, Recorder, Replay};
use millpond_sim::Sim;
use millpond_trace::Trace;

const MIB: u64 = 1 << 20;

/// Measures what an engine with a copy stream reserves.
#[derive(Parser)]
struct Options {
    /// Devices, such as `sim`, `vulkan:0`, `wgpu:0` and `cuda:0`.
    #[arg(required = true)]
    devices: Vec<String>,
    /// The policies.
    #[arg(long, value_delimiter = ',', default_values_t = ["classic", "tight", "paged"].map(String::from))]
    policies: Vec<String>,
    /// The stream on which staged weights are allocated.
    #[arg(long, value_delimiter = ',', default_values = ["copies", "compute"])]
    homes: Vec<Home>,
    /// How many layers the host may be ahead of the device.
    #[arg(long, default_value_t = 2)]
    ahead: usize,
    /// How often the model runs.
    #[arg(long, default_value_t = 4)]
    steps: usize,
    /// How many layers are queued before they are submitted.
    #[arg(long, default_value_t = 1)]
    submit_every: usize,
    /// The weights of a layer, in MiB.
    #[arg(long, default_value_t = 24)]
    weights: u64,
    /// Where the recordings go.
    #[arg(long, default_value = "target/copy-stream")]
    out: PathBuf,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Home {
    /// The stream that copies, as in PyTorch: `record_stream` says that the other one uses them.
    Copies,
    /// The stream that uses them last, which the stream that copies waits for.
    Compute,
}

fn main() -> ExitCode {
    let options = Options::parse();
    println!("| device | policy | home | live peak | reserved peak | ratio | recording | replayed | difference |");
    println!("|---|---|---|---|---|---|---|---|---|");
    let mut failed = false;
    for device in &options.devices {
        for policy in &options.policies {
            for &home in &options.homes {
                if let Err(error) = row(&options, device, policy, home) {
                    eprintln!("{device} {policy} {home:?}: {error}");
                    failed = true;
                }
            }
        }
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn conf(policy: &str) -> String {
    match policy {
        "tight" => "policy:paged,growth:tight".into(),
        policy => format!("policy:{policy}"),
    }
}

/// Runs, records and replays one engine, and prints its row.
fn row(options: &Options, device: &str, policy: &str, home: Home) -> Result<(), Box<dyn Error>> {
    let allocator = millpond_any::open(device, &conf(policy))?;
    Recorder::start(&allocator);
    Engine::new(&allocator, options, home)?.run(options.steps)?;
    let trace = Recorder::finish(&allocator).ok_or("nothing was recorded")?;
    let (live, reserved) = (trace.live_peak(), allocator.max_memory_reserved());
    std::fs::create_dir_all(&options.out)?;
    let name = format!("{}-{policy}-{home:?}.trace", device.replace([':', ',', '='], "-")).to_lowercase();
    let file = options.out.join(name);
    trace.write(&file)?;
    let replayed = replayed(&Trace::read(&file)?, &conf(policy))?;
    println!(
        "| {device} | {policy} | {} | {} MiB | {} MiB | {:.3} | {} | {} MiB | {:+.1} % |",
        format!("{home:?}").to_lowercase(),
        live / MIB,
        reserved / MIB,
        reserved as f64 / live as f64,
        file.display(),
        replayed / MIB,
        (replayed as f64 / reserved as f64 - 1.0) * 100.0
    );
    Ok(())
}

/// Returns what a recording reserves on the simulated device.
fn replayed(trace: &Trace, conf: &str) -> Result<u64, Box<dyn Error>> {
    let replay = Replay::new(trace);
    let closing = if replay.has_submits() { Closing::Submit } else { Closing::Backend };
    let mut builder = Sim::builder().closing(closing);
    if let (Some(address_bytes), Some(pages)) = (replay.address_bytes(), Sim::new().caps().pages) {
        builder = builder.pages(Some(pages.with_address_bytes(address_bytes)));
    }
    let sim = builder.build();
    let allocator = Allocator::builder(sim.clone()).conf(conf).build()?;
    let streams: Vec<_> = (0..replay.streams()).map(|_| allocator.create_stream()).collect::<Result<_, _>>()?;
    let told = replay.streams_told().iter().map(|&at| streams[at as usize].id()).collect();
    let work = AsRecorded::new(Box::new(sim), told);
    let life = Life { in_flight: Some(Box::new(work)), ..Life::default() };
    Ok(replay.run_life(&allocator, &streams, 0, life, |_| ())?.life_reserved_peak)
}

/// Weights on their way to the device, or there.
struct Staged {
    buffer: AnyBuffer,
    /// The copy is done at this point; `None` where the host has waited for it.
    there: Option<Point>,
}

struct Engine<'a> {
    allocator: &'a AnyAllocator,
    copies: AnyStream,
    compute: AnyStream,
    home: Home,
    weights: u64,
    layers: usize,
    submit_every: usize,
    host: Vec<u8>,
    ahead: usize,
    /// What stays for the whole run, such as embeddings.
    stays: AnyBuffer,
    activations: Option<AnyBuffer>,
    /// The ends of the layers that the host has not waited for.
    queued: VecDeque<Point>,
}

impl<'a> Engine<'a> {
    fn new(allocator: &'a AnyAllocator, options: &Options, home: Home) -> Result<Self, Box<dyn Error>> {
        let (copies, compute) = (allocator.create_stream()?, allocator.create_stream()?);
        let weights = options.weights * MIB;
        let stays = compute.allocate(2 * weights)?;
        let host = vec![7; usize::try_from(weights)?];
        let (ahead, submit_every) = (options.ahead, options.submit_every);
        let (activations, queued, layers) = (None, VecDeque::new(), 8);
        Ok(Self {
            allocator,
            copies,
            compute,
            home,
            weights,
            layers,
            submit_every,
            host,
            ahead,
            stays,
            activations,
            queued,
        })
    }

    fn run(mut self, steps: usize) -> Result<(), Box<dyn Error>> {
        let layers = steps * self.layers;
        let mut staged = self.stage()?;
        for at in 1..=layers {
            let next = self.stage()?;
            self.layer(std::mem::replace(&mut staged, next))?;
            if at % self.submit_every == 0 {
                self.submit()?;
            }
        }
        self.compute.synchronize()?;
        Ok(())
    }

    /// Queues the copy of a layer's weights.
    fn stage(&mut self) -> Result<Staged, Box<dyn Error>> {
        let bytes = self.weights;
        let waits = self.allocator.backend().caps().stream_wait;
        let buffer = match self.home {
            Home::Copies => self.copies.allocate(bytes)?,
            Home::Compute => {
                let buffer = self.compute.allocate(bytes)?;
                let before = self.compute.submit()?;
                if waits {
                    self.copies.wait_for(before)?
                } else {
                    self.allocator.wait(before)?
                }
                buffer
            }
        };
        self.copies.upload(&buffer, 0, &self.host)?;
        let there = Some(self.copies.submit()?).filter(|_| waits);
        if there.is_none() {
            self.copies.synchronize()?;
        }
        Ok(Staged { buffer, there })
    }

    /// Queues a layer's work and drops what it used last.
    fn layer(&mut self, Staged { buffer, there }: Staged) -> Result<(), Box<dyn Error>> {
        if let Some(there) = there {
            self.compute.wait_for(there)?;
        }
        if self.home == Home::Copies {
            buffer.record_stream(&self.compute)?;
        }
        let bytes = buffer.len();
        let results = self.compute.allocate(bytes / 2)?;
        self.compute.copy((&buffer, 0), (&results, 0), bytes / 2)?;
        self.compute.copy((&buffer, 0), (&self.stays, 0), bytes)?;
        drop(buffer);
        self.activations = Some(results);
        Ok(())
    }

    /// Submits the layers that are queued, and waits for those before them as far as is due.
    fn submit(&mut self) -> Result<(), Box<dyn Error>> {
        self.queued.push_back(self.compute.submit()?);
        if self.queued.len() > self.ahead
            && let Some(due) = self.queued.pop_front()
        {
            self.allocator.wait(due)?;
        }
        Ok(())
    }
}
