//! Programs of real shape, and what they have reserved for what they have live: a loop with a copy stream, an engine
//! with a KV cache, a pipeline, epochs that make streams anew, pools made and dropped, threads.
//!
//! That no byte is wrong shows nothing of what the memory costs. Each program measures the most bytes that were
//! reserved against the most that were live, or kept for the device, and each policy has a bound for that. The same
//! programs run twice: the program waits for each step, or several steps are in flight.

mod bound;
mod programs;
mod scene;

use millpond::settings::Policy;
use millpond_backend::Backend as _;

use crate::device::DeviceUnderTest;
use crate::session::Stop;
use crate::suite::Outcome;
use scene::{Ended, Scene};

/// The most bytes that a program had reserved, and the most that it had live.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reserved {
    /// The bytes reserved at the peak.
    pub reserved: u64,
    /// The bytes live at the peak, each block with its rounding.
    pub live: u64,
    /// The bytes live or freed and still kept for what the device does, at the peak.
    pub active: u64,
}

impl Reserved {
    /// Returns reserved bytes divided by live bytes, both at their peaks.
    pub fn ratio(&self) -> f64 {
        self.reserved as f64 / self.live.max(1) as f64
    }

    /// Returns the same for bytes that were live or kept for the device.
    pub fn active_ratio(&self) -> f64 {
        self.reserved as f64 / self.active.max(1) as f64
    }
}

/// A program. It returns the streams that it has.
type Program<D> = fn(&Scene<'_, D>) -> Result<Ended<D>, Stop>;

/// What came of a program.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Measured {
    /// What it had.
    pub most: Reserved,
    /// The bound of its [`active_ratio`](Reserved::active_ratio).
    pub bound: f64,
}

/// The names of the programs.
pub const NAMES: [&str; 7] = ["copy-stream", "prefetch", "kv-engine", "pipeline", "epochs", "pools", "threads"];

/// Runs a program on a device under a policy, in the device's [turn](DeviceUnderTest::turn): with several steps in
/// flight, where the device can hold work, or waiting for each step.
///
/// # Errors
///
/// Returns why it was skipped, or how it failed. A bound that is not kept is no failure here.
///
/// # Panics
///
/// If there is no program of that name; if an invariant of the allocator does not hold.
pub fn measure<D: DeviceUnderTest>(
    device: &D,
    name: &str,
    policy: Policy,
    in_flight: bool,
) -> Result<Measured, Outcome> {
    let _turn = device.turn();
    let program = NAMES.iter().position(|known| *known == name);
    let program = program.unwrap_or_else(|| panic!("there is no program `{name}`: {NAMES:?}"));
    run(device, program, policy, in_flight).map_err(|stop| match stop {
        Stop::Skip(reason) => Outcome::Skipped(reason),
        Stop::Fail(text) => Outcome::Failed(text),
    })
}

/// Runs a program, by its place in [`NAMES`], both ways, and checks that its bounds are kept.
pub(crate) fn within_bounds<const PROGRAM: usize, D: DeviceUnderTest>(device: &D, policy: Policy) -> Result<(), Stop> {
    let mut beyond = Vec::new();
    for in_flight in [false, true] {
        let Measured { most, bound } = run(device, PROGRAM, policy, in_flight)?;
        let Reserved { reserved, live, active } = most;
        if most.active_ratio() > bound {
            let how = if in_flight { "with steps in flight" } else { "waiting for each step" };
            beyond.push(format!(
                "{how} {reserved} bytes were reserved for {live} live, {active} with what waits for the device: {:.3} \
                 times these, and the bound is {bound:.2}",
                most.active_ratio()
            ));
        }
    }
    if beyond.is_empty() { Ok(()) } else { Err(Stop::Fail(beyond.join("; "))) }
}

fn run<D: DeviceUnderTest>(device: &D, program: usize, policy: Policy, in_flight: bool) -> Result<Measured, Stop> {
    let programs: [Program<D>; NAMES.len()] = [
        programs::copy_stream,
        programs::prefetch,
        programs::kv_engine,
        programs::pipeline,
        programs::epochs,
        programs::pools,
        programs::threads,
    ];
    let scene = Scene::open(device, policy, in_flight)?;
    let bound = bound::bound(program, policy, in_flight, scene.allocator.backend().caps());
    let streams = programs[program](&scene)?;
    Ok(Measured { most: scene.finish(streams)?, bound })
}
