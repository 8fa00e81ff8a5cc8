//! Draws a program from a seed while it runs, because the next operation depends on the blocks that exist.

use millpond_backend::Fault;
use millpond_trace::Random;

use super::{Kind, Mix, Noted, Operation};

/// The number of driver calls within which a planned fault occurs.
pub(crate) const FAULT_WITHIN: u64 = 12;

/// The source of a program's operations. The same numbers, the same mix and the same blocks give the same operations.
#[derive(Clone, Debug)]
pub struct Generator {
    random: Random,
    mix: Mix,
    /// The bytes and the stream of every block that was allocated, by its number.
    allocated: Vec<(u64, usize)>,
    /// The number of points that were taken.
    points: u32,
    /// The second of two operations that belong together.
    following: Option<Operation>,
}

impl Generator {
    /// Creates a generator that draws from a mix.
    pub fn new(random: Random, mix: Mix) -> Self {
        Self { random, mix, allocated: Vec::new(), points: 0, following: None }
    }

    /// Returns the mix.
    pub fn mix(&self) -> &Mix {
        &self.mix
    }

    /// Draws the next operation of a program that holds these blocks.
    ///
    /// # Panics
    ///
    /// If the mix has no weights, no sizes or no streams.
    pub fn next(&mut self, held: &[u32]) -> Operation {
        if let Some(operation) = self.following.take() {
            return operation;
        }
        let kind = self.mix.kind(&mut self.random);
        let stream = self.stream();
        match kind {
            Kind::Allocate if held.len() < self.mix.live_max => self.allocate(stream),
            Kind::AllocateGrowable if held.len() < self.mix.live_max => {
                let (bytes, more) = (self.mix.bytes(&mut self.random), self.mix.bytes(&mut self.random));
                self.allocated.push((bytes, stream));
                let (block, capacity) = (self.allocated.len() as u32 - 1, bytes + 4 * more);
                Operation::AllocateGrowable { block, bytes, capacity, stream }
            }
            Kind::AllocateAligned if held.len() < self.mix.live_max => {
                let (bytes, alignment) = (self.mix.bytes(&mut self.random), 1 << self.random.below(22));
                self.allocated.push((bytes, stream));
                let block = self.allocated.len() as u32 - 1;
                Operation::AllocateAligned { block, bytes, alignment, stream }
            }
            Kind::Grow => self.with_block(held, stream, |drawing, block| {
                let bytes = drawing.mix.bytes(&mut drawing.random);
                Operation::Grow { block, bytes: bytes / (1 << drawing.random.below(4)) }
            }),
            Kind::Allocate | Kind::AllocateGrowable | Kind::AllocateAligned | Kind::Free => {
                self.with_block(held, stream, |_, block| Operation::Free { block })
            }
            Kind::Again => self.with_block(held, stream, Self::again),
            Kind::Write => self.with_block(held, stream, |_, block| Operation::Write { block }),
            Kind::RecordedUse | Kind::UseUntilPoint => self.with_block(held, stream, |drawing, block| {
                let noted = match kind {
                    Kind::UseUntilPoint => Noted::Until,
                    _ if drawing.random.one_in(2) => Noted::Before,
                    _ => Noted::After,
                };
                Operation::Use { block, stream, noted, keep: drawing.random.one_in(3) }
            }),
            Kind::Until if self.points > 0 => self.with_block(held, stream, |drawing, block| {
                let point = drawing.random.below(drawing.points.into()) as u32;
                Operation::Until { block, point }
            }),
            Kind::Point | Kind::Until => self.point(stream),
            Kind::Order => Operation::Order { later: stream, earlier: self.stream() },
            Kind::Submit => Operation::Submit { stream },
            Kind::Hold => Operation::Hold { stream },
            Kind::Unhold => Operation::Unhold { stream },
            Kind::Advance => Operation::Advance { stream },
            Kind::HostWait => Operation::HostWait { stream },
            Kind::Sync => Operation::Sync,
            Kind::Poll => Operation::Poll,
            Kind::Trim => Operation::Trim { bytes: self.random.bytes(1 << 20, self.mix.limit) },
            Kind::EmptyCache => Operation::EmptyCache,
            Kind::Limit => Operation::Limit { bytes: self.random.bytes(self.mix.limit / 6, self.mix.limit) },
            Kind::ResetPeaks => Operation::ResetPeaks,
            Kind::ResetTotals => Operation::ResetTotals,
            Kind::Retreat => Operation::Retreat { stream },
            Kind::SwitchPool => Operation::SwitchPool,
            Kind::Checkpoint => Operation::Checkpoint,
            Kind::Restore => Operation::Restore { all: self.random.one_in(2) },
            Kind::Fault => {
                let nth = 1 + self.random.below(FAULT_WITHIN);
                let fault = if self.random.one_in(2) { Fault::OutOfMemory } else { Fault::Other };
                Operation::Fault { nth, fault }
            }
        }
    }

    fn allocate(&mut self, stream: usize) -> Operation {
        let bytes = self.mix.bytes(&mut self.random);
        self.allocation(bytes, stream)
    }

    fn allocation(&mut self, bytes: u64, stream: usize) -> Operation {
        self.allocated.push((bytes, stream));
        Operation::Allocate { block: self.allocated.len() as u32 - 1, bytes, stream }
    }

    /// Frees a block, and requests the same size or a little more next.
    fn again(&mut self, block: u32) -> Operation {
        let (bytes, stream) = self.allocated[block as usize];
        let more = if self.random.one_in(2) { self.random.below(64) } else { 0 };
        self.following = Some(self.allocation(bytes + more, stream));
        Operation::Free { block }
    }

    fn point(&mut self, stream: usize) -> Operation {
        self.points += 1;
        Operation::Point { point: self.points - 1, stream }
    }

    /// Returns an operation on one of the blocks. Where there is none, one is allocated instead.
    fn with_block(&mut self, held: &[u32], stream: usize, make: impl FnOnce(&mut Self, u32) -> Operation) -> Operation {
        if held.is_empty() {
            return self.allocate(stream);
        }
        let block = held[self.random.index(held.len())];
        make(self, block)
    }

    fn stream(&mut self) -> usize {
        self.random.index(self.mix.streams)
    }
}
