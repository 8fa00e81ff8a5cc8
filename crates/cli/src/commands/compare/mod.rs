//! `millpond compare`: what differs between two files of results.

mod measures;
mod results;

use std::path::PathBuf;

use serde::Serialize;
use serde_json::{Map, Value};

use self::measures::{Measure, least_and_most};
use self::results::{Group, Results, name_settings};
use crate::failure::Failure;
use crate::files::{self, shown};
use crate::output::{Align, Output, Table, tell, wrapped};

/// What `--help` prints behind the arguments.
pub(crate) const HELP: &str = "\
A and B are outputs of `millpond replay --json` or `millpond bench --json`, from any device or machine. Results of the \
same program, policy and settings are compared. Bytes, calls and simulated times count as different if \
they are not equal; times of a host or a GPU, if they differ by more than the spread between warm passes, rounds, or \
repeated results in one file. The exit code is 0 even if something differs.

Examples:
  millpond replay --json *.trace.gz > before.json
  millpond compare before.json after.json
  millpond compare a.json b.json --json | jq 'select(.measure == \"warm\")'";

/// `millpond compare`.
#[derive(Debug, clap::Args)]
pub(crate) struct CompareArgs {
    /// The first file of results; `-` is standard input, for one of the two
    #[arg(value_name = "A")]
    a: PathBuf,
    /// The second file of results
    #[arg(value_name = "B")]
    b: PathBuf,
}

/// A measure that differs, or a result that one file alone has, as JSON.
#[derive(Serialize)]
struct Row<'a> {
    /// What distinguishes the result from others of its file.
    #[serde(flatten)]
    of: &'a Map<String, Value>,
    /// The file that has it, where one alone does.
    #[serde(skip_serializing_if = "Option::is_none")]
    only_in: Option<&'static str>,
    #[serde(flatten)]
    difference: Option<Difference>,
}

/// A measure that differs by more than its spread.
#[derive(Clone, Copy, Serialize)]
struct Difference {
    #[serde(rename = "measure", serialize_with = "name")]
    measure: Measure,
    a: f64,
    b: f64,
    /// B over A, minus 1; null where A has 0.
    change: Option<f64>,
    spread: f64,
}

fn name<S: serde::Serializer>(measure: &Measure, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(measure.name)
}

/// What a comparison of two results found.
enum Compared {
    /// No difference beyond the spread.
    Alike,
    /// One.
    Differs(Difference),
    /// It is not known by how much equal runs differ.
    Unknown,
}

/// Compares two files of results and prints what differs.
///
/// # Errors
///
/// Returns [`Failure::Input`] for a file that cannot be read or has no results.
pub(crate) fn run(args: &CompareArgs, output: &mut Output) -> Result<(), Failure> {
    files::check(&[args.a.clone(), args.b.clone()], &[])?;
    let (mut a, mut b) = (Results::read(&args.a)?, Results::read(&args.b)?);
    name_settings([&mut a, &mut b]);
    let mut table = Table::new(&[
        ("result", Align::Left),
        ("measure", Align::Left),
        ("A", Align::Right),
        ("B", Align::Right),
        ("change", Align::Right),
        ("spread", Align::Right),
    ])
    .ranked(&[0, 0, 0, 0, 0, 1]);
    let (mut matched, mut unknown, mut of_one_run) = (0, 0, false);
    for (key, group) in a.groups() {
        let Some(other) = b.group(key) else { continue };
        matched += 1;
        if group.digest() != other.digest() {
            tell(&format!("note: {}: the traces are not the same, as their digests say", group.title()));
        }
        let passes = (group.passes(), other.passes());
        if let (Some(a), Some(b)) = passes
            && a != b
        {
            let title = group.title();
            tell(&format!("note: {title}: passes: {a} in A, {b} in B, so totals of all passes are not compared"));
        }
        let same_passes = passes.0 == passes.1;
        // A simulated clock and a real one have nothing in common.
        let same_clock = group.is_simulated() == other.is_simulated();
        let comparable = |measure: &Measure| {
            (same_passes || !measure.is_of_all_passes()) && (same_clock || !measure.is_of_driver_clock())
        };
        for measure in group.measures().filter(comparable) {
            match compared(measure, group, other) {
                Compared::Alike => {}
                Compared::Unknown => unknown += 1,
                Compared::Differs(difference) if output.is_json() => {
                    output.json(&Row { of: group.identity(), only_in: None, difference: Some(difference) });
                }
                Compared::Differs(difference) => {
                    of_one_run |=
                        measure.is_time() && difference.spread > 0.0 && group.rows().len().min(other.rows().len()) == 1;
                    table.row(cells(group, &difference));
                }
            }
        }
    }
    let alone = |own: &'_ Results, other: &Results| -> Vec<(Map<String, Value>, String)> {
        let missing = own.groups().filter(|(key, _)| other.group(key).is_none());
        missing.map(|(_, group)| (group.identity().clone(), group.title())).collect()
    };
    let (only_a, only_b) = (alone(&a, &b), alone(&b, &a));
    if output.is_json() {
        for (file, alone) in [("A", &only_a), ("B", &only_b)] {
            alone.iter().for_each(|(of, _)| output.json(&Row { of, only_in: Some(file), difference: None }));
        }
        return Ok(());
    }
    let mut text = String::new();
    for (name, path, results) in [("A", &args.a, &a), ("B", &args.b, &b)] {
        text += &format!("{name}: {}: {}, {}\n", shown(path), counted(results.len()), results.conditions());
    }
    text += &match table.is_empty() {
        true if matched == 0 => "\nThe files have no result in common\n".to_owned(),
        true => format!("\nNo difference in {} beyond the spread between passes\n", counted(matched)),
        false => format!("\n{}", output.table(&table)),
    };
    for (file, alone) in [("A", only_a), ("B", only_b)] {
        if !alone.is_empty() {
            let titles: Vec<String> = alone.into_iter().map(|(_, title)| title).collect();
            text += &wrapped(&format!("\nonly in {file}: {}\n", titles.join("; ")), output.width()).join("\n");
            text.push('\n');
        }
    }
    output.text(&text);
    if of_one_run {
        tell(
            "note: a file has one run of a program; times differ more from run to run than from pass to pass. To see \
             by how much, put several runs into each file: `millpond replay --json ... >> FILE`",
        );
    }
    if unknown > 0 {
        tell(&format!(
            "note: times without a spread were left out: {unknown}; results of two warm passes or more have one"
        ));
    }
    Ok(())
}

/// Returns a number of results for readers.
fn counted(results: usize) -> String {
    if results == 1 { "1 result".to_owned() } else { format!("{results} results") }
}

fn compared(measure: Measure, a: &Group, b: &Group) -> Compared {
    let (Some(first), Some(second)) = (a.median(measure), b.median(measure)) else { return Compared::Alike };
    if first == second {
        return Compared::Alike;
    }
    let (Some(of_a), Some(of_b)) = (spread(measure, a), spread(measure, b)) else { return Compared::Unknown };
    let spread = of_a.max(of_b);
    if (second - first).abs() <= spread {
        return Compared::Alike;
    }
    let change = (first != 0.0).then(|| second / first - 1.0);
    Compared::Differs(Difference { measure, a: first, b: second, change, spread })
}

/// Returns by how much equal runs differ: within a result, or between those of one file.
fn spread(measure: Measure, group: &Group) -> Option<f64> {
    let within = group.rows().iter().filter_map(|row| measure.spread(row)).max_by(f64::total_cmp);
    let values = group.values(measure);
    let between = least_and_most(&values).filter(|_| values.len() > 1).map(|(least, most)| most - least);
    within.into_iter().chain(between).max_by(f64::total_cmp)
}

fn cells(group: &Group, difference: &Difference) -> Vec<String> {
    let &Difference { measure, a, b, change, spread } = difference;
    let spread = if spread > 0.0 { measure.shown(spread) } else { String::new() };
    let change = change.map_or(String::new(), |change| format!("{:+.1} %", 100.0 * change));
    vec![group.title(), measure.name.into(), measure.shown(a), measure.shown(b), change, spread]
}
