//! The arguments of `millpond bench`, and the page that its `--help` prints.

use crate::devices::{DeviceName, devices_help};
use crate::headings::{DEVICE, LOAD};

/// What `--help` prints behind the arguments.
pub(crate) const HELP: &str = "\
Measurements:
  driver    the driver's time for a segment of each size, and for its release
  cached    a free and an allocation that the cache serves
  streams   what ticks, submits and waits cost, and how soon a block is reused
  pages     the driver's time to map a page, to map it again, and to release it
  transfer  fills, copies, uploads and downloads, each submitted and waited for
  scrub     a free and an allocation, with and without overwriting the memory
  pinned    page-locked memory for copies, from the cache and from the driver
  trace     the built-in trace, scaled down if necessary, in ns per event
  peer      other allocators, for the sizes of `cached`, in the same run

Times are medians of rounds by the host's clock; p50, p99 and p99.9 are of single operations. If `clock` says \
`device`, times are by the device's own clock. `x millpond` is a peer's time divided by Millpond's. To compare \
numbers, build with --release and keep the machine idle. docs/reference/cli.md says more.

Examples:
  millpond bench --quick                          does everything work?
  millpond bench --device cuda:0                  the driver's cost, and the cache's
  millpond bench --device cuda:0 --json > a.json  to compare later";

/// `millpond bench`.
#[derive(Debug, clap::Args)]
pub(crate) struct BenchArgs {
    #[arg(long, value_name = "DEVICE,...", long_help = devices_help())]
    #[arg(help = "The devices: NAME, NAME:KEY=VALUE,... or all")]
    #[arg(help_heading = DEVICE)]
    #[arg(value_parser = DeviceName::List, hide_possible_values = true)]
    pub(crate) device: Option<String>,
    /// Fewer sizes and rounds: a few seconds, to see that everything works
    #[arg(long, help_heading = LOAD)]
    pub(crate) quick: bool,
}
