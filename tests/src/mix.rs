//! The mix of operations with which PyTorch's rules and the failures of driver calls are tested.

use millpond_conformance::language::{Generator, Kind, Mix, Sizes};
use millpond_trace::Random;

/// Mostly allocations and frees, the rarer kinds rarely, and the rarest once in 400 operations.
const WEIGHTS: [(Kind, u64); 13] = [
    (Kind::Allocate, 180),
    (Kind::Free, 132),
    (Kind::RecordedUse, 24),
    (Kind::UseUntilPoint, 4),
    (Kind::Point, 6),
    (Kind::Until, 10),
    (Kind::Hold, 16),
    (Kind::Unhold, 8),
    (Kind::Sync, 7),
    (Kind::Poll, 4),
    (Kind::EmptyCache, 4),
    (Kind::ResetPeaks, 4),
    (Kind::ResetTotals, 1),
];

/// Sizes at which a rule changes.
const EDGES: [u64; 12] = [
    1,
    511,
    512,
    513,
    (1 << 20) - 512,
    1 << 20,
    (1 << 20) + 1,
    (10 << 20) - 512,
    (10 << 20) - 511,
    20 << 20,
    (20 << 20) + 1,
    (2 << 20) + 512,
];

/// Returns a generator of operations on these streams, with blocks of up to `largest` bytes: sizes at which a rule
/// changes, and others with an even chance for each octave.
pub fn generator(random: Random, streams: usize, largest: u64) -> Generator {
    let exact = EDGES.into_iter().filter(|&edge| edge <= largest).collect();
    let sizes = Sizes { exact, ranges: vec![(32, largest)] };
    let mix = Mix { weights: WEIGHTS.to_vec(), sizes, streams, live_max: usize::MAX, limit: u64::MAX };
    Generator::new(random, mix)
}
