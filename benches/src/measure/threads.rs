//! Several threads at once, each with a subject and blocks of its own.
//!
//! All threads run without pause. What counts is a window in the middle: by then the system has spread them over its
//! cores, which takes a while on a busy machine, and no thread has finished before the others.

use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::player::{empty_slots, play};
use super::process::thread_cpu;
use super::spread::Spread;
use crate::subject::Subject;
use crate::workload::{Op, Workload};

/// The number of operations between two reads of the phase.
const SLICE: usize = 1000;

/// The duration of a race.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timing {
    /// The time before anything counts.
    pub warm: Duration,
    /// The time that counts.
    pub window: Duration,
}

impl Timing {
    /// Long enough for a busy system to spread the threads over its cores.
    pub const USUAL: Timing = Timing { warm: Duration::from_millis(60), window: Duration::from_millis(160) };
}

/// Subjects that work side by side: one for each thread.
pub trait Team {
    /// Runs this number of subjects at once and returns the result.
    ///
    /// # Panics
    ///
    /// If `threads` is 0 or larger than the number of subjects.
    fn race(&mut self, threads: usize, timing: Timing) -> Race;
}

/// The result of one race, in nanoseconds per operation of any thread.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Race {
    /// Wall time: the inverse of the throughput of all threads together.
    pub wall_ns: f64,
    /// Processor time, where the system reports it. Other programs lengthen it little.
    pub cpu_ns: Option<f64>,
}

/// The races of one team at one number of threads, in nanoseconds per operation of any thread.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Races {
    /// Wall time: the inverse of the throughput.
    pub wall_ns: Vec<f64>,
    /// Processor time; empty where the system does not report it.
    pub cpu_ns: Vec<f64>,
}

impl Races {
    /// Returns the median of the processor time in nanoseconds, where the system reports it.
    pub fn cpu_median(&self) -> Option<f64> {
        (!self.cpu_ns.is_empty()).then(|| Spread::of(self.cpu_ns.clone()).median)
    }
}

/// The data of one thread, on cache lines of its own.
#[repr(align(128))]
struct Member<S: Subject> {
    subject: S,
    /// The slots, with unused ones at both ends, because memory beside them may belong to another thread.
    slots: Vec<Option<S::Block>>,
    ops: Vec<Op>,
    /// The place in the list where the next race continues.
    next: usize,
}

/// The work of one thread in its window.
struct Share {
    operations: usize,
    wall: Duration,
    cpu: Option<Duration>,
}

const WARM: u8 = 0;
const COUNT: u8 = 1;
const STOP: u8 = 2;

impl<S: Subject> Member<S> {
    fn slice(&mut self) -> usize {
        let end = (self.next + SLICE).min(self.ops.len());
        let ops = &self.ops[self.next..end];
        play(&mut self.subject, used(&mut self.slots), ops);
        self.next = end % self.ops.len();
        ops.len()
    }

    fn run(&mut self, phase: &AtomicU8) -> Share {
        while phase.load(Ordering::Relaxed) == WARM {
            self.slice();
        }
        let (cpu, start) = (thread_cpu(), Instant::now());
        let mut operations = self.slice();
        while phase.load(Ordering::Relaxed) != STOP {
            operations += self.slice();
        }
        let wall = start.elapsed();
        Share { operations, wall, cpu: cpu.zip(thread_cpu()).map(|(before, after)| after - before) }
    }
}

struct Members<S: Subject>(Vec<Member<S>>);

/// Creates a team, and runs the preparation of each workload on its subject, so that its timed list can start.
///
/// # Panics
///
/// If a workload has operations between its passes: races have no pause for them.
pub fn team<S>(subjects: Vec<S>, workloads: &[Workload]) -> Box<dyn Team>
where
    S: Subject + Send + 'static,
    S::Block: Send,
{
    let prepare = |(mut subject, workload): (S, &Workload)| {
        assert!(workload.finish.is_empty(), "{} operations between passes", workload.finish.len());
        let mut slots = empty_slots(workload.slots + 2 * margin::<S::Block>());
        play(&mut subject, used(&mut slots), &workload.prepare);
        Member { subject, slots, ops: workload.timed.clone(), next: 0 }
    };
    Box::new(Members(subjects.into_iter().zip(workloads).map(prepare).collect()))
}

/// Returns a number of slots that fill at least two cache lines.
fn margin<T>() -> usize {
    128 / size_of::<Option<T>>().max(1) + 1
}

fn used<T>(slots: &mut [Option<T>]) -> &mut [Option<T>] {
    let margin = margin::<T>();
    let end = slots.len() - margin;
    &mut slots[margin..end]
}

impl<S> Team for Members<S>
where
    S: Subject + Send,
    S::Block: Send,
{
    fn race(&mut self, threads: usize, timing: Timing) -> Race {
        assert!((1..=self.0.len()).contains(&threads), "{threads} threads of {}", self.0.len());
        let phase = AtomicU8::new(WARM);
        let shares: Vec<Share> = thread::scope(|scope| {
            let phase = &phase;
            let racers = self.0[..threads].iter_mut().map(|member| scope.spawn(move || member.run(phase)));
            let racers: Vec<_> = racers.collect();
            thread::sleep(timing.warm);
            phase.store(COUNT, Ordering::Relaxed);
            thread::sleep(timing.window);
            phase.store(STOP, Ordering::Relaxed);
            racers.into_iter().map(|racer| racer.join().expect("a thread panicked")).collect()
        });
        let operations: usize = shares.iter().map(|share| share.operations).sum();
        let per_ns: f64 = shares.iter().map(|share| share.operations as f64 / share.wall.as_nanos() as f64).sum();
        let cpu: Option<Duration> = shares.iter().map(|share| share.cpu).sum();
        Race { wall_ns: 1.0 / per_ns, cpu_ns: cpu.map(|cpu| cpu.as_nanos() as f64 / operations as f64) }
    }
}

/// Runs races of all teams with all numbers of threads in every round. Returns the races by team, then by number of
/// threads. A round before the first is not counted: in it every thread goes over its list many times. Each race takes
/// the time of `timing`.
pub fn measure_threads(
    teams: &mut [Box<dyn Team>],
    threads: &[usize],
    rounds: usize,
    timing: Timing,
) -> Vec<Vec<Races>> {
    let mut all = vec![vec![Races::default(); threads.len()]; teams.len()];
    for round in 0..=rounds {
        for (at, &count) in threads.iter().enumerate() {
            for (team, races) in teams.iter_mut().zip(&mut all) {
                let race = team.race(count, timing);
                if round > 0 {
                    races[at].wall_ns.push(race.wall_ns);
                    races[at].cpu_ns.extend(race.cpu_ns);
                }
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Timing, measure_threads, team};
    use crate::subject::{Millpond, PAGED};
    use crate::workload::{Pattern, Workload};

    #[test]
    fn every_team_and_number_of_threads_is_measured_in_every_round() {
        let draw = |seed| Pattern::Churn { live: 20, max_bytes: 1 << 20 }.workload(seed).expect("no file is read");
        let workloads: Vec<Workload> = (0..3).map(draw).collect();
        let first = Millpond::new(PAGED, 1);
        let subjects = vec![first.sibling(), first.sibling(), first.sibling()];
        let timing = Timing { warm: Duration::from_millis(1), window: Duration::from_millis(2) };
        let mut teams = vec![team(subjects, &workloads)];
        let races = measure_threads(&mut teams, &[1, 3], 2, timing);
        assert_eq!(races.len(), 1);
        assert_eq!(races[0].iter().map(|races| races.wall_ns.len()).collect::<Vec<_>>(), [2, 2]);
        assert!(races[0].iter().flat_map(|races| &races.wall_ns).all(|wall| *wall > 0.0));
        first.allocator().check();
    }
}
