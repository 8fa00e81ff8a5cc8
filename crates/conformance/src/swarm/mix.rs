//! The mix that a seed draws for its run: the frequency of each operation, and the sizes of the blocks.

use millpond_trace::Random;

/// A kind of operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Allocate,
    Free,
    Write,
    RecordedUse,
    UseUntilPoint,
    Order,
    Submit,
    Advance,
    HostWait,
    Poll,
    Trim,
    EmptyCache,
    Limit,
    /// The end of a stream's work: all its blocks are freed, so that other streams can use its memory.
    Retreat,
    Fault,
}

/// The kinds that a seed may leave out, and their default weights. The other kinds are always drawn.
const OPTIONAL: [(Kind, usize); 13] = [
    (Kind::Write, 10),
    (Kind::RecordedUse, 15),
    (Kind::UseUntilPoint, 10),
    (Kind::Order, 3),
    (Kind::Submit, 15),
    (Kind::Advance, 25),
    (Kind::HostWait, 3),
    (Kind::Poll, 4),
    (Kind::Trim, 2),
    (Kind::EmptyCache, 1),
    (Kind::Limit, 1),
    (Kind::Retreat, 4),
    (Kind::Fault, 3),
];

/// The ranges of sizes: the least and the most, in bytes.
const SHAPES: [(u64, u64); 4] = [(1, 4 << 10), (512, 1 << 20), (1 << 10, 4 << 20), (256 << 10, 24 << 20)];

/// The limits on reserved bytes. They are low, so that small devices suffice, requests are sometimes refused, and
/// memory is short in some runs.
const LIMITS: [u64; 4] = [32 << 20, 48 << 20, 96 << 20, 192 << 20];

/// The mix of one run.
pub(super) struct Mix {
    weights: Vec<(Kind, usize)>,
    total: usize,
    shapes: Vec<(u64, u64)>,
    /// The number of streams.
    pub(super) streams: u32,
    /// The most blocks that the program holds.
    pub(super) live_max: usize,
    /// The limit on reserved bytes at the beginning.
    pub(super) limit: u64,
}

impl Mix {
    pub(super) fn draw(random: &mut Random, faults: bool) -> Self {
        let mut weights = vec![(Kind::Allocate, 30), (Kind::Free, 30)];
        for (kind, weight) in OPTIONAL {
            let wanted = kind != Kind::Fault || faults;
            if wanted && !random.one_in(4) {
                // The weight is between a third of the default and three times the default.
                weights.push((kind, (weight * (1 + random.index(9))).div_ceil(3)));
            }
        }
        let mut shapes: Vec<_> = SHAPES.into_iter().filter(|_| !random.one_in(3)).collect();
        if shapes.is_empty() {
            shapes.push(SHAPES[random.index(SHAPES.len())]);
        }
        Self {
            total: weights.iter().map(|(_, weight)| weight).sum(),
            weights,
            shapes,
            streams: 1 + random.index(4) as u32,
            live_max: 4 << random.index(5),
            limit: LIMITS[random.index(LIMITS.len())],
        }
    }

    pub(super) fn kind(&self, random: &mut Random) -> Kind {
        let mut at = random.index(self.total);
        for &(kind, weight) in &self.weights {
            if at < weight {
                return kind;
            }
            at -= weight;
        }
        unreachable!("{at} is left of a draw below the sum of all weights")
    }

    pub(super) fn bytes(&self, random: &mut Random) -> u64 {
        let (least, most) = self.shapes[random.index(self.shapes.len())];
        random.bytes(least, most)
    }
}
