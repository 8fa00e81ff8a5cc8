//! The detection of programs that repeat themselves.
//!
//! Many programs return, again and again, to a point at which nearly nothing is live, and then do the same once more.
//! What lies between two such points is a round. If a request misses after exactly as many blocks and bytes have been
//! handed out as at a miss in an earlier round, the rounds are taken for the same. In a round that has been seen
//! before, memory is worth more than the driver's time: what the round lacks now, it will lack each time.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use crate::meter::Low;

/// The number of misses of earlier rounds that are remembered.
const REMEMBERED: usize = 1 << 12;
/// The fewest blocks that two rounds must have in common before they are taken for the same.
const BLOCKS_MIN: i64 = 8;

/// The numbers of blocks and of bytes that were handed out.
type Granted = (i64, i64);

/// The rounds of the whole device. They are observed only when a request misses: a program that never misses has no
/// need of them.
#[derive(Clone, Default, Debug)]
pub(super) struct Rounds {
    /// The most bytes that were live when a request missed.
    high: i64,
    /// The totals when the current round began.
    begin: Low,
    /// The misses of earlier rounds, each counted from the beginning of its round. Those of the current round are in
    /// `current`.
    earlier: BTreeSet<Granted>,
    current: Vec<Granted>,
    /// Whether this round has been seen before.
    is_known: bool,
    /// The number of rounds that had been seen before and in which a request missed.
    repeated: u32,
}

impl Rounds {
    /// Notes a miss, with what was live at its lowest since the last miss and what is live now. Returns 0 in a round
    /// that has not been seen before, and otherwise the number of known rounds that had to ask for more nevertheless.
    pub(super) fn miss(&mut self, low: &Low, now: &Low) -> u32 {
        self.high = self.high.max(now.live_bytes);
        self.end_at(low);
        self.miss_at((now.granted_blocks - self.begin.granted_blocks, now.granted_bytes - self.begin.granted_bytes));
        if self.is_known { self.repeated } else { 0 }
    }

    /// Ends the round at a low point, if enough was granted since the last one to make up a round.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the totals after `blocks` blocks of 100 bytes each were handed out, with `live_bytes` bytes live.
    fn at(blocks: i64, live_bytes: i64) -> Low {
        Low { live_bytes, granted_blocks: blocks, granted_bytes: blocks * 100 }
    }

    /// Plays rounds of 20 blocks. In each a request misses once, after this number of blocks. Returns the answers
    /// to these misses.
    fn told<const N: usize>(misses: [i64; N]) -> alloc::vec::Vec<u32> {
        let mut rounds = Rounds::default();
        let mut told = alloc::vec::Vec::new();
        let mut low = at(0, 0);
        for (round, blocks) in (0..).zip(misses) {
            let now = at(round * 20 + blocks, blocks * 100);
            told.push(rounds.miss(&low, &now));
            // The low point between two rounds is the one that the next miss is told of.
            low = at((round + 1) * 20, 0);
        }
        told
    }

    #[test]
    fn a_round_is_known_once_it_misses_where_an_earlier_one_did() {
        assert_eq!(told([12, 12, 12]), [0, 1, 2]);
        assert_eq!(told([12, 15, 12, 15]), [0, 0, 1, 2]);
    }

    #[test]
    fn few_blocks_prove_nothing() {
        assert_eq!(told([BLOCKS_MIN - 1; 3]), [0, 0, 0]);
        assert_eq!(told([BLOCKS_MIN; 2]), [0, 1]);
    }

    /// Much stays live, so what follows belongs to the same round.
    #[test]
    fn a_shallow_low_ends_no_round() {
        let mut rounds = Rounds::default();
        assert_eq!(rounds.miss(&at(0, 0), &at(12, 1200)), 0);
        assert_eq!(rounds.miss(&at(20, 151), &at(32, 1200)), 0);
        assert_eq!(rounds.miss(&at(40, 150), &at(52, 1200)), 1, "as in the round that has ended now");
    }
}
