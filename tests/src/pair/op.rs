//! Operations as data, which are valid in every state: blocks, points and streams are taken by remainder.

use millpond_trace::Random;

/// One operation of a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op {
    /// Allocates this number of bytes (not 0) on a stream.
    Allocate {
        /// The number of bytes.
        bytes: u64,
        /// The stream.
        stream: usize,
    },
    /// Frees the block at that place among the live blocks.
    Free {
        /// The place.
        block: usize,
    },
    /// Records that a stream uses the block.
    Record {
        /// The block's place among the live blocks.
        block: usize,
        /// The stream.
        stream: usize,
    },
    /// Takes a point of a stream.
    Point {
        /// The stream.
        stream: usize,
    },
    /// Marks the block as used until a point taken before; does nothing if there is none.
    Until {
        /// The block's place among the live blocks.
        block: usize,
        /// The point's place among those taken.
        point: usize,
    },
    /// Puts a long kernel on a stream.
    Busy {
        /// The stream.
        stream: usize,
    },
    /// Ends the work of a stream.
    Complete {
        /// The stream.
        stream: usize,
    },
    /// Waits for the device.
    Synchronize,
    /// Retires the blocks whose uses are over.
    Poll,
    /// Empties the cache.
    EmptyCache,
    /// Resets the peaks.
    ResetPeak,
    /// Resets the accumulated counters.
    ResetAccumulated,
}

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

impl Op {
    /// Draws an operation at random: mostly allocations and frees, the rarer ones rarely.
    pub fn draw(random: &mut Random, streams: usize, largest: u64) -> Op {
        let stream = random.index(streams);
        let block = random.below(1 << 16) as usize;
        match random.below(100) {
            0..45 => Op::Allocate { bytes: size(random, largest), stream },
            45..78 => Op::Free { block },
            78..84 => Op::Record { block, stream },
            84..86 => Op::Point { stream },
            86..89 => Op::Until { block, point: random.below(64) as usize },
            89..93 => Op::Busy { stream },
            93..95 => Op::Complete { stream },
            95 => Op::Synchronize,
            96 => Op::Poll,
            97 => Op::EmptyCache,
            98 => Op::ResetPeak,
            _ if random.one_in(4) => Op::ResetAccumulated,
            _ => Op::Synchronize,
        }
    }

    /// Draws a sequence of `count` operations.
    pub fn sequence(random: &mut Random, count: usize, streams: usize, largest: u64) -> Vec<Op> {
        (0..count).map(|_| Op::draw(random, streams, largest)).collect()
    }
}

/// Draws a size up to `largest`: an edge, or one with an even chance for each octave.
fn size(random: &mut Random, largest: u64) -> u64 {
    let edge = random.pick(&EDGES);
    if random.one_in(5) && edge <= largest {
        return edge;
    }
    let octave = random.between(6, u64::from(largest.ilog2()));
    random.between(1 << (octave - 1), 1 << octave).min(largest)
}
