//! The command line: the commands, and what all of them have. The arguments of a command, and the pages that its
//! `--help` prints, are beside it.

use clap::{Parser, Subcommand};

use crate::commands::bench::{self, BenchArgs};
use crate::commands::completions::{self, CompletionsArgs};
use crate::commands::conformance::{self, ConformanceArgs};
use crate::commands::devices;
use crate::commands::diff::{self, DiffArgs};
use crate::commands::golden::{self, GoldenArgs};
use crate::commands::import::{self, ImportArgs};
use crate::commands::replay::{self, ReplayArgs};
use crate::commands::report::{self, ReportArgs};
use crate::commands::sameness::{self, SamenessArgs};
use crate::commands::tune::{self, TuneArgs};
use crate::output::Format;

const EXIT_CODES: &str = "\
Exit codes:
  0  everything went well
  1  a check failed: a recording differs, a conformance scenario failed, a byte is wrong
  2  wrong usage, bad input (configuration, trace, recording), or output that cannot be written
  3  a device is missing or its driver failed
  4  a program that was replayed (replay, report) ran out of memory, or no
     setting fits its limit
130  it was interrupted by Ctrl-C; what there was by then is printed";

const EXAMPLES: &str = "\
Examples:
  millpond replay                          replay the built-in trace on the best device
  millpond replay --compare *.trace.gz     policies side by side
  millpond report *.trace.gz -o report.html  a page that shows what memory was used for
  millpond tune train.trace.gz             the settings that suit a program, and how sure that is
  millpond bench --device cuda:0           what its driver costs, and what the cache makes of it
  millpond devices --format json           what there is, for a program
  millpond import snapshot.pickle -o a.trace  a trace of PyTorch's history
  millpond diff before.pickle after.pickle what grew between two snapshots
  millpond golden tests/corpus/golden/*    check against PyTorch's recorded behaviour
  millpond completions bash                complete all of this in the shell";

/// Millpond, a caching allocator for GPU memory: replay traces, list devices, check recordings.
#[derive(Debug, Parser)]
#[command(name = "millpond", version, after_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"))]
pub(crate) struct Args {
    /// How results are printed on standard output
    #[arg(long, global = true, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
    /// The same as --format json: one JSON value a line
    #[arg(long, global = true, conflicts_with = "format")]
    pub(crate) json: bool,
    /// Print tables with all of their columns, however wide; else they fit 80 columns, or the terminal
    #[arg(long, global = true)]
    pub(crate) wide: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The command to run.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List every backend with its devices, their memory and what they can do; say what is missing and why
    #[command(after_help = format!("{}\n\n{EXIT_CODES}", devices::HELP))]
    Devices,
    /// Replay recorded traces and print what was reserved, what was live and what it cost
    #[command(after_help = format!("{}\n\n{EXIT_CODES}", replay::help()))]
    Replay(ReplayArgs),
    /// Make a trace of a recording of another tool: PyTorch's snapshots, logs of RMM and STAlloc, lifetimes
    #[command(after_help = format!("{}\n\n{EXIT_CODES}", import::HELP))]
    Import(ImportArgs),
    /// Compare two snapshots of PyTorch: what grew, what shrank, and who allocated it
    #[command(after_help = format!("{}\n\n{EXIT_CODES}", diff::HELP))]
    Diff(DiffArgs),
    /// Replay traces and write a page that shows what memory was used for, when and by what
    #[command(after_help = format!("{}\n\n{EXIT_CODES}", report::HELP))]
    Report(ReportArgs),
    /// Replay recordings of PyTorch's allocator on the simulated device and compare every operation
    #[command(after_help = format!("{}\n\n{EXIT_CODES}", golden::HELP))]
    Golden(GoldenArgs),
    /// Measure a device: its driver, the cache on top of it, streams, pages, transfers, and others who allocate
    #[command(after_help = format!("{}\n\n{EXIT_CODES}", bench::HELP))]
    Bench(BenchArgs),
    /// Run the same programs on several devices and on the simulated one, and compare all that they led to
    #[command(after_help = format!("{}\n\n{EXIT_CODES}", sameness::HELP))]
    Sameness(SamenessArgs),
    /// Run the suite that every backend must pass
    #[command(after_help = format!("{}\n\n{EXIT_CODES}", conformance::HELP))]
    Conformance(ConformanceArgs),
    /// Search the policies and settings under which a recorded program reserves little and seldom calls its driver
    #[command(after_help = format!("{}\n\n{EXIT_CODES}", tune::HELP))]
    Tune(TuneArgs),
    /// Print the script that completes this command's arguments in a shell
    #[command(after_help = completions::HELP)]
    Completions(CompletionsArgs),
}
