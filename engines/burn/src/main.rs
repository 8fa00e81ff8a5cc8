//! Burn on Millpond: trains one model with Burn's own memory and with Millpond's, and prints what each took.

mod device;
mod model;
#[path = "../../named.rs"]
mod named;
mod printed;
mod train;

use std::process::{Command, ExitCode};
use std::time::Duration;

use clap::Parser;
use device::{ROWS, Row, Under};
use model::{SIZES, Size};
use named::one_of;
use printed::{Printed, difference};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("millpond-burn: {error}");
            ExitCode::from(2)
        }
    }
}

/// Trains a model of Burn's examples with Burn's own memory and with Millpond's, and prints what each took.
///
/// Each row is a process of its own.
#[derive(Parser)]
#[command(name = "millpond-burn")]
struct Asked {
    /// The size of the model
    #[arg(long, value_name = "NAME", default_value = "small", value_parser = one_of(&SIZES, |size| size.name))]
    size: Size,
    /// How often the model sees all batches
    #[arg(long, value_name = "N", default_value_t = 3)]
    passes: usize,
    /// The device, by its number
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
    match &asked.row {
        Some(row) => one(&asked, row).map(|()| true),
        None => table(&asked),
    }
}

/// Trains once and prints the figures, each with its name.
fn one(asked: &Asked, row: &Row) -> Result<()> {
    let (device, lent, name) = device::open(row, asked.device)?;
    let outcome = train::train(&device, lent.as_ref(), row.pools, &asked.size, asked.passes);
    let counts = lent.as_ref().map(millpond_lent::Lent::counts).unwrap_or_default();
    let pond = lent.as_ref().and_then(|lent| lent.allocator());
    let reserved = pond.map_or(counts.peak_bytes, |pond| pond.max_memory_reserved());
    // Pages of Vulkan are not wgpu's, and so are not in its report.
    let paged = matches!(row.under, Under::Millpond(_, true));
    let driver = counts.peak_report + if paged { reserved } else { 0 };
    let stalls = pond.map_or(0, |pond| pond.driver_activity().stalls);
    println!("device {name}");
    println!("losses {}", outcome.losses.iter().map(|loss| format!("{:08x}", loss.to_bits())).collect::<String>());
    println!("last {}", outcome.losses.last().copied().unwrap_or(0.0));
    println!("times {}", outcome.times.iter().map(|time| time.as_micros().to_string()).collect::<Vec<_>>().join(","));
    println!("calls {}", outcome.calls.iter().map(u64::to_string).collect::<Vec<_>>().join(","));
    println!("live {}", counts.peak_bytes);
    println!("reserved {}", if lent.is_some() { reserved } else { outcome.pooled });
    println!("driver {driver}");
    println!("refused {}", counts.refused);
    println!("stalls {stalls}");
    println!("submits {}", counts.submits);
    println!("created {}", counts.created);
    Ok(())
}

fn table(asked: &Asked) -> Result<bool> {
    let mut printed = Vec::new();
    for row in &asked.rows {
        let output = Command::new(std::env::current_exe()?)
            .args(["--row", row.name, "--size", asked.size.name])
            .args(["--passes", &asked.passes.to_string(), "--device", &asked.device.to_string()])
            .output()?;
        if !output.status.success() {
            println!("{}: {}", row.title, String::from_utf8_lossy(&output.stderr).trim());
            continue;
        }
        printed.push((row, Printed(String::from_utf8(output.stdout)?)));
    }
    let Some((_, first)) = printed.first() else { return Err("no row was run".into()) };
    let size = &asked.size;
    let steps = size.lengths.len() * asked.passes;
    println!("On {}: Burn 0.22.1, WGSL, no fusion, no autotune", first.text("device"));
    println!(
        "{} of text-generation: {} layers, width {}, vocabulary {}; batches of {} by {:?}; {steps} steps\n",
        size.name, size.layers, size.width, size.vocabulary, size.batch, size.lengths
    );
    // Without pools, each tensor is a buffer: the most bytes of them are the most that were live. Work of one order
    // gives them back as soon as they are dropped.
    let live = printed.iter().find(|(row, _)| row.pools == device::Pools::Off).map(|(_, row)| row.number("live"));
    let mib = |bytes: u64| format!("{:.1}", bytes as f64 / f64::from(1 << 20));
    println!(
        "{:<31} {:>8} {:>8} {:>8} {:>9} {:>9} {:>9} {:>9}",
        "MiB, ms", "live", "reserved", "driver", "warm step", "cold pass", "calls", "last calls"
    );
    let (mut apart, mut refused) = (0.0_f32, 0);
    for (row, figures) in &printed {
        let times = figures.numbers("times");
        let (cold, warm) = times.split_at(size.lengths.len().min(times.len()));
        let mut warm: Vec<_> = warm.to_vec();
        warm.sort_unstable();
        let median = warm.get(warm.len() / 2).copied().unwrap_or(0);
        let millis = |micros: u64| format!("{:.1}", Duration::from_micros(micros).as_secs_f64() * 1e3);
        let calls = figures.numbers("calls");
        let last = calls.last().zip(calls.iter().rev().nth(1)).map_or(0, |(end, before)| end - before);
        println!(
            "{:<31} {:>8} {:>8} {:>8} {:>9} {:>9} {:>9} {:>9}",
            row.title,
            live.map_or("?".into(), mib),
            mib(figures.number("reserved")),
            if row.under == Under::Bare { "-".into() } else { mib(figures.number("driver")) },
            millis(median),
            millis(cold.iter().sum()),
            if row.under == Under::Bare { "-".into() } else { calls.first().copied().unwrap_or(0).to_string() },
            if row.under == Under::Bare { "-".into() } else { last.to_string() },
        );
        apart = apart.max(difference(figures.text("losses"), first.text("losses")));
        refused += figures.number("refused");
    }
    let same = match apart {
        0.0 => "the same in every row, to the bit".to_owned(),
        _ => format!("up to {apart:e} of their value apart"),
    };
    println!("\nlosses: {same}; the last is {}", first.text("last"));
    if refused > 0 {
        println!("Millpond refused {refused} buffers, which wgpu gave");
    }
    // Kernels that add in any order make losses differ in their last bits from run to run, on every memory.
    Ok(printed.len() == asked.rows.len() && apart < 1e-3 && refused == 0)
}
