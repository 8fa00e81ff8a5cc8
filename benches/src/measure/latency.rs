//! How long single operations take, one by one.

use hdrhistogram::Histogram;
use quanta::Clock;

/// The longest operation that is distinguished from longer ones, in ticks of the clock: minutes.
const TICKS_MAX: u64 = 1 << 40;

/// A clock fine enough for one operation, and its own cost.
pub struct Meter {
    clock: Clock,
    cost: u64,
}

/// The times of single operations, in nanoseconds, with the clock's own cost taken off.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Latency {
    /// Half took at most this.
    pub p50: f64,
    /// 99 of 100 took at most this.
    pub p99: f64,
    /// 999 of 1000 took at most this.
    pub p999: f64,
    /// The longest time.
    pub max: f64,
}

impl Meter {
    /// Creates a meter and measures what reading the clock twice costs: the median of many tries.
    #[allow(clippy::new_without_default)] // Takes milliseconds.
    pub fn new() -> Self {
        let clock = Clock::new();
        let mut ticks = histogram();
        for _ in 0..100_000 {
            let start = clock.raw();
            note(&mut ticks, clock.raw() - start);
        }
        Self { clock, cost: ticks.value_at_quantile(0.5) }
    }

    /// Returns what reading the clock twice costs, in nanoseconds.
    pub fn cost_ns(&self) -> f64 {
        self.nanoseconds(self.cost)
    }

    /// Runs `f` and records the time that it took.
    #[inline]
    pub fn time<R>(&self, into: &mut Histogram<u64>, f: impl FnOnce() -> R) -> R {
        let start = self.clock.raw();
        let result = f();
        note(into, self.clock.raw().saturating_sub(start));
        result
    }

    /// Returns the quantiles of what was recorded.
    pub fn latency(&self, ticks: &Histogram<u64>) -> Latency {
        let at = |quantile| self.nanoseconds(ticks.value_at_quantile(quantile).saturating_sub(self.cost));
        Latency { p50: at(0.5), p99: at(0.99), p999: at(0.999), max: at(1.0) }
    }

    /// Converts ticks to nanoseconds. The scale comes from a long span, because the clock returns whole nanoseconds.
    fn nanoseconds(&self, ticks: u64) -> f64 {
        const SPAN: u64 = 1 << 32;
        ticks as f64 * self.clock.delta_as_nanos(0, SPAN) as f64 / SPAN as f64
    }
}

/// Returns a histogram of ticks with three significant digits.
pub fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, TICKS_MAX, 3).expect("the bounds are valid")
}

#[inline]
fn note(ticks: &mut Histogram<u64>, value: u64) {
    ticks.saturating_record(value);
}

#[cfg(test)]
mod tests {
    use super::{Meter, histogram};

    #[test]
    fn the_clock_itself_is_taken_off() {
        let meter = Meter::new();
        let mut ticks = histogram();
        for value in 1..=1000 {
            ticks.record(meter.cost + value * 1000).expect("within the bounds");
        }
        let latency = meter.latency(&ticks);
        let unit = meter.nanoseconds(1000);
        for (got, expected) in
            [(latency.p50, 500.0), (latency.p99, 990.0), (latency.p999, 999.0), (latency.max, 1000.0)]
        {
            assert!((got / unit - expected).abs() < expected * 0.002 + 1.0, "{got} / {unit} is not {expected}");
        }
    }

    #[test]
    fn what_is_timed_is_counted_and_answered() {
        let meter = Meter::new();
        let mut ticks = histogram();
        assert_eq!(meter.time(&mut ticks, || 7), 7);
        assert_eq!(ticks.len(), 1);
    }
}
