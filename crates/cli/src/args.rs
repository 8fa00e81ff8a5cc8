//! The command line: the commands, and what all of them have. The arguments of a command, and the pages that its
//! `--help` prints, are beside it.
//!
//! Lines of help fit 80 columns: prose is one line, which clap breaks, and tables are written to fit.

use clap::{CommandFactory as _, Parser, Subcommand};

use crate::commands::bench::{self, BenchArgs};
use crate::commands::compare::{self, CompareArgs};
use crate::commands::completions::{self, CompletionsArgs};
use crate::commands::conformance::{self, ConformanceArgs};
use crate::commands::devices;
use crate::commands::diff::{self, DiffArgs};
use crate::commands::golden::{self, GoldenArgs};
use crate::commands::import::{self, ImportArgs};
use crate::commands::man::{self, ManArgs};
use crate::commands::replay::{self, ReplayArgs};
use crate::commands::report::{self, ReportArgs};
use crate::commands::sameness::{self, SamenessArgs};
use crate::commands::tune::{self, TuneArgs};
use crate::headings::OUTPUT;
use crate::output::{Format, WIDTH, hanging};

/// The widest page of help on a terminal that is wider.
const WIDEST: usize = 100;

/// The commands for those who develop an allocator or a backend, which have a heading of their own.
const FOR_DEVELOPERS: [&str; 4] = ["bench", "golden", "sameness", "conformance"];

const EXIT_CODES: &str = "\
Exit codes:
  0  everything went well
  1  a check failed: a recording differs, a scenario failed, a byte is wrong
  2  wrong usage, bad input (configuration, trace, recording), or output that
     cannot be written
  3  a device is missing or its driver failed
  4  a program that was replayed (replay, report) ran out of memory, or no
     setting fits its limit
130  it was interrupted by Ctrl-C; what there was by then is printed";

const EXAMPLES: &str = "\
Examples:
  millpond replay                             the built-in trace
  millpond replay --compare *.trace.gz        policies side by side
  millpond report snapshot.pickle -o a.html   a page that shows memory use
  millpond tune train.trace.gz                the settings that suit a program
  millpond import snapshot.pickle -o a.trace  a trace from PyTorch's history
  millpond diff before.pickle after.pickle    what grew between two snapshots
  millpond devices --json                     the devices, for a program
  millpond completions bash                   completion for the shell";

/// Millpond, a caching allocator for GPU memory: replay traces, list devices, check recordings.
#[derive(Debug, Parser)]
#[command(name = "millpond", version, after_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"))]
pub(crate) struct Args {
    /// How results are printed on standard output
    #[arg(long, global = true, value_enum, default_value_t = Format::Text, help_heading = OUTPUT)]
    pub(crate) format: Format,
    /// The same as --format json: one JSON value per line
    #[arg(long, global = true, conflicts_with = "format", help_heading = OUTPUT)]
    pub(crate) json: bool,
    /// Print every column of a table; otherwise tables fit the terminal, or 80 columns
    #[arg(long, global = true, help_heading = OUTPUT)]
    pub(crate) wide: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The command to run.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List every backend with its devices, their memory and abilities, and say what is missing and why
    #[command(after_help = format!("{}\n\n{EXIT_CODES}", devices::HELP))]
    Devices,
    /// Replay recorded traces and print what was reserved, what was live and what it cost
    #[command(after_help = format!("{}\n\n{EXIT_CODES}", replay::help()))]
    Replay(ReplayArgs),
    /// Convert a recording of another tool into a trace: PyTorch's snapshots, logs of RMM and STAlloc, lifetimes
    #[command(after_help = format!("{}\n\n{EXIT_CODES}", import::HELP))]
    Import(ImportArgs),
    /// Compare two snapshots of PyTorch: what grew, what shrank, and who allocated it
    #[command(after_help = format!("{}\n\n{EXIT_CODES}", diff::HELP))]
    Diff(DiffArgs),
    /// Compare two files of results: what differs by more than the spread between passes
    #[command(after_help = format!("{}\n\n{EXIT_CODES}", compare::HELP))]
    Compare(CompareArgs),
    /// Replay traces and write a page that shows what memory was used for, when and by what
    #[command(after_help = format!("{}\n\n{EXIT_CODES}", report::HELP))]
    Report(ReportArgs),
    /// Replay recordings of PyTorch's allocator on the simulated device and compare every operation
    #[command(after_help = format!("{}\n\n{EXIT_CODES}", golden::HELP))]
    Golden(GoldenArgs),
    /// Measure a device: its driver, the cache on top of it, streams, pages, transfers, and other allocators
    #[command(after_help = format!("{}\n\n{EXIT_CODES}", bench::HELP))]
    Bench(BenchArgs),
    /// Run the same programs on several devices and on the simulated one, and compare every decision
    #[command(after_help = format!("{}\n\n{EXIT_CODES}", sameness::HELP))]
    Sameness(SamenessArgs),
    /// Run the suite that every backend must pass
    #[command(after_help = format!("{}\n\n{EXIT_CODES}", conformance::HELP))]
    Conformance(ConformanceArgs),
    /// Search for policies and settings with which a recorded program reserves little and rarely calls its driver
    #[command(after_help = format!("{}\n\n{EXIT_CODES}", tune::HELP))]
    Tune(TuneArgs),
    /// Print the script that completes this command's arguments in a shell
    #[command(after_help = completions::HELP)]
    Completions(CompletionsArgs),
    /// Print a page for `man`, or write the pages of all commands into a folder
    #[command(after_help = man::HELP)]
    Man(ManArgs),
}

/// Returns the whole command line.
pub(crate) fn command() -> clap::Command {
    let command = Args::command().max_term_width(WIDEST);
    let page = page(&command);
    command.help_template(page)
}

/// Returns the page that `millpond --help` prints, with the commands under two headings. clap has one for all of them.
fn page(command: &clap::Command) -> String {
    let style = *command.get_styles().get_header();
    let heading = |text: &str| format!("{style}{text}:{style:#}");
    let width = command.get_subcommands().map(|command| command.get_name().len()).max().unwrap_or(0);
    let list = |of_developers: bool| -> String {
        let wanted = |command: &&clap::Command| FOR_DEVELOPERS.contains(&command.get_name()) == of_developers;
        let line = |command: &clap::Command| {
            let about = command.get_about().map_or(String::new(), ToString::to_string);
            hanging(&format!("  {:<width$}  ", command.get_name()), &about, WIDTH)
        };
        command.get_subcommands().filter(wanted).map(line).collect()
    };
    format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{}\n{}\n{}\n{}\n{}\n{{options}}{{after-help}}",
        heading("Commands"),
        list(false),
        heading("For developers of allocators and backends"),
        list(true),
        heading("Options")
    )
}
