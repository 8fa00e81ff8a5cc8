//! Whether a program repeats itself.
//!
//! Many programs come back, again and again, to a point at which nearly nothing is live, and do the same once more. Two
//! rounds between such points that hand out just as many blocks and bytes are taken for the same. In a round that has
//! been seen before, memory is worth more than the driver's time: what it lacks, it will lack each time.

use alloc::collections::VecDeque;

use super::Shard;
use crate::ids::Side;
use crate::meter::{Lane, Low};

/// So many rounds are remembered.
const REMEMBERED: usize = 64;

/// The rounds of one side of a shard. Seen only when a request misses: a program that never misses needs none of this.
#[derive(Clone, Default, Debug)]
pub(crate) struct Rounds {
    /// The most bytes that were live when a request missed.
    high: i64,
    /// What had been granted when the current round began.
    begin: Low,
    /// The rounds so far, each by the blocks and bytes that it was granted.
    seen: VecDeque<(i64, i64)>,
    /// So many rounds in which a request missed had been seen before.
    repeated: u32,
}

impl Shard {
    /// A request missed. Answers how many rounds of its side, seen before, had to ask for more nevertheless.
    pub(crate) fn rounds_repeated(&mut self, side: Side) -> u32 {
        let low = self.meter.take_low(side);
        let live = self.meter.current(side, Lane::AllocatedBytes);
        let rounds = &mut self.rounds[side.index()];
        rounds.high = rounds.high.max(live);
        let round = (low.granted_blocks - rounds.begin.granted_blocks, low.granted_bytes - rounds.begin.granted_bytes);
        // A low point ends a round if enough was granted since the last one that it can have been a round at all.
        if low.live_bytes <= rounds.high / 8 && round.1 >= rounds.high && rounds.high > 0 {
            rounds.begin = low;
            if rounds.seen.contains(&round) {
                rounds.repeated += 1;
            } else {
                rounds.seen.push_back(round);
            }
            if rounds.seen.len() > REMEMBERED {
                rounds.seen.pop_front();
            }
        }
        rounds.repeated
    }
}
