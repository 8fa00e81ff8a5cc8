//! One thread that uses many streams in turn: an allocation and its free on each, all of them hits.

use std::collections::VecDeque;
use std::error::Error;
use std::fmt::Write;
use std::time::{Duration, Instant};

use millpond::settings::Policy;
use millpond_backend::Backend;

use super::page::ratio;
use crate::measure::{Spread, Stopwatch};
use crate::subject::{CLASSIC, Millpond};

/// The numbers of streams. The first is what the others are compared with.
pub const STREAMS: &[u16] = &[1, 4, 16, 64, 256];

/// The sizes of the blocks.
const BLOCKS: [u64; 2] = [4 << 10, 4 << 20];

/// The number of blocks that each stream has had at the same time, where it has had blocks, and the least size of them.
/// They fill at least three segments.
const HAD: usize = 16;
const HAD_BYTES: u64 = 512 << 10;

/// The number of pairs between two looks at the clock, at least.
const SLICE: usize = 256;

/// What came before the pairs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Start {
    /// All streams have had blocks at once, and peaks have been reset since: the pairs are at the peak.
    AtPeak,
    /// The same, and the peaks of then stand: the pairs are far below them.
    BelowPeak,
    /// As at the peak, but a block is freed only when half of the streams have had their turn since.
    Held,
    /// All streams have had one block at once, and the peak of then stands.
    OneBlock,
    /// Nothing: the first stream gets a block from the driver, and the others find what it has freed.
    Nothing,
}

impl Start {
    /// The table's order.
    pub const ALL: [Start; 5] = [Start::AtPeak, Start::Held, Start::BelowPeak, Start::OneBlock, Start::Nothing];

    fn name(self) -> &'static str {
        match self {
            Start::AtPeak => "at the peak",
            Start::BelowPeak => "below the peak",
            Start::Held => "held",
            Start::OneBlock => "one block",
            Start::Nothing => "from nothing",
        }
    }
}

/// How long the pairs are repeated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timing {
    /// Before anything counts, for each number of streams.
    pub warm: Duration,
    /// In each round, for each number of streams.
    pub turn: Duration,
    /// The number of rounds.
    pub rounds: usize,
}

impl Timing {
    /// A quarter of a second for each number of streams.
    pub const USUAL: Timing = Timing { warm: Duration::from_millis(100), turn: Duration::from_millis(25), rounds: 5 };
}

/// One number of streams, measured.
#[derive(Clone, PartialEq, Debug)]
pub struct Cell {
    /// The nanoseconds of a pair, by round.
    pub pair_ns: Vec<f64>,
    /// The driver calls of a pair that counted, the mean.
    pub driver_calls: f64,
}

/// The streams of one allocator, and what was measured of them.
struct Subject<B: Backend> {
    millpond: Millpond<B>,
    bytes: u64,
    /// The number of blocks that are held at the same time, besides the newest.
    held: usize,
    cell: Cell,
    pairs: usize,
    calls: u64,
}

impl<B: Backend> Subject<B> {
    fn new(device: B, policy: Policy, streams: u16, bytes: u64, start: Start) -> Result<Self, Box<dyn Error>> {
        let millpond = Millpond::over(device, policy, streams)?;
        match start {
            Start::AtPeak | Start::Held | Start::BelowPeak => have_blocks(&millpond, bytes.max(HAD_BYTES), HAD)?,
            Start::OneBlock => have_blocks(&millpond, bytes, 1)?,
            Start::Nothing => {}
        }
        if matches!(start, Start::AtPeak | Start::Held) {
            millpond.allocator().reset_peak_stats();
        }
        let held = if start == Start::Held { usize::from(streams / 2) } else { 0 };
        let cell = Cell { pair_ns: Vec::new(), driver_calls: 0.0 };
        Ok(Self { millpond, bytes, held, cell, pairs: 0, calls: 0 })
    }

    /// Goes over the streams again and again, for that time and at least once. Returns the number of pairs.
    fn pairs(&self, time: Duration) -> Result<usize, Box<dyn Error>> {
        let (streams, begun) = (self.millpond.streams(), Instant::now());
        let laps = SLICE.div_ceil(streams.len());
        let (mut pairs, mut held) = (0, VecDeque::with_capacity(self.held + 1));
        loop {
            for _ in 0..laps {
                for stream in streams {
                    let block = stream.allocate(self.bytes)?;
                    if self.held == 0 {
                        drop(block);
                        continue;
                    }
                    held.push_back(block);
                    if held.len() > self.held {
                        held.pop_front();
                    }
                }
            }
            pairs += laps * streams.len();
            if begun.elapsed() >= time {
                return Ok(pairs);
            }
        }
    }

    fn turn(&mut self, time: Duration) -> Result<(), Box<dyn Error>> {
        let calls = self.millpond.allocator().driver_activity().calls;
        let watch = Stopwatch::of_thread();
        let pairs = self.pairs(time)?;
        self.cell.pair_ns.push(watch.elapsed().as_nanos() as f64 / pairs as f64);
        self.calls += self.millpond.allocator().driver_activity().calls - calls;
        self.pairs += pairs;
        Ok(())
    }

    fn cell(mut self) -> Cell {
        self.cell.driver_calls = self.calls as f64 / self.pairs.max(1) as f64;
        self.cell
    }
}

/// Has each stream have a number of blocks at once with all others, and frees them: first three of four, so that the
/// peaks of what is free in pieces are high as well.
fn have_blocks<B: Backend>(millpond: &Millpond<B>, bytes: u64, count: usize) -> Result<(), Box<dyn Error>> {
    let each = millpond.streams().iter().flat_map(|stream| std::iter::repeat_n(stream, count));
    let blocks = each.map(|stream| stream.allocate(bytes)).collect::<Result<Vec<_>, _>>()?;
    let (kept, freed): (Vec<_>, Vec<_>) = (0..).zip(blocks).partition(|(at, _)| at % 4 == 0);
    drop(freed);
    drop(kept);
    Ok(())
}

/// Measures each number of streams, in rounds: each has its turn in each, so what slows the machine slows all of them.
///
/// # Errors
///
/// Returns a refusal, which would be a defect: all that is asked for is there.
pub fn measure<B: Backend>(
    open: impl Fn() -> Result<B, Box<dyn Error>>,
    (policy, bytes, start): (Policy, u64, Start),
    streams: &[u16],
    timing: Timing,
) -> Result<Vec<Cell>, Box<dyn Error>> {
    let subject = |streams: &u16| Subject::new(open()?, policy, *streams, bytes, start);
    let mut subjects = streams.iter().map(subject).collect::<Result<Vec<_>, _>>()?;
    for subject in &subjects {
        subject.pairs(timing.warm)?;
    }
    for _ in 0..timing.rounds {
        for subject in &mut subjects {
            subject.turn(timing.turn)?;
        }
    }
    Ok(subjects.into_iter().map(Subject::cell).collect())
}

/// Returns the rows of one policy: for each size and each start the time of a pair, and how many times that of one
/// stream it is, by round.
///
/// # Errors
///
/// As [`measure`].
pub fn rows<B: Backend>(
    open: impl Fn() -> Result<B, Box<dyn Error>>,
    policy: Policy,
    streams: &[u16],
    timing: Timing,
) -> Result<Vec<String>, Box<dyn Error>> {
    let mut rows = Vec::new();
    for bytes in BLOCKS {
        for start in Start::ALL {
            let cells = measure(&open, (policy, bytes, start), streams, timing)?;
            rows.push(row(policy, bytes, start, &cells));
        }
    }
    Ok(rows)
}

/// Returns one row: the cells, the goal for the last of them, and its driver calls.
fn row(policy: Policy, bytes: u64, start: Start, cells: &[Cell]) -> String {
    let name = policy.variant_name();
    let mut row = format!("| {name} | {} KiB | {} |", bytes >> 10, start.name());
    let Some((first, last)) = cells.first().zip(cells.last()) else { return row };
    for cell in cells {
        // Writing to a string cannot fail.
        let _ = write!(row, " {:.0} ({}) |", Spread::of(cell.pair_ns.clone()).median, times(cell, first));
    }
    let _ = write!(row, " {:.2} | {} |", last.driver_calls, goal(policy));
    row
}

/// Returns how many times as long as with one stream a pair takes, the median over the rounds.
fn times(cell: &Cell, one: &Cell) -> String {
    ratio(cell.pair_ns.iter().zip(&one.pair_ns).map(|(ns, one)| ns / one).collect())
}

/// Returns the most that a pair may take with the most streams, as a multiple of its time with one.
fn goal(policy: Policy) -> u32 {
    if policy == CLASSIC { 10 } else { 20 }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use millpond_sim::Sim;

    use super::{Cell, Start, Timing, measure, row};
    use crate::subject::{CLASSIC, PAGED};

    #[test]
    fn a_row_has_medians_and_the_ratios_within_rounds() {
        let cell = |pair_ns: [f64; 3], driver_calls| Cell { pair_ns: pair_ns.to_vec(), driver_calls };
        // The machine was slow in the last round: the ratios of all rounds are alike.
        let cells = [cell([10.0, 20.0, 90.0], 0.0), cell([120.0, 240.0, 1080.0], 0.25)];
        let wanted = "| classic | 4 KiB | at the peak | 20 (1.0) | 240 (12) | 0.25 | 10 |";
        assert_eq!(row(CLASSIC, 4096, Start::AtPeak, &cells), wanted);
        assert!(
            row(PAGED, 4 << 20, Start::Nothing, &cells).ends_with("| from nothing | 20 (1.0) | 240 (12) | 0.25 | 20 |")
        );
    }

    #[test]
    fn all_pairs_hit_and_peaks_are_as_the_start_says() {
        let timing = Timing { warm: Duration::ZERO, turn: Duration::ZERO, rounds: 2 };
        let open = || Ok(Sim::new());
        for (policy, bytes) in [(CLASSIC, 4 << 10), (CLASSIC, 4 << 20), (PAGED, 4 << 10), (PAGED, 4 << 20)] {
            for start in [Start::AtPeak, Start::Held, Start::BelowPeak, Start::OneBlock] {
                let cells = measure(open, (policy, bytes, start), &[1, 3], timing).expect("there is enough");
                let seen: Vec<_> = cells.iter().map(|cell| (cell.pair_ns.len(), cell.driver_calls)).collect();
                assert_eq!(seen, [(2, 0.0); 2], "{policy:?}, {bytes} bytes, {start:?}");
            }
        }
        let peak = |start| {
            let mut subject = super::Subject::new(Sim::new(), PAGED, 4, 4096, start).expect("there is enough");
            subject.turn(Duration::ZERO).expect("there is enough");
            subject.millpond.allocator().stats().allocation.all.peak
        };
        assert_eq!(Start::ALL.map(peak), [1, 3, 64, 4, 1]);
    }
}
