//! Pools and streams that come and go, and many of them alive at once.

use std::error::Error;
use std::time::{Duration, Instant};

use millpond::settings::Policy;
use millpond::{Allocator, Buffer, Pool, Stream};
use millpond_backend::{Backend, StreamId};
use millpond_sim::{CostModel, Sim};

use super::page::{NONE, few, mib};
use crate::measure::{Stopwatch, resident_bytes};
use crate::subject::Millpond;

/// The sizes of the blocks that each pool or stream allocates.
const BLOCKS: [u64; 6] = [4 << 10, 4 << 20, 4 << 10, 4 << 10, 4 << 20, 4 << 10];

/// The number of pools or streams that are measured together, at most.
const BATCH: usize = 100;

/// What comes and goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum What {
    /// Private pools, all used on one stream.
    Pools,
    /// Streams of the default pool.
    Streams,
}

impl What {
    /// Returns the name in the table.
    pub fn name(self) -> &'static str {
        match self {
            What::Pools => "pools",
            What::Streams => "streams",
        }
    }
}

/// How many come, and how long they stay.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Work {
    /// The number of pools or streams.
    pub count: usize,
    /// Whether all of them are alive at once, with their blocks. Otherwise each is dropped before the next is created.
    pub alive: bool,
    /// The time after which no other one is created.
    pub bound: Duration,
}

/// What was measured.
#[derive(Clone, PartialEq, Debug)]
pub struct Outcome {
    /// The number of pools or streams that were created in time, those that were refused something among them.
    pub reached: usize,
    /// The time of each in the first batch, the mean.
    pub first: Duration,
    /// The same in the last batch, a shorter one if the time was over.
    pub last: Duration,
    /// The number of pools or streams that were refused something.
    pub refused: usize,
    /// The host's memory before the first, after the last, and once everything is dropped and the cache emptied.
    pub resident_bytes: [Option<u64>; 3],
    /// What is reserved after the last, and once everything is dropped and the cache emptied.
    pub reserved_bytes: [u64; 2],
    /// The address ranges that the device still has in the end.
    pub ranges: u64,
}

/// A pool or stream at work. What is named first is dropped first.
struct Life {
    _blocks: Vec<Buffer<Sim>>,
    _stream: Stream<Sim>,
    _pool: Option<Pool<Sim>>,
}

impl Life {
    fn begin(what: What, allocator: &Allocator<Sim>, home: StreamId) -> Result<Self, Box<dyn Error>> {
        let (stream, pool) = match what {
            What::Pools => {
                let pool = allocator.create_pool()?;
                (pool.stream(home)?, Some(pool))
            }
            What::Streams => (allocator.create_stream()?, None),
        };
        let blocks = BLOCKS.iter().map(|bytes| stream.allocate(*bytes)).collect::<Result<_, _>>()?;
        Ok(Self { _blocks: blocks, _stream: stream, _pool: pool })
    }
}

/// What a number of steps took, in batches.
struct Batches {
    reached: usize,
    first: Duration,
    last: Duration,
}

impl Batches {
    /// Makes `count` steps, or as many as begin in time.
    fn of(count: usize, bound: Duration, mut step: impl FnMut()) -> Self {
        let begun = Instant::now();
        let mut batches = Self { reached: 0, first: Duration::ZERO, last: Duration::ZERO };
        while batches.reached < count && begun.elapsed() < bound {
            let (watch, mut steps) = (Stopwatch::of_thread(), 0);
            while steps < BATCH.min(count - batches.reached) && begun.elapsed() < bound {
                step();
                steps += 1;
            }
            if steps == 0 {
                break;
            }
            batches.last = watch.elapsed() / u32::try_from(steps).unwrap_or(u32::MAX);
            if batches.reached == 0 {
                batches.first = batches.last;
            }
            batches.reached += steps;
        }
        batches
    }
}

fn device() -> Sim {
    Sim::builder().cost(CostModel::free()).build()
}

/// Measures pools or streams under a policy.
///
/// # Errors
///
/// Returns an error of building the allocator, and of emptying the cache; refusals are counted.
pub fn measure(what: What, policy: Policy, work: Work) -> Result<Outcome, Box<dyn Error>> {
    let device = device();
    let millpond = Millpond::over(device.clone(), policy, 1)?;
    let (allocator, home) = (millpond.allocator(), millpond.streams()[0].id());
    let (before, mut refused, mut lives) = (resident_bytes(), 0, Vec::new());
    let batches = Batches::of(work.count, work.bound, || match Life::begin(what, allocator, home) {
        Ok(life) if work.alive => lives.push(life),
        Ok(_) => {}
        Err(_) => refused += 1,
    });
    let (after, reserved) = (resident_bytes(), allocator.memory_reserved());
    lives.clear();
    allocator.empty_cache()?;
    Ok(Outcome {
        reached: batches.reached,
        first: batches.first,
        last: batches.last,
        refused,
        resident_bytes: [before, after, resident_bytes()],
        reserved_bytes: [reserved, allocator.memory_reserved()],
        ranges: device.live().2,
    })
}

/// Measures as many streams of a device without an allocator: what the device's own bookkeeping takes.
///
/// # Errors
///
/// Returns an error of the device.
pub fn measure_device(work: Work) -> Result<Outcome, Box<dyn Error>> {
    let (device, before, mut refused) = (device(), resident_bytes(), 0);
    let batches = Batches::of(work.count, work.bound, || refused += usize::from(device.create_stream().is_err()));
    let after = resident_bytes();
    Ok(Outcome {
        reached: batches.reached,
        first: batches.first,
        last: batches.last,
        refused,
        resident_bytes: [before, after, after],
        reserved_bytes: [0, 0],
        ranges: device.live().2,
    })
}

/// Returns the row of pools or streams under a policy.
///
/// # Errors
///
/// As [`measure`].
pub fn rows(what: What, policy: Policy, work: Work) -> Result<Vec<String>, Box<dyn Error>> {
    Ok(vec![row(what.name(), policy.variant_name(), work, &measure(what, policy, work)?)])
}

/// Returns the row of a device without an allocator.
///
/// # Errors
///
/// As [`measure_device`].
pub fn device_rows(work: Work) -> Result<Vec<String>, Box<dyn Error>> {
    Ok(vec![row(What::Streams.name(), "no allocator", work, &measure_device(work)?)])
}

fn row(what: &str, policy: &str, work: Work, outcome: &Outcome) -> String {
    let [first, last] = [outcome.first, outcome.last].map(|time| time.as_secs_f64() * 1e6);
    let how = if work.alive { "at once" } else { "in turn" };
    let resident = outcome.resident_bytes.map(|bytes| bytes.map_or(NONE.to_owned(), mib)).join(", ");
    let reserved = outcome.reserved_bytes.map(mib).join(", ");
    format!(
        "| {what} | {how} | {policy} | {} of {} | {} | {} | {} | {} | {resident} | {reserved} | {} |",
        outcome.reached,
        work.count,
        few(first),
        few(last),
        few(last / first.max(f64::MIN_POSITIVE)),
        outcome.refused,
        outcome.ranges,
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Batches, Outcome, What, Work, measure, measure_device, row};
    use crate::subject::{CLASSIC, PAGED};

    #[test]
    fn what_comes_and_goes_leaves_nothing_reserved() {
        for policy in [CLASSIC, PAGED] {
            for what in [What::Pools, What::Streams] {
                for alive in [false, true] {
                    let work = Work { count: 8, alive, bound: Duration::MAX };
                    let outcome = measure(what, policy, work).expect("there is a device");
                    assert_eq!((outcome.reached, outcome.refused), (8, 0), "{policy:?}, {what:?}, {alive}");
                    let least = if alive { 64 << 20 } else { 8 << 20 };
                    assert!(outcome.reserved_bytes[0] >= least, "{policy:?}, {what:?}, {alive}: {outcome:?}");
                    assert_eq!(outcome.reserved_bytes[1], 0, "{policy:?}, {what:?}, {alive}");
                }
            }
        }
        let work = Work { count: 8, alive: false, bound: Duration::MAX };
        assert_eq!(measure_device(work).expect("there is a device").reached, 8);
    }

    #[test]
    fn steps_end_with_their_number_or_with_their_time() {
        let mut made = 0;
        let batches = Batches::of(250, Duration::MAX, || made += 1);
        assert_eq!((batches.reached, made), (250, 250));
        assert_eq!(Batches::of(250, Duration::ZERO, || made += 1).reached, 0);
        assert_eq!(made, 250);
    }

    #[test]
    fn a_row_compares_the_last_with_the_first() {
        let outcome = Outcome {
            reached: 1500,
            first: Duration::from_micros(20),
            last: Duration::from_micros(50),
            refused: 7,
            resident_bytes: [Some(3 << 20), None, Some(5 << 20)],
            reserved_bytes: [32 << 20, 0],
            ranges: 4,
        };
        let work = Work { count: 2000, alive: false, bound: Duration::MAX };
        let wanted = "| pools | in turn | paged | 1500 of 2000 | 20 | 50 | 2.5 | 7 | 3, -, 5 | 32, 0 | 4 |";
        assert_eq!(row("pools", "paged", work, &outcome), wanted);
    }
}
