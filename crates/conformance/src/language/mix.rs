//! The mix of a program: the frequency of each kind of operation, and the sizes of the blocks.

use millpond_trace::Random;

/// A kind of operation that can be drawn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "most have the names of their operations")]
pub enum Kind {
    Allocate,
    AllocateGrowable,
    AllocateAligned,
    Grow,
    Free,
    /// A free, and a request on the same stream at once, of the same size or of a few bytes more.
    Again,
    Write,
    /// A use on another stream with `record_stream`.
    RecordedUse,
    /// A use on another stream with `used_until`.
    UseUntilPoint,
    Point,
    Until,
    Order,
    Submit,
    Hold,
    Unhold,
    Advance,
    HostWait,
    Sync,
    Poll,
    Trim,
    EmptyCache,
    Limit,
    ResetPeaks,
    ResetTotals,
    /// The end of a stream's work: all its blocks are freed, so that other streams can use its memory.
    Retreat,
    SwitchPool,
    Checkpoint,
    Restore,
    Fault,
}

/// The sizes of blocks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sizes {
    /// Sizes that are drawn as they stand: always where there are no ranges, else once in five times.
    pub exact: Vec<u64>,
    /// Ranges: the least and the most, in bytes. Each is equally likely, and so is every power of two within one.
    pub ranges: Vec<(u64, u64)>,
}

impl Sizes {
    /// Draws a size in bytes.
    fn draw(&self, random: &mut Random) -> u64 {
        if self.ranges.is_empty() || (!self.exact.is_empty() && random.one_in(5)) {
            return random.pick(&self.exact);
        }
        let (least, most) = random.pick(&self.ranges);
        random.bytes(least, most)
    }
}

/// The mix of one program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mix {
    /// The kinds that are drawn, with their weights.
    pub weights: Vec<(Kind, u64)>,
    /// The sizes of blocks.
    pub sizes: Sizes,
    /// The number of streams.
    pub streams: usize,
    /// The most blocks that the program holds.
    pub live_max: usize,
    /// The limit on reserved bytes at the beginning: trims and new limits are at most this.
    pub limit: u64,
}

impl Mix {
    pub(super) fn kind(&self, random: &mut Random) -> Kind {
        let mut at = random.below(self.weights.iter().map(|(_, weight)| weight).sum());
        for &(kind, weight) in &self.weights {
            if at < weight {
                return kind;
            }
            at -= weight;
        }
        unreachable!("{at} is left of a draw below the sum of all weights")
    }

    pub(super) fn bytes(&self, random: &mut Random) -> u64 {
        self.sizes.draw(random)
    }
}
