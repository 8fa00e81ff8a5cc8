//! `millpond import`: a recording of another tool becomes a trace.

use std::io::{self, BufWriter};
use std::path::PathBuf;

use millpond::text::format_bytes;
use millpond_import::{Format, ImportError, Imported, Left, Options, import, import_file};
use millpond_trace::Limits;
use serde::Serialize;

use super::name_of;
use crate::failure::Failure;
use crate::files::{self, Standard, shown};
use crate::output::{Align, Output, Table};
use crate::quantity::parse_limits;

/// What `--help` prints behind the arguments.
pub(crate) const HELP: &str = "\
Formats:
  pytorch    a snapshot: pickle.dump(torch.cuda.memory._snapshot(), file), torch.save of it, or JSON
  rmm        the log of RMM's logging_resource_adaptor: Thread,Time,Action,Pointer,Size,Stream
  lifetimes  a table id,lower,upper,size, as MiniMalloc and TelaMalloc use it
  stalloc    the log of STAlloc's tracer, mem_log_dev0.txt
Each may be compressed with gzip or zstd. Prints what the recording has and the trace has not.

Examples:
  millpond import snapshot.pickle -o train.trace.zst        a snapshot, found out by its content
  millpond import snapshot.pickle --device 1 -o b.trace     of several devices, the second one
  millpond import oom.pickle --refused -o oom.trace.zst     with the request that was refused
  millpond import rmm_log.csv -o rmm.trace.gz && millpond replay --compare rmm.trace.gz
  millpond import --from stalloc - -o s.trace < mem_log_dev0.txt";

const LIMITS_HELP: &str = "\
How large a recording may be; `none` alone for any size.
What is not named stays:
  text_bytes=SIZE  content, after decompression (1GiB)
  expansion=N      bytes of content for each byte of a compressed file, beyond 1 MiB (64)
  events=N         events of the trace, and twice as many values of a snapshot (16777216)
  streams=N        different streams (1024)";

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
    /// The format, where it is not to be found out by the content
    #[arg(long, value_name = "FORMAT", value_parser = parse_format)]
    pub(crate) from: Option<Format>,
    /// The number of the device to take from a snapshot that has several
    #[arg(long, value_name = "N")]
    pub(crate) device: Option<usize>,
    /// Make requests that were refused allocations, freed at once, to see which policy serves them (pytorch and rmm)
    #[arg(long)]
    pub(crate) refused: bool,
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
}

/// Something that the trace has not, as JSON.
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
    let options = Options { format: args.from, device: args.device, name, limits: args.limits, refused: args.refused };
    let imported = if is_input { import(io::stdin().lock(), &options) } else { import_file(&args.file, &options) };
    let source = if is_input { "standard input".into() } else { shown(&args.file) };
    let imported = imported.map_err(|error| Failure::Input(explain(&source, &error, &WAYS)))?;
    if imported.trace.events.is_empty() {
        return Err(Failure::Input(format!("{source}: {}", nothing(&imported))));
    }
    let written = if files::is_output(&args.output) {
        output.make_room();
        imported.trace.write_to(BufWriter::new(Standard::new())).map(drop)
    } else {
        imported.trace.write(&args.output)
    };
    written.map_err(|error| Failure::Input(format!("{}: {error}; give another path with -o", shown(&args.output))))?;
    print(args, &source, &imported, output);
    Ok(())
}

/// Returns why there is nothing to write.
pub(crate) fn nothing(imported: &Imported) -> String {
    let why = match imported.format {
        Format::PyTorch => {
            "it has no history and no memory: call torch.cuda.memory._record_memory_history() before what is to be \
             recorded"
        }
        _ => "it has no allocation",
    };
    format!("{why}; no trace is written")
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
        ImportError::Unknown { .. } => format!("{shown}: {error} with --from"),
        ImportError::Devices { .. } => format!("{shown}: {error} with {}", ways.device),
        ImportError::NoDevice { .. } => format!("{shown}: {error}; give another --device"),
        ImportError::Limit { raise, .. } => {
            format!("{shown}: {error}: {} {}=N, or `none`", ways.limits, raise.name())
        }
        error => format!("{shown}: {error}"),
    }
}

fn streams(imported: &Imported) -> usize {
    use millpond_trace::Event;
    let mut seen = std::collections::BTreeSet::new();
    for event in &imported.trace.events {
        if let Event::Allocate { stream, .. } | Event::Use { stream, .. } | Event::Mark { stream, .. } = event {
            seen.insert(*stream);
        }
    }
    seen.len()
}

fn print(args: &ImportArgs, source: &str, imported: &Imported, output: &mut Output) {
    let Imported { trace, format, device, left } = imported;
    let (blocks, streams, live_peak_bytes) = (trace.allocations(), streams(imported), trace.live_peak());
    let path = shown(&args.output);
    if output.is_json() {
        let not_carried_over = left.iter().map(|Left { what, count }| LeftRow { what, count: *count }).collect();
        let (events, device) = (trace.events.len(), *device);
        let (file, trace, format) = (source, path.as_str(), format.name());
        let row = Row { file, trace, format, device, events, blocks, streams, live_peak_bytes, not_carried_over };
        output.json(&row);
        return;
    }
    let of = device.map_or(String::new(), |device| format!(", device {device}"));
    let mut text = format!("{source}: {}{of}\n{path}:\n", format.about());
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
        text += "not carried over:\n";
        let width = left.iter().map(|left| left.count.to_string().len()).max().unwrap_or(0);
        for Left { what, count } in left {
            text += &format!("  {count:>width$} {what}\n");
        }
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
}
