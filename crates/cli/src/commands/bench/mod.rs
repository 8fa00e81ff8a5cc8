//! `millpond bench`: what a device's driver costs, and how the cache and other allocators compare with it.

mod args;
mod cached;
mod driver;
mod measure;
mod pages;
mod peers;
mod pinned;
mod row;
mod scene;
mod scrub;
mod streams;
mod traces;
mod transfers;

pub(crate) use args::{BenchArgs, HELP};

use millpond_backend::Backend;

use self::measure::Effort;
use self::row::Row;
use crate::conditions::Conditions;
use crate::devices::{Target, Typed, typed};
use crate::failure::Failure;
use crate::interrupt;
use crate::output::progress::Progress;
use crate::output::{Output, tell};

/// One kind of measurement. Each runs on a freshly opened device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Group {
    Driver,
    Cached,
    Streams,
    Pages,
    Transfers,
    Scrub,
    Pinned,
    Traces,
}

impl Group {
    const ALL: [Group; 8] = [
        Group::Driver,
        Group::Cached,
        Group::Streams,
        Group::Pages,
        Group::Transfers,
        Group::Scrub,
        Group::Pinned,
        Group::Traces,
    ];

    fn name(self) -> &'static str {
        match self {
            Group::Driver => "the driver's calls",
            Group::Cached => "cached allocation",
            Group::Streams => "streams and ticks",
            Group::Pages => "pages",
            Group::Transfers => "transfers",
            Group::Scrub => "scrubbing",
            Group::Pinned => "pinned memory",
            Group::Traces => "traces",
        }
    }
}

/// Measures group by group. What the device lacks is reported on standard error.
///
/// # Errors
///
/// Returns the error of the device. What was measured before it is printed all the same.
pub(crate) fn run(args: &BenchArgs, output: &mut Output) -> Result<(), Failure> {
    let targets = Target::list(args.device.as_deref())?;
    let effort = if args.quick { Effort::QUICK } else { Effort::FULL };
    interrupt::catch();
    for (at, target) in targets.iter().enumerate() {
        if at > 0 && !output.is_json() {
            output.text("\n");
        }
        on_device(target, &effort, output)?;
    }
    Ok(())
}

/// Measures a device and prints the results.
fn on_device(target: &Target, effort: &Effort, output: &mut Output) -> Result<(), Failure> {
    let progress = Progress::new(Group::ALL.len() + 1);
    let mut report = Report { target, called: String::new(), rows: Vec::new() };
    let result = measure_all(target, effort, &progress, &mut report, output);
    drop(progress);
    if !output.is_json() && !report.rows.is_empty() {
        let Report { target, called, rows } = &report;
        let table = output.table(&row::table(rows));
        output.text(&format!("On {} ({called}); medians of {} rounds\n\n{table}", target.name(), effort.rounds));
    }
    result
}

struct Report<'a> {
    target: &'a Target,
    /// The name of the device, for readers.
    called: String,
    rows: Vec<Row>,
}

impl Report<'_> {
    fn add(&mut self, rows: Vec<Row>, progress: &Progress, output: &mut Output) {
        let conditions = output.is_json().then(|| Conditions::new(self.target, &self.called));
        for row in rows {
            let row = Row { device: self.target.name(), conditions: conditions.clone(), ..row };
            if output.is_json() {
                progress.aside(|| output.json(&row));
            }
            self.rows.push(row);
        }
        progress.step();
    }
}

fn measure_all(
    target: &Target,
    effort: &Effort,
    progress: &Progress,
    report: &mut Report<'_>,
    output: &mut Output,
) -> Result<(), Failure> {
    for group in Group::ALL {
        if !output.is_open() {
            return Ok(());
        }
        interrupt::check()?;
        progress.doing(group.name().into());
        let done = target.run(|opened| typed(opened.device, Measure { group, effort }))?;
        if let Some(note) = done.note {
            progress.aside(|| tell(&format!("note: {} left out: {note}", group.name())));
        }
        report.called = done.called;
        report.add(done.rows, progress, output);
    }
    progress.doing("peers".into());
    let peers = peers::measure(target, effort, &report.rows)?;
    report.add(peers, progress, output);
    Ok(())
}

struct Measure<'a> {
    group: Group,
    effort: &'a Effort,
}

/// The result of a group.
struct Done {
    called: String,
    rows: Vec<Row>,
    /// Why there are no rows.
    note: Option<String>,
}

/// Measures on the typed device, as a program has it that knows its device when it is built.
impl Typed for Measure<'_> {
    type Output = Done;

    fn on<B: Backend + Clone>(self, device: B) -> Result<Done, Failure> {
        let caps = device.caps();
        let called = caps.name.clone();
        let note = match self.group {
            Group::Pages if caps.pages.is_none() => Some("the device has no virtual memory"),
            Group::Transfers | Group::Scrub if !caps.transfer => Some("the device neither fills nor copies"),
            Group::Pinned if pinned::class_of(&device).is_none() => {
                Some("the device has none that the host can address")
            }
            Group::Transfers | Group::Scrub | Group::Pinned if device.driver_clock().is_some() => {
                Some("a simulated device moves bytes in no time")
            }
            _ => None,
        };
        if let Some(note) = note {
            return Ok(Done { called, rows: Vec::new(), note: Some(note.into()) });
        }
        let rows = match self.group {
            Group::Driver => driver::measure(device, self.effort),
            Group::Cached => cached::measure(device, self.effort),
            Group::Streams => streams::measure(device, self.effort),
            Group::Pages => pages::measure(device, self.effort),
            Group::Transfers => transfers::measure(device, self.effort),
            Group::Scrub => scrub::measure(device, self.effort),
            Group::Pinned => pinned::measure(device, self.effort),
            Group::Traces => traces::measure(device, self.effort),
        };
        Ok(Done { called, rows: rows?, note: None })
    }
}
