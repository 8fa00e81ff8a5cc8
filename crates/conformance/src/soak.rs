//! The soak: a large number of seeded adversarial runs, on every kind of simulated device and under every policy.
//!
//! A run's seed draws the device, the policy and whether driver calls fail, and is the seed of a [swarm](crate::swarm)
//! on that device. The same seed gives the same run, alone or among thousands, as long as runs have the same number of
//! operations.

use std::num::NonZeroUsize;
use std::ops::{ControlFlow, Range};

use millpond_backend::{Closing, PageCaps, Reuse};
use millpond_sim::Completion;
use millpond_trace::Random;

use crate::device::DeviceUnderTest as _;
use crate::scenario::POLICIES;
use crate::side_by_side;
use crate::sim::SimDevice;
use crate::swarm::{Case, Failed, Program, Shrunk, Swarm, Tally};
use millpond::settings::{Policy, RecordStream, Settings};

/// The default number of operations of a run: enough for memory to be short during most of it.
pub const OPERATIONS: u32 = 400;

/// The numbers of operations after which everything is checked. They are large, because a check costs as much as many
/// operations, and because deferred work is done at a check.
const CHECK_EVERY: [u32; 3] = [8, 16, 64];

/// A run, as its seed draws it.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// The device.
    pub device: SimDevice,
    /// The swarm that runs on it.
    pub swarm: Swarm,
    /// What becomes of freed memory that other streams have used.
    pub record_stream: RecordStream,
}

/// A run that has ended.
#[derive(Clone, Debug)]
pub struct Done {
    /// The run.
    pub run: Run,
    /// The tally, or what went wrong.
    pub result: Result<Tally, Failed>,
}

/// What the draw of [`Run::record_stream`] is made from besides the seed.
const HOLDS: u64 = 0x686f_6c64;

/// The bytes of addresses of devices that have few.
const ADDRESSES: [u64; 4] = [0, 40 << 20, 200 << 20, 2 << 30];

impl Run {
    /// Creates the run of a seed with this number of operations.
    pub fn new(seed: u64, operations: u32) -> Self {
        // The seed differs from that of the swarm's own draws, so that neighbouring seeds differ in everything.
        let mut random = Random::new(seed ^ 0x50AC);
        let closing = [Closing::Backend, Closing::Backend, Closing::Submit][random.index(3)];
        let reuse = [Reuse::InOrder, Reuse::InOrder, Reuse::AfterSubmit, Reuse::AfterDone][random.index(4)];
        let completion = [Completion::Manual, Completion::Seeded(seed), Completion::Immediate][random.index(5) / 2];
        let granularity = [2 << 20, 2 << 20, 64 << 10, 4 << 20][random.index(4)];
        let pages = Some(PageCaps::new(granularity).with_aliasing(!random.one_in(3)));
        let device = SimDevice::new(closing, reuse, completion).pages(pages);
        let device = if random.one_in(3) { device.without_stream_wait() } else { device };
        let policy = policy(&mut random);
        let faults = random.one_in(2);
        let check_every = CHECK_EVERY[random.index(CHECK_EVERY.len())];
        let device = match random.index(6) {
            0 => device.tracking(),
            1 => device.with_barriers(),
            _ => device,
        };
        // With few mappings, windows end all the time.
        let device = if random.one_in(3) { device.mappings(random.between(0, 40)) } else { device };
        // Few or no addresses: homes are short, and segments stand beside them.
        let device = if random.one_in(4) { device.addresses(random.pick(&ADDRESSES)) } else { device };
        // Drawn apart, so that the rest of a run does not depend on it.
        let holds = Random::new(seed ^ HOLDS).one_in(3);
        let record_stream = if holds { RecordStream::Hold } else { RecordStream::Wait };
        Self { device, swarm: Swarm { seed, operations, policy, faults, check_every }, record_stream }
    }

    /// Executes the run. A panic is caught and reported as a failure.
    ///
    /// # Errors
    ///
    /// Returns what went wrong, with the operation.
    pub fn run(&self) -> Result<Tally, Failed> {
        self.served(self.case().record(&self.swarm).1)
    }

    /// Runs another program on the run's device, under its policy: for example one that [`shrink`](Self::shrink) has
    /// made.
    ///
    /// # Errors
    ///
    /// Returns what went wrong, with the operation.
    ///
    /// # Panics
    ///
    /// If the program names streams that it does not have.
    pub fn replay(&self, program: &Program) -> Result<Tally, Failed> {
        self.served(self.case().replay(program))
    }

    /// Reduces a failing run to the few operations that its failure needs. Returns `None` if the run does not fail.
    /// Runs some hundreds of programs.
    pub fn shrink(&self) -> Option<Shrunk> {
        let case = self.case();
        let (program, result) = case.record(&self.swarm);
        result.err()?;
        case.shrink(&program)
    }

    fn case(&self) -> Case<'_, SimDevice> {
        let settings = Settings { record_stream: self.record_stream, ..Settings::default() };
        Case { settings, ..Case::new(&self.device, self.swarm.policy) }
    }

    fn served(&self, result: Result<Option<Tally>, Failed>) -> Result<Tally, Failed> {
        let what = || format!("{} does not serve {}", self.device.name(), self.swarm.policy.variant_name());
        result?.ok_or_else(|| Failed { at: 0, operation: None, what: what() })
    }
}

/// Draws a policy. Half of all runs get a variant of `paged`, and the other policies share the rest.
fn policy(random: &mut Random) -> Policy {
    let is_paged = random.one_in(2);
    let paged = |policy: &Policy| policy.moves_pages() == is_paged;
    let wanted: Vec<Policy> = POLICIES.into_iter().filter(paged).collect();
    wanted[random.index(wanted.len())]
}

/// Runs all these seeds with this number of operations each on this number of threads, and passes each run to `tell`
/// when it ends. No further seeds are taken after `tell` returns a break.
pub fn run(seeds: Range<u64>, operations: u32, threads: usize, tell: &mut dyn FnMut(Done) -> ControlFlow<()>) {
    let work = |seed| {
        let run = Run::new(seed, operations);
        let result = run.run();
        Done { run, result }
    };
    side_by_side::run(seeds, NonZeroUsize::new(threads).unwrap_or(NonZeroUsize::MIN), work, tell);
}
