//! Burn on CUDA on Millpond: trains one model with CubeCL's memory, with the driver's and with Millpond's, and prints
//! what each took.

#[path = "../../burn/src/model.rs"]
mod model;
#[path = "../../named.rs"]
mod named;
#[path = "../../burn/src/printed.rs"]
mod printed;
#[expect(dead_code, reason = "candle has one more row, and names for all")]
#[path = "../../candle/src/rows.rs"]
mod rows;
mod train;

use std::process::{Command, ExitCode};

use clap::Parser;
use cubecl::config::memory::CudaAllocator;
use cubecl::config::{CubeClRuntimeConfig, RuntimeConfig};
use millpond_cuda::Cuda;
use millpond_cuda::cudarc::driver::CudaContext;
use model::{SIZES, Size};
use named::one_of;
use printed::{Printed, difference};
use rows::Row as Under;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// One row of the table: who divides memory, and who gives it.
#[derive(Clone, Copy)]
struct Row {
    name: &'static str,
    title: &'static str,
    /// Whether CubeCL's pools are on.
    pools: bool,
    /// What serves CubeCL's asynchronous allocations; without it CubeCL calls `cuMemAlloc`, its default.
    under: Option<Under>,
}

const PAGED: Option<Under> = Some(Under::Millpond("policy:paged"));
const CLASSIC: Option<Under> = Some(Under::Millpond("policy:classic"));

const ROWS: [Row; 7] = [
    Row { name: "burn", title: "Burn as it is", pools: true, under: None },
    Row { name: "async", title: "Burn's pools, cuMemAllocAsync", pools: true, under: Some(Under::Pool) },
    Row { name: "both", title: "Burn's pools, Millpond paged", pools: true, under: PAGED },
    Row { name: "pool", title: "no pools, cuMemAllocAsync", pools: false, under: Some(Under::Pool) },
    Row { name: "kept-pool", title: "the same, pool keeps all", pools: false, under: Some(Under::KeptPool) },
    Row { name: "classic", title: "no pools, Millpond classic", pools: false, under: CLASSIC },
    Row { name: "paged", title: "no pools, Millpond paged", pools: false, under: PAGED },
];

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("millpond-burn-cuda: {error}");
            ExitCode::from(2)
        }
    }
}

/// Trains a model of Burn's examples with CubeCL's memory, with the driver's and with Millpond's, and prints what each
/// took.
///
/// The rows take turns, each in a process of its own. Where there is no device, the program says that it skipped
/// everything, and ends well.
#[derive(Parser)]
#[command(name = "millpond-burn-cuda")]
struct Asked {
    /// The size of the model
    #[arg(long, value_name = "NAME", default_value = "example", value_parser = one_of(&SIZES, |size| size.name))]
    size: Size,
    /// Steps of the optimizer
    #[arg(long, value_name = "N", default_value_t = 120)]
    steps: usize,
    /// How often each row is run; the table has medians
    #[arg(long, value_name = "N", default_value_t = 1)]
    rounds: usize,
    /// The CUDA device, by its number
    #[arg(long, value_name = "N", default_value_t = 0)]
    device: usize,
    /// The rows of the table
    #[arg(long, value_name = "NAME,NAME", value_delimiter = ',', default_values = ROWS.map(|row| row.name))]
    #[arg(value_parser = one_of(&ROWS, |row| row.name))]
    rows: Vec<Row>,
    /// Run one row in this process, and print its figures
    #[arg(long, value_name = "NAME", value_parser = one_of(&ROWS, |row| row.name))]
    row: Option<Row>,
}

fn run() -> Result<bool> {
    let asked = Asked::parse();
    let absent = match Cuda::devices() {
        Ok(devices) if asked.device < devices.len() => None,
        Ok(devices) => Some(format!("there is no CUDA device {} of {}", asked.device, devices.len())),
        Err(error) => Some(error.to_string()),
    };
    if let Some(why) = absent {
        println!("######## SKIPPED: NOTHING WAS RUN OR MEASURED: {why} ########");
        return Ok(true);
    }
    match &asked.row {
        Some(row) => one(&asked, row).map(|()| true),
        None => table(&asked),
    }
}

/// Trains once and prints the figures, each with its name.
fn one(asked: &Asked, row: &Row) -> Result<()> {
    // CubeCL reads these when its first device opens.
    let mut config = CubeClRuntimeConfig::default();
    config.memory.cuda.allocator = if row.under.is_some() { CudaAllocator::Async } else { CudaAllocator::Sync };
    CubeClRuntimeConfig::set(config);
    // It stays open, so that what a context takes is on no row's account.
    let _context = CudaContext::new(asked.device)?;
    let source = row.under.map(|under| under.set(asked.device)).transpose()?;
    let before = rows::used_bytes(asked.device)?;
    let outcome = train::train(asked.device, row.pools, &asked.size, asked.steps);
    let peak = source.map(|source| source.peak(asked.device)).transpose()?.unwrap_or_default();
    let mut warm = outcome.times[outcome.times.len() / 2..].to_vec();
    warm.sort_unstable();
    println!("losses {}", outcome.losses.iter().map(|loss| format!("{:08x}", loss.to_bits())).collect::<String>());
    println!("last {}", outcome.losses.last().copied().unwrap_or(0.0));
    println!("step {}", warm.get(warm.len() / 2).map_or(0, |time| time.as_micros()));
    println!("warm {}", warm.iter().map(|time| time.as_micros()).sum::<u128>());
    // With pools, what is under them sees their pages and not tensors.
    println!("live {}", if row.pools { 0 } else { peak.live });
    println!("reserved {}", if row.under.is_some() { peak.reserved } else { outcome.pooled });
    println!("device {}", outcome.used.saturating_sub(before));
    Ok(())
}

/// All rows in turn, and the table. Returns whether all learnt the same.
fn table(asked: &Asked) -> Result<bool> {
    let program = std::env::current_exe()?;
    let mut all: Vec<Vec<Printed>> = asked.rows.iter().map(|_| Vec::new()).collect();
    for round in 0..asked.rounds {
        for (row, printed) in asked.rows.iter().zip(&mut all) {
            eprintln!("round {} of {}: {}", round + 1, asked.rounds, row.title);
            let output = Command::new(&program)
                .args(["--row", row.name, "--size", asked.size.name, "--steps", &asked.steps.to_string()])
                .args(["--device", &asked.device.to_string()])
                .output()?;
            if output.status.success() {
                let figures = Printed(String::from_utf8(output.stdout)?);
                // The table comes at the end, which a limit on the time may not let it reach.
                let said = ["last", "step", "live", "reserved", "device"].map(|name| (name, figures.text(name)));
                eprintln!("{said:?}");
                printed.push(figures);
            } else {
                println!("{} failed: {}\n", row.title, String::from_utf8_lossy(&output.stderr).trim());
            }
        }
    }
    let middle = |printed: &[Printed], name: &str| {
        let mut numbers: Vec<u64> = printed.iter().map(|printed| printed.number(name)).collect();
        numbers.sort_unstable();
        numbers.get(numbers.len() / 2).copied().unwrap_or(0)
    };
    // What tensors need, under the allocator that counts each of them.
    let counts = asked.rows.iter().zip(&all).filter(|(row, _)| row.under == PAGED && !row.pools);
    let live = counts.map(|(_, printed)| middle(printed, "live")).next().unwrap_or(0);
    let size = &asked.size;
    println!("Burn 0.22.1 on CUDA through NVRTC, no fusion, no autotune; {} rounds, medians", asked.rounds);
    println!(
        "{}: {} layers, width {}, vocabulary {}; batches of {} by up to {}; {} steps of AdamW; live peak {}\n",
        size.name,
        size.layers,
        size.width,
        size.vocabulary,
        size.batch,
        size.lengths.iter().max().unwrap_or(&0),
        asked.steps,
        mib(live),
    );
    println!("| memory | live | reserved | reserved / live peak | device | a step | second half |");
    println!("|---|---|---|---|---|---|---|");
    for (row, printed) in asked.rows.iter().zip(&all).filter(|(_, printed)| !printed.is_empty()) {
        let of = |name| middle(printed, name);
        let own = if row.pools { "-".to_owned() } else { mib(of("live")) };
        let ratio = of("reserved") as f64 / live.max(1) as f64;
        let (reserved, device) = (mib(of("reserved")), mib(of("device")));
        let (step, warm) = (of("step") as f64 / 1e3, of("warm") as f64 / 1e6);
        println!("| {} | {own} | {reserved} | {ratio:.3} | {device} | {step:.1} ms | {warm:.2} s |", row.title);
    }
    let ran: Vec<&Printed> = all.iter().flatten().collect();
    let Some(first) = ran.first() else { return Err("no row was run".into()) };
    let apart = ran.iter().map(|printed| difference(printed.text("losses"), first.text("losses")));
    let apart = apart.fold(0.0_f32, f32::max);
    let same = match apart {
        0.0 => "the same in every row, to the bit".to_owned(),
        _ => format!("up to {apart:e} of their value apart"),
    };
    println!("\nlosses: {same}; the last is {}", first.text("last"));
    // Kernels that add in any order make losses differ in their last bits from run to run, on every memory.
    Ok(ran.len() == asked.rows.len() * asked.rounds && apart < 1e-3)
}

fn mib(bytes: u64) -> String {
    format!("{:.0} MiB", bytes as f64 / f64::from(1 << 20))
}
