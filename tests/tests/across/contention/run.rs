//! One run of a case: threads that allocate and free on a device whose calls take time.

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use millpond::{Allocator, Buffer, Error, Pinned, PinnedBuffer, Stream};
use millpond_sim::{Access, Completion, CostModel, Curve, Sim, SimError};
use millpond_tests::program::leaked;
use millpond_trace::Random;

use super::cases::{Case, Kind, Room, THREADS};
use super::log::{Entry, wrong};

/// The time that a driver call takes, in nanoseconds.
const CALL_NS: u64 = 100_000;

/// The length of a run.
#[derive(Clone, Copy)]
pub(crate) enum Effort {
    /// This number of rounds of each thread.
    Rounds(u64),
    Time(Duration),
}

/// The result of a run.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) served: u64,
    pub(crate) refused: u64,
    /// The refusals that a wait would have avoided.
    pub(crate) wrong: Vec<Entry>,
    /// The longest time that a request took.
    pub(crate) longest: Duration,
    pub(crate) calls: u64,
    pub(crate) peak_reserved: u64,
}

fn device(case: &Case) -> Sim {
    let call = Curve::flat(CALL_NS);
    let costs = CostModel {
        reserve: call,
        release: call,
        create_page: Curve::flat(CALL_NS / 8),
        release_page_ns: CALL_NS / 8,
        map: Curve::flat(CALL_NS / 8),
        unmap_ns: CALL_NS / 8,
        ..CostModel::free()
    };
    let completion = if case.busy { Completion::Seeded(7) } else { Completion::Immediate };
    let sim = Sim::builder().cost(costs).takes_time(true).completion(completion);
    if case.by_driver { sim.total_bytes(case.limit()).build() } else { sim.build() }
}

/// The allocator that a thread uses, with its streams.
enum Source {
    Device(Vec<Stream<Sim>>),
    Pinned(Pinned<Sim>, Vec<Stream<Sim>>, Vec<Buffer<Sim>>),
}

/// A block that a thread holds.
enum Held {
    Device(Buffer<Sim>),
    Pinned(PinnedBuffer<Sim>),
}

impl Source {
    fn allocate(&self, stream: usize, bytes: u64) -> Result<Held, Error<SimError>> {
        match self {
            Source::Device(streams) => streams[stream].allocate(bytes).map(Held::Device),
            Source::Pinned(cache, ..) => cache.allocate(bytes).map(Held::Pinned),
        }
    }

    /// Queues work on a block, so that the device uses it when it is freed: on its own stream, and in some cases on
    /// another stream of the thread.
    fn put_to_work(&self, sim: &Sim, held: &Held, stream: usize, random: &mut Random) {
        match (self, held) {
            (Source::Device(streams), Held::Device(buffer)) => {
                let segment = buffer.segment().expect("a buffer with bytes lies in a segment");
                sim.use_range(streams[stream].id(), segment, buffer.offset(), buffer.len(), Access::Write);
                let other = random.index(streams.len());
                if other != stream && random.one_in(2) {
                    let waits = sim.clone();
                    let waits = millpond::backend::Backend::stream_wait(&waits).expect("simulated devices have waits");
                    waits.wait_for(streams[other].id(), streams[stream].point()).expect("no call is planned to fail");
                    sim.use_range(streams[other].id(), segment, buffer.offset(), buffer.len(), Access::Read);
                    buffer.record_stream(&streams[other]).expect("the stream is the device's");
                }
            }
            (Source::Pinned(_, streams, targets), Held::Pinned(buffer)) => {
                streams[stream].upload_pinned((buffer, 0), (&targets[stream], 0), 64).expect("no call fails");
            }
            _ => unreachable!("what is held comes from the source"),
        }
    }
}

/// Runs a case.
///
/// # Panics
///
/// If a request fails for another reason than a lack of memory, or if memory leaks.
pub(crate) fn run(case: &Case, effort: Effort) -> Outcome {
    let sim = device(case);
    let builder = Allocator::builder(sim.clone());
    let is_pinned = case.kind == Kind::Pinned;
    let builder = if is_pinned { builder } else { builder.settings(case.kind.settings()) };
    let limited = !is_pinned && !case.by_driver;
    let builder = if limited { builder.limit(case.limit()) } else { builder };
    let allocator = builder.build().unwrap_or_else(|error| panic!("{case}: {error}"));
    let open = || -> Vec<_> { (0..case.streams).map(|_| allocator.create_stream().expect("a stream")).collect() };
    let cache = is_pinned.then(|| allocator.pinned().expect("simulated devices have page-locked memory"));
    if let Some(cache) = &cache {
        cache.cache().set_limit(Some(case.limit()));
    }
    let source = || match &cache {
        None => Source::Device(open()),
        Some(cache) => {
            let streams = open();
            let targets = streams.iter().map(|stream| stream.allocate(64).expect("64 bytes")).collect();
            Source::Pinned(cache.clone(), streams, targets)
        }
    };
    let sources: Vec<_> = (0..THREADS).map(|_| source()).collect();
    let before = sim.calls();
    let (start, barrier) = (Instant::now(), Barrier::new(THREADS));
    let entries: Vec<Entry> = thread::scope(|scope| {
        let thread = |(seed, source)| {
            let (sim, barrier) = (&sim, &barrier);
            scope.spawn(move || {
                barrier.wait();
                work(case, effort, sim, source, seed as u64, start)
            })
        };
        let threads: Vec<_> = sources.iter().enumerate().map(thread).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("a thread that works")).collect()
    });
    let calls = sim.calls().since(&before);
    let own = cache.as_ref().map_or(&allocator, Pinned::cache);
    let peak_reserved = own.stats().reserved_bytes.all.peak;
    sim.synchronize();
    own.poll().expect("no call fails");
    own.check();
    assert_eq!(sim.violations(), [], "{case}");
    drop((sources, cache, allocator));
    assert_eq!(leaked(&sim), 0, "{case}: bytes leaked");
    let most = case.limit() / blocks(case);
    Outcome {
        served: entries.iter().filter(|entry| entry.freed.is_some()).count() as u64,
        refused: entries.iter().filter(|entry| entry.freed.is_none()).count() as u64,
        wrong: wrong(&entries, case.limit(), |bytes| if case.sizes.len() == 1 { bytes } else { most }),
        longest: entries.iter().map(|entry| entry.answered - entry.asked).max().unwrap_or_default(),
        calls: calls.reserve + calls.release + calls.create_page + calls.release_page + calls.map + calls.unmap,
        peak_reserved,
    }
}

fn blocks(case: &Case) -> u64 {
    match case.room {
        Room::Exact => THREADS as u64,
        Room::OneToSpare => THREADS as u64 + 1,
        Room::TwoShort => THREADS as u64 - 2,
    }
}

/// Allocates, works and frees on one thread, one block at a time. Returns the log of its requests.
fn work(case: &Case, effort: Effort, sim: &Sim, source: &Source, seed: u64, start: Instant) -> Vec<Entry> {
    let mut random = Random::new(seed);
    let mut entries = Vec::new();
    loop {
        let goes_on = match effort {
            Effort::Rounds(rounds) => (entries.len() as u64) < rounds,
            Effort::Time(time) => start.elapsed() < time,
        };
        if !goes_on {
            return entries;
        }
        let (stream, bytes) = (random.index(case.streams), random.pick(case.sizes));
        let asked = start.elapsed();
        let result = source.allocate(stream, bytes);
        let answered = start.elapsed();
        let freed = match result {
            Ok(held) => {
                if case.busy {
                    source.put_to_work(sim, &held, stream, &mut random);
                }
                thread::sleep(Duration::from_micros(random.below(100)));
                drop(held);
                Some(start.elapsed())
            }
            Err(Error::OutOfMemory(_)) => None,
            Err(error) => panic!("{case}: {error}"),
        };
        entries.push(Entry { bytes, asked, answered, freed });
    }
}
