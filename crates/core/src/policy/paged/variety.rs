//! Whether a program goes on asking for sizes that it has not asked for before.
//!
//! A program that repeats itself stops calling the driver if its requests get the same places in each round, which is
//! why places do not depend on how far the device is. A program whose sizes are new in each round calls the driver
//! anyway, as no window was made for such a request before. There a place may as well be chosen by what is ready.

use alloc::vec::Vec;

use crate::units::QUANTUM;

/// The number of sets in which sizes are remembered, a power of two.
const SETS: usize = 2048;
/// The number of sizes that a set has room for. Those that were asked for last stay.
const WAYS: usize = 4;
/// For how many requests behind a new size another one is expected.
const BEHIND_NEW: u32 = 32;
/// The most requests for which one is expected, after however many new sizes.
const BEHIND_MANY: u32 = 128;

/// The sizes of the large requests that missed, as far as there is room for them.
#[derive(Debug, Default)]
pub(super) struct Variety {
    /// In units of the smallest size, and 0 where nothing was noted. Those of a set in the order of their last use.
    seen: Vec<[u32; WAYS]>,
    /// For how many more requests a new size is expected.
    expected: u32,
}

impl Variety {
    /// Notes that a request for this number of bytes missed. Takes 32 KiB the first time.
    pub(super) fn note(&mut self, bytes: u64) {
        if self.seen.is_empty() {
            self.seen = alloc::vec![[0; WAYS]; SETS];
        }
        let size = u32::try_from(bytes / QUANTUM).unwrap_or(u32::MAX);
        // The upper bits of a product with a large odd number depend on all bits of the size.
        let hash = size.wrapping_mul(0x9E37_79B1) >> (u32::BITS - SETS.ilog2());
        let set = &mut self.seen[hash as usize];
        let known = set.iter().position(|&seen| seen == size);
        set[..=known.unwrap_or(WAYS - 1)].rotate_right(1);
        set[0] = size;
        self.expected = match known {
            Some(_) => self.expected.saturating_sub(1),
            None => (self.expected + BEHIND_NEW).min(BEHIND_MANY),
        };
    }

    /// Returns whether sizes vary: several that were new were noted, and not long ago. A single one is no sign of it.
    pub(super) fn is_varied(&self) -> bool {
        self.expected > BEHIND_NEW
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::MIB;

    /// Notes sizes of a whole number of MiB, and returns whether sizes vary then.
    fn note(variety: &mut Variety, sizes: impl IntoIterator<Item = u64>) -> bool {
        sizes.into_iter().for_each(|size| variety.note(size * MIB));
        variety.is_varied()
    }

    #[test]
    fn a_round_that_is_repeated_does_not_vary() {
        let mut variety = Variety::default();
        assert!(note(&mut variety, 1..=1000), "all sizes are new in the first round");
        assert!(!note(&mut variety, 1..=1000), "and none in the second");
    }

    #[test]
    fn one_new_size_in_a_round_is_no_sign() {
        let mut variety = Variety::default();
        for new in 100..200 {
            assert!(!note(&mut variety, (1..=40).map(|at| if at == 40 { new } else { 7 })));
        }
        assert!(note(&mut variety, [200]), "two are, without a whole round between them");
    }

    #[test]
    fn a_program_whose_sizes_are_new_now_and_then_varies() {
        let mut variety = Variety::default();
        note(&mut variety, 1..=4);
        for round in 1..100 {
            let sizes = (0..20).map(|at| if at == 0 { 1000 + round } else { at % 4 + 1 });
            assert!(note(&mut variety, sizes), "round {round}");
        }
    }

    /// However long sizes have varied, that is forgotten soon.
    #[test]
    fn what_was_long_ago_does_not_count() {
        let mut variety = Variety::default();
        note(&mut variety, 1..=5000);
        let left = (1..).find(|_| !note(&mut variety, [5000])).expect("it ends");
        assert_eq!(left, u64::from(BEHIND_MANY - BEHIND_NEW));
    }

    /// Of the sizes of one set the one that was asked for longest ago makes room.
    #[test]
    fn sizes_that_are_asked_for_stay_known() {
        let mut variety = Variety::default();
        variety.note(MIB);
        for other in 5000..50_000 {
            variety.note(other * QUANTUM);
            let expected = variety.expected;
            variety.note(MIB);
            assert_eq!(variety.expected, expected - 1, "it is known behind {other} units");
        }
    }
}
