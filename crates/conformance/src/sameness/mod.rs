//! The promise of equal decisions: on every device that reuses in order, the same program leads to the same decisions,
//! the same layout and the same statistics.
//!
//! A program is a recorded trace or a seed. [`trail`] runs it on a device and returns all results except those that a
//! driver chose. Trails of different devices are compared directly or by their [digest](Trail::digest). The device's
//! speed has no influence: queued work is submitted and waited for wherever the allocator may ask for it later.

mod program;
mod trail;

use std::sync::LazyLock;

use millpond_backend::{Backend as _, Caps, Reuse};
use millpond_trace::Trace;

use crate::device::DeviceUnderTest;
use crate::scenario::POLICIES;
use crate::session::{Setup, Stop, open_allocator};
use crate::sim::SimDevice;
use crate::suite::Outcome;
use millpond::settings::Policy;

pub use trail::Trail;

use program::{run_seed, run_trace};

/// The policies that decide alike on all devices. `direct` is not one of them: it releases memory at a free or later,
/// depending on the progress of the device.
pub static DECIDED_ALIKE: LazyLock<Vec<Policy>> =
    LazyLock::new(|| POLICIES.iter().filter(|policy| policy.caches()).copied().collect());

/// A program that is run on each device.
#[derive(Clone, Copy, Debug)]
pub enum Program<'a> {
    /// A recorded program.
    Trace(&'a Trace),
    /// A generated program with blocks of up to 24 MiB on several streams, uses on other streams, and a limit.
    Seed(u64),
}

impl Program<'_> {
    /// Returns the number of streams that it needs.
    fn streams(&self) -> u32 {
        match self {
            Program::Trace(trace) => trace.streams,
            Program::Seed(_) => program::STREAMS,
        }
    }
}

/// Returns the simulated device that must decide like a device with these facts: it has the same memory size and the
/// same pages.
pub fn reference(caps: &Caps) -> SimDevice {
    SimDevice::immediate(caps.classes[0].total_bytes).pages(caps.pages)
}

/// Returns the power of two by which a trace's sizes are divided so that devices with these facts can serve it. No
/// request is larger than half of the largest segment. Six times the live peak fits the device's memory and half of its
/// addresses, because policies that cannot gather free memory may reserve that much.
pub fn divisor<'a>(trace: &Trace, devices: impl IntoIterator<Item = &'a Caps>) -> u64 {
    use millpond_trace::Event;
    let largest = trace.events.iter().map(|event| match *event {
        Event::Allocate { bytes, .. } => bytes,
        _ => 0,
    });
    let (largest, live) = (largest.max().unwrap_or(0), trace.live_peak());
    let needed = devices.into_iter().map(|caps| {
        let class = &caps.classes[0];
        let by_segment = largest.div_ceil((class.max_segment_bytes / 2).max(1));
        let addresses = caps.pages.map_or(u64::MAX, |pages| pages.address_bytes / 2);
        let by_total = live.saturating_mul(6).div_ceil(class.total_bytes.min(addresses).max(1));
        by_segment.max(by_total)
    });
    needed.max().unwrap_or(1).max(1).next_power_of_two()
}

/// Runs a program on a device under a policy.
///
/// # Errors
///
/// Returns [`Outcome::Skipped`] where the device lacks what the program or the policy needs, and [`Outcome::Failed`]
/// where the run fails.
pub fn trail<D: DeviceUnderTest>(device: &D, policy: Policy, program: &Program<'_>) -> Result<Trail, Outcome> {
    run(device, policy, program).map_err(|stop| match stop {
        Stop::Skip(reason) => Outcome::Skipped(reason),
        Stop::Fail(text) => Outcome::Failed(format!("on {}: {text}", device.name())),
    })
}

/// Runs a program on a device and on its reference, and compares the trails.
///
/// # Errors
///
/// Returns the errors of [`trail`], and [`Outcome::Failed`] with the first difference.
pub fn same_as_simulated<D: DeviceUnderTest>(
    device: &D,
    policy: Policy,
    program: &Program<'_>,
) -> Result<Trail, Outcome> {
    let here = trail(device, policy, program)?;
    let there = trail(&reference(here.caps()), policy, program)?;
    match here.difference(&there) {
        None => Ok(here),
        Some(text) => Err(Outcome::Failed(format!("on {}: {text}", device.name()))),
    }
}

fn run<D: DeviceUnderTest>(device: &D, policy: Policy, program: &Program<'_>) -> Result<Trail, Stop> {
    let (conf, limit) = match program {
        Program::Trace(_) => ("", None),
        Program::Seed(_) => ("max_split_size_mb:21,garbage_collection_threshold:0.8", Some(program::LIMIT_BYTES)),
    };
    let setup = Setup { policy, conf, limit, streams: program.streams(), bytes: false };
    let (allocator, _) = open_allocator(device, &setup)?;
    if allocator.backend().caps().reuse != Reuse::InOrder {
        return Err(Stop::Skip("the device does not reuse in order".to_owned()));
    }
    let opened: Result<Vec<_>, _> = (0..setup.streams).map(|_| allocator.create_stream()).collect();
    let streams = opened.map_err(|error| Stop::Skip(format!("no further stream: {error}")))?;
    match program {
        Program::Trace(trace) => run_trace(&allocator, &streams, trace),
        Program::Seed(seed) => run_seed(&allocator, &streams, *seed),
    }
}
