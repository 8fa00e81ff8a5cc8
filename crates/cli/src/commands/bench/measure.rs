//! Rounds and their medians, single operations and their quantiles.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

/// The effort of a measurement: its rounds, operations and sizes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Effort {
    /// Rounds, of which the median counts.
    pub(super) rounds: usize,
    /// Operations on the host's side in a round.
    pub(super) operations: u64,
    /// Copies of varied sizes.
    pub(super) copies: u64,
    /// Driver calls in a round.
    pub(super) calls: u64,
    /// The largest size in bytes.
    pub(super) bytes_max: u64,
    /// The factor between one size and the next.
    pub(super) step: u64,
}

impl Effort {
    /// All sizes, and times that can be compared.
    pub(super) const FULL: Self =
        Self { rounds: 7, operations: 20_000, copies: 1000, calls: 10, bytes_max: 256 << 20, step: 4 };
    /// A few seconds, to see that everything works.
    pub(super) const QUICK: Self =
        Self { rounds: 3, operations: 1000, copies: 100, calls: 2, bytes_max: 16 << 20, step: 64 };

    /// Returns the sizes from `first` bytes up to the largest.
    pub(super) fn sizes(&self, first: u64) -> impl Iterator<Item = u64> + use<> {
        let (max, step) = (self.bytes_max, self.step);
        std::iter::successors(Some(first), move |size| Some(size * step)).take_while(move |size| *size <= max)
    }
}

/// The results of some rounds, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Rounds {
    pub(super) median: f64,
    /// The least and the most, where there were rounds.
    pub(super) spread: Option<(f64, f64)>,
}

impl From<f64> for Rounds {
    /// Returns what was measured once.
    fn from(once: f64) -> Self {
        Self { median: once, spread: None }
    }
}

/// Returns the median of the rounds' results, and how far they are apart.
///
/// # Panics
///
/// If there are no rounds.
pub(super) fn median(mut rounds: Vec<f64>) -> Rounds {
    rounds.sort_by(f64::total_cmp);
    let median = match rounds.len() {
        0 => panic!("a median of no rounds"),
        count if count.is_multiple_of(2) => rounds[count / 2 - 1].midpoint(rounds[count / 2]),
        count => rounds[count / 2],
    };
    Rounds { median, spread: Some((rounds[0], rounds[rounds.len() - 1])) }
}

/// Runs a round several times and returns the median of the results.
pub(super) fn rounds<E>(effort: &Effort, mut round: impl FnMut() -> Result<f64, E>) -> Result<Rounds, E> {
    Ok(median((0..effort.rounds).map(|_| round()).collect::<Result<_, _>>()?))
}

/// Runs `count` operations and returns what each takes on the host on average, in nanoseconds.
pub(super) fn each<E>(count: u64, mut operation: impl FnMut() -> Result<(), E>) -> Result<f64, E> {
    let start = Instant::now();
    for _ in 0..count {
        operation()?;
    }
    Ok(nanos(start.elapsed()) / count as f64)
}

pub(super) fn nanos(time: Duration) -> f64 {
    time.as_nanos() as f64
}

/// Quantiles of how long single operations took, in nanoseconds, with the clock's own cost taken off.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Quantiles {
    pub(super) p50: u64,
    pub(super) p99: u64,
    pub(super) p999: u64,
}

/// A meter that times single operations.
pub(super) struct Meter {
    times: Histogram<u64>,
    clock_cost: u64,
}

impl Meter {
    /// Creates a meter and measures what reading the clock costs.
    pub(super) fn new() -> Self {
        let mut times = histogram();
        for _ in 0..10_000 {
            times.saturating_record(elapsed(Instant::now()));
        }
        Self { clock_cost: times.value_at_quantile(0.5), times: histogram() }
    }

    /// Runs an operation and records the time that it took.
    #[inline]
    pub(super) fn time<R>(&mut self, operation: impl FnOnce() -> R) -> R {
        let start = Instant::now();
        let result = operation();
        self.times.saturating_record(elapsed(start));
        result
    }

    pub(super) fn quantiles(&self) -> Quantiles {
        let at = |quantile| self.times.value_at_quantile(quantile).saturating_sub(self.clock_cost);
        Quantiles { p50: at(0.5), p99: at(0.99), p999: at(0.999) }
    }
}

fn histogram() -> Histogram<u64> {
    match Histogram::new_with_bounds(1, 1 << 40, 3) {
        Ok(histogram) => histogram,
        Err(error) => panic!("the bounds of the histogram are malformed: {error}"),
    }
}

fn elapsed(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Rounds { median: 2.0, spread: Some((1.0, 3.0)) });
        assert_eq!(median(vec![4.0, 1.0, 2.0, 30.0]), Rounds { median: 3.0, spread: Some((1.0, 30.0)) });
        let mut values = [5.0, 1.0, 9.0].into_iter();
        let effort = Effort { rounds: 3, ..Effort::QUICK };
        let found = rounds(&effort, || values.next().ok_or("no round left"));
        assert_eq!(found, Ok(Rounds { median: 5.0, spread: Some((1.0, 9.0)) }));
    }

    #[test]
    fn sizes_rise_to_the_largest() {
        let sizes: Vec<u64> = Effort { bytes_max: 1 << 20, step: 16, ..Effort::QUICK }.sizes(4096).collect();
        assert_eq!(sizes, [4096, 65_536, 1 << 20]);
    }

    #[test]
    fn the_clock_is_taken_off_single_operations() {
        let mut meter = Meter::new();
        for time in [1000, 2000, 3000] {
            meter.times.saturating_record(time + meter.clock_cost);
        }
        let Quantiles { p50, p99, p999 } = meter.quantiles();
        assert!(p50.abs_diff(2000) < 10 && p99.abs_diff(3000) < 10 && p999 == p99, "{p50} {p99} {p999}");
        assert_eq!(meter.time(|| 7), 7);
        assert_eq!(meter.times.len(), 4);
    }
}
