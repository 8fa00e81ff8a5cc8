//! The arguments of `millpond tune`, and the page that its `--help` prints.

use std::path::PathBuf;

use clap::value_parser;
use millpond_replay::tune::Budget;
use millpond_trace::Limits;

use crate::commands::replay::{Limit, PatternChoice};
use crate::devices::{DeviceName, device_help};
use crate::headings::{DEVICE, INPUT, LOAD, OUTPUT, POLICY};
use crate::quantity::parse_limits;
use crate::quantity::parse_time;

/// What `--help` prints behind the arguments.
pub(crate) const HELP: &str = "\
Replays each trace under many policies and settings on the simulated device, on all cores. The frontier is what no \
other setting beats in both reserved bytes and the driver's time. One setting of it is recommended: the one for \
which both are lowest together, or with --limit the one that takes the least time of those that fit. The best ones \
are then replayed on eight variations of the program, which show how sure the recommendation is.

Pass the recommended configuration to MILLPOND_CONF, PYTORCH_CUDA_ALLOC_CONF or `replay --conf`. The same seed and \
number of settings give the same result on every machine.

Examples:
  millpond tune train.trace.gz                  better than the default
  millpond tune --limit 12GiB train.trace.gz    the fastest that fits in 12 GiB
  millpond tune --in-flight 200 train.trace.gz  with work in flight
  millpond tune --budget 60s --json train.trace.gz | jq -r .recommended.conf
  millpond tune --markdown *.trace.gz           a table of default against tuned";

const DEVICE_HELP: &str = "\
The device, which must be simulated: it has its own clock";

const IN_FLIGHT_HELP: &str = "\
Keep work under way: each allocation queues a piece of work on its stream that is done N events later, and so does \
each first use on another stream. Without it, work is in flight as the trace has recorded it. If the trace does not \
say, or with 0, the device is always idle, and the setting `growth` has no effect";

/// `millpond tune`.
#[derive(Debug, clap::Args)]
pub(crate) struct TuneArgs {
    /// Traces, or recordings that `import` reads; `-` is standard input. The default is a built-in trace
    #[arg(value_name = "TRACE")]
    pub(crate) traces: Vec<PathBuf>,
    /// A synthetic program that is hard on an allocator, or `all` of them. May be repeated
    #[arg(long = "pattern", value_name = "NAME[:seed=N]", value_parser = PatternChoice::parse)]
    #[arg(help_heading = INPUT)]
    pub(crate) patterns: Vec<PatternChoice>,
    #[arg(long, value_name = "DEVICE", help = DEVICE_HELP, long_help = format!("{DEVICE_HELP}\n\n{}", device_help()))]
    #[arg(help_heading = DEVICE)]
    #[arg(value_parser = DeviceName::One, hide_possible_values = true)]
    pub(crate) device: Option<String>,
    /// The limit on reserved memory: bytes (12GiB, 800M), or a multiple of each trace's live peak (1.10x)
    #[arg(long, value_name = "BYTES|TIMESx", value_parser = Limit::parse)]
    #[arg(help_heading = POLICY)]
    pub(crate) limit: Option<Limit>,
    /// How many warm passes follow the cold one
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(help_heading = LOAD)]
    pub(crate) passes: usize,
    /// How long to search: a number of settings (1000) or a time (60s)
    #[arg(long, value_name = "N|TIME", default_value = "1000", value_parser = parse_budget)]
    #[arg(help_heading = "Search")]
    pub(crate) budget: Budget,
    /// The seed for drawing settings and variations
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    #[arg(help_heading = "Search")]
    pub(crate) seed: u64,
    #[arg(long, value_name = "N")]
    #[arg(help = "Keep work under way for N events", long_help = IN_FLIGHT_HELP)]
    #[arg(help_heading = LOAD)]
    pub(crate) in_flight: Option<u64>,
    /// The number of search threads; the default is one for each core
    #[arg(long, value_name = "N", value_parser = value_parser!(u16).range(1..=256))]
    #[arg(help_heading = "Search")]
    pub(crate) threads: Option<u16>,
    /// Print every setting of the frontier instead of a dozen
    #[arg(long)]
    #[arg(help_heading = OUTPUT)]
    pub(crate) all: bool,
    /// Divide every size of a trace by N, so that it fits a small device
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = value_parser!(u64).range(1..=1 << 40))]
    #[arg(help_heading = INPUT)]
    pub(crate) scale: u64,
    /// The largest trace to accept, as in `millpond replay`
    #[arg(long, value_name = "KEY=N,...", default_value = "", hide_default_value = true, value_parser = parse_limits)]
    #[arg(help_heading = INPUT)]
    pub(crate) trace_limits: Limits,
    /// Print one table of all traces in Markdown: the default settings and the recommended ones
    #[arg(long)]
    #[arg(help_heading = OUTPUT)]
    pub(crate) markdown: bool,
    /// Leave out the time of the search, so that equal searches print equal texts
    #[arg(long)]
    #[arg(help_heading = OUTPUT)]
    pub(crate) no_times: bool,
}

fn parse_budget(text: &str) -> Result<Budget, String> {
    match text.parse::<usize>() {
        Ok(0) => Err("0 settings are none: write a number such as 1000, or a time such as 60s".into()),
        Ok(settings) => Ok(Budget::Settings(settings)),
        Err(_) => match parse_time(text) {
            Ok(time) => Ok(Budget::Time(time)),
            Err(_) => Err(format!("`{text}` is neither a number of settings, such as 1000, nor a time, such as 60s")),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_budget_is_a_number_of_settings_or_a_time() {
        assert_eq!(parse_budget("1000"), Ok(Budget::Settings(1000)));
        assert_eq!(parse_budget("60s"), Ok(Budget::Time(Duration::from_secs(60))));
        for text in ["", "0", "-1", "60", "1 h", "many"].into_iter().filter(|text| *text != "60") {
            let error = parse_budget(text).expect_err(text);
            assert!(error.contains("such as 1000") && error.contains("60s"), "{error}");
        }
    }
}
