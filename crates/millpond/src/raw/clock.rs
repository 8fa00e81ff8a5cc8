//! The clock of the history: the processor's counter where it can be trusted, which costs a few nanoseconds to read,
//! and the system's monotonic clock elsewhere.

use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime};

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
    /// The nanoseconds of one step of the counter, times 2^32.
    scale: u64,
    start: Instant,
    wall: SystemTime,
}

impl Clock {
    pub(crate) fn start() -> Self {
        let (source, scale) =
            if is_counter_steady() { (Source::Counter, scale()) } else { (Source::System, 1 << SCALE_SHIFT) };
        let (start, wall) = (Instant::now(), SystemTime::now());
        Self { source, ticks: if source == Source::Counter { counter() } else { 0 }, scale, start, wall }
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

    /// Returns a function that turns readings into nanoseconds since the start. A reading always has the same time.
    pub(crate) fn nanos(&self) -> impl Fn(u64) -> u64 + use<> {
        let (source, first, scale) = (self.source, self.ticks, self.scale);
        move |ticks| match source {
            Source::Counter => ((u128::from(ticks.saturating_sub(first)) * u128::from(scale)) >> SCALE_SHIFT) as u64,
            Source::System => ticks,
        }
    }
}

/// The bits behind the point of a scale.
const SCALE_SHIFT: u32 = 32;

/// Returns the nanoseconds of one step of the counter, times 2^32. The first call of the process measures it, which
/// takes two milliseconds.
fn scale() -> u64 {
    static SCALE: OnceLock<u64> = OnceLock::new();
    *SCALE.get_or_init(|| {
        let (start, first) = moment();
        while start.elapsed() < Duration::from_millis(2) {
            std::hint::spin_loop();
        }
        let (end, last) = moment();
        let scaled = end.duration_since(start).as_nanos() << SCALE_SHIFT;
        u64::try_from(scaled / u128::from(last.saturating_sub(first).max(1))).unwrap_or(u64::MAX)
    })
}

/// Reads both clocks within a microsecond, unless the thread is interrupted again and again.
fn moment() -> (Instant, u64) {
    let mut tries = 0;
    loop {
        let (now, counted) = (Instant::now(), counter());
        tries += 1;
        if now.elapsed() < Duration::from_micros(1) || tries == 100 {
            return (now, counted);
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
            assert!(passed <= clock.start.elapsed().mul_f64(1.01), "{source:?}: {passed:?}");
            assert_eq!(clock.nanos()(second), nanos(second), "a reading has one time");
        }
    }
}
