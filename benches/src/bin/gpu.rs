//! This allocator on a CUDA device, compared with the allocators of other programs: `millpond-gpu-bench --help`.

use std::error::Error;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Instant;

use clap::Parser;
use millpond_benches::case::threads;
use millpond_benches::gpu::case::{GPU_CASES, GpuCase};
use millpond_benches::gpu::compare::Comparison;
use millpond_benches::gpu::contest::{Contestant, Effort};
use millpond_benches::gpu::own::{Open, Own};
use millpond_benches::gpu::page::{CSV_HEAD, LEGEND, csv, table};
use millpond_benches::gpu::peer::{Peer, served};
use millpond_benches::gpu::task::Scratch;
use millpond_benches::measure::Meter;
use millpond_benches::report::{Machine, load, today};
use millpond_benches::subject::{CLASSIC, EXPANDABLE, PAGED};
use millpond_cuda::Cuda;

/// Measures Millpond on a CUDA device beside other allocators of GPU memory, all with the same operations, turn by
/// turn. Tables in Markdown go to standard output. Takes about 5 minutes.
#[derive(Parser, Debug)]
#[command(name = "millpond-gpu-bench", version)]
struct Options {
    /// Only cases whose name contains one of these.
    parts: Vec<String>,
    /// The program that serves the other allocators (scripts/gpu-peers.sh builds it). Without it Millpond is alone.
    #[arg(long, value_name = "PROGRAM")]
    peers: Option<PathBuf>,
    /// The device's place in the driver's list.
    #[arg(long, default_value_t = 0, value_name = "N")]
    device: usize,
    /// Only as much as shows that everything works.
    #[arg(long)]
    quick: bool,
    /// Rounds per case, at least 1 [default: 5, and 1 with --quick].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    rounds: Option<u16>,
    /// The folder of the recorded traces.
    #[arg(long, default_value = "tests/corpus/traces", value_name = "FOLDER")]
    traces: PathBuf,
    /// Write the numbers to this file as comma-separated values, too.
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Name the cases and stop.
    #[arg(long)]
    list: bool,
}

impl Options {
    fn cases(&self) -> Vec<&'static GpuCase> {
        let wanted = |name: &str| self.parts.is_empty() || self.parts.iter().any(|part| name.contains(part.as_str()));
        GPU_CASES.iter().filter(|case| wanted(case.name)).collect()
    }

    fn effort(&self) -> Effort {
        let effort = if self.quick { Effort::QUICK } else { Effort::FULL };
        Effort { rounds: self.rounds.map_or(effort.rounds, usize::from), ..effort }
    }
}

fn main() -> ExitCode {
    match compare(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("millpond-gpu-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn compare(options: &Options) -> Result<(), Box<dyn Error>> {
    let cases = options.cases();
    if options.list {
        cases.iter().for_each(|case| println!("{}", case.name));
        return Ok(());
    }
    if cases.is_empty() {
        return Err(format!("no case's name contains one of {:?}; --list names them all", options.parts).into());
    }
    // The device is held open: opening it while no other handle is open takes hundreds of milliseconds.
    let device = Cuda::open(options.device)?;
    let machine = Machine::this(None);
    let mut comparison = Comparison {
        contestants: contestants(options)?,
        effort: options.effort(),
        threads: threads(machine.cores).to_vec(),
        traces: options.traces.clone(),
        device_bytes: device.info().total_bytes,
        scratch: Scratch::new("gpu-bench")?,
    };
    let (major, minor) = Cuda::driver_version()?;
    println!("# {} beside its peers, {}\n", device.info().name, today());
    println!("CUDA {major}.{minor}; {}, {} cores.\n\n{LEGEND}", machine.processor, machine.cores);
    let mut lines = String::from(CSV_HEAD);
    for case in cases {
        let start = Instant::now();
        let outcome = comparison.case(case)?;
        println!("{}", table(&outcome));
        lines += &csv(&outcome);
        // Written after every case, so that a run that is cut short keeps what it has measured.
        if let Some(path) = &options.csv {
            fs::write(path, &lines).map_err(|error| format!("{}: {error}", path.display()))?;
        }
        eprintln!("{}: {:.1} s", case.name, start.elapsed().as_secs_f64());
    }
    for subject in &comparison.contestants {
        if let Some(about) = subject.about() {
            println!("{}: {about}.  ", subject.name());
        }
    }
    if let Some(load) = load() {
        println!("\nSystem load after it (1, 5 and 15 minutes, runnable): {load}.");
    }
    Ok(())
}

fn contestants(options: &Options) -> Result<Vec<Box<dyn Contestant>>, Box<dyn Error>> {
    let (device, meter) = (options.device, Rc::new(Meter::new()));
    let open: Open<Cuda> = Rc::new(move || Ok(Cuda::open(device)?));
    let own = |variant| Box::new(Own::new(variant, Rc::clone(&open), Rc::clone(&meter))) as Box<dyn Contestant>;
    let mut contestants: Vec<_> = [PAGED, CLASSIC, EXPANDABLE].map(own).into();
    let Some(program) = &options.peers else {
        eprintln!("millpond-gpu-bench: NOTHING TO COMPARE WITH: --peers names a program (see scripts/gpu-peers.sh)");
        return Ok(contestants);
    };
    for name in served(program)? {
        let mut peer = Peer::new(program, &name, device);
        if let Err(error) = peer.start() {
            eprintln!("millpond-gpu-bench: {name} does not start: {error}");
        }
        contestants.push(Box::new(peer));
    }
    Ok(contestants)
}
