//! The arguments of `millpond bench`, and the page that its `--help` prints.

use crate::devices::device_help;

/// What `--help` prints behind the arguments.
pub(crate) const HELP: &str = "\
  driver    what the driver takes for a segment of each size, and for giving it back
  cached    a free and an allocation that the cache serves, on average and one by one
  streams   what ticks, submits and waits cost; how long a block that another stream used takes to its reuse
  pages     what the driver takes to map a page, to map it once more and to give it back, where there are pages
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
the hot path beside other allocators is made by scripts/bench.sh.

Examples:
  millpond bench --quick                          does everything work here?
  millpond bench --device cuda:0                  what the driver costs, and what the cache makes of it
  millpond bench --device cuda:0 --json > a.json  to compare with another day";

/// `millpond bench`.
#[derive(Debug, clap::Args)]
pub(crate) struct BenchArgs {
    #[arg(long, value_name = "DEVICE", help = "The device: NAME or NAME:KEY=VALUE,...", long_help = device_help())]
    pub(crate) device: Option<String>,
    /// Fewer sizes and rounds: a few seconds, to see that everything works
    #[arg(long)]
    pub(crate) quick: bool,
}
