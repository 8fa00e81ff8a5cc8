//! `millpond sameness`: runs the same programs on several devices and compares the results.

use std::path::{Path, PathBuf};

use millpond::settings::Policy;
use millpond::text::format_bytes;
use millpond_backend::Caps;
use millpond_conformance::sameness::{DECIDED_ALIKE, Program, Trail, divisor, reference};
use millpond_conformance::{Outcome, Tested};
use millpond_trace::Trace;
use serde::Serialize;

use crate::commands::replay::read_trace;
use crate::commands::{name_of, one_form};
use crate::devices::{DeviceName, Target};
use crate::failure::Failure;
use crate::files;
use crate::output::progress::Progress;
use crate::output::{Align, Output, Table};

/// What `--help` prints behind the arguments.
pub(crate) const HELP: &str = "\
Every program runs on each device and on a simulated one with the same memory and pages. Decisions, layouts and all \
statistics are compared, byte for byte. The host waits for the device, so that its pace changes nothing. Equal digests \
mean equal runs, on any machine. Sizes are divided by a power of two if the smallest device needs it. Policies that \
need virtual memory are left out on devices without it.

Examples:
  millpond sameness --device cuda:0 --device vulkan:0 *.trace.gz
  millpond sameness --device vulkan:0 --seeds 200 --markdown";

/// `millpond sameness`.
#[derive(Debug, clap::Args)]
pub(crate) struct SamenessArgs {
    /// Traces to compare; `-` is standard input
    #[arg(value_name = "TRACE", required_unless_present = "seeds")]
    pub(crate) traces: Vec<PathBuf>,
    /// A device to compare with the simulated one, as `millpond devices` lists it. May be repeated
    #[arg(long = "device", value_name = "DEVICE", required = true)]
    #[arg(value_parser = DeviceName::One, hide_possible_values = true)]
    pub(crate) devices: Vec<String>,
    /// Also compare this number of synthetic programs
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) seeds: u64,
    /// Print the table in Markdown
    #[arg(long)]
    pub(crate) markdown: bool,
}

/// A device and its capabilities.
struct Side {
    target: Target,
    name: String,
    caps: Caps,
}

/// A line of the table: one trace, or all the seeds.
struct Subject {
    name: String,
    work: Work,
}

enum Work {
    Trace(Box<Trace>),
    Seeds(u64),
}

/// Compares every program under every policy on every device with the simulated device.
///
/// # Errors
///
/// Returns [`Failure::Check`] if anything differs and [`Failure::Device`] for a device that is missing.
pub(crate) fn run(args: &SamenessArgs, output: &mut Output) -> Result<(), Failure> {
    one_form(args.markdown, output)?;
    files::check(&args.traces, &[])?;
    let sides = args.devices.iter().map(|text| Side::open(text)).collect::<Result<Vec<_>, _>>()?;
    let subjects = subjects(args, &sides)?;
    let progress = Progress::unbounded();
    let mut rows = Vec::new();
    for subject in &subjects {
        for &policy in DECIDED_ALIKE.iter() {
            progress.doing(format!("{} under {}", subject.name, policy.variant_name()));
            let row = Row::new(subject, policy, &sides)?;
            progress.step();
            if output.is_json() {
                progress.aside(|| output.json(&row));
            }
            rows.push(row);
        }
    }
    drop(progress);
    if !output.is_json() {
        let table = table(&rows, &sides);
        output.text(&if args.markdown { table.markdown() } else { output.table(&table) });
    }
    let differing: Vec<_> =
        rows.iter().flat_map(|row| row.cells.iter().filter_map(|cell| cell.difference.clone())).collect();
    match differing.first() {
        None => Ok(()),
        Some(first) => Err(Failure::Check(format!("{} comparisons differ; the first: {first}", differing.len()))),
    }
}

impl Side {
    fn open(text: &str) -> Result<Self, Failure> {
        let target = Target::choose(Some(text))?;
        let caps = target.run(|opened| Ok(opened.device.caps().clone()))?;
        Ok(Self { target, name: text.to_owned(), caps })
    }
}

fn subjects(args: &SamenessArgs, sides: &[Side]) -> Result<Vec<Subject>, Failure> {
    let mut subjects = Vec::new();
    for path in &args.traces {
        subjects.push(scaled(path, sides)?);
    }
    if args.seeds > 0 {
        subjects.push(Subject { name: format!("{} seeds", args.seeds), work: Work::Seeds(args.seeds) });
    }
    Ok(subjects)
}

/// Reads a trace and divides its sizes so that all of the devices can serve them.
fn scaled(path: &Path, sides: &[Side]) -> Result<Subject, Failure> {
    let trace = read_trace(path)?;
    let divisor = divisor(&trace, sides.iter().map(|side| &side.caps));
    let name = name_of(path, &[".gz", ".zst", ".trace"]);
    let name = if divisor == 1 { name } else { format!("{name} / {divisor}") };
    Ok(Subject { name, work: Work::Trace(Box::new(trace.scaled_down(divisor))) })
}

/// One program under one policy on all devices.
#[derive(Serialize)]
struct Row {
    program: String,
    policy: &'static str,
    decisions: usize,
    peak_reserved_bytes: u64,
    cells: Vec<Cell>,
}

/// The result of a program on one device.
#[derive(Serialize)]
struct Cell {
    device: String,
    /// The digest of all decisions, layouts and statistics; `None` where they differ or the device cannot serve the
    /// policy.
    digest: Option<String>,
    skipped: Option<String>,
    difference: Option<String>,
}

/// The summed results of the programs of a subject.
#[derive(Default)]
struct Sum {
    decisions: usize,
    peak: u64,
    digest: u64,
}

impl Sum {
    fn add(&mut self, trail: &Trail) {
        self.decisions += trail.decisions();
        self.peak = self.peak.max(trail.peak_reserved_bytes());
        self.digest = self.digest.rotate_left(7) ^ trail.digest();
    }
}

impl Row {
    fn new(subject: &Subject, policy: Policy, sides: &[Side]) -> Result<Self, Failure> {
        let mut row = Self {
            program: subject.name.clone(),
            policy: policy.variant_name(),
            decisions: 0,
            peak_reserved_bytes: 0,
            cells: Vec::new(),
        };
        for side in sides {
            let mut cell = Cell { device: side.name.clone(), digest: None, skipped: None, difference: None };
            let mut sum = Sum::default();
            match compare(subject, policy, side, &mut sum)? {
                Ok(()) => {
                    cell.digest = Some(format!("{:016x}", sum.digest));
                    (row.decisions, row.peak_reserved_bytes) = (sum.decisions, sum.peak);
                }
                Err(Outcome::Skipped(reason)) => cell.skipped = Some(reason),
                Err(outcome) => cell.difference = Some(format!("{} under {}: {outcome}", subject.name, row.policy)),
            }
            row.cells.push(cell);
        }
        Ok(row)
    }
}

/// Runs all programs of a subject on a device and on a simulated device with the same capabilities.
fn compare(subject: &Subject, policy: Policy, side: &Side, sum: &mut Sum) -> Result<Result<(), Outcome>, Failure> {
    if policy.needs_pages() && side.caps.pages.is_none() {
        return Ok(Err(Outcome::Skipped("no virtual memory".to_owned())));
    }
    let programs: Vec<Program<'_>> = match &subject.work {
        Work::Trace(trace) => vec![Program::Trace(trace)],
        Work::Seeds(count) => (0..*count).map(Program::Seed).collect(),
    };
    for program in &programs {
        let here = match side.target.trail(policy, program)? {
            Ok(trail) => trail,
            Err(outcome) => return Ok(Err(outcome)),
        };
        let there = match Tested::from(reference(&side.caps)).trail(policy, program) {
            Ok(trail) => trail,
            Err(outcome) => return Ok(Err(outcome)),
        };
        if let Some(difference) = here.difference(&there) {
            return Ok(Err(Outcome::Failed(format!("on {}: {difference}", side.name))));
        }
        sum.add(&here);
    }
    Ok(Ok(()))
}

fn table(rows: &[Row], sides: &[Side]) -> Table {
    let mut table = Table::new(&[
        ("program", Align::Left),
        ("policy", Align::Left),
        ("decisions", Align::Right),
        ("peak reserved", Align::Right),
        ("device", Align::Left),
        ("digest", Align::Left),
        ("simulated", Align::Left),
    ]);
    for row in rows {
        for (cell, _) in row.cells.iter().zip(sides) {
            let verdict = match (&cell.digest, &cell.difference) {
                (Some(_), _) => "equal",
                (None, Some(_)) => "DIFFERS",
                (None, None) => "left out",
            };
            table.row(vec![
                row.program.clone(),
                row.policy.into(),
                row.decisions.to_string(),
                format_bytes(row.peak_reserved_bytes),
                cell.device.clone(),
                cell.digest.clone().or(cell.skipped.clone()).unwrap_or_default(),
                verdict.into(),
            ]);
        }
    }
    table
}
