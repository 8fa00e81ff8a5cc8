//! candle on Millpond: a language model answers prompts with candle's own memory and with Millpond's, and prints what
//! each took.

mod model;
#[path = "../../named.rs"]
mod named;
mod rows;

use std::process::{Command, ExitCode};
use std::time::Duration;

use candle_core::Device;
use clap::Parser;
use millpond_cuda::Cuda;
use model::{SIZES, Size};
use named::one_of;
use rows::{ROWS, Row};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("millpond-candle: {error}");
            ExitCode::from(2)
        }
    }
}

/// Answers prompts with candle's own memory and with Millpond's, and prints what each took.
///
/// The rows take turns, each in a process of its own. Where there is no device, the program says that it skipped
/// everything, and ends well.
#[derive(Parser)]
#[command(name = "millpond-candle")]
struct Asked {
    /// The size of the model
    #[arg(long, value_name = "NAME", default_value = "1b", value_parser = one_of(&SIZES, |size| size.name))]
    size: Size,
    /// How often each row is run; the table has medians
    #[arg(long, value_name = "N", default_value_t = 3)]
    rounds: usize,
    /// The CUDA device, by its number
    #[arg(long, value_name = "N", default_value_t = 0)]
    device: usize,
    /// The rows of the table
    #[arg(long, value_name = "NAME,NAME", value_delimiter = ',', default_values = ROWS.map(Row::name))]
    #[arg(value_parser = one_of(&ROWS, |row| row.name()))]
    rows: Vec<Row>,
    /// Run one row in this process, and print its figures
    #[arg(long, value_name = "NAME", value_parser = one_of(&ROWS, |row| row.name()))]
    row: Option<Row>,
    /// Run the small model on the CPU, without memory of a device
    #[arg(long)]
    check: bool,
}

fn run() -> Result<bool> {
    let asked = Asked::parse();
    if asked.check {
        let answered = model::answer(&SIZES[0], &Device::Cpu, || {})?;
        println!("checked on the CPU: {} tokens, sum {:x}", answered.tokens.len(), answered.said);
        return Ok(true);
    }
    let absent = match Cuda::devices() {
        Ok(devices) if asked.device < devices.len() => None,
        Ok(devices) => Some(format!("there is no CUDA device {} of {}", asked.device, devices.len())),
        Err(error) => Some(error.to_string()),
    };
    if let Some(why) = absent {
        println!("######## SKIPPED: NOTHING WAS RUN OR MEASURED: {why} ########");
        return Ok(true);
    }
    match asked.row {
        Some(row) => one(&asked, row).map(|()| true),
        None => table(&asked),
    }
}

/// What one process measured, as the words that it prints.
struct Measured {
    /// The sum of all tokens.
    said: u64,
    /// Nanoseconds of a token and of a prompt, in the middle.
    token: u64,
    prompt: u64,
    /// The most bytes of tensors, that were reserved for them, and that the device lost to the process after it was
    /// opened.
    live: u64,
    reserved: u64,
    device: u64,
}

const WORDS: [&str; 6] = ["said", "token", "prompt", "live", "reserved", "device"];

impl Measured {
    fn numbers(&self) -> [u64; 6] {
        [self.said, self.token, self.prompt, self.live, self.reserved, self.device]
    }

    fn parse(text: &str) -> Result<Measured> {
        let find = |word: &str| {
            let found = text.split_whitespace().find_map(|pair| pair.strip_prefix(word)?.strip_prefix('='));
            found.ok_or(format!("a row printed no {word}: {text}"))?.parse::<u64>().map_err(|error| error.to_string())
        };
        let numbers: Vec<u64> = WORDS.into_iter().map(find).collect::<std::result::Result<_, _>>()?;
        let [said, token, prompt, live, reserved, device] = numbers[..] else { unreachable!("six words") };
        Ok(Measured { said, token, prompt, live, reserved, device })
    }
}

/// One row in this process.
fn one(asked: &Asked, row: Row) -> Result<()> {
    let source = row.set(asked.device)?;
    let device = Device::new_cuda(asked.device)?;
    let before = rows::used_bytes(asked.device)?;
    let mut most = before;
    let mut failed = None;
    let answered = model::answer(&asked.size, &device, || match rows::used_bytes(asked.device) {
        Ok(bytes) => most = most.max(bytes),
        Err(error) => failed = Some(error),
    })?;
    if let Some(error) = failed {
        return Err(error);
    }
    let peak = source.peak(asked.device)?;
    let measured = Measured {
        said: answered.said,
        token: middle(answered.tokens),
        prompt: middle(answered.prompts),
        live: peak.live,
        reserved: peak.reserved,
        device: most - before,
    };
    let pairs: Vec<String> =
        WORDS.iter().zip(measured.numbers()).map(|(word, number)| format!("{word}={number}")).collect();
    println!("{}", pairs.join(" "));
    Ok(())
}

fn middle(mut times: Vec<Duration>) -> u64 {
    times.sort_unstable();
    times.get(times.len() / 2).map_or(0, |time| time.as_nanos() as u64)
}

/// All rows in turn, and the table. Returns whether all said the same.
fn table(asked: &Asked) -> Result<bool> {
    let program = std::env::current_exe()?;
    let mut all: Vec<Vec<Measured>> = asked.rows.iter().map(|_| Vec::new()).collect();
    for round in 0..asked.rounds {
        for (row, measured) in asked.rows.iter().zip(&mut all) {
            eprintln!("round {} of {}: {}", round + 1, asked.rounds, row.title());
            let (size, device) = (asked.size.name, asked.device.to_string());
            let arguments = ["--row", row.name(), "--size", size, "--device", &device];
            let output = Command::new(&program).args(arguments).output()?;
            if !output.status.success() {
                return Err(format!("{}: {}", row.title(), String::from_utf8_lossy(&output.stderr)).into());
            }
            measured.push(Measured::parse(&String::from_utf8_lossy(&output.stdout))?);
        }
    }
    println!("{} of size {}, {} rounds, medians\n", "llama", asked.size.name, asked.rounds);
    println!("| memory | live | reserved | reserved / live | device | a token | a prompt |");
    println!("|---|---|---|---|---|---|---|");
    for (row, measured) in asked.rows.iter().zip(&all) {
        let of = |number: fn(&Measured) -> u64| {
            let mut numbers: Vec<u64> = measured.iter().map(number).collect();
            numbers.sort_unstable();
            numbers[numbers.len() / 2]
        };
        let (live, reserved) = (of(|m| m.live), of(|m| m.reserved));
        let mib = |bytes: u64| format!("{:.0} MiB", bytes as f64 / f64::from(1 << 20));
        let ms = |nanoseconds: u64| format!("{:.2} ms", nanoseconds as f64 / 1e6);
        let ratio = reserved as f64 / live.max(1) as f64;
        let (device, token, prompt) = (mib(of(|m| m.device)), ms(of(|m| m.token)), ms(of(|m| m.prompt)));
        let (live, reserved) = (mib(live), mib(reserved));
        println!("| {} | {live} | {reserved} | {ratio:.3} | {device} | {token} | {prompt} |", row.title());
    }
    let said: Vec<u64> = all.iter().flatten().map(|measured| measured.said).collect();
    let same = said.windows(2).all(|pair| pair[0] == pair[1]);
    println!("\n{}", if same { "All said the same." } else { "THE ROWS SAID DIFFERENT TOKENS." });
    Ok(same)
}
