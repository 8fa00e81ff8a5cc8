//! What the system says that a thread has worked, and that the process has of the host's memory.

use std::time::{Duration, Instant};

/// Measures the time that the processor gives to a thread or to this process, or the time that passes where the system
/// does not report that. Other programs lengthen the former little.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch {
    read: fn() -> Option<Duration>,
    cpu: Option<Duration>,
    wall: Instant,
}

impl Stopwatch {
    /// Starts to measure this thread, which alone can ask what has elapsed.
    pub fn of_thread() -> Self {
        Self { read: thread_cpu, cpu: thread_cpu(), wall: Instant::now() }
    }

    /// Starts to measure all threads of this process, those among them that end before it is asked.
    pub fn of_process() -> Self {
        Self { read: process_cpu, cpu: process_cpu(), wall: Instant::now() }
    }

    /// Returns the time since the start.
    pub fn elapsed(&self) -> Duration {
        let wall = self.wall.elapsed();
        self.cpu.zip((self.read)()).map_or(wall, |(before, after)| after.saturating_sub(before))
    }
}

/// Returns how long this thread has run on a processor.
pub(super) fn thread_cpu() -> Option<Duration> {
    #[cfg(unix)]
    return clock(rustix::time::ClockId::ThreadCPUTime);
    #[cfg(not(unix))]
    None
}

/// Returns how long all threads of this process have run on processors.
fn process_cpu() -> Option<Duration> {
    #[cfg(unix)]
    return clock(rustix::time::ClockId::ProcessCPUTime);
    #[cfg(not(unix))]
    None
}

#[cfg(unix)]
fn clock(id: rustix::time::ClockId) -> Option<Duration> {
    Duration::try_from(rustix::time::clock_gettime(id)).ok()
}

/// Returns the bytes of this process that are in memory, where the system reports them.
pub fn resident_bytes() -> Option<u64> {
    of_status(&std::fs::read_to_string("/proc/self/status").ok()?)
}

fn of_status(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Duration;

    use super::{Stopwatch, of_status, thread_cpu};

    #[test]
    fn a_thread_that_waits_for_another_one_does_not_work_and_its_process_does() {
        let (own, all) = (Stopwatch::of_thread(), Stopwatch::of_process());
        let worked = thread::spawn(|| {
            let watch = Stopwatch::of_thread();
            while watch.elapsed() < Duration::from_millis(20) {}
            watch.elapsed()
        });
        let worked = worked.join().expect("it measures itself");
        assert!(all.elapsed() >= worked);
        if thread_cpu().is_some() {
            assert!(own.elapsed() < worked, "{:?} of {worked:?}", own.elapsed());
        }
    }

    #[test]
    fn the_system_counts_in_kib() {
        assert_eq!(of_status("Name:\tscale\nVmHWM:\t 90 kB\nVmRSS:\t    2052 kB\n"), Some(2052 << 10));
        assert_eq!(of_status("Name:\tscale\n"), None);
    }
}
