//! Whether a program repeats itself.
//!
//! Many programs come back, again and again, to a point at which nearly nothing is live, and do the same once more.
//! What lies between two such points is a round. Where a request misses, and had just as many blocks and bytes been
//! handed out in an earlier round when one missed there, then the rounds are taken for the same. In a round that has
//! been seen before, memory is worth more than the driver's time: what it lacks, it will lack each time.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use crate::meter::Low;

/// So many misses of earlier rounds are remembered.
const REMEMBERED: usize = 1 << 12;
/// Rounds that have so few blocks in common so far may yet be different ones.
const BLOCKS_MIN: i64 = 8;

/// Blocks and bytes handed out.
type Granted = (i64, i64);

/// The rounds of the whole device. Seen only when a request misses: a program that never misses needs none of this.
#[derive(Clone, Default, Debug)]
pub(super) struct Rounds {
    /// The most bytes that were live when a request missed.
    high: i64,
    /// What had been granted when the current round began.
    begin: Low,
    /// Where requests missed, counted from the beginnings of their rounds: in earlier rounds, and in this one.
    earlier: BTreeSet<Granted>,
    current: Vec<Granted>,
    /// This round has been seen before.
    is_known: bool,
    /// So many rounds in which a request missed had been seen before.
    repeated: u32,
}

impl Rounds {
    /// A request misses: what was least live since the last miss, and what is live now. Answers 0 in a round that has
    /// not been seen before, and otherwise how many such rounds there were that had to ask for more nevertheless.
    pub(super) fn miss(&mut self, low: &Low, now: &Low) -> u32 {
        self.high = self.high.max(now.live_bytes);
        self.end_at(low);
        self.miss_at((now.granted_blocks - self.begin.granted_blocks, now.granted_bytes - self.begin.granted_bytes));
        if self.is_known { self.repeated } else { 0 }
    }

    /// A low point ends a round if enough was granted since the last one that it can have been a round at all.
    fn end_at(&mut self, low: &Low) {
        let granted = low.granted_bytes - self.begin.granted_bytes;
        if low.live_bytes > self.high / 8 || granted < self.high || self.high == 0 {
            return;
        }
        self.begin = *low;
        self.is_known = false;
        self.earlier.extend(self.current.drain(..));
        while self.earlier.len() > REMEMBERED {
            self.earlier.pop_last();
        }
    }

    fn miss_at(&mut self, granted: Granted) {
        if granted.0 >= BLOCKS_MIN && !self.is_known && self.earlier.contains(&granted) {
            self.is_known = true;
            self.repeated += 1;
        }
        if self.current.len() < REMEMBERED {
            self.current.push(granted);
        }
    }
}
