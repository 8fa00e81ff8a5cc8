//! A stream that grows old: sizes that no live block has had.

use std::error::Error;
use std::time::{Duration, Instant};

use millpond::settings::Policy;
use millpond_sim::{CostModel, Sim};
use millpond_trace::Random;

use super::page::{NONE, few, mib};
use crate::case::SEED;
use crate::measure::{Stopwatch, resident_bytes};
use crate::subject::Millpond;

/// The number of live blocks.
const LIVE: usize = 2000;

/// The number of operations between two looks at the clock.
const LOOK_EVERY: u64 = 16;

/// The sizes of the blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sizes {
    /// Uniform between two numbers of bytes, both included.
    Drawn(u64, u64),
    /// 512 bytes more each time, from one number of bytes to another and again: each is new to what lies in memory,
    /// and fits where no block was.
    Rising(u64, u64),
}

impl Sizes {
    /// Returns the size of the block that is allocated after `before` others.
    fn size(self, before: u64, random: &mut Random) -> u64 {
        match self {
            Sizes::Drawn(least, most) => random.between(least, most),
            Sizes::Rising(least, most) => least + before * 512 % (most - least),
        }
    }
}

/// What a stream has to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Load {
    /// Its name in the table.
    pub name: &'static str,
    /// The sizes.
    pub sizes: Sizes,
    /// The bytes of the device, if they matter.
    pub device_bytes: Option<u64>,
}

/// The loads that are measured: blocks of 3.5 GiB, drawn, on a device of 4 GiB; rising ones of 4 GiB on a device that
/// has plenty; and rising ones of 3 GiB on a device of 4 GiB.
pub const LOADS: [Load; 3] = [
    Load { name: "drawn", sizes: Sizes::Drawn(1, 7 << 19), device_bytes: Some(4 << 30) },
    Load { name: "rising", sizes: Sizes::Rising(1 << 20, 3 << 20), device_bytes: None },
    Load { name: "rising-full", sizes: Sizes::Rising(1 << 19, 5 << 19), device_bytes: Some(4 << 30) },
];

impl Load {
    fn device(self) -> Sim {
        let builder = Sim::builder().cost(CostModel::free());
        self.device_bytes.map_or(builder.clone(), |bytes| builder.total_bytes(bytes)).build()
    }
}

/// How long a stream works.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Work {
    /// The number of operations: each frees a block, drawn at random, and allocates another.
    pub operations: u64,
    /// The number of operations that are measured together.
    pub span: u64,
    /// The time after which the work ends early.
    pub bound: Duration,
}

/// Some operations, one after the other.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Span {
    /// The number of operations: fewer than planned in the last span, if the time was over.
    pub operations: u64,
    /// The time that they took.
    pub time: Duration,
    /// The number of them that were refused. The block is then missing until its place is drawn again.
    pub refused: u64,
    /// The driver calls.
    pub driver_calls: u64,
    /// The bytes reserved at the end.
    pub reserved_bytes: u64,
    /// The host's memory at the end.
    pub resident_bytes: Option<u64>,
}

/// Measures a stream at work.
///
/// # Errors
///
/// Returns an error of building the allocator; refusals are counted.
pub fn measure(policy: Policy, load: Load, work: Work) -> Result<Vec<Span>, Box<dyn Error>> {
    let millpond = Millpond::over(load.device(), policy, 1)?;
    let (allocator, stream) = (millpond.allocator(), &millpond.streams()[0]);
    let (mut random, mut before) = (Random::new(SEED), 0);
    let mut allocate = |random: &mut Random| {
        let bytes = load.sizes.size(before, random);
        before += 1;
        stream.allocate(bytes).ok()
    };
    let mut blocks: Vec<_> = (0..LIVE).map(|_| allocate(&mut random)).collect();
    let (begun, mut spans, mut done, mut over) = (Instant::now(), Vec::new(), 0, false);
    while done < work.operations && !over {
        let (calls, watch) = (allocator.driver_activity().calls, Stopwatch::of_thread());
        let (mut operations, mut refused) = (0, 0);
        while operations < work.span.min(work.operations - done) && !over {
            let slot = random.index(LIVE);
            blocks[slot] = None;
            blocks[slot] = allocate(&mut random);
            refused += u64::from(blocks[slot].is_none());
            operations += 1;
            over = operations % LOOK_EVERY == 0 && begun.elapsed() >= work.bound;
        }
        let time = watch.elapsed();
        done += operations;
        spans.push(Span {
            operations,
            time,
            refused,
            driver_calls: allocator.driver_activity().calls - calls,
            reserved_bytes: allocator.memory_reserved(),
            resident_bytes: resident_bytes(),
        });
    }
    Ok(spans)
}

/// Returns the rows of a policy and a load: one for each span, with its multiple of the second.
///
/// # Errors
///
/// As [`measure`].
pub fn rows(policy: Policy, load: Load, work: Work) -> Result<Vec<String>, Box<dyn Error>> {
    Ok(table(policy, load, &measure(policy, load, work)?))
}

fn table(policy: Policy, load: Load, spans: &[Span]) -> Vec<String> {
    let (policy, load, second) = (policy.variant_name(), load.name, spans.get(1));
    let mut done = 0;
    let row = |span: &Span| {
        done += span.operations;
        let (micros, resident) = (each_us(span), span.resident_bytes.map_or(NONE.to_owned(), mib));
        let times = second.map_or(NONE.to_owned(), |second| few(micros / each_us(second)));
        let calls = span.driver_calls as f64 / span.operations.max(1) as f64;
        let (reserved, refused) = (mib(span.reserved_bytes), span.refused);
        format!(
            "| {policy} | {load} | {done} | {} | {times} | {calls:.2} | {refused} | {reserved} | {resident} |",
            few(micros)
        )
    };
    spans.iter().map(row).collect()
}

/// Returns the microseconds of an operation.
fn each_us(span: &Span) -> f64 {
    span.time.as_secs_f64() * 1e6 / span.operations.max(1) as f64
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use millpond_trace::Random;

    use super::{LIVE, LOADS, Sizes, Span, Work, measure, table};
    use crate::subject::{CLASSIC, PAGED};

    #[test]
    fn spans_are_compared_with_the_second() {
        let span = |millis, operations| Span {
            operations,
            time: Duration::from_millis(millis),
            refused: 1,
            driver_calls: 50,
            reserved_bytes: 3 << 30,
            resident_bytes: Some(10 << 20),
        };
        let rows = table(PAGED, LOADS[0], &[span(10, 1000), span(20, 1000), span(15, 500)]);
        assert_eq!(
            rows,
            [
                "| paged | drawn | 1000 | 10 | 0.50 | 0.05 | 1 | 3072 | 10 |",
                "| paged | drawn | 2000 | 20 | 1.0 | 0.05 | 1 | 3072 | 10 |",
                "| paged | drawn | 2500 | 30 | 1.5 | 0.10 | 1 | 3072 | 10 |",
            ]
        );
    }

    #[test]
    fn work_ends_with_its_operations_or_with_its_time() {
        let work = Work { operations: 250, span: 100, bound: Duration::MAX };
        let operations = |work| -> Vec<_> {
            let spans = measure(CLASSIC, LOADS[1], work).expect("there is a device");
            spans.iter().map(|span| (span.operations, span.refused)).collect()
        };
        assert_eq!(operations(work), [(100, 0), (100, 0), (50, 0)]);
        assert_eq!(operations(Work { bound: Duration::ZERO, ..work }), [(16, 0)]);
    }

    #[test]
    fn sizes_are_drawn_or_rise_and_begin_again() {
        let mut random = Random::new(1);
        let mut sizes = |sizes: Sizes, count| (0..count).map(|at| sizes.size(at, &mut random)).collect::<Vec<_>>();
        assert_eq!(sizes(Sizes::Rising(1024, 2560), 5), [1024, 1536, 2048, 1024, 1536]);
        assert!(sizes(Sizes::Drawn(3, 5), 100).iter().all(|bytes| (3..=5).contains(bytes)));
        let mut live = |load: usize| sizes(LOADS[load].sizes, 4096).iter().sum::<u64>() * LIVE as u64 / (4096 << 20);
        assert_eq!([live(1), live(2)], [3999, 2999]);
    }
}
