//! `millpond report`: a page that shows what memory was used for.

use std::path::PathBuf;

use clap::value_parser;
use millpond_trace::Limits;

use super::replay::{LifeArgs, Limit, PatternChoice, ReplayArgs, draw, pattern_help, policy_names, refused};
use crate::devices::{DeviceName, SIMULATED};
use crate::failure::Failure;
use crate::files::shown;
use crate::headings::{DEVICE, INPUT, LOAD, OUTPUT, POLICY};
use crate::output::{Output, WIDTH};
use crate::quantity::parse_limits;

/// What `--help` prints behind the arguments.
pub(crate) const HELP: &str = "\
Each trace is replayed twice under each policy: once to find the peaks, and once to look at the memory there. The \
page loads nothing else, needs no network, and opens in any browser. `millpond replay --help` says more of devices, \
policies, limits and work in flight.

Examples:
  millpond report gnn.trace.gz -o gnn.html
  millpond report snapshot.pickle -o snapshot.html
  millpond report --policy classic,paged --in-flight 200 bert_multistream.trace.gz
  millpond report --limit 1.10x --passes 2 *.trace.gz -o limits.html
  millpond report --svg plots gpt2_train.trace.gz";

/// `millpond report`.
#[derive(Debug, clap::Args)]
pub(crate) struct ReportArgs {
    /// Traces, or recordings that `import` reads; `-` is standard input. The default is a built-in trace
    #[arg(value_name = "TRACE")]
    traces: Vec<PathBuf>,
    #[arg(long = "pattern", value_name = "NAME[:seed=N]", value_parser = PatternChoice::parse)]
    #[arg(help = "A synthetic program instead of a trace", long_help = pattern_long_help())]
    #[arg(help_heading = INPUT)]
    patterns: Vec<PatternChoice>,
    /// The page to write; `-` for standard output. An existing file is replaced once the page is whole
    #[arg(short, long, value_name = "FILE.html", default_value = "report.html")]
    #[arg(help_heading = OUTPUT)]
    output: PathBuf,
    /// Also write plots as SVG into a folder, which is created if it is not there
    #[arg(long, value_name = "DIR")]
    #[arg(help_heading = OUTPUT)]
    svg: Option<PathBuf>,
    /// Also write the plots as PNG, with the fonts of this machine (builds with the feature `png`)
    #[arg(long, value_name = "DIR")]
    #[arg(help_heading = OUTPUT)]
    png: Option<PathBuf>,
    /// The device, as in `millpond replay`
    #[arg(long, value_name = "DEVICE", default_value = SIMULATED)]
    #[arg(help_heading = DEVICE)]
    #[arg(value_parser = DeviceName::One, hide_possible_values = true)]
    device: String,
    /// The policies to compare, separated by commas
    #[arg(long, value_name = "POLICY,...", value_delimiter = ',', default_value = "classic,paged")]
    #[arg(value_parser = policy_names())]
    #[arg(help_heading = POLICY)]
    policy: Vec<String>,
    /// A configuration in the grammar of PYTORCH_CUDA_ALLOC_CONF, instead of the environment's
    #[arg(long, value_name = "STRING")]
    #[arg(help_heading = POLICY)]
    conf: Option<String>,
    /// The limit on reserved memory: bytes (12GiB, 800M), or a multiple of each trace's live peak (1.10x)
    #[arg(long, value_name = "BYTES|TIMESx", value_parser = Limit::parse)]
    #[arg(help_heading = POLICY)]
    limit: Option<Limit>,
    /// How many warm passes follow the cold one
    #[arg(long, value_name = "N", default_value_t = 5)]
    #[arg(help_heading = LOAD)]
    passes: usize,
    #[command(flatten)]
    life: LifeArgs,
    /// Divide every size of a trace by N
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = value_parser!(u64).range(1..=1 << 40))]
    #[arg(help_heading = INPUT)]
    scale: u64,
    #[arg(long, value_name = "KEY=N,...", default_value = "", hide_default_value = true)]
    #[arg(value_parser = parse_limits, help = "The largest trace to accept, as in `millpond replay`")]
    #[arg(help_heading = INPUT)]
    trace_limits: Limits,
    /// Exit with 0 instead of 4 if allocations were refused for lack of memory
    #[arg(long)]
    #[arg(help_heading = OUTPUT)]
    allow_oom: bool,
}

/// How far what an option is stands from the left.
const INDENT: usize = 10;

fn pattern_long_help() -> String {
    format!(
        "A synthetic program instead of a trace; `all` for each. May be repeated:\n{}",
        pattern_help(WIDTH - INDENT)
    )
}

/// Replays the traces and writes the page. Prints the files that were written.
///
/// # Errors
///
/// Returns the errors of a replay, refused allocations among them, and [`Failure::Input`] for a file that cannot be
/// written.
pub(crate) fn run(args: &ReportArgs, output: &mut Output) -> Result<(), Failure> {
    let drawn = draw(&args.replay(), output)?;
    for file in drawn.written {
        if output.is_json() {
            let mut row = serde_json::json!(file);
            if file.file == args.output {
                row["headlines"] = drawn.headlines.as_slice().into();
            }
            output.json(&row);
        } else {
            output.text(&format!("{} ({})\n", shown(&file.file), millpond_report::text::bytes(file.bytes)));
        }
    }
    if !output.is_json() {
        for headline in drawn.headlines {
            output.text(&format!("{headline}\n"));
        }
    }
    if args.allow_oom { Ok(()) } else { refused(drawn.refused) }
}

impl ReportArgs {
    /// Returns the arguments of the replay that the report is of.
    fn replay(&self) -> ReplayArgs {
        ReplayArgs {
            traces: self.traces.clone(),
            patterns: self.patterns.clone(),
            device: Some(self.device.clone()),
            policy: self.policy.clone(),
            conf: self.conf.clone(),
            as_recorded: false,
            scrub: Vec::new(),
            limit: self.limit,
            passes: self.passes,
            time: None,
            compare: false,
            touch: false,
            life: self.life.clone(),
            threads: 1,
            scale: self.scale,
            trace_limits: self.trace_limits,
            report: Some(self.output.clone()),
            svg: self.svg.clone(),
            png: self.png.clone(),
            snapshot: None,
            allow_oom: self.allow_oom,
            watch: false,
            markdown: false,
            no_times: false,
            summary: false,
            stats: false,
        }
    }
}
