//! `millpond import`: a recording of another tool becomes a trace.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufWriter, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use millpond::text::format_bytes;
use millpond_import::{Format, ImportError, Imported, Left, Options, import, import_begun};
use millpond_trace::{Details, Event, Limits, Trace};
use serde::Serialize;

use super::name_of;
use crate::failure::Failure;
use crate::files::{self, Standard, advised, shown};
use crate::output::{Align, Output, Table};
use crate::quantity::{parse_limits, parse_time};
use crate::recognise::{Known, recognised};

/// What `--help` prints behind the arguments.
pub(crate) const HELP: &str = "\
Formats:
  pytorch    a snapshot: torch.cuda.memory._dump_snapshot(FILE), also as JSON
  rmm        the log of RMM's logging_resource_adaptor
  lifetimes  a table id,lower,upper,size, as MiniMalloc and TelaMalloc use it
  stalloc    the log of STAlloc's tracer, mem_log_dev0.txt
  trace      a trace of Millpond, which is written as it is

Each may be compressed with gzip or zstd, and is known by its content. Prints what the trace leaves out \
or changes. `replay`, `report` and `tune` take any of these files as they are.

Examples:
  millpond import snapshot.pickle -o train.trace.zst
  millpond import snapshot.pickle --device 1 -o b.trace  the second device
  millpond import oom.pickle --refused -o oom.trace.zst  with what was refused
  millpond import big.pickle --since 30s -o end.trace    the last 30 seconds
  millpond import big.pickle --events 5000..9000 -o m.trace
  millpond import rmm_log.csv -o rmm.trace.gz
  millpond import --from stalloc - -o s.trace < mem_log_dev0.txt";

const LIMITS_HELP: &str = "\
The largest recording to accept; `none` accepts any size.
What you don't name keeps its default:
  text_bytes=SIZE: content, after decompression (1GiB)
  expansion=N: bytes of content for each compressed byte, beyond 1 MiB (64)
  events=N: events of the trace, and half of the values of a snapshot (16777216)
  streams=N: different streams (1024)
  details=N: frames, call stacks and labels; what is beyond is left out (4194304)";

const WAYS: Ways = Ways { limits: "--limits", device: "--device N" };

/// `millpond import`.
#[derive(Debug, clap::Args)]
pub(crate) struct ImportArgs {
    /// The recording; `-` for standard input
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// The trace to write; compressed if its name ends in `.gz` or `.zst`; `-` for standard output
    #[arg(short, long, value_name = "TRACE")]
    pub(crate) output: PathBuf,
    /// The format, if the content does not show it
    #[arg(long, value_name = "FORMAT", value_parser = parse_format)]
    pub(crate) from: Option<Format>,
    /// The number of the device to take from a snapshot that has several
    #[arg(long, value_name = "N")]
    pub(crate) device: Option<usize>,
    /// Keep requests that failed, as allocations freed at once, to see which policy serves them (pytorch and rmm)
    #[arg(long)]
    pub(crate) refused: bool,
    /// Take the events with these numbers, from 0, the second of them left out; one of the two may be missing. What is
    /// live at the first of them is allocated before it
    #[arg(long, value_name = "FROM..TO", value_parser = parse_events)]
    pub(crate) events: Option<Range<u64>>,
    /// Take the events of the last part of the recording that is so long, as 500ms, 30s, 10m or 2h (pytorch and rmm)
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub(crate) since: Option<Duration>,
    /// Leave out call stacks, labels and times of events, for a smaller trace
    #[arg(long)]
    pub(crate) no_details: bool,
    #[arg(long, value_name = "KEY=N,...", default_value = "", hide_default_value = true)]
    #[arg(value_parser = parse_limits, help = "How large a recording may be", long_help = LIMITS_HELP)]
    pub(crate) limits: Limits,
}

fn parse_format(text: &str) -> Result<Format, String> {
    Format::by_name(text).ok_or_else(|| {
        let known = Format::ALL.map(Format::name).join(", ");
        format!("`{text}` is no format; the formats are {known}")
    })
}

/// Parses `FROM..TO`, of which either may be missing.
fn parse_events(text: &str) -> Result<Range<u64>, String> {
    let number = |text: &str, missing| if text.is_empty() { Some(missing) } else { text.parse().ok() };
    let range = text.split_once("..").and_then(|(from, to)| Some(number(from, 0)?..number(to, u64::MAX)?));
    range.filter(|range| !range.is_empty()).ok_or_else(|| {
        format!("`{text}` has no events: write the first number and the one after the last, such as 1000..2000")
    })
}

/// An import, as JSON.
#[derive(Serialize)]
struct Row<'a> {
    file: &'a str,
    trace: &'a str,
    format: &'a str,
    device: Option<usize>,
    events: usize,
    blocks: usize,
    streams: usize,
    live_peak_bytes: u64,
    not_carried_over: Vec<LeftRow<'a>>,
    notes: &'a [String],
}

/// Something that the trace leaves out or changes, as JSON.
#[derive(Serialize)]
struct LeftRow<'a> {
    what: &'a str,
    count: u64,
}

/// Reads the recording, writes the trace and prints what is in it.
///
/// # Errors
///
/// Returns [`Failure::Input`] if the recording cannot be read, has no event for a trace, or the trace cannot be
/// written.
pub(crate) fn run(args: &ImportArgs, output: &mut Output) -> Result<(), Failure> {
    files::check(std::slice::from_ref(&args.file), std::slice::from_ref(&args.output))?;
    let name = name_of(&args.file, &[".gz", ".zst", ".pickle", ".pkl", ".pt", ".json", ".csv", ".txt"]);
    let is_input = files::is_input(&args.file);
    let name = (!is_input).then_some(name);
    let options = Options {
        format: args.from,
        device: args.device,
        name,
        refused: args.refused,
        events: args.events.clone(),
        since: args.since,
        without_details: args.no_details,
        limits: args.limits,
    };
    let source = if is_input { "standard input".into() } else { shown(&args.file) };
    let program = if is_input {
        Program::of(io::stdin().lock(), &source, options)?
    } else {
        let file = File::open(&args.file).map_err(|error| unopened(&args.file, error))?;
        Program::of(file, &source, options)?
    };
    let written = if files::is_output(&args.output) {
        output.make_room();
        program.trace.write_to(BufWriter::new(Standard::new())).map(drop)
    } else {
        program.trace.write(&args.output)
    };
    written.map_err(|error| Failure::Input(format!("{}: {error}; give another path with -o", shown(&args.output))))?;
    print(args, &source, &program, output);
    Ok(())
}

/// What was read of a file.
struct Program {
    trace: Trace,
    /// The name of the format, and what it is for readers.
    format: (&'static str, &'static str),
    device: Option<usize>,
    left: Vec<Left>,
    notes: Vec<String>,
}

impl Program {
    /// Reads a file in the format that the options name, or else in the one that its content has.
    fn of(reader: impl Read, source: &str, options: Options) -> Result<Self, Failure> {
        let is_part = options.events.is_some() || options.since.is_some();
        let imported = if options.format.is_some() {
            import(reader, &options)
        } else {
            match recognised(reader, source)? {
                (content, Known::Recording(format)) => {
                    import_begun(content, &Options { format: Some(format), ..options })
                }
                (_, Known::Trace) if options.events.is_some() || options.since.is_some() => {
                    let text = "it is a trace of Millpond, and --events and --since take a part of a recording";
                    return Err(Failure::Input(format!("{source}: {text}")));
                }
                (content, Known::Trace) => {
                    let trace = Trace::from_content(content, &options.limits);
                    let trace =
                        trace.map_err(|error| Failure::Input(format!("{source}: {}", advised(&error, WAYS.limits))))?;
                    let details = if options.without_details { Details::default() } else { trace.details };
                    let trace = Trace { details, ..trace };
                    let format = ("trace", "a trace of Millpond, which needs no import");
                    return Self { trace, format, device: None, left: Vec::new(), notes: Vec::new() }
                        .with_events(source, NO_EVENT);
                }
            }
        };
        let imported = imported.map_err(|error| Failure::Input(explain(source, &error, &WAYS)))?;
        let why = if is_part { "the part has no allocation and no memory is live in it" } else { nothing(&imported) };
        let Imported { trace, format, device, left, notes, .. } = imported;
        Self { trace, format: (format.name(), format.about()), device, left, notes }.with_events(source, why)
    }

    /// Refuses a program without events.
    fn with_events(self, source: &str, why: &str) -> Result<Self, Failure> {
        if self.trace.events.is_empty() {
            return Err(Failure::Input(format!("{source}: {why}; no trace is written")));
        }
        Ok(self)
    }

    fn streams(&self) -> usize {
        let mut seen = BTreeSet::new();
        for event in &self.trace.events {
            if let Event::Allocate { stream, .. } | Event::Use { stream, .. } | Event::Mark { stream, .. } = event {
                seen.insert(*stream);
            }
        }
        seen.len()
    }
}

const NO_EVENT: &str = "there is no event in it";

/// Returns why a recording has no event.
pub(crate) fn nothing(imported: &Imported) -> &'static str {
    match imported.format {
        Format::PyTorch => {
            "it has no history and no memory: call torch.cuda.memory._record_memory_history() before what is to be \
             recorded"
        }
        _ => "it has no allocation",
    }
}

fn unopened(path: &Path, error: io::Error) -> Failure {
    let error = ImportError::Open { path: path.into(), error };
    Failure::Input(explain(&shown(path), &error, &WAYS))
}

/// The options by which a command has a recording read in another way.
pub(crate) struct Ways {
    pub(crate) limits: &'static str,
    pub(crate) device: &'static str,
}

/// Returns the text of an error, with what to do.
pub(crate) fn explain(shown: &str, error: &ImportError, ways: &Ways) -> String {
    match error {
        ImportError::Open { .. } => format!("{error}; give the path of a recording"),
        ImportError::Devices { .. } => format!("{shown}: {error} with {}", ways.device),
        ImportError::NoPart { .. } => format!("{shown}: {error}; give other --events"),
        ImportError::NoDevice { .. } => format!("{shown}: {error}; give another --device"),
        error => match error.limit() {
            Some((limit, enough)) => {
                format!("{shown}: {error}: {}, or `none`", files::raised(ways.limits, limit.name(), enough))
            }
            None => format!("{shown}: {error}"),
        },
    }
}

fn print(args: &ImportArgs, source: &str, program: &Program, output: &mut Output) {
    let Program { trace, format, device, left, notes } = program;
    let ((format, about), streams) = (*format, program.streams());
    let (blocks, live_peak_bytes) = (trace.allocations(), trace.live_peak());
    let path = shown(&args.output);
    if output.is_json() {
        let not_carried_over = left.iter().map(|Left { what, count }| LeftRow { what, count: *count }).collect();
        let (events, device) = (trace.events.len(), *device);
        let (file, trace) = (source, path.as_str());
        let row =
            Row { file, trace, format, device, events, blocks, streams, live_peak_bytes, not_carried_over, notes };
        output.json(&row);
        return;
    }
    let of = device.map_or(String::new(), |device| format!(", device {device}"));
    let mut text = format!("{source}: {about}{of}\n{path}:\n");
    let mut table = Table::new(&[("", Align::Left), (" ", Align::Right)]);
    for (what, value) in [
        ("events", trace.events.len().to_string()),
        ("blocks", blocks.to_string()),
        ("streams", streams.to_string()),
        ("live peak", format_bytes(live_peak_bytes)),
    ] {
        table.row(vec![format!("  {what}"), value]);
    }
    // The table has no head.
    text.extend(output.table(&table).lines().skip(1).flat_map(|line| [line, "\n"]));
    if !left.is_empty() {
        text += "not carried over, or changed:\n";
        let width = left.iter().map(|left| left.count.to_string().len()).max().unwrap_or(0);
        for Left { what, count } in left {
            text += &format!("  {count:>width$} {what}\n");
        }
    }
    for note in notes {
        text += &format!("note: {note}\n");
    }
    output.text(&text);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_have_names() {
        for format in Format::ALL {
            assert_eq!(parse_format(format.name()), Ok(format));
            assert!(HELP.contains(&format!("\n  {} ", format.name())), "{format}");
        }
        assert!(parse_format("csv").is_err_and(|error| error.contains("the formats are pytorch, rmm, lifetimes")));
    }

    #[test]
    fn a_part_is_a_range_of_numbers() {
        for (text, range) in [("3..7", 3..7), ("..7", 0..7), ("3..", 3..u64::MAX), ("..", 0..u64::MAX)] {
            assert_eq!(parse_events(text), Ok(range), "{text}");
        }
        for text in ["", "3", "7..3", "3..3", "a..3", "-1..3", "3..=7", "3...7"] {
            assert!(parse_events(text).is_err_and(|error| error.contains("such as 1000..2000")), "{text}");
        }
    }
}
