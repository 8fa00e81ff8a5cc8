//! `millpond diff`: what grew and what shrank between two snapshots.

use std::path::{Path, PathBuf};

use clap::value_parser;
use millpond::text::format_bytes;
use millpond_snapshot::{Amount, Change, Diff, Limits, Row, Snapshot, SnapshotError, Sums};
use serde::Serialize;

use crate::failure::Failure;
use crate::files::{self, shown};
use crate::output::{Align, Output, Table};
use crate::quantity::set_limits;

/// What `--help` prints behind the arguments.
pub(crate) const HELP: &str = "\
Snapshots are what torch.cuda.memory._snapshot() returns, also of Millpond under PyTorch, as a pickle, a file of \
torch.save or JSON, each also compressed with gzip or zstd. Call stacks, and with them places, are there if \
torch.cuda.memory._record_memory_history() was called before.

Examples:
  millpond diff before.pickle after.pickle     what a step has left, and whose it is
  millpond diff a.pickle b.pickle --frames 3   places of three frames
  millpond diff a.json b.pickle --json         everything, for a program";

const LIMITS_HELP: &str = "\
The largest snapshot to accept; `none` accepts any size.
What you don't name keeps its default:
  bytes=SIZE: content, after decompression (1GiB)
  expansion=N: bytes of content for each compressed byte, beyond 1 MiB (64)
  values=N: numbers, texts, lists and dictionaries, up to 128 bytes each (33554432)";

/// `millpond diff`.
#[derive(Debug, clap::Args)]
pub(crate) struct DiffArgs {
    /// The first snapshot; `-` for standard input, of one of the two
    #[arg(value_name = "BEFORE")]
    pub(crate) before: PathBuf,
    /// The second snapshot
    #[arg(value_name = "AFTER")]
    pub(crate) after: PathBuf,
    /// Group by this number of innermost frames
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = value_parser!(u16).range(1..=64))]
    pub(crate) frames: u16,
    /// Print at most this number of places and of segments
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(crate) rows: usize,
    #[arg(long, value_name = "KEY=N,...", default_value = "", hide_default_value = true)]
    #[arg(value_parser = parse_limits, help = "How large a snapshot may be", long_help = LIMITS_HELP)]
    pub(crate) limits: Limits,
}

fn parse_limits(text: &str) -> Result<Limits, String> {
    let mut limits = Limits::default();
    let Limits { bytes, expansion, values } = &mut limits;
    set_limits(text, &mut [("bytes", bytes), ("expansion", expansion), ("values", values)])?;
    Ok(limits)
}

/// Reads both snapshots and prints their difference.
///
/// # Errors
///
/// Returns [`Failure::Input`] if one of them cannot be read.
pub(crate) fn run(args: &DiffArgs, output: &mut Output) -> Result<(), Failure> {
    files::check(&[args.before.clone(), args.after.clone()], &[])?;
    let before = read(&args.before, &args.limits)?;
    let after = read(&args.after, &args.limits)?;
    let diff = before.diff(&after, args.frames.into());
    if output.is_json() {
        output.json(&json(args, &diff));
    } else {
        let text = text(args, &diff, output);
        output.text(&text);
    }
    Ok(())
}

fn read(path: &Path, limits: &Limits) -> Result<Snapshot, Failure> {
    let snapshot = if files::is_input(path) {
        Snapshot::from_reader(std::io::stdin().lock(), limits)
    } else {
        let file = std::fs::File::open(path).map_err(|error| {
            Failure::Input(format!("cannot open {}: {error}; give the path of a snapshot", shown(path)))
        })?;
        Snapshot::from_reader(file, limits)
    };
    let name = if files::is_input(path) { "standard input".into() } else { shown(path) };
    snapshot.map_err(|error| {
        Failure::Input(match error {
            SnapshotError::Limit { limit, enough, .. } => {
                format!("{name}: {error}: {}, or `none`", files::raised("--limits", limit.name(), enough))
            }
            error => format!("{name}: {error}"),
        })
    })
}

/// Returns a number of bytes with its sign.
fn signed(bytes: i128) -> String {
    let size = format_bytes(u64::try_from(bytes.unsigned_abs()).unwrap_or(u64::MAX));
    match bytes {
        0 => "0".into(),
        1.. => format!("+{size}"),
        _ => format!("-{size}"),
    }
}

fn text(args: &DiffArgs, diff: &Diff, output: &Output) -> String {
    let name = |path: &Path| {
        let shown = shown(path);
        let skipped = shown.chars().count().saturating_sub(output.width() - "before: ".len());
        shown.chars().skip(skipped).collect::<String>()
    };
    let mut text = format!("before: {}\nafter:  {}\n\n", name(&args.before), name(&args.after));
    text += &sums(&diff.before, &diff.after, output);
    let sizes: Vec<Row> = diff.sizes.iter().map(|row| Row { key: up_to(&row.key), ..row.clone() }).collect();
    for (title, rows, most) in [
        ("blocks by state", &diff.states, usize::MAX),
        ("in use, by size", &sizes, usize::MAX),
        ("in use, by stream", &diff.streams, args.rows),
        ("in use, by place", &diff.sites, args.rows),
    ] {
        text += &section(title, rows, most, output);
    }
    text + &segments(&diff.segments, args.rows, output)
}

/// Returns the text of the power of two that sizes are at most.
fn up_to(bytes: &str) -> String {
    bytes.parse().map_or_else(|_| bytes.into(), |bytes| format!("up to {}", format_bytes(bytes)))
}

fn sums(before: &Sums, after: &Sums, output: &Output) -> String {
    let mut table =
        Table::new(&[("", Align::Left), ("before", Align::Right), ("after", Align::Right), ("growth", Align::Right)]);
    let growth = |before: u64, after: u64| i128::from(after) - i128::from(before);
    let segments = growth(before.segments, after.segments);
    table.row(vec![
        "segments".into(),
        before.segments.to_string(),
        after.segments.to_string(),
        if segments == 0 { "0".into() } else { format!("{segments:+}") },
    ]);
    for (name, before, after) in [
        ("reserved", before.reserved, after.reserved),
        ("allocated", before.allocated, after.allocated),
        ("requested", before.requested, after.requested),
    ] {
        let growth = signed(growth(before, after));
        table.row(vec![name.into(), format_bytes(before), format_bytes(after), growth]);
    }
    output.table(&table)
}

/// Returns the rows that differ, the first of them where there are many.
fn section(title: &'static str, rows: &[Row], most: usize, output: &Output) -> String {
    let changed: Vec<&Row> = rows.iter().filter(|row| !row.is_same()).collect();
    if changed.is_empty() {
        return format!("\n{title}: no difference\n");
    }
    let mut table = Table::new(&[
        (title, Align::Left),
        ("before", Align::Right),
        ("after", Align::Right),
        ("growth", Align::Right),
        ("blocks", Align::Right),
    ]);
    for row in changed.iter().take(most) {
        let blocks = i128::from(row.after.count) - i128::from(row.before.count);
        table.row(vec![
            row.key.clone(),
            format_bytes(row.before.bytes),
            format_bytes(row.after.bytes),
            signed(row.growth()),
            if blocks == 0 { "0".into() } else { format!("{blocks:+}") },
        ]);
    }
    format!("\n{}{}", output.table(&table), more(changed.len(), changed.len().min(most)))
}

/// Returns how many rows there are beyond those that are shown.
fn more(all: usize, shown: usize) -> String {
    if all > shown { format!("and {} more: --rows {all}\n", all - shown) } else { String::new() }
}

fn segments(changes: &[Change], most: usize, output: &Output) -> String {
    if changes.is_empty() {
        return "\nsegments: no difference\n".into();
    }
    let mut table = Table::new(&[
        ("segment", Align::Left),
        ("device", Align::Right),
        ("is", Align::Left),
        ("before", Align::Right),
        ("after", Align::Right),
        ("allocated", Align::Right),
    ]);
    for change in changes.iter().take(most) {
        let bytes = |bytes: Option<u64>| bytes.map_or(String::new(), format_bytes);
        table.row(vec![
            format!("{:#x}", change.address),
            change.device.to_string(),
            kind(change).into(),
            bytes(change.before),
            bytes(change.after),
            format_bytes(change.allocated),
        ]);
    }
    format!("\n{}{}", output.table(&table), more(changes.len(), changes.len().min(most)))
}

fn kind(change: &Change) -> &'static str {
    match (change.before, change.after) {
        (None, _) => "new",
        (_, None) => "gone",
        _ if change.growth() > 0 => "larger",
        _ => "smaller",
    }
}

/// A difference, as JSON.
#[derive(Serialize)]
struct DiffJson<'a> {
    before: SumsJson,
    after: SumsJson,
    states: Vec<RowJson<'a>>,
    sizes: Vec<RowJson<'a>>,
    streams: Vec<RowJson<'a>>,
    places: Vec<RowJson<'a>>,
    segments: Vec<ChangeJson>,
}

#[derive(Serialize)]
struct SumsJson {
    file: String,
    segments: u64,
    reserved_bytes: u64,
    allocated_bytes: u64,
    requested_bytes: u64,
}

#[derive(Serialize)]
struct RowJson<'a> {
    key: &'a str,
    before_blocks: u64,
    after_blocks: u64,
    before_bytes: u64,
    after_bytes: u64,
}

#[derive(Serialize)]
struct ChangeJson {
    device: i64,
    address: u64,
    stream: u64,
    is: &'static str,
    before_bytes: Option<u64>,
    after_bytes: Option<u64>,
    allocated_bytes: u64,
}

fn json<'a>(args: &DiffArgs, diff: &'a Diff) -> DiffJson<'a> {
    let sums = |path: &Path, sums: &Sums| SumsJson {
        file: path.display().to_string(),
        segments: sums.segments,
        reserved_bytes: sums.reserved,
        allocated_bytes: sums.allocated,
        requested_bytes: sums.requested,
    };
    let changes = diff.segments.iter().map(|change| ChangeJson {
        device: change.device,
        address: change.address,
        stream: change.stream,
        is: kind(change),
        before_bytes: change.before,
        after_bytes: change.after,
        allocated_bytes: change.allocated,
    });
    DiffJson {
        before: sums(&args.before, &diff.before),
        after: sums(&args.after, &diff.after),
        states: rows(&diff.states),
        sizes: rows(&diff.sizes),
        streams: rows(&diff.streams),
        places: rows(&diff.sites),
        segments: changes.collect(),
    }
}

fn rows(rows: &[Row]) -> Vec<RowJson<'_>> {
    let json = rows.iter().map(|row| {
        let (Amount { count: before_blocks, bytes: before_bytes }, Amount { count: after_blocks, bytes: after_bytes }) =
            (row.before, row.after);
        RowJson { key: &row.key, before_blocks, after_blocks, before_bytes, after_bytes }
    });
    json.collect()
}
