//! The clock of the history: the processor's counter where it can be trusted, which costs a few nanoseconds to read,
//! and the system's monotonic clock elsewhere.

use std::time::{Instant, SystemTime};

/// Where times come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Source {
    /// The counter of the processor, which all cores share and which does not change its speed.
    Counter,
    /// The system's monotonic clock.
    System,
}

/// A clock that was started at a moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    source: Source,
    /// The reading at the start.
    ticks: u64,
    start: Instant,
    wall: SystemTime,
}

impl Clock {
    pub(crate) fn start() -> Self {
        let source = if is_counter_steady() { Source::Counter } else { Source::System };
        let (start, wall) = (Instant::now(), SystemTime::now());
        Self { source, ticks: if source == Source::Counter { counter() } else { 0 }, start, wall }
    }

    /// Returns a reading, which [`nanos`](Self::nanos) turns into a time.
    #[inline]
    pub(crate) fn ticks(&self) -> u64 {
        match self.source {
            Source::Counter => counter(),
            Source::System => u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX),
        }
    }

    /// Returns when it was started.
    pub(crate) fn wall(&self) -> SystemTime {
        self.wall
    }

    /// Returns a function that turns readings into nanoseconds since the start. The speed of the counter is measured
    /// between the start and now.
    pub(crate) fn nanos(&self) -> impl Fn(u64) -> u64 + use<> {
        let passed = u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let counted = self.ticks().saturating_sub(self.ticks).max(1);
        let (source, first) = (self.source, self.ticks);
        let scaled = move |ticks: u64| u128::from(ticks.saturating_sub(first)) * u128::from(passed);
        move |ticks| match source {
            Source::Counter => u64::try_from(scaled(ticks) / u128::from(counted)).unwrap_or(u64::MAX),
            Source::System => ticks,
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn counter() -> u64 {
    // SAFETY: every x86_64 processor has the instruction. A system that forbids it to programs (`PR_TSC_SIGSEGV`) does
    // so for a program that asked for it.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Returns whether the counter runs at one speed on all cores, also while they sleep: "invariant TSC" in the
/// processor's facts.
#[cfg(target_arch = "x86_64")]
#[allow(unused_unsafe, reason = "newer compilers know that the instruction is safe")]
fn is_counter_steady() -> bool {
    const POWER: u32 = 0x8000_0007;
    // SAFETY: every x86_64 processor has the instruction, and a leaf is read only where the highest one is not below.
    let facts = unsafe {
        let highest = core::arch::x86_64::__cpuid(0x8000_0000).eax;
        if highest < POWER { 0 } else { core::arch::x86_64::__cpuid(POWER).edx }
    };
    facts >> 8 & 1 == 1
}

#[cfg(not(target_arch = "x86_64"))]
#[inline]
fn counter() -> u64 {
    0
}

#[cfg(not(target_arch = "x86_64"))]
fn is_counter_steady() -> bool {
    false
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn both_sources_count_nanoseconds_from_the_start() {
        for source in [Clock::start().source, Source::System] {
            let clock = Clock::start();
            let clock = match source {
                Source::System => Clock { source, ticks: 0, ..clock },
                Source::Counter => clock,
            };
            let first = clock.ticks();
            std::thread::sleep(Duration::from_millis(20));
            let second = clock.ticks();
            let nanos = clock.nanos();
            let passed = Duration::from_nanos(nanos(second) - nanos(first));
            assert!(nanos(first) < 15_000_000, "{source:?}: {} ns at the start", nanos(first));
            assert!(passed >= Duration::from_millis(19), "{source:?}: {passed:?}");
            assert!(passed <= clock.start.elapsed(), "{source:?}: {passed:?}");
        }
    }
}
