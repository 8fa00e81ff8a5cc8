//! The arguments of `millpond replay`, and the pages that its `--help` prints.

use std::path::PathBuf;
use std::time::Duration;

use clap::value_parser;
use millpond_trace::Limits;

use super::life::LifeArgs;
use super::{Limit, PatternChoice, pattern_help, policy_names, snapshot};
use crate::devices::{DeviceName, devices_help};
use crate::headings::{DEVICE, INPUT, LOAD, OUTPUT, POLICY};
use crate::output::WIDTH;
use crate::quantity::parse_limits;
use crate::quantity::parse_time;

/// Returns what `--help` prints behind the arguments.
pub(crate) fn help() -> String {
    format!("Patterns:\n{}\n\n{REPLAY_MORE}", pattern_help(WIDTH))
}

const REPLAY_MORE: &str = "\
Without --policy and without a configuration, paged and classic are compared, if the device has virtual memory.

Configuration: --conf, or else the first of the environment variables MILLPOND_CONF, PYTORCH_CUDA_ALLOC_CONF and \
PYTORCH_ALLOC_CONF that is set. --policy comes on top.

Columns: `cold` is the first pass in ns per event and `warm` the median of the passes after it, by the host's clock. \
`live` and `reserved` are peaks of the first pass, `waste` is how much more is reserved than live, and `PyTorch` is \
what PyTorch reserved when the trace was recorded. `life waste` is the waste over all passes, after the pass where \
it is worst. `calls` and `driver` are the driver's calls and time in the first pass, `of exp.` is that time over the \
time of expandable.

If memory is refused, standard error explains the first refusal and says which policies would have fitted. The exit \
code is then 4.

docs/reference/cli.md says more about each option and column.

Examples:
  millpond replay
  millpond replay --compare --pattern all
  millpond replay --compare --limit 1.10x gpt2_train.trace.gz
  millpond replay --policy tight,paged --in-flight 200 bert_multistream.trace.gz
  millpond replay --policy classic --conf max_split_size_mb:64 *.trace.gz
  millpond replay --for 10m --touch --threads 8 --device cuda:0
  millpond replay --device sim:bytes=16GiB,reuse=after-done --stats gnn.trace.gz
  millpond replay --json --passes 20 gnn.trace.gz | jq .warm_ns_per_event";

const AS_RECORDED_HELP: &str = "\
Decide as PyTorch 2.11 even where Millpond differs on purpose, to check a replay against a recording";

const TOUCH_HELP: &str = "\
Write to every block by device work when it is granted, and verify it before it is freed. The first wrong byte ends \
the command with exit code 1. Times include the check";

const TRACE_LIMITS_HELP: &str = "\
The largest trace to accept, so that no file takes over the machine; `none` accepts any size. What you don't name \
keeps its default:
  text_bytes=SIZE: text, after decompression (1GiB)
  expansion=N: bytes of text for each compressed byte, beyond 1 MiB (64)
  events=N: events, 24 bytes each (16777216)
  streams=N: different streams, more than 100 KB each (1024)";

const SCRUB_HELP: &str = "\
Overwrite memory with zeros, by device work, before it is granted: `other_streams` what another stream had, `always` \
every block, `off` none. Separate several modes with commas to compare them";

const FOR_HELP: &str = "\
Replay each trace under each policy for this long: 500ms, 20s, 10m or 2h. The pass under way then stops at its next \
event, and frees and checks everything that is live";

const WATCH_HELP: &str = "\
Show what is live, reserved and free, driver calls, waits and refusals while a replay runs: ten times a second on a \
terminal, otherwise as one line per second on standard error";

const SCALE_HELP: &str = "\
Divide every size of a trace by N, rounded up to 512 bytes, so that a large trace fits a small device. The result is \
a different program";

const THREADS_HELP: &str = "\
Replay each trace on N threads at once, each with its own streams, on one allocator. Times per event are those of \
the slowest thread";

const REPORT_HELP: &str = "\
Write a page that shows the replays, as `millpond report` does. For that, each trace is replayed twice more under \
each policy";

/// `millpond replay`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ReplayArgs {
    /// Traces, or recordings that `import` reads; `-` is standard input. The default is a built-in trace
    #[arg(value_name = "TRACE")]
    pub(crate) traces: Vec<PathBuf>,
    /// A synthetic program that is hard on an allocator, or `all` of them. May be repeated
    #[arg(long = "pattern", value_name = "NAME[:seed=N]", value_parser = PatternChoice::parse)]
    #[arg(help_heading = INPUT)]
    pub(crate) patterns: Vec<PatternChoice>,
    #[arg(long, value_name = "DEVICE,...", long_help = devices_help())]
    #[arg(help = "The devices: NAME, NAME:KEY=VALUE,... or all")]
    #[arg(help_heading = DEVICE)]
    #[arg(value_parser = DeviceName::List, hide_possible_values = true)]
    pub(crate) device: Option<String>,
    /// The policy; separate several with commas to compare them. By default paged and classic are compared, or the
    /// configured policy is replayed
    #[arg(long, value_name = "POLICY,...", value_delimiter = ',', conflicts_with = "compare")]
    #[arg(value_parser = policy_names())]
    #[arg(help_heading = POLICY)]
    pub(crate) policy: Vec<String>,
    /// A configuration in PyTorch's grammar, instead of the environment's
    #[arg(long, value_name = "STRING")]
    #[arg(help_heading = POLICY)]
    pub(crate) conf: Option<String>,
    #[arg(long, help = "Decide as PyTorch 2.11 even where Millpond differs on purpose", long_help = AS_RECORDED_HELP)]
    #[arg(help_heading = POLICY)]
    pub(crate) as_recorded: bool,
    #[arg(long, value_name = "MODE,...", value_delimiter = ',')]
    #[arg(help = "Overwrite memory before it is granted: off, other_streams or always", long_help = SCRUB_HELP)]
    #[arg(help_heading = POLICY)]
    pub(crate) scrub: Vec<String>,
    /// The limit on reserved memory: bytes (12GiB, 800M), or a multiple of each trace's live peak (1.10x)
    #[arg(long, value_name = "BYTES|TIMESx", value_parser = Limit::parse)]
    #[arg(help_heading = POLICY)]
    pub(crate) limit: Option<Limit>,
    /// How many warm passes follow the cold one
    #[arg(long, value_name = "N", default_value_t = 5)]
    #[arg(help_heading = LOAD)]
    pub(crate) passes: usize,
    #[arg(long = "for", value_name = "TIME", value_parser = parse_time, conflicts_with = "passes")]
    #[arg(help = "Replay for this long instead of a number of passes: 20s, 10m or 2h", long_help = FOR_HELP)]
    #[arg(help_heading = LOAD)]
    pub(crate) time: Option<Duration>,
    /// Replay under all five policies and compare them
    #[arg(long)]
    #[arg(help_heading = POLICY)]
    pub(crate) compare: bool,
    #[arg(long, help = "Write to every block, and verify it before it is freed", long_help = TOUCH_HELP)]
    #[arg(help_heading = LOAD)]
    pub(crate) touch: bool,
    #[command(flatten)]
    pub(crate) life: LifeArgs,
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = value_parser!(u16).range(1..=256))]
    #[arg(help = "Replay each trace on N threads at once, each with its own streams", long_help = THREADS_HELP)]
    #[arg(help_heading = LOAD)]
    pub(crate) threads: u16,
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = value_parser!(u64).range(1..=1 << 40))]
    #[arg(help = "Divide every size of a trace by N, so that it fits a small device", long_help = SCALE_HELP)]
    #[arg(help_heading = INPUT)]
    pub(crate) scale: u64,
    #[arg(long, value_name = "KEY=N,...", default_value = "", hide_default_value = true)]
    #[arg(value_parser = parse_limits, help = "The largest trace to accept", long_help = TRACE_LIMITS_HELP)]
    #[arg(help_heading = INPUT)]
    pub(crate) trace_limits: Limits,
    #[arg(long, value_name = "FILE.html", help = "Write a page that shows the replays", long_help = REPORT_HELP)]
    #[arg(help_heading = OUTPUT)]
    pub(crate) report: Option<PathBuf>,
    /// Write plots of the replays as SVG into a folder, which is created if it is not there
    #[arg(long, value_name = "DIR")]
    #[arg(help_heading = OUTPUT)]
    pub(crate) svg: Option<PathBuf>,
    /// Write the plots as PNG, with the fonts of this machine (builds with the feature `png`)
    #[arg(long, value_name = "DIR")]
    #[arg(help_heading = OUTPUT)]
    pub(crate) png: Option<PathBuf>,
    #[arg(long, value_name = "FILE", help = "Write a snapshot for PyTorch's viewers", long_help = snapshot::HELP)]
    #[arg(help_heading = OUTPUT)]
    pub(crate) snapshot: Option<PathBuf>,
    /// Exit with 0 instead of 4 if allocations were refused for lack of memory
    #[arg(long)]
    #[arg(help_heading = OUTPUT)]
    pub(crate) allow_oom: bool,
    #[arg(long, conflicts_with = "markdown", long_help = WATCH_HELP)]
    #[arg(help = "Show what happens while a replay runs")]
    #[arg(help_heading = OUTPUT)]
    pub(crate) watch: bool,
    /// Print the table in Markdown
    #[arg(long, conflicts_with_all = ["summary", "stats"])]
    #[arg(help_heading = OUTPUT)]
    pub(crate) markdown: bool,
    /// Leave out the host's times, so that equal replays on a simulated device print equal tables
    #[arg(long)]
    #[arg(help_heading = OUTPUT)]
    pub(crate) no_times: bool,
    /// Print the table of torch.cuda.memory_summary for each replay
    #[arg(long)]
    #[arg(help_heading = OUTPUT)]
    pub(crate) summary: bool,
    /// Print the 122 values of torch.cuda.memory_stats for each replay, and page statistics under paged
    #[arg(long)]
    #[arg(help_heading = OUTPUT)]
    pub(crate) stats: bool,
}
