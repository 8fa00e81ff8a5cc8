//! Many rounds, in each of which every subject has its turn: what disturbs the machine disturbs all of them.

use std::time::Duration;

use super::latency::{Latency, Meter, histogram};
use super::player::Runner;
use super::spread::Spread;

/// The number of passes that every subject makes before its turns, of which only the first is measured. A policy that
/// moves memory needs some before a program that repeats itself needs no further move. A subject that has used 10 s
/// makes no more.
pub const WARM_PASSES: u32 = 8;

/// The approximate minimum of a turn: short passes are repeated, and their median is the time of the turn.
const TURN: Duration = Duration::from_millis(20);

/// The most passes of one turn.
const PASSES_MAX: u32 = 32;

/// The time after which a subject skips the remaining rounds.
const BUDGET: Duration = Duration::from_secs(10);

/// The minimum number of operations that are timed one by one, in whole passes.
const SINGLES: usize = 500_000;

/// The times of one subject for one workload.
#[derive(Clone, Debug)]
pub struct Measured {
    /// The first pass, in nanoseconds per unit.
    pub cold_ns: f64,
    /// The turns of each round, in nanoseconds per unit; fewer where the subject skipped rounds.
    pub turns_ns: Vec<f64>,
    /// Single operations; `None` where a pass took too long to time them.
    pub latency: Option<Latency>,
    /// Driver calls in a pass, the mean over the turns; `None` where the subject does not count them.
    pub driver_calls: Option<f64>,
}

impl Measured {
    /// Returns the turns by their quartiles.
    pub fn spread(&self) -> Spread {
        Spread::of(self.turns_ns.clone())
    }

    /// Returns the median over the rounds of this subject's time divided by the other's.
    pub fn times(&self, other: &Measured) -> f64 {
        let pairs = self.turns_ns.iter().zip(&other.turns_ns);
        Spread::of(pairs.map(|(own, others)| own / others).collect()).median
    }
}

struct Turns<'a> {
    runner: &'a mut dyn Runner,
    passes: u32,
    spent: Duration,
    cold: Duration,
    turns: Vec<Duration>,
    driver_calls: Option<u64>,
}

impl Turns<'_> {
    fn take(&mut self) {
        let before = self.runner.driver_calls();
        let mut passes: Vec<_> = (0..self.passes).map(|_| self.runner.pass()).collect();
        let made = self.runner.driver_calls().zip(before).map(|(after, before)| after - before);
        self.driver_calls = self.driver_calls.zip(made).map(|(sum, made)| sum + made);
        self.spent += passes.iter().sum::<Duration>();
        passes.sort_unstable();
        self.turns.push(passes[passes.len() / 2]);
    }

    fn driver_calls_per_pass(&self) -> Option<f64> {
        let passes = self.turns.len() as f64 * f64::from(self.passes);
        self.driver_calls.map(|calls| calls as f64 / passes)
    }

    fn singles(&mut self, meter: &Meter, ops: usize) -> Option<Latency> {
        if self.turns[0] * SINGLES.div_ceil(ops) as u32 > BUDGET {
            return None;
        }
        let mut ticks = histogram();
        while (ticks.len() as usize) < SINGLES {
            self.runner.latencies(meter, &mut ticks);
        }
        Some(meter.latency(&ticks))
    }
}

/// Gives all subjects their turns, in an order that rotates from round to round, then times single operations. `ops` is
/// the length of the timed list, `units` the number that a pass's time is divided by. Takes seconds.
///
/// # Panics
///
/// If there are no rounds, no operations or no units.
pub fn measure(
    runners: &mut [Box<dyn Runner>],
    rounds: usize,
    ops: usize,
    units: usize,
    meter: &Meter,
) -> Vec<Measured> {
    assert!(rounds > 0 && ops > 0 && units > 0, "{rounds} rounds of {ops} operations in {units} units");
    let mut turns: Vec<_> = runners.iter_mut().map(|runner| warm(runner.as_mut())).collect();
    let count = turns.len();
    for round in 0..rounds {
        for turn in 0..count {
            let turns = &mut turns[(round + turn) % count];
            if turns.turns.is_empty() || turns.spent < BUDGET {
                turns.take();
            }
        }
    }
    let per_unit = |time: Duration| time.as_nanos() as f64 / units as f64;
    let close = |mut turns: Turns<'_>| Measured {
        driver_calls: turns.driver_calls_per_pass(),
        latency: turns.singles(meter, ops),
        cold_ns: per_unit(turns.cold),
        turns_ns: turns.turns.iter().copied().map(per_unit).collect(),
    };
    turns.into_iter().map(close).collect()
}

/// Makes the passes before the first turn. The time of the last of them decides how many make a turn.
fn warm(runner: &mut dyn Runner) -> Turns<'_> {
    let cold = runner.pass();
    let (mut last, mut spent) = (cold, cold);
    for _ in 1..WARM_PASSES {
        if spent >= BUDGET {
            break;
        }
        last = runner.pass();
        spent += last;
    }
    let passes = (TURN.as_nanos() / last.as_nanos().max(1)).clamp(1, u128::from(PASSES_MAX)) as u32;
    Turns { runner, passes, spent, cold, turns: Vec::new(), driver_calls: Some(0) }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use hdrhistogram::Histogram;

    use super::{Measured, Meter, Runner, measure};
    use crate::measure::Evictor;

    /// A runner whose passes take longer each time, by a constant step.
    struct Slowing {
        step: Duration,
        passes: u32,
    }

    impl Runner for Slowing {
        fn pass(&mut self) -> Duration {
            self.passes += 1;
            self.step * self.passes
        }

        fn latencies(&mut self, _meter: &Meter, into: &mut Histogram<u64>) {
            into.record_n(1000, 600_000).expect("within the bounds");
        }

        fn evicted(&mut self, _meter: &Meter, _evictor: &mut Evictor, _stride: usize, _into: &mut Histogram<u64>) {
            unreachable!("the rounds evict nothing");
        }

        fn driver_calls(&self) -> Option<u64> {
            // The number of calls in a pass is the number of the pass.
            Some(u64::from(self.passes * (self.passes + 1) / 2))
        }
    }

    fn run(steps: &[Duration], rounds: usize) -> Vec<Measured> {
        let runner = |step: &Duration| Box::new(Slowing { step: *step, passes: 0 }) as Box<dyn Runner>;
        let mut runners: Vec<_> = steps.iter().map(runner).collect();
        measure(&mut runners, rounds, 1000, 1000, &Meter::new())
    }

    #[test]
    fn turns_are_medians_of_warm_passes_and_the_first_pass_is_cold() {
        // The last of eight warm passes takes 8 ms, so two make a turn: 9 and 10, then 11 and 12. The later one counts.
        let measured = &run(&[Duration::from_millis(1)], 2)[0];
        assert_eq!(measured.cold_ns, 1_000.0);
        assert_eq!(measured.turns_ns, [10_000.0, 12_000.0]);
        assert_eq!(measured.driver_calls, Some(f64::from(9 + 10 + 11 + 12) / 4.0));
        assert!(measured.latency.is_some(), "500 passes of 10 ms are not too many");
    }

    #[test]
    fn the_slow_sit_rounds_out_but_the_first() {
        let measured = run(&[Duration::from_secs(20), Duration::from_millis(1)], 5);
        assert_eq!((measured[0].turns_ns.len(), measured[1].turns_ns.len()), (1, 5));
        assert_eq!((measured[0].latency.is_some(), measured[1].latency.is_some()), (false, true));
        assert_eq!(measured[0].turns_ns, [40e6], "its second pass, because the first used all its time");
        assert_eq!(measured[0].times(&measured[1]), 40e6 / measured[1].turns_ns[0]);
    }
}
