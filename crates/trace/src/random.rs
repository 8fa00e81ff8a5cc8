//! Numbers drawn from a seed. They are the same on every machine.

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng as _};

/// The generator from which patterns, and the programs of tests and benchmarks, are drawn: splitmix64. Equal seeds give
/// equal numbers, in every version.
#[derive(Clone, Debug)]
pub struct Random(SplitMix64);

impl Random {
    /// Creates the generator of a seed.
    pub fn new(seed: u64) -> Self {
        Self(SplitMix64::seed_from_u64(seed))
    }

    /// Returns the next 64 bits.
    #[inline]
    pub fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Returns a number below `bound`, which is small enough that the bias of the remainder does not matter.
    ///
    /// # Panics
    ///
    /// If `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.bits() % bound
    }

    /// Returns an index of a list of this length.
    ///
    /// # Panics
    ///
    /// If the list is empty.
    pub fn index(&mut self, length: usize) -> usize {
        self.below(length as u64) as usize
    }

    /// Returns a number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// Returns true once in `n` calls on average.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// Returns one of the choices.
    ///
    /// # Panics
    ///
    /// If there is none.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.index(choices.len())]
    }

    /// Returns a size from `least` to `most` bytes. Every power of two in that range is equally likely.
    pub fn bytes(&mut self, least: u64, most: u64) -> u64 {
        let octaves = u64::from((most / least).ilog2()) + 1;
        let floor = least << self.below(octaves);
        (floor + self.below(floor)).min(most)
    }
}

#[cfg(test)]
mod tests {
    use super::Random;

    /// The first numbers of the reference implementation for the seed 1234567.
    #[test]
    fn the_numbers_are_those_of_splitmix64() {
        let mut random = Random::new(1_234_567);
        let wanted = [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
        assert_eq!(wanted.map(|_| random.bits()), wanted);
    }

    #[test]
    fn numbers_stay_within_their_bounds() {
        let mut random = Random::new(7);
        for _ in 0..1000 {
            assert!(random.below(3) < 3 && random.index(5) < 5);
            assert!((4..=6).contains(&random.between(4, 6)));
            assert!((100..=5000).contains(&random.bytes(100, 5000)));
            assert!([1, 2].contains(&random.pick(&[1, 2])) && random.one_in(1));
        }
    }
}
