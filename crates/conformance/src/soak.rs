//! The soak: as many seeded adversarial runs as one has time for, on every kind of simulated device and under every
//! policy.
//!
//! A run's seed draws the device, the policy and whether driver calls fail, and is the seed of a [swarm]
//! on it; the same seed is the same run, alone or among thousands.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;

use millpond_backend::{Closing, PageCaps, Reuse};
use millpond_sim::Completion;

use crate::device::DeviceUnderTest as _;
use crate::scenario::{POLICIES, Policy};
use crate::sim::SimDevice;
use crate::suite::text_of;
use crate::swarm::{self, Random, Swarm, Tally};

/// How many operations a run has: enough for memory to be short for most of it.
const OPERATIONS: u32 = 400;

/// What the seed of a run draws.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// On which device.
    pub device: SimDevice,
    /// What is done.
    pub swarm: Swarm,
}

/// A run that has ended.
#[derive(Clone, Debug)]
pub struct Done {
    /// What it was.
    pub run: Run,
    /// What it came to, or what went wrong.
    pub result: Result<Tally, String>,
}

impl Run {
    /// The run of a seed.
    pub fn new(seed: u64) -> Self {
        // Apart from the swarm's own draws, so that neighbouring seeds differ in everything.
        let mut random = Random::new(seed ^ 0x50AC);
        let closing = [Closing::Backend, Closing::Backend, Closing::Submit][random.below(3)];
        let reuse = [Reuse::InOrder, Reuse::InOrder, Reuse::AfterSubmit, Reuse::AfterDone][random.below(4)];
        let completion = [Completion::Manual, Completion::Seeded(seed), Completion::Immediate][random.below(5) / 2];
        let granularity = [2 << 20, 2 << 20, 64 << 10, 4 << 20][random.below(4)];
        let pages = Some(PageCaps { aliasing: !random.once_in(3), ..PageCaps::new(granularity) });
        let device = SimDevice::new(closing, reuse, completion).pages(pages);
        let device = if random.once_in(3) { device.without_stream_wait() } else { device };
        let policy = policy(&mut random);
        let faults = random.once_in(2);
        let device = match random.below(6) {
            0 => device.tracking(),
            1 => device.with_barriers(),
            _ => device,
        };
        Self { device, swarm: Swarm { seed, operations: OPERATIONS, policy, faults, check_every: 4 } }
    }

    /// Runs it. A panic is caught and told as what went wrong.
    ///
    /// # Errors
    ///
    /// What went wrong, with the operation.
    pub fn run(&self) -> Result<Tally, String> {
        let ran = catch_unwind(AssertUnwindSafe(|| swarm::run(&self.device, &self.swarm)));
        match ran.unwrap_or_else(|panic| Err(text_of(panic))) {
            Ok(Some(tally)) => Ok(tally),
            Ok(None) => Err(format!("{} does not serve {}", self.device.name(), self.swarm.policy.name)),
            Err(text) => Err(text),
        }
    }
}

/// Half of all runs are for pages that move, the rest is shared.
fn policy(random: &mut Random) -> Policy {
    let is_paged = random.once_in(2);
    let paged = |policy: &&Policy| policy.conf.starts_with("policy:paged") == is_paged;
    let wanted: Vec<&Policy> = POLICIES.iter().filter(paged).collect();
    *wanted[random.below(wanted.len())]
}

/// Runs all these seeds on so many threads, and tells each run as it ends.
pub fn run(seeds: Range<u64>, threads: usize, tell: &mut dyn FnMut(Done)) {
    let next = AtomicU64::new(seeds.start);
    let (sender, ended) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            let (sender, next, end) = (sender.clone(), &next, seeds.end);
            scope.spawn(move || {
                let take = || Some(next.fetch_add(1, Ordering::Relaxed)).filter(|&seed| seed < end);
                while let Some(seed) = take() {
                    let run = Run::new(seed);
                    let done = Done { run, result: run.run() };
                    // Nobody listens any more: the rest need not run.
                    if sender.send(done).is_err() {
                        break;
                    }
                }
            });
        }
        drop(sender);
        ended.iter().for_each(tell);
    });
}
