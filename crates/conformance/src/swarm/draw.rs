//! Draws a program from a seed while it runs, because the next operation depends on the blocks that exist.

use millpond_backend::Fault;

use super::mix::{Kind, Mix};
use super::operation::{Noted, Operation};
use millpond_trace::Random;

/// The number of driver calls within which a planned fault occurs.
pub(super) const FAULT_WITHIN: usize = 12;

/// The source of a program's operations.
pub(super) struct Drawing {
    random: Random,
    mix: Mix,
    /// The number of blocks that were allocated.
    allocated: u32,
}

impl Drawing {
    pub(super) fn new(seed: u64, faults: bool) -> Self {
        let mut random = Random::new(seed);
        let mix = Mix::draw(&mut random, faults);
        Self { random, mix, allocated: 0 }
    }

    pub(super) fn mix(&self) -> &Mix {
        &self.mix
    }

    /// Draws the next operation of a program that holds these blocks.
    pub(super) fn next(&mut self, held: &[u32]) -> Operation {
        let kind = self.mix.kind(&mut self.random);
        let stream = self.stream();
        match kind {
            Kind::Allocate if held.len() < self.mix.live_max => self.allocate(stream),
            Kind::Allocate => self.with_block(held, stream, |_, block| Operation::Free { block }),
            Kind::Free => self.with_block(held, stream, |_, block| Operation::Free { block }),
            Kind::Write => self.with_block(held, stream, |_, block| Operation::Write { block }),
            Kind::RecordedUse | Kind::UseUntilPoint => self.with_block(held, stream, |random, block| {
                let noted = match kind {
                    Kind::UseUntilPoint => Noted::Until,
                    _ if random.one_in(2) => Noted::Before,
                    _ => Noted::After,
                };
                Operation::Use { block, stream, noted, keep: random.one_in(3) }
            }),
            Kind::Order => Operation::Order { later: stream, earlier: self.stream() },
            Kind::Submit => Operation::Submit { stream },
            Kind::Advance => Operation::Advance { stream },
            Kind::HostWait => Operation::HostWait { stream },
            Kind::Poll => Operation::Poll,
            Kind::Trim => Operation::Trim { bytes: self.random.bytes(1 << 20, self.mix.limit) },
            Kind::EmptyCache => Operation::EmptyCache,
            Kind::Limit => Operation::Limit { bytes: self.random.bytes(self.mix.limit / 6, self.mix.limit) },
            Kind::Retreat => Operation::Retreat { stream },
            Kind::Fault => {
                let nth = 1 + self.random.index(FAULT_WITHIN) as u64;
                let fault = if self.random.one_in(2) { Fault::OutOfMemory } else { Fault::Other };
                Operation::Fault { nth, fault }
            }
        }
    }

    fn allocate(&mut self, stream: usize) -> Operation {
        let block = self.allocated;
        self.allocated += 1;
        Operation::Allocate { block, bytes: self.mix.bytes(&mut self.random), stream }
    }

    /// Returns an operation on one of the blocks. Where there is none, one is allocated instead.
    fn with_block(
        &mut self,
        held: &[u32],
        stream: usize,
        make: impl FnOnce(&mut Random, u32) -> Operation,
    ) -> Operation {
        if held.is_empty() {
            return self.allocate(stream);
        }
        let block = held[self.random.index(held.len())];
        make(&mut self.random, block)
    }

    fn stream(&mut self) -> usize {
        self.random.index(self.mix.streams as usize)
    }
}
