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
Without --policy and without a configuration, paged and classic are put side by side, where the device has virtual \
memory.

Configuration: --conf, or else the first of the environment variables MILLPOND_CONF, PYTORCH_CUDA_ALLOC_CONF and \
PYTORCH_ALLOC_CONF that is set. --policy comes on top.

Columns: `cold` is the first pass in ns per event and `warm` the median of the passes after it, by the host's clock. \
`live` and `reserved` are peaks of the first pass, `waste` is how much more is reserved than live, and `PyTorch` is \
what PyTorch reserved when the trace was recorded. `life waste` is the waste over all passes, after the pass where \
it is worst. `calls` and `driver` are the driver's calls and time in the first pass, `of exp.` is that time over the \
time of expandable.

Where memory is refused, the first refusal is explained on standard error, and so is which policies would have \
fitted. The exit code is then 4.

The reference, docs/reference/cli.md, says more of each option and column.

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
Do what PyTorch 2.11 does where Millpond differs on purpose, to see whether a replay does what PyTorch did";

const TOUCH_HELP: &str = "\
Write to every block by device work when it is granted, and verify it before it is freed. The first wrong byte ends \
the command with exit code 1. Times include the check";

const TRACE_LIMITS_HELP: &str = "\
How large a trace may be, for files that would take much of the machine; `none` alone for any size. What is not \
named stays:
  text_bytes=SIZE: text, after decompression (1GiB)
  expansion=N: bytes of text for each compressed byte, beyond 1 MiB (64)
  events=N: events, 24 bytes each (16777216)
  streams=N: different streams, more than 100 KB each (1024)";

const SCRUB_HELP: &str = "\
Overwrite memory with zeros, by device work, before it is granted: `other_streams` what another stream had, `always` \
every block, `off` none. Several modes, with commas between them, are put side by side";

const FOR_HELP: &str = "\
Replay each trace under each policy for so long: 500ms, 20s, 10m or 2h. The pass under way is then cut short at its \
next event, and what is live is freed with every check";

const WATCH_HELP: &str = "\
Show what is live, reserved and free, driver calls, waits and refusals while a replay runs: ten times a second on a \
terminal, else in a line a second on standard error";

const SCALE_HELP: &str = "\
Divide every size of a trace by N, rounded up to 512 bytes, so that a large trace fits a small device. The result is \
another program";

const THREADS_HELP: &str = "\
Replay each trace by N threads at once, each on streams of its own, on one allocator. Times per event are those of \
the slowest thread";

const REPORT_HELP: &str = "\
Write a page that shows the replays, as `millpond report` does. For that, each trace is replayed twice more under \
each policy";

/// `millpond replay`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ReplayArgs {
    /// Traces, or recordings that `import` reads; `-` is standard input. Without any, a real trace that is built in
    #[arg(value_name = "TRACE")]
    pub(crate) traces: Vec<PathBuf>,
    /// A made-up program, hard on an allocator, replayed like a trace; `all` for each. May be repeated
    #[arg(long = "pattern", value_name = "NAME[:seed=N]", value_parser = PatternChoice::parse)]
    #[arg(help_heading = INPUT)]
    pub(crate) patterns: Vec<PatternChoice>,
    #[arg(long, value_name = "DEVICE,...", long_help = devices_help())]
    #[arg(help = "The devices: NAME, NAME:KEY=VALUE,... or all")]
    #[arg(help_heading = DEVICE)]
    #[arg(value_parser = DeviceName::List, hide_possible_values = true)]
    pub(crate) device: Option<String>,
    /// The policy; unless one is given, paged and classic are compared, or what is configured is replayed. Several,
    /// with commas between them, are put side by side
    #[arg(long, value_name = "POLICY,...", value_delimiter = ',', conflicts_with = "compare")]
    #[arg(value_parser = policy_names())]
    #[arg(help_heading = POLICY)]
    pub(crate) policy: Vec<String>,
    /// A configuration in the grammar of PYTORCH_CUDA_ALLOC_CONF, instead of the environment's
    #[arg(long, value_name = "STRING")]
    #[arg(help_heading = POLICY)]
    pub(crate) conf: Option<String>,
    #[arg(long, help = "Decide as PyTorch 2.11, where Millpond differs on purpose", long_help = AS_RECORDED_HELP)]
    #[arg(help_heading = POLICY)]
    pub(crate) as_recorded: bool,
    #[arg(long, value_name = "MODE,...", value_delimiter = ',')]
    #[arg(help = "Overwrite memory before it is granted: off, other_streams or always", long_help = SCRUB_HELP)]
    #[arg(help_heading = POLICY)]
    pub(crate) scrub: Vec<String>,
    /// The most that may be reserved: bytes, as 12GiB or 800M, or a multiple of each trace's peak live bytes, as 1.10x
    #[arg(long, value_name = "BYTES|TIMESx", value_parser = Limit::parse)]
    #[arg(help_heading = POLICY)]
    pub(crate) limit: Option<Limit>,
    /// How many warm passes follow the cold one
    #[arg(long, value_name = "N", default_value_t = 5)]
    #[arg(help_heading = LOAD)]
    pub(crate) passes: usize,
    #[arg(long = "for", value_name = "TIME", value_parser = parse_time, conflicts_with = "passes")]
    #[arg(help = "Instead of a number of passes, replay for so long: 20s, 10m or 2h", long_help = FOR_HELP)]
    #[arg(help_heading = LOAD)]
    pub(crate) time: Option<Duration>,
    /// Replay under all five policies and put them side by side
    #[arg(long)]
    #[arg(help_heading = POLICY)]
    pub(crate) compare: bool,
    #[arg(long, help = "Write to every block and verify it before its free", long_help = TOUCH_HELP)]
    #[arg(help_heading = LOAD)]
    pub(crate) touch: bool,
    #[command(flatten)]
    pub(crate) life: LifeArgs,
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = value_parser!(u16).range(1..=256))]
    #[arg(help = "Replay each trace by N threads at once, each on streams of its own", long_help = THREADS_HELP)]
    #[arg(help_heading = LOAD)]
    pub(crate) threads: u16,
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = value_parser!(u64).range(1..=1 << 40))]
    #[arg(help = "Divide every size of a trace by N, so that it fits a small device", long_help = SCALE_HELP)]
    #[arg(help_heading = INPUT)]
    pub(crate) scale: u64,
    #[arg(long, value_name = "KEY=N,...", default_value = "", hide_default_value = true)]
    #[arg(value_parser = parse_limits, help = "How large a trace may be", long_help = TRACE_LIMITS_HELP)]
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
    /// Exit with 0 also where allocations were refused for lack of memory, and not with 4
    #[arg(long)]
    #[arg(help_heading = OUTPUT)]
    pub(crate) allow_oom: bool,
    #[arg(long, conflicts_with = "markdown", long_help = WATCH_HELP)]
    #[arg(help = "Show what happens while it runs, on a terminal")]
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
    /// Print the 122 values of torch.cuda.memory_stats for each replay, and under paged what was done with pages
    #[arg(long)]
    #[arg(help_heading = OUTPUT)]
    pub(crate) stats: bool,
}
