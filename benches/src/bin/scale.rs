//! What grows with streams, threads, pools and age, as a page of tables: `scale --help`.

use std::error::Error;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use clap::Parser;
use millpond_benches::report::{Machine, load, today};
use millpond_benches::scale::{Case, Effort, Table};

/// Measures how the allocator's cost grows with streams, threads, pools and age, on the simulated device. Prints a page
/// in Markdown. Each case runs in a process of its own. Takes about two minutes.
#[derive(Parser, Debug)]
#[command(name = "scale", version)]
struct Options {
    /// Only cases whose name contains one of these.
    parts: Vec<String>,
    /// Operations of the stream that grows old; 10,000,000 for the full run.
    #[arg(long, default_value_t = 1_000_000, value_name = "N")]
    operations: u64,
    /// Pools, and streams, that come and go; 10,000 for the full run.
    #[arg(long, default_value_t = 2000, value_name = "N")]
    churn: usize,
    /// Seconds after which a row is cut short; threads have four times as long, a stream that grows old six times.
    #[arg(long, default_value_t = 3, value_name = "N")]
    seconds: u64,
    /// The folder of the recorded traces.
    #[arg(long, default_value = "tests/corpus/traces", value_name = "FOLDER")]
    traces: PathBuf,
    /// Write the page to this file, too.
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// The machine's name on the page [default: processor and cores].
    #[arg(long, value_name = "NAME")]
    machine: Option<String>,
    /// Measure on this CUDA device what can be measured there: streams and threads.
    #[cfg(feature = "cuda")]
    #[arg(long, value_name = "N")]
    cuda: Option<usize>,
    /// Name the cases and stop.
    #[arg(long)]
    list: bool,
    /// Measure this one case in this process and print its rows alone.
    #[arg(long, value_name = "NAME", hide = true)]
    case: Option<String>,
}

impl Options {
    fn effort(&self) -> Effort {
        Effort {
            operations: self.operations,
            churn: self.churn,
            bound: Duration::from_secs(self.seconds),
            traces: self.traces.clone(),
        }
    }

    fn cases(&self, table: Table) -> Vec<Case> {
        let wanted = |name: &str| self.parts.is_empty() || self.parts.iter().any(|part| name.contains(part.as_str()));
        let mut cases = table.cases();
        cases.retain(|case| wanted(&case.name()) && (self.is_simulated() || case.is_for_devices()));
        cases
    }

    #[cfg(not(feature = "cuda"))]
    fn is_simulated(&self) -> bool {
        true
    }

    #[cfg(feature = "cuda")]
    fn is_simulated(&self) -> bool {
        self.cuda.is_none()
    }

    fn rows(&self, case: Case) -> Result<Vec<String>, Box<dyn Error>> {
        #[cfg(feature = "cuda")]
        if let Some(device) = self.cuda {
            // The device is held open: opening it while no other handle is open takes hundreds of milliseconds.
            let _held = millpond_cuda::Cuda::open(device)?;
            return case.rows_on(|| Ok(millpond_cuda::Cuda::open(device)?), &self.effort());
        }
        case.rows(&self.effort())
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    let result = match &options.case {
        Some(name) => print_rows(&options, name),
        None => print_page(&options),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("scale: {error}");
            ExitCode::FAILURE
        }
    }
}

fn print_rows(options: &Options, name: &str) -> Result<(), Box<dyn Error>> {
    let mut cases = Table::ALL.into_iter().flat_map(Table::cases);
    let case = cases.find(|case| case.name() == name).ok_or_else(|| format!("no case is called '{name}'"))?;
    options.rows(case)?.iter().for_each(|row| println!("{row}"));
    Ok(())
}

fn print_page(options: &Options) -> Result<(), Box<dyn Error>> {
    let tables = Table::ALL.map(|table| (table, options.cases(table)));
    if tables.iter().all(|(_, cases)| cases.is_empty()) {
        return Err(format!("no case's name contains one of {:?}; --list names them all", options.parts).into());
    }
    if options.list {
        tables.iter().flat_map(|(_, cases)| cases).for_each(|case| println!("{}", case.name()));
        return Ok(());
    }
    let mut page = Page { text: String::new(), record: options.record.clone() };
    page.add(&top(options))?;
    let mut failed = Vec::new();
    for (table, cases) in tables.into_iter().filter(|(_, cases)| !cases.is_empty()) {
        page.add(&format!("\n{}", table.head()))?;
        for case in cases {
            let begun = Instant::now();
            match rows_of_another_process(&case.name()) {
                Ok(rows) => page.add(&rows)?,
                Err(error) => failed.push(format!("{}: {error}", case.name())),
            }
            eprintln!("{}: {:.1} s", case.name(), begun.elapsed().as_secs_f64());
        }
    }
    if let Some(load) = load() {
        page.add(&format!("\nSystem load after it (1, 5 and 15 minutes, runnable): {load}.\n"))?;
    }
    if failed.is_empty() { Ok(()) } else { Err(failed.join("; ").into()) }
}

/// A page that is printed, and recorded, as it grows: a run that is cut short keeps what it has measured.
struct Page {
    text: String,
    record: Option<PathBuf>,
}

impl Page {
    fn add(&mut self, text: &str) -> Result<(), Box<dyn Error>> {
        print!("{text}");
        self.text += text;
        let Some(path) = &self.record else { return Ok(()) };
        let folder = path.parent().map_or(Ok(()), fs::create_dir_all);
        Ok(folder.and_then(|()| fs::write(path, &self.text)).map_err(|error| format!("{}: {error}", path.display()))?)
    }
}

fn top(options: &Options) -> String {
    let machine = Machine::this(options.machine.clone());
    let mhz = machine.mhz.as_deref().map_or_else(String::new, |mhz| format!(" at {mhz} MHz"));
    let load = load().map_or_else(String::new, |load| format!(" System load before it: {load}."));
    format!(
        "# Streams, threads, pools and age: {}, {}\n\n`scripts/scale.sh --operations {} --churn {} --seconds {}`. \
         {}{mhz}, {} cores.{load}\nTimes on one thread are its processor's, where the system reports that.\n",
        machine.name,
        today(),
        options.operations,
        options.churn,
        options.seconds,
        machine.processor,
        machine.cores,
    )
}

/// Runs this program for one case: what another case has left in the host's memory would hide what this one needs.
fn rows_of_another_process(name: &str) -> Result<String, Box<dyn Error>> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(std::env::args_os().skip(1)).args(["--case", name]);
    let output = command.stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(output.status.to_string().into());
    }
    Ok(String::from_utf8(output.stdout)?)
}
