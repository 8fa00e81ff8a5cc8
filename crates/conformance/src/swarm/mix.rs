//! The mix that a seed draws for its run.

use millpond_trace::Random;

use crate::language::{Kind, Mix, Sizes};

/// The kinds that a seed may leave out, and their default weights. The other kinds are always drawn.
const OPTIONAL: [(Kind, u64); 13] = [
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

/// The kinds that concern private pools, with their weights: a third of all seeds has them.
const OF_POOLS: [(Kind, u64); 3] = [(Kind::SwitchPool, 1), (Kind::Checkpoint, 8), (Kind::Restore, 16)];

/// The kinds of blocks that grow, with their weights: a third of all seeds has them.
const OF_GROWTH: [(Kind, u64); 2] = [(Kind::AllocateGrowable, 6), (Kind::Grow, 30)];

/// The kind of blocks that are aligned, with its weight: a third of all seeds has it.
const OF_ALIGNMENT: (Kind, u64) = (Kind::AllocateAligned, 15);

/// What the draws of these kinds are made from besides the seed.
const APART: [u64; 2] = [0x6772_6f77, 0x616c_6967];

/// The ranges of sizes: the least and the most, in bytes.
const SHAPES: [(u64, u64); 4] = [(1, 4 << 10), (512, 1 << 20), (1 << 10, 4 << 20), (256 << 10, 24 << 20)];

/// The limits on reserved bytes. They are low, so that small devices suffice, requests are sometimes refused, and
/// memory is short in some runs.
const LIMITS: [u64; 4] = [32 << 20, 48 << 20, 96 << 20, 192 << 20];

/// Draws a mix. `faults` says whether driver calls may fail.
pub(super) fn draw(random: &mut Random, faults: bool) -> Mix {
    let mut weights = vec![(Kind::Allocate, 30), (Kind::Free, 30)];
    for (kind, weight) in OPTIONAL {
        let wanted = kind != Kind::Fault || faults;
        if wanted && !random.one_in(4) {
            // The weight is between a third of the default and three times the default.
            weights.push((kind, (weight * (1 + random.below(9))).div_ceil(3)));
        }
    }
    // Drawn apart, so that the other seeds have the programs that they had before there were pools, growth and
    // alignments.
    if Random::new(random.clone().bits()).one_in(3) {
        weights.extend(OF_POOLS);
    }
    if Random::new(random.clone().bits() ^ APART[0]).one_in(3) {
        weights.extend(OF_GROWTH);
    }
    if Random::new(random.clone().bits() ^ APART[1]).one_in(3) {
        weights.push(OF_ALIGNMENT);
    }
    let mut ranges: Vec<_> = SHAPES.into_iter().filter(|_| !random.one_in(3)).collect();
    if ranges.is_empty() {
        ranges.push(random.pick(&SHAPES));
    }
    Mix {
        weights,
        sizes: Sizes { exact: Vec::new(), ranges },
        streams: 1 + random.index(4),
        live_max: 4 << random.below(5),
        limit: random.pick(&LIMITS),
    }
}
