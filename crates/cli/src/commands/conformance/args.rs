//! The arguments of `millpond conformance`, and the page that its `--help` prints.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::value_parser;
use millpond_conformance::suite;

use crate::devices::DeviceName;

/// What `--help` prints behind the arguments.
pub(crate) const HELP: &str = "\
Prints how many scenarios passed, by device and by group, why others were skipped or declared to differ, and every \
failure in full. `--device sim` means every kind of simulated device. JSON has a line for each scenario.

With --soak, each run is a random program of several streams. Every grant is checked, and every block is written and \
read by device work. With the same --operations, the same seed repeats a run: `--soak 1 --seed SEED` repeats one that \
failed. The first failing runs are minimized; after 20 failures the soak ends.

Examples:
  millpond conformance --device vulkan:0
  millpond conformance --device sim --only \"reuse InOrder\"
  millpond conformance --device cuda:0 --group faults,limits
  millpond conformance --device vulkan:0 --jobs 8  eight scenarios at a time
  millpond conformance --soak 10000                other programs than the suite's
  millpond conformance --soak 1 --seed 77          one of them again";

/// `millpond conformance`.
#[derive(Debug, clap::Args)]
pub(crate) struct ConformanceArgs {
    /// The device, as `millpond devices` lists it; the default is the best one available
    #[arg(long, value_name = "DEVICE")]
    #[arg(value_parser = DeviceName::One, hide_possible_values = true)]
    pub(crate) device: Option<String>,
    /// Test only kinds of the device whose name contains this, such as "reuse InOrder"
    #[arg(long, value_name = "TEXT")]
    pub(crate) only: Option<String>,
    /// Run only these groups of scenarios, such as faults,limits
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    #[arg(value_parser = PossibleValuesParser::new(suite::groups()))]
    pub(crate) group: Vec<String>,
    /// How many scenarios of a group run at once, each on a device that it opens
    #[arg(long, value_name = "N", default_value = "1", conflicts_with = "soak")]
    pub(crate) jobs: NonZeroUsize,
    /// Instead of the suite, make N random adversarial runs on simulated devices of every kind, under every policy
    #[arg(long, value_name = "N", conflicts_with_all = ["device", "only", "group"])]
    #[arg(value_parser = value_parser!(u64).range(1..))]
    pub(crate) soak: Option<u64>,
    /// The seed of the first run; the others count up from it
    #[arg(long, value_name = "SEED", default_value_t = 0, requires = "soak")]
    pub(crate) seed: u64,
    /// The number of operations in a run of the soak
    #[arg(long, value_name = "N", default_value_t = millpond_conformance::soak::OPERATIONS, requires = "soak")]
    #[arg(value_parser = value_parser!(u32).range(1..=100_000))]
    pub(crate) operations: u32,
    /// Write the totals of the soak to a Markdown file, every half minute and at the end
    #[arg(long, value_name = "FILE", requires = "soak")]
    pub(crate) record: Option<PathBuf>,
}
