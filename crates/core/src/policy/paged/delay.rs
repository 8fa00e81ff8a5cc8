//! By how much the work of other streams holds up a stream, as the rows of [`pace`](super::pace) show it.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// The least number of rows that say anything, and the most that are remembered.
const SEEN: (usize, usize) = (16, 64);
/// By how much the others' work has to differ in two rows that are compared, and the least number of such pairs.
const APART: f64 = 0.5;
const PAIRS_LEAST: usize = 20;
/// What the newest rows say: for each, the work of the others and the time, both over its own work.
#[derive(Debug, Default)]
pub(super) struct Seen(VecDeque<(f64, f64)>);

impl Seen {
    /// Adds a row, and forgets the oldest one if there are too many.
    pub(super) fn add(&mut self, others: f64, time: f64) {
        if self.0.len() == SEEN.1 {
            self.0.pop_front();
        }
        self.0.push_back((others, time));
    }

    /// Returns by how much the work of the others holds up a stream, as a share of the time that the same amount of its
    /// own work takes: 0 where streams run side by side, and 1 where they have the device in turn. `None` if too little
    /// was seen, or the others did nearly as much each time.
    ///
    /// That is the slope of a line through all that was seen, over its height where the others do nothing: the median
    /// of the slopes between any two of them (the estimator of Theil and Sen), which a few wrong ones do not change.
    pub(super) fn delay(&self) -> Option<f64> {
        let of_two = |(at, one): (usize, &(f64, f64))| {
            let later = self.0.range(at + 1..).filter(move |other| (other.0 - one.0).abs() >= APART);
            later.map(|other| (other.1 - one.1) / (other.0 - one.0)).collect::<Vec<_>>()
        };
        let slopes: Vec<f64> = self.0.iter().enumerate().flat_map(of_two).collect();
        if self.0.len() < SEEN.0 || slopes.len() < PAIRS_LEAST {
            return None;
        }
        let slope = median(slopes);
        let height = median(self.0.iter().map(|(others, time)| time - slope * others).collect());
        Some(if height > 0.0 { slope / height } else { 1.0 })
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    let middle = values.len() / 2;
    *values.select_nth_unstable_by(middle, f64::total_cmp).1
}

#[cfg(test)]
impl Seen {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn newest(&self) -> Option<(f64, f64)> {
        self.0.back().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Few rows tell nothing, and a few that are wrong change nothing.
    #[test]
    fn the_delay_is_that_of_most_rows() {
        for delay in [0.0, 0.4, 1.0] {
            let mut seen = Seen::default();
            for row in 0..40 {
                assert_eq!(seen.delay().is_some(), row >= SEEN.0, "{row} rows");
                let others = f64::from(row as u32 % 4);
                let wrong = if row % 5 == 4 { 9.0 } else { 1.0 };
                seen.add(others, 20.0 * wrong * (1.0 + delay * others));
            }
            let found = seen.delay().expect("there are enough rows");
            assert!((found - delay).abs() < 0.15, "{found} instead of {delay}");
        }
        let mut seen = Seen::default();
        (0..40).for_each(|_| seen.add(1.0, 20.0));
        assert_eq!(seen.delay(), None, "the others did as much each time");
        (0..200).for_each(|_| seen.add(1.0, 20.0));
        assert_eq!(seen.len(), SEEN.1, "old rows are forgotten");
    }
}
