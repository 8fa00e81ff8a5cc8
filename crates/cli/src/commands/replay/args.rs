//! The arguments of `millpond replay`, and the pages that its `--help` prints.

use std::path::PathBuf;
use std::time::Duration;

use clap::value_parser;
use millpond_trace::Limits;

use super::life::LifeArgs;
use super::{Limit, PatternChoice, pattern_help, policy_names, snapshot};
use crate::devices::device_help;
use crate::quantity::parse_limits;
use crate::quantity::parse_time;

/// Returns what `--help` prints behind the arguments.
pub(crate) fn help() -> String {
    format!("{POLICIES}\n\nPatterns:\n{}\n\n{REPLAY_MORE}", pattern_help())
}

const POLICIES: &str = "\
While the device is behind, paged creates pages rather than have a stream wait for another on the
device, up to 2.2 times what was ever live and 8 MiB (--conf growth:balanced, the default), or
has streams wait at once, which reserves the least (--conf growth:tight). --conf slack:0.05 is how much
more than was ever live it aims to reserve at most, as a share of it, where no work is in flight: the
larger, the fewer driver calls.";

const REPLAY_MORE: &str = "\
Configuration: --conf, or else the first of the environment variables MILLPOND_CONF,
PYTORCH_CUDA_ALLOC_CONF and PYTORCH_ALLOC_CONF that is set. --policy comes on top.

Columns: `cold` is the first pass in ns per event, `warm` the median of the passes after it; both
are host time. `live` and `reserved` are peaks, `res/live` the second over the first; `torch` is the
peak that PyTorch reserved when the trace was recorded. `calls` and `driver` count the first pass: how
often the driver was called and how long it took, on the device's own clock where it has one (the
simulated device). With --compare or several policies, `of exp.` is that time over the time of
expandable, and `events`, `live` and `torch` make room. `life` is the most that was reserved by the end
of a pass over the most that was live by then, behind the pass where that is worst; `last calls` are
those of the last pass, `all calls` and `all driver` those of all passes. JSON has the calls and times of
each pass. `retries` and `OOMs` of the first pass are left out where there were none. Statistics are those
at the end of the first pass, and those of the slack at the end of the last one. Of several traces, the
last line of each policy has the geometric means of `res/live` and `life` and the sums of what follows them.

--for adds `passes`, how many were made, the cold one among them: 3.25 are three and a quarter of one.
--touch and --in-flight add `stalls`, how often the host had to wait for the device in an allocation, and
`waits`, how often a stream was told to wait for another on the device, and --touch adds `checked`, the
blocks verified; each over all passes. JSON has the stalls and waits of the first pass, of the warm ones
and of the last one, and how long the stalls took. A release that makes the driver wait for the device by
itself, as CUDA's do, shows in `driver` alone.

An allocation refused for lack of memory is counted, and the replay goes on without its block; the first
is explained on standard error. The policies that were not asked for are then replayed as well, to tell which would
have fitted, and the exit code is 4; with --allow-oom they are not, and it is 0.

Examples:
  millpond replay
  millpond replay --compare --pattern all
  millpond replay --compare --limit 1.10x gpt2_train.trace.gz
  millpond replay --touch --device sim:completion=random:1 --pattern many_streams
  millpond replay --compare --touch --device cuda:0 --passes 2 *.trace.gz
  millpond replay --policy tight,paged,classic --passes 20 --vary 5% --keep *.trace.gz
  millpond replay --device sim --in-flight 200 bert_multistream.trace.gz
  millpond replay --device cuda:0 --in-flight 50us --policy tight,paged bert_multistream.trace.gz
  millpond replay --together beside gpt2_train.trace.gz serving_kv.trace.gz
  millpond replay --for 10m --touch --threads 8 --scale 2 --device cuda:0
  millpond replay --device cuda:0,alloc=async --policy direct gnn.trace.gz
  millpond replay --device vulkan:0 --scale 64 --touch --threads 2
  millpond replay --scrub off,other_streams,always --device cuda:0 gpt2_train.trace.gz
  millpond replay --policy classic --conf max_split_size_mb:64 *.trace.gz
  millpond replay --conf growth:tight --pattern streams
  millpond replay --device sim:bytes=16GiB,reuse=after-done --stats gnn.trace.gz
  millpond replay --format json --passes 20 gnn.trace.gz | jq .warm_ns_per_event";

const AS_RECORDED_HELP: &str = "\
Do what PyTorch 2.11 does where Millpond differs on purpose, to see whether a replay does what PyTorch did: of free
blocks of one size, the one at the lowest address is taken, as PyTorch does until 2.12, and not the one of the oldest
segment; the pool is not searched again after the last wait; garbage is collected only under a limit; and expandable
segments map whole pages, beyond a limit too, and keep free blocks from requests below max_split_size_mb. On the
simulated device segments lie where the trace says that they lay, if it does, as traces of PyTorch's snapshots do";

const TOUCH_HELP: &str = "\
Write to every block by device work when it is granted, and verify it before it is freed. Marked are the first and
the last 64 bytes and the first 16 of every page of 2 MiB (or of the device's own size, if that is smaller), so that a
page mapped in the wrong place shows; whole blocks would take too long. A block that was used on several streams is
written by each of them once more as it is freed, so that reuse before that work is done shows as well: on the
simulated device that takes `--device sim:completion=random:SEED`, as its work is otherwise done at once. What was read
is kept on the device and judged many blocks at a time, so that work stays under way meanwhile; that takes 1 MiB, and
64 KiB for each stream, past the allocator. The first wrong byte ends the command with exit code 1, and is told with its
trace, event, block and offset. Times include the check";

const TRACE_LIMITS_HELP: &str = "\
How large a trace may be, for files that would take much of the machine; `none` alone for any size.
What is not named stays:
  text_bytes=SIZE  text, after decompression (1GiB)
  expansion=N      bytes of text for each byte of a compressed file, beyond 1 MiB (64)
  events=N         events, 24 bytes each (16777216)
  streams=N        different streams, more than 100 KB each (1024)";

const SCRUB_HELP: &str = "\
Overwrite memory with zeros, by device work, before it is granted: `other_streams` what another stream had, or whoever
had it from the driver before; `always` every block. Several modes, with commas between them, are put side by side, as
`--scrub off,other_streams,always`. The fills count as driver calls and the time to queue them as the driver's; with
the costs of the simulated device that is the time until the device is done with them";

const FOR_HELP: &str = "\
Replay each trace under each policy for so long: 500ms, 20s, 10m or 2h, from the beginning of the cold pass. The pass
under way is then cut short at its next event, the cold one too: what is live is freed as at the end of a pass, with
every check. Columns of a first pass that was cut short tell of the part that was made";

const WATCH_HELP: &str = "\
Show, while a replay runs on a terminal: what is live, reserved and free by the ledger, driver calls, waits and refused
allocations. Ten times a second, on standard error. Where standard error is no terminal, a line is written every second
instead. Looking takes the allocator's locks, so that times are a little longer";

const SCALE_HELP: &str = "\
Divide every size of a trace by N, rounded up to 512 bytes, so that a large trace fits a small device. The result is
another program: what PyTorch reserved is left out, and numbers of different scales cannot be compared";

const THREADS_HELP: &str = "\
Replay each trace by N threads at once, each on streams of its own, on one allocator. What is reserved then depends on
how they met. Times per event are those of one thread, the slowest in each pass; `live` is what they came to together";

const REPORT_HELP: &str = "\
Write a page that shows the replays: what was live and reserved over a pass, where the reserved bytes were, the memory's
map at some moments, each pass, and who holds memory. For that, each trace is replayed twice more under each policy, by
one thread and without --touch. The file loads nothing else. `millpond report` writes the page alone";

/// `millpond replay`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ReplayArgs {
    /// Traces, or recordings that `import` reads; `-` is standard input. Without any, a real trace that is built in
    #[arg(value_name = "TRACE")]
    pub(crate) traces: Vec<PathBuf>,
    /// A made-up program, hard on an allocator, replayed like a trace; `all` for each. May be repeated
    #[arg(long = "pattern", value_name = "NAME[:seed=N]", value_parser = PatternChoice::parse)]
    pub(crate) patterns: Vec<PatternChoice>,
    #[arg(long, value_name = "DEVICE", help = "The device: NAME or NAME:KEY=VALUE,...", long_help = device_help())]
    pub(crate) device: Option<String>,
    /// The policy; auto unless given. Several, with commas between them, are put side by side
    #[arg(long, value_name = "POLICY,...", value_delimiter = ',', conflicts_with = "compare")]
    #[arg(value_parser = policy_names())]
    pub(crate) policy: Vec<String>,
    /// A configuration in the grammar of PYTORCH_CUDA_ALLOC_CONF, instead of the environment's
    #[arg(long, value_name = "STRING")]
    pub(crate) conf: Option<String>,
    #[arg(long, help = "Decide as PyTorch 2.11, where Millpond differs on purpose", long_help = AS_RECORDED_HELP)]
    pub(crate) as_recorded: bool,
    #[arg(long, value_name = "MODE,...", value_delimiter = ',')]
    #[arg(help = "Overwrite memory before it is granted: off, other_streams or always", long_help = SCRUB_HELP)]
    pub(crate) scrub: Vec<String>,
    /// The most that may be reserved: bytes, as 12GiB or 800M, or a multiple of each trace's peak live bytes, as 1.10x
    #[arg(long, value_name = "BYTES|TIMESx", value_parser = Limit::parse)]
    pub(crate) limit: Option<Limit>,
    /// How many warm passes follow the cold one
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub(crate) passes: usize,
    #[arg(long = "for", value_name = "TIME", value_parser = parse_time, conflicts_with = "passes")]
    #[arg(help = "Instead of a number of passes, replay for so long: 20s, 10m or 2h", long_help = FOR_HELP)]
    pub(crate) time: Option<Duration>,
    /// Replay under all five policies and put them side by side
    #[arg(long)]
    pub(crate) compare: bool,
    #[arg(long, help = "Write to every block and verify it before its free", long_help = TOUCH_HELP)]
    pub(crate) touch: bool,
    #[command(flatten)]
    pub(crate) life: LifeArgs,
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = value_parser!(u16).range(1..=256))]
    #[arg(help = "Replay each trace by N threads at once, each on streams of its own", long_help = THREADS_HELP)]
    pub(crate) threads: u16,
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = value_parser!(u64).range(1..=1 << 40))]
    #[arg(help = "Divide every size of a trace by N, so that it fits a small device", long_help = SCALE_HELP)]
    pub(crate) scale: u64,
    #[arg(long, value_name = "KEY=N,...", default_value = "", hide_default_value = true)]
    #[arg(value_parser = parse_limits, help = "How large a trace may be", long_help = TRACE_LIMITS_HELP)]
    pub(crate) trace_limits: Limits,
    #[arg(long, value_name = "FILE.html", help = "Write a page that shows the replays", long_help = REPORT_HELP)]
    pub(crate) report: Option<PathBuf>,
    /// Write plots of the replays as SVG into a folder, which is created if it is not there
    #[arg(long, value_name = "DIR")]
    pub(crate) svg: Option<PathBuf>,
    /// Write the plots as PNG, with the fonts of this machine (builds with the feature `png`)
    #[arg(long, value_name = "DIR")]
    pub(crate) png: Option<PathBuf>,
    #[arg(long, value_name = "FILE", help = "Write a snapshot for PyTorch's viewers", long_help = snapshot::HELP)]
    pub(crate) snapshot: Option<PathBuf>,
    /// Exit with 0 also where allocations were refused for lack of memory, and not with 4
    #[arg(long)]
    pub(crate) allow_oom: bool,
    #[arg(long, conflicts_with = "markdown", long_help = WATCH_HELP)]
    #[arg(help = "Show what happens while it runs, on a terminal")]
    pub(crate) watch: bool,
    /// Print the table in Markdown
    #[arg(long, conflicts_with_all = ["summary", "stats"])]
    pub(crate) markdown: bool,
    /// Leave out the host's times, so that equal replays on a simulated device print equal tables
    #[arg(long)]
    pub(crate) no_times: bool,
    /// Print the table of torch.cuda.memory_summary for each replay
    #[arg(long)]
    pub(crate) summary: bool,
    /// Print the 122 values of torch.cuda.memory_stats for each replay, and under paged what was done with pages
    #[arg(long)]
    pub(crate) stats: bool,
}
