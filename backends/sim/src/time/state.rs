//! What the device's lock guards: the queues, and what was found while working through them.

use std::collections::BTreeMap;

use millpond_backend::StreamId;
use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng as _};

use crate::open::Completion;
use crate::space::violation::Violation;
use crate::streams::lane::Queue;

/// The state that the device's lock guards: the queues, and the violations found while working through them.
pub(crate) struct State {
    /// Unfinished work per lane.
    pub(crate) queues: Vec<Queue>,
    pub(crate) violations: Vec<Violation>,
    pub(super) next_task: u64,
    /// For each stream, the newest task before its last barrier.
    pub(crate) barriers: BTreeMap<StreamId, u64>,
    pub(super) random: Random,
}

impl State {
    pub(crate) fn new(completion: Completion) -> State {
        let seed = if let Completion::Seeded(seed) = completion { seed } else { 0 };
        State {
            queues: Vec::new(),
            violations: Vec::new(),
            next_task: 0,
            barriers: BTreeMap::new(),
            random: Random(SplitMix64::seed_from_u64(seed)),
        }
    }

    /// Returns the number of the task that was queued last.
    pub(crate) fn newest_task(&self) -> u64 {
        self.next_task
    }
}

/// Numbers drawn from the seed. They are the same on every machine.
pub(super) struct Random(SplitMix64);

impl Random {
    /// Returns a number below `bound`, which is small, so that the bias of the remainder does not matter.
    pub(super) fn below(&mut self, bound: usize) -> usize {
        (self.0.next_u64() % bound as u64) as usize
    }
}
