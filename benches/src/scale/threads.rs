//! Recorded programs by several threads at once on one allocator, each with streams of its own.

use std::error::Error;
use std::path::Path;
use std::time::{Duration, Instant};

use millpond::Stream;
use millpond::settings::Policy;
use millpond_backend::Backend;
use millpond_replay::Replay;
use millpond_trace::Trace;

use super::page::{NONE, few, ratio};
use crate::measure::{Spread, Stopwatch, WARM_PASSES};
use crate::subject::{CLASSIC, Millpond, PAGED};

/// The recorded programs.
pub const TRACES: [&str; 3] = ["bert_multistream", "gpt2_train", "serving_kv"];

/// The numbers of threads.
pub const THREADS: [usize; 3] = [1, 4, 16];

/// What all sizes are divided by, so that sixteen threads have room on every device.
const DIVISOR: u64 = 8;

/// How long the passes are repeated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timing {
    /// The number of rounds, in each of which each policy has its turn.
    pub rounds: usize,
    /// The time of a turn, at least: passes are repeated until then.
    pub turn: Duration,
    /// The time of each policy in all: no pass begins after it.
    pub bound: Duration,
}

/// What an event took in nanoseconds.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Times {
    /// By pass before the rounds.
    pub first: Vec<f64>,
    /// By round, the median of its passes; fewer rounds if the time was over.
    pub warm: Vec<f64>,
}

impl Times {
    /// Returns what a warm event took: the median over the rounds, or what the last pass took if there was no time for
    /// a round.
    fn event(&self) -> f64 {
        if self.warm.is_empty() {
            self.first.last().copied().unwrap_or(0.0)
        } else {
            Spread::of(self.warm.clone()).median
        }
    }

    /// Returns that as text, with the number of the pass in parentheses if no round counted.
    fn text(&self) -> String {
        let pass = if self.warm.is_empty() { format!(" (pass {})", self.first.len()) } else { String::new() };
        format!("{:.0}{pass}", self.event())
    }

    /// Returns how many times as long as under another policy it took: the median over the rounds that both had.
    fn over(&self, other: &Times) -> String {
        let by_round: Vec<_> = self.warm.iter().zip(&other.warm).map(|(own, other)| own / other).collect();
        if by_round.is_empty() { few(self.event() / other.event()) } else { ratio(by_round) }
    }
}

/// What was measured of one policy.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Measured {
    /// What passed in the slowest thread.
    pub slowest: Times,
    /// What the processors gave to all threads together, for an event of any of them.
    pub cpu: Times,
    /// The requests that were refused, in all passes.
    pub refused: u64,
}

/// A policy at work.
struct Subject<'a, B: Backend> {
    replay: &'a Replay,
    millpond: Millpond<B>,
    streams: Vec<Vec<Stream<B>>>,
    spent: Duration,
    measured: Measured,
}

impl<'a, B: Backend> Subject<'a, B> {
    fn new(device: B, replay: &'a Replay, policy: Policy, threads: usize) -> Result<Self, Box<dyn Error>> {
        let millpond = Millpond::over(device, policy, 0)?;
        let streams = |_| (0..replay.streams()).map(|_| millpond.allocator().create_stream()).collect();
        let streams = (0..threads).map(streams).collect::<Result<_, _>>()?;
        Ok(Self { replay, millpond, streams, spent: Duration::ZERO, measured: Measured::default() })
    }

    /// Makes one pass with all threads. Returns what an event took in the slowest, and of the processors.
    fn pass(&mut self) -> Result<[f64; 2], Box<dyn Error>> {
        let (begun, watch) = (Instant::now(), Stopwatch::of_process());
        let done = self.replay.run_threads(self.millpond.allocator(), &self.streams, 0, false, |_| ());
        let cpu = watch.elapsed();
        // The errors of a replay are not all of a kind that lasts.
        let done = done.map_err(|error| error.to_string())?;
        self.spent += begun.elapsed();
        self.measured.refused += done.cold.ooms;
        let events = self.replay.events() * self.streams.len();
        Ok([done.cold_ns_per_event(), cpu.as_nanos() as f64 / events.max(1) as f64])
    }

    /// Makes the passes before the rounds, at least one.
    fn prepare(&mut self, timing: Timing) -> Result<(), Box<dyn Error>> {
        for _ in 0..WARM_PASSES {
            let [slowest, cpu] = self.pass()?;
            self.measured.slowest.first.push(slowest);
            self.measured.cpu.first.push(cpu);
            if self.spent > timing.bound / 2 {
                break;
            }
        }
        Ok(())
    }

    /// Makes the passes of a round, unless the time is over.
    fn turn(&mut self, timing: Timing) -> Result<(), Box<dyn Error>> {
        if self.spent > timing.bound {
            return Ok(());
        }
        let (end, mut slowest, mut cpu) = (self.spent + timing.turn, Vec::new(), Vec::new());
        while slowest.is_empty() || self.spent < end {
            let pass = self.pass()?;
            slowest.push(pass[0]);
            cpu.push(pass[1]);
        }
        self.measured.slowest.warm.push(Spread::of(slowest).median);
        self.measured.cpu.warm.push(Spread::of(cpu).median);
        Ok(())
    }
}

/// Measures one program by a number of threads, under each policy, in rounds: each has its turn in each, so what slows
/// the machine slows both.
///
/// # Errors
///
/// Returns an error of the device; refusals are counted.
pub fn measure<B: Backend>(
    open: impl Fn() -> Result<B, Box<dyn Error>>,
    replay: &Replay,
    threads: usize,
    timing: Timing,
) -> Result<[Measured; 2], Box<dyn Error>> {
    let subject = |policy| Subject::new(open()?, replay, policy, threads);
    let mut subjects = [subject(CLASSIC)?, subject(PAGED)?];
    for subject in &mut subjects {
        subject.prepare(timing)?;
    }
    for _ in 0..timing.rounds {
        for subject in &mut subjects {
            subject.turn(timing)?;
        }
    }
    Ok(subjects.map(|subject| subject.measured))
}

/// Returns the row of a recorded program, by the name that its trace has in that folder, and a number of threads.
///
/// # Errors
///
/// As [`measure`], and the errors of reading the trace.
pub fn rows<B: Backend>(
    open: impl Fn() -> Result<B, Box<dyn Error>>,
    (traces, trace): (&Path, &str),
    threads: usize,
    timing: Timing,
) -> Result<Vec<String>, Box<dyn Error>> {
    let replay = Replay::new(&Trace::read(traces.join(format!("{trace}.trace.gz")))?.scaled_down(DIVISOR));
    let measured = measure(open, &replay, threads, timing)?;
    Ok(vec![row(trace, threads, &measured)])
}

fn row(trace: &str, threads: usize, [classic, paged]: &[Measured; 2]) -> String {
    let goal = match threads {
        4 => "4",
        16 => "15",
        _ => NONE,
    };
    let cells = |classic: &Times, paged: &Times| [classic.text(), paged.text(), paged.over(classic)].join(" | ");
    format!(
        "| {trace} | {threads} | {} | {goal} | {} | {} |",
        cells(&classic.slowest, &paged.slowest),
        cells(&classic.cpu, &paged.cpu),
        classic.refused + paged.refused,
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use millpond_replay::Replay;
    use millpond_sim::Sim;

    use super::{Measured, Times, Timing, measure, row};
    use crate::workload::read_trace;

    #[test]
    fn a_row_compares_the_policies_in_each_round() {
        let measured = |slowest: &[f64], cpu: f64| {
            let times = |warm: &[f64]| Times { first: vec![900.0, 500.0], warm: warm.to_vec() };
            Measured { slowest: times(slowest), cpu: times(&vec![cpu; slowest.len()]), refused: 1 }
        };
        let both = [measured(&[100.0, 200.0, 100.0], 50.0), measured(&[300.0, 600.0], 75.0)];
        assert_eq!(row("gnn", 4, &both), "| gnn | 4 | 100 | 450 | 3.0 | 4 | 50 | 75 | 1.5 | 2 |");
        let cut = [measured(&[100.0], 100.0), measured(&[], 0.0)];
        let wanted = "| gnn | 1 | 100 | 500 (pass 2) | 5.0 | - | 100 | 500 (pass 2) | 5.0 | 2 |";
        assert_eq!(row("gnn", 1, &cut), wanted);
    }

    #[test]
    fn threads_make_the_passes_that_there_is_time_for() {
        let replay = Replay::new(&read_trace("prefetch").expect("the corpus has it").scaled_down(8));
        let passes = |bound| {
            let timing = Timing { rounds: 2, turn: Duration::ZERO, bound };
            let measured = measure(|| Ok(Sim::new()), &replay, 3, timing).expect("there is a device");
            measured.map(|measured| {
                assert_eq!(measured.slowest.warm.len(), measured.cpu.warm.len());
                assert!(measured.cpu.first.iter().all(|ns| *ns > 0.0));
                (measured.slowest.first.len(), measured.slowest.warm.len(), measured.refused)
            })
        };
        assert_eq!(passes(Duration::MAX), [(8, 2, 0); 2]);
        assert_eq!(passes(Duration::ZERO), [(1, 0, 0); 2]);
    }
}
