//! What the device's lock guards: the queues, and what was found while working through them.

use std::collections::BTreeMap;

use millpond_backend::StreamId;

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
    pub(super) random: SplitMix,
}

impl State {
    pub(crate) fn new(completion: Completion) -> State {
        let seed = if let Completion::Seeded(seed) = completion { seed } else { 0 };
        State {
            queues: Vec::new(),
            violations: Vec::new(),
            next_task: 0,
            barriers: BTreeMap::new(),
            random: SplitMix(seed),
        }
    }

    /// Returns the number of the task that was queued last.
    pub(crate) fn newest_task(&self) -> u64 {
        self.next_task
    }
}

/// The splitmix64 generator: small, seeded, and the same on every machine.
pub(super) struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `bound`, which is small, so that the bias of the remainder does not matter.
    pub(super) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}
