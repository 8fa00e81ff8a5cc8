//! The command line: what can be asked, and the pages that `--help` prints.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum, value_parser};
use millpond_trace::Limits;

use crate::commands::replay::{Limit, PatternChoice, parse_limits, pattern_help};
use crate::quantity::parse_time;

const EXIT_CODES: &str = "\
Exit codes:
  0  everything went well
  1  a check failed: a recording differs, a conformance scenario failed, a byte is wrong
  2  wrong usage, bad input (configuration, trace, recording), or output that cannot be written
  3  a device is missing or its driver failed";

const EXAMPLES: &str = "\
Examples:
  millpond replay                          replay the built-in trace on the best device
  millpond replay --compare *.trace.gz     policies side by side
  millpond bench --device cuda:0           what its driver costs, and what the cache makes of it
  millpond devices --format json           what there is, for a program
  millpond golden tests/corpus/golden/*    check against PyTorch's recorded behaviour";

const POLICIES: &str = "\
Policies:
  paged         pages move between streams and places, so that little more is reserved than is live;
                needs virtual memory, and is the default where there is any
  classic       PyTorch's native allocator, to the counter; the default elsewhere. With
                --conf expandable_segments:True its segments are expandable
  direct        no caching: each allocation is one of the driver's

When memory is short, paged creates pages rather than have a stream wait for another on the device, up
to the limit (--conf growth:balanced, the default), or moves pages behind such waits first, which
reserves the least (--conf growth:tight).";

const REPLAY_MORE: &str = "\
Configuration: --conf, or else the first of the environment variables MILLPOND_CONF,
PYTORCH_CUDA_ALLOC_CONF and PYTORCH_ALLOC_CONF that is set. --policy comes on top.

Columns: `cold` is the first pass in ns per event, `warm` the median of the passes after it; both
are host time. `live` and `reserved` are peaks, `res/live` the second over the first; `torch` is the
peak that PyTorch reserved when the trace was recorded. `calls` and `driver` count the first pass: how
often the driver was called and how long it took, on the device's own clock where it has one (the
simulated device). With --compare, `of exp.` is that time over the time of expandable, and
`events`, `live` and `torch` make room. `warm calls` is the sum over all warm passes. Statistics are those at
the end of the first pass. Of several traces, the last line of each policy has the geometric mean of
`res/live` and the sums of what follows it.

--for adds `passes`, how many were made, the cold one among them: 3.25 are three and a quarter of one.
--touch adds `checked`, the blocks verified, `stalls`, how often the host had to wait for the device
in an allocation, and `waits`, how often a stream was told to wait for another on the device; each over
all passes. JSON has those of the first pass and of the warm ones, and how long the stalls took. A
release that makes the driver wait for the device by itself, as CUDA's do, shows in `driver` alone.

An allocation refused for lack of memory is counted, not fatal; the first is explained on standard
error.

Examples:
  millpond replay
  millpond replay --compare --pattern all
  millpond replay --compare --limit 1.10x gpt2_train.trace.gz
  millpond replay --touch --device sim:completion=random:1 --pattern many_streams
  millpond replay --compare --tight --touch --device cuda:0 --passes 2 *.trace.gz
  millpond replay --for 10m --touch --threads 8 --scale 2 --device cuda:0
  millpond replay --device cuda:0,alloc=async --policy direct gnn.trace.gz
  millpond replay --device vulkan:0 --scale 64 --touch --threads 2
  millpond replay --scrub off,other_streams,always --device cuda:0 gpt2_train.trace.gz
  millpond replay --policy classic --conf max_split_size_mb:64 *.trace.gz
  millpond replay --conf growth:tight --pattern streams
  millpond replay --device sim:bytes=16GiB,reuse=after-done --stats gnn.trace.gz
  millpond replay --format json --passes 20 gnn.trace.gz | jq .warm_ns_per_event";

const DEVICE_HELP: &str = "\
The device: NAME or NAME:KEY=VALUE,... as `millpond devices` lists them

The simulated device takes options:
  bytes=SIZE                  its memory (an H200's 139.80 GiB unless given)
  reuse=in-order|after-done   when a stream's freed memory may be used on it again (in-order unless given)
  pages=SIZE|none             granularity of its virtual memory (2MiB unless given)
  cost=h200|h200-vulkan|free  what driver calls cost on its clock (as on an H200 through CUDA unless given)
  completion=at-once|random:SEED
                              when queued work is done (at once unless given; only --touch queues any)

A CUDA device is named by its number, cuda:0, and takes options behind a comma:
  alloc=async                 segments come from the driver's own pool, by cuMemAllocAsync; alloc=sync, the
                              default, is cuMemAlloc
  pages=none                  without virtual memory, even where it has it

A Vulkan device is named by its number, vulkan:0, and takes options behind a comma:
  validation                  the validation layer watches; what it objects to ends the command with code 1
  pages=none                  without virtual memory, even where it has it

An adapter of wgpu is named the same way, wgpu:0:
  polls                       wgpu alone is asked what is done, not a semaphore
[default: the first GPU, by cuda, vulkan or wgpu, or else sim; devices in software are used only by name]";

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
How large a trace may be, for files that would take much of the machine; `none` for any. What is not named stays:
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

const SCALE_HELP: &str = "\
Divide every size of a trace by N, rounded up to 512 bytes, so that a large trace fits a small device. The result is
another program: what PyTorch reserved is left out, and numbers of different scales cannot be compared";

const THREADS_HELP: &str = "\
Replay each trace by N threads at once, each on streams of its own, on one allocator. What is reserved then depends on
how they met. Times per event are those of one thread, the slowest in each pass; `live` is what they came to together";

/// Millpond, a caching allocator for GPU memory: replay traces, list devices, check recordings.
#[derive(Debug, Parser)]
#[command(name = "millpond", version, after_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"))]
pub(crate) struct Args {
    /// How results are printed on standard output
    #[arg(long, global = true, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// How results are printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Format {
    /// Tables for people
    Text,
    /// One JSON value a line
    Json,
}

/// The command to run.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List every backend with its devices, their memory and what they can do; say what is missing and why
    #[command(after_help = EXIT_CODES)]
    Devices,
    /// Replay recorded traces and print what was reserved, what was live and what it cost
    #[command(after_help = format!("{POLICIES}\n\nPatterns:\n{}\n\n{REPLAY_MORE}\n\n{EXIT_CODES}", pattern_help()))]
    Replay(ReplayArgs),
    /// Replay recordings of PyTorch's allocator on the simulated device and compare every operation
    #[command(after_help = format!("{GOLDEN_MORE}\n\n{EXIT_CODES}"))]
    Golden(GoldenArgs),
    /// Measure a device: its driver, the cache on top of it, streams, pages, transfers, and others who allocate
    #[command(after_help = format!("{BENCH_MORE}\n\n{EXIT_CODES}"))]
    Bench(BenchArgs),
    /// Run the same programs on several devices and on the simulated one, and compare all that they led to
    #[command(after_help = format!("{SAMENESS_MORE}\n\n{EXIT_CODES}"))]
    Sameness(SamenessArgs),
    /// Run the suite that every backend must pass
    #[command(after_help = format!("{CONFORMANCE_MORE}\n\n{EXIT_CODES}"))]
    Conformance(ConformanceArgs),
}

const GOLDEN_MORE: &str = "\
Prints `NAME: matched M of N` for each file, and the first difference in full: statistics, layout, addresses and
out-of-memory amounts are compared after every operation.";

const SAMENESS_MORE: &str = "\
Every program runs on each device and on a simulated one with the same memory and pages. Decisions, layouts and all
statistics are compared, byte for byte; what the device's pace could change is taken out by waiting for it. Equal
digests are equal runs, on any machine. Sizes are divided by a power of two where the smallest device asks for it. A
policy that needs virtual memory is left out on devices without any.

Examples:
  millpond sameness --device cuda:0 --device vulkan:0 tests/corpus/traces/*.trace.gz
  millpond sameness --device vulkan:0 --seeds 200 --markdown";

const BENCH_MORE: &str = "\
  driver    what the driver takes for a segment of each size, and for giving it back
  cached    a free and an allocation that the cache serves, on average and one by one
  streams   what ticks, submits and waits cost; how long a block that another stream used takes to its reuse
  pages     what the driver takes to map a page, to move it and to give it back, where there are pages
  transfer  fills, copies, uploads and downloads, each submitted and waited for
  scrub     a free and an allocation from the cache, until the device is done: as it is, and overwritten each time
  pinned    page-locked memory for copies of 4 KiB to 64 MiB, from its cache and from the driver each time: the time
            in allocations and frees for each copy, what was reserved beyond what was live, driver calls; every byte
            that arrives is verified
  trace     the built-in trace, with smaller sizes if need be, in ns per event
  peer      others for the sizes of `cached`, in the same run; `x millpond` is their time over its. Of CUDA these
            are the driver's own calls, of Vulkan gpu-allocator and the driver's calls, of wgpu a buffer each time

Times are medians of rounds, on the host's clock, and p50, p99 and p99.9 are of single operations. Where `clock` says
`device` they are by the device's own clock: what the simulated device says that an H200 would take. Sizes for which
there is no memory are left out. For figures to compare, build with --release and leave the machine alone; the record of
the hot path beside other allocators is made by scripts/bench.sh.";

const CONFORMANCE_MORE: &str = "\
Prints how many scenarios passed, by device and by group, why others were skipped or declared to differ, and
every failure in full. `--device sim` means every kind of simulated device. JSON has a line for each scenario.

With --soak, each run is a random program of several streams: blocks that change hands, limits, driver calls that fail,
work that completes out of step. Every grant is judged, every block written and read by device work. The same seed is
the same run as long as --operations is the same: a run that fails is repeated by `--soak 1 --seed SEED`. The first that
fail are made as short as they can be and printed as a scenario of the corpus, or else as a program for a test; after
20 failures no further run begins. JSON has a line for each run.";

/// `millpond replay`.
#[derive(Debug, clap::Args)]
pub(crate) struct ReplayArgs {
    /// Traces: plain text, gzip or zstd; `-` is standard input. Without any, a real one that is built in
    #[arg(value_name = "TRACE")]
    pub(crate) traces: Vec<PathBuf>,
    /// A made-up program, hard on an allocator, replayed like a trace; `all` for each. May be repeated
    #[arg(long = "pattern", value_name = "NAME[:seed=N]", value_parser = PatternChoice::parse)]
    pub(crate) patterns: Vec<PatternChoice>,
    #[arg(long, value_name = "DEVICE", help = "The device: NAME or NAME:KEY=VALUE,...", long_help = DEVICE_HELP)]
    pub(crate) device: Option<String>,
    /// The policy: paged, tight, classic, expandable, direct or auto; auto, the default, is paged with virtual memory
    /// and else classic
    #[arg(long, value_name = "POLICY", conflicts_with = "compare")]
    pub(crate) policy: Option<String>,
    /// A configuration in the grammar of PYTORCH_CUDA_ALLOC_CONF, instead of the environment's
    #[arg(long, value_name = "STRING")]
    pub(crate) conf: Option<String>,
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
    /// Replay under every policy and put them side by side
    #[arg(long)]
    pub(crate) compare: bool,
    /// With --compare, also paged with growth:tight, as tight
    #[arg(long, requires = "compare")]
    pub(crate) tight: bool,
    #[arg(long, help = "Write to every block and verify it before its free", long_help = TOUCH_HELP)]
    pub(crate) touch: bool,
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = value_parser!(u16).range(1..=256))]
    #[arg(help = "Replay each trace by N threads at once, each on streams of its own", long_help = THREADS_HELP)]
    pub(crate) threads: u16,
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = value_parser!(u64).range(1..=1 << 40))]
    #[arg(help = "Divide every size of a trace by N, so that it fits a small device", long_help = SCALE_HELP)]
    pub(crate) scale: u64,
    #[arg(long, value_name = "KEY=N,...", default_value = "", hide_default_value = true)]
    #[arg(value_parser = parse_limits, help = "How large a trace may be", long_help = TRACE_LIMITS_HELP)]
    pub(crate) trace_limits: Limits,
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

/// `millpond bench`.
#[derive(Debug, clap::Args)]
pub(crate) struct BenchArgs {
    #[arg(long, value_name = "DEVICE", help = "The device: NAME or NAME:KEY=VALUE,...", long_help = DEVICE_HELP)]
    pub(crate) device: Option<String>,
    /// Fewer sizes and rounds: a few seconds, to see that everything works
    #[arg(long)]
    pub(crate) quick: bool,
}

/// `millpond golden`.
#[derive(Debug, clap::Args)]
pub(crate) struct GoldenArgs {
    /// Recordings (`*.jsonl.gz`, `*.jsonl`)
    #[arg(value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,
}

/// `millpond sameness`.
#[derive(Debug, clap::Args)]
pub(crate) struct SamenessArgs {
    /// Traces to compare
    #[arg(value_name = "TRACE", required_unless_present = "seeds")]
    pub(crate) traces: Vec<PathBuf>,
    /// A device to compare with the simulated one, as `millpond devices` lists it. May be repeated
    #[arg(long = "device", value_name = "DEVICE", required = true)]
    pub(crate) devices: Vec<String>,
    /// Compare this number of made-up programs as well
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) seeds: u64,
    /// Print the table in Markdown
    #[arg(long)]
    pub(crate) markdown: bool,
}

/// `millpond conformance`.
#[derive(Debug, clap::Args)]
pub(crate) struct ConformanceArgs {
    /// The device, as `millpond devices` lists it; the best one there is unless given
    #[arg(long, value_name = "DEVICE")]
    pub(crate) device: Option<String>,
    /// Only the kinds of the device whose name contains this, such as "reuse InOrder"
    #[arg(long, value_name = "TEXT")]
    pub(crate) only: Option<String>,
    /// Instead of the suite, N seeded adversarial runs on simulated devices of every kind, under every policy
    #[arg(long, value_name = "N", conflicts_with_all = ["device", "only"])]
    #[arg(value_parser = value_parser!(u64).range(1..))]
    pub(crate) soak: Option<u64>,
    /// The seed of the first run; the others count up from it
    #[arg(long, value_name = "SEED", default_value_t = 0, requires = "soak")]
    pub(crate) seed: u64,
    /// How many operations a run of the soak has
    #[arg(long, value_name = "N", default_value_t = millpond_conformance::soak::OPERATIONS, requires = "soak")]
    #[arg(value_parser = value_parser!(u32).range(1..=100_000))]
    pub(crate) operations: u32,
    /// Write the totals of the soak into a file, in Markdown: every half a minute, and at the end
    #[arg(long, value_name = "FILE", requires = "soak")]
    pub(crate) record: Option<PathBuf>,
}
