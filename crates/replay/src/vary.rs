//! Sizes that differ from pass to pass, as those of a program do whose inputs are never equally long.

use std::fmt;

use millpond_trace::Random;

/// The largest size, in bytes, that every pass requests as it is recorded: counters, flags and other blocks whose size
/// has no input in it.
const SAME_BYTES: u64 = 1024;

/// One, in the fractions of a factor.
const WHOLE: u64 = 1_000_000;

/// The variation of a program's sizes: each pass but the first multiplies each size above 1 KiB by a factor drawn for
/// this pass and this size.
///
/// Equal sizes have the same factor within a pass, as blocks of the same shape have in a program. Factors are equally
/// likely within the percentage. The result is rounded down to a whole byte, and is above 1 KiB as the size was, or
/// equal to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Vary {
    percent: u32,
    seed: u64,
}

impl Vary {
    /// Creates the variation by at most `percent`, drawn from a seed. Equal seeds give equal sizes on every machine.
    ///
    /// # Panics
    ///
    /// If `percent` is not from 1 to 99.
    pub fn new(percent: u32, seed: u64) -> Self {
        assert!((1..=99).contains(&percent), "sizes vary by 1 to 99 percent, not by {percent}");
        Self { percent, seed }
    }

    /// Returns the size that a pass requests where `bytes` are recorded. The first pass is number 0.
    pub fn bytes(&self, pass: usize, bytes: u64) -> u64 {
        if pass == 0 || bytes <= SAME_BYTES {
            return bytes;
        }
        let range = u64::from(self.percent) * (WHOLE / 100);
        // Two rounds, so that neighbours among passes and sizes have nothing in common.
        let of_pass = Random::new(self.seed).bits() ^ pass as u64;
        let mut random = Random::new(Random::new(of_pass).bits() ^ bytes);
        let factor = WHOLE - range + random.below(2 * range + 1);
        let varied = u128::from(bytes) * u128::from(factor) / u128::from(WHOLE);
        // The largest size of a trace is below 2^60, and the factor below 2.
        u64::try_from(varied).unwrap_or(u64::MAX).max(SAME_BYTES)
    }
}

/// As the command takes it: `5%:seed=7`.
impl fmt::Display for Vary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%:seed={}", self.percent, self.seed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_stay_within_the_percentage_and_differ_between_passes() {
        let vary = Vary::new(5, 7);
        let (mut least, mut most) = (f64::MAX, 0.0_f64);
        for pass in 1..200 {
            for bytes in [1 << 20, (1 << 20) + 512, 3 << 30] {
                let factor = vary.bytes(pass, bytes) as f64 / bytes as f64;
                (least, most) = (least.min(factor), most.max(factor));
                assert_eq!(vary.bytes(pass, bytes), Vary::new(5, 7).bytes(pass, bytes));
            }
        }
        assert!((0.95..0.955).contains(&least) && (1.045..=1.05).contains(&most), "{least} to {most}");
        assert_ne!(vary.bytes(1, 1 << 20), vary.bytes(2, 1 << 20));
        assert_ne!(vary.bytes(1, 1 << 20), Vary::new(5, 8).bytes(1, 1 << 20));
    }

    #[test]
    fn the_first_pass_and_small_sizes_are_as_recorded() {
        let vary = Vary::new(99, 1);
        assert_eq!(vary.to_string(), "99%:seed=1");
        assert_eq!(vary.bytes(0, 1 << 30), 1 << 30);
        assert!((0..100).all(|pass| vary.bytes(pass, 1024) == 1024 && vary.bytes(pass, 1) == 1));
        assert!((0..100).all(|pass| vary.bytes(pass, 1025) >= 1024), "a size that varies stays above the small ones");
    }
}
