//! Limits: no policy reserves more, and what fits is granted. Where expandable segments differ from PyTorch's.

use millpond::settings::{Options, Settings};
use millpond::{Allocator, Buffer, Error, Stream, conf};
use millpond_sim::{CostModel, Sim, SimBuilder};
use millpond_trace::Random;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

const EXPANDABLE: &str = "policy:classic,expandable_segments:True";

const POLICIES: [&str; 5] =
    ["policy:paged", "policy:paged,growth:tight", "policy:classic", EXPANDABLE, "policy:direct"];

fn settings(conf: &str) -> Settings {
    Options::resolve(conf::parse(conf).unwrap(), true)
}

fn allocator_on(sim: SimBuilder, settings: Settings) -> (Allocator<Sim>, Stream<Sim>) {
    let sim = sim.cost(CostModel::free()).build();
    let allocator = Allocator::builder(sim).settings(settings).build().unwrap();
    let stream = allocator.create_stream().unwrap();
    (allocator, stream)
}

fn is_refused(stream: &Stream<Sim>, bytes: u64) -> bool {
    match stream.allocate(bytes) {
        Ok(_) => false,
        Err(Error::OutOfMemory(_)) => true,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn expandable_segments_end_in_a_shorter_page_at_a_limit() {
    let (allocator, stream) = allocator_on(Sim::builder(), settings(EXPANDABLE));
    allocator.set_limit(Some(64 * MIB));
    let all = stream.allocate(64 * MIB).unwrap();
    assert_eq!(allocator.memory_reserved(), 64 * MIB, "three pages of 20 MiB, and one of 4");
    assert!(is_refused(&stream, 512), "the limit is reached");
    drop(all);
    allocator.empty_cache().unwrap();
    // 5 MiB take 6 where a page of 20 MiB has no room, and 7 more lie partly in what is left of them.
    allocator.set_limit(Some(13 * MIB));
    let first = stream.allocate(5 * MIB).unwrap();
    assert_eq!(allocator.memory_reserved(), 6 * MIB);
    let second = stream.allocate(7 * MIB).unwrap();
    assert_eq!(allocator.memory_reserved(), 12 * MIB);
    assert!(is_refused(&stream, 2 * MIB));
    // A range with short pages goes on growing by whole ones.
    allocator.set_limit(None);
    let third = stream.allocate(50 * MIB).unwrap();
    assert_eq!(allocator.memory_reserved(), 72 * MIB);
    allocator.check();
    drop((first, second, third));
    assert!(stream.allocate(72 * MIB).is_ok(), "all pages lie one behind the other");
    allocator.empty_cache().unwrap();
    assert_eq!(allocator.memory_reserved(), 0);
    allocator.check();
}

#[test]
fn expandable_segments_take_what_a_device_has_left() {
    let on = |total: u64| allocator_on(Sim::builder().total_bytes(total), settings(EXPANDABLE));
    for (total, bytes) in [(62 * MIB, 62 * MIB), (62 * MIB + 4096, 62 * MIB), (2 * MIB, 2 * MIB), (19 * MIB, 12 * MIB)]
    {
        let (allocator, stream) = on(total);
        let _all = stream.allocate(bytes).unwrap();
        assert!(allocator.memory_reserved() < bytes + 2 * MIB);
        assert!(is_refused(&stream, total - bytes + 1));
        allocator.check();
    }
    // What is free counts: of 66 MiB 40 are mapped, and 34 more need 24 besides the 10 that are free.
    let (allocator, stream) = on(66 * MIB);
    let _live = stream.allocate(30 * MIB).unwrap();
    assert_eq!(allocator.memory_reserved(), 40 * MIB);
    let _more = stream.allocate(34 * MIB).unwrap();
    assert_eq!(allocator.memory_reserved(), 64 * MIB);
    allocator.check();
}

#[test]
fn as_recorded_expandable_segments_go_beyond_a_limit_as_pytorchs_do() {
    let (allocator, stream) = allocator_on(Sim::builder(), settings(EXPANDABLE).as_recorded());
    allocator.set_limit(Some(64 * MIB));
    let _all = stream.allocate(64 * MIB).unwrap();
    assert_eq!(allocator.memory_reserved(), 80 * MIB);
}

/// What each policy has to take from the driver for a request, where nothing free serves it.
fn needed(conf: &str, bytes: u64) -> u64 {
    let rounded = bytes.next_multiple_of(512);
    match conf {
        "policy:direct" => rounded,
        "policy:classic" if rounded <= MIB => 2 * MIB,
        "policy:classic" if rounded < 10 * MIB => 20 * MIB,
        _ => rounded.next_multiple_of(2 * MIB),
    }
}

/// Requests and frees on two streams, drawn at random.
struct Program {
    allocator: Allocator<Sim>,
    streams: [Stream<Sim>; 2],
    live: Vec<Buffer<Sim>>,
    random: Random,
    most: u64,
    refused: u64,
}

impl Program {
    fn new(conf: &str, seed: u64) -> Self {
        let mut random = Random::new(seed);
        // Sizes of devices and limits that are multiples of nothing.
        let most = random.between(3 * MIB, 200 * MIB) / 4096 * 4096;
        let is_limit = random.one_in(2);
        let total = if is_limit { 4 << 30 } else { most };
        let (allocator, first) = allocator_on(Sim::builder().total_bytes(total), settings(conf));
        if is_limit {
            allocator.set_limit(Some(most));
        }
        let streams = [first, allocator.create_stream().unwrap()];
        Self { allocator, streams, live: Vec::new(), random, most, refused: 0 }
    }

    fn step(&mut self, conf: &str) {
        let Self { allocator, streams, live, random, most, refused } = self;
        if random.one_in(3) && !live.is_empty() {
            let at = random.below(live.len() as u64) as usize;
            let buffer = live.swap_remove(at);
            if random.one_in(3) {
                buffer.record_stream(&streams[random.below(2) as usize]).unwrap();
            }
            return;
        }
        let largest = random.pick(&[64 * KIB, MIB, 8 * MIB, *most]);
        let (bytes, stream) = (random.between(1, largest), &streams[random.below(2) as usize]);
        match stream.allocate(bytes) {
            Ok(buffer) => live.push(buffer),
            Err(Error::OutOfMemory(error)) => {
                *refused += 1;
                let at = format!("{conf}: {bytes} of {most}: {error}");
                assert!(allocator.memory_reserved() + needed(conf, bytes) > *most || conf.contains("paged"), "{at}");
                allocator.empty_cache().unwrap();
                let reserved = allocator.memory_reserved();
                assert!(reserved + needed(conf, bytes) > *most, "it fits once the cache is empty, {reserved}: {at}");
                assert!(is_refused(stream, bytes), "emptying the cache helped: {at}");
            }
            Err(error) => panic!("{error}"),
        }
        let reserved = allocator.memory_reserved();
        assert!(reserved <= *most, "{conf}: {reserved} reserved of {most}");
    }
}

#[test]
fn no_policy_reserves_more_than_a_limit_and_what_fits_is_granted() {
    for conf in POLICIES {
        let mut refused = 0;
        for seed in 0..60 {
            let mut program = Program::new(conf, seed);
            for _ in 0..80 {
                program.step(conf);
            }
            program.allocator.check();
            refused += program.refused;
        }
        assert!(refused > 100, "{conf}: {refused} refused");
    }
}

/// Returns the reserved bytes over the most that was live. In each round smaller requests than the split limit leave a
/// free piece of more than that behind, with a live block after it.
fn reserved_over_live(settings: Settings) -> f64 {
    let (allocator, stream) = allocator_on(Sim::builder(), settings);
    let mut last = None;
    for _ in 0..40 {
        let live: Vec<_> = (0..8).map(|_| stream.allocate(8 * MIB).unwrap()).collect();
        let after = stream.allocate(16 * MIB).unwrap();
        drop((live, last.replace(after)));
    }
    allocator.check();
    let stats = allocator.stats();
    stats.reserved_bytes.all.peak as f64 / stats.allocated_bytes.all.peak as f64
}

#[test]
fn with_expandable_segments_no_split_limit_keeps_large_blocks_apart() {
    let conf = format!("{EXPANDABLE},max_split_size_mb:32");
    let recorded = reserved_over_live(settings(&conf).as_recorded());
    assert!(recorded > 20.0, "PyTorch reserves ever more: {recorded}");
    let ours = reserved_over_live(settings(&conf));
    assert!(ours < 1.5, "{ours}");
}

#[test]
fn the_summary_says_what_a_split_limit_does_to_expandable_segments() {
    let conf = format!("{EXPANDABLE},max_split_size_mb:32");
    let advice = |settings: Settings| {
        let (allocator, stream) = allocator_on(Sim::builder(), settings);
        drop(stream.allocate(100 * MIB).unwrap());
        allocator.memory_summary(true)
    };
    let text = advice(settings(&conf));
    assert!(text.contains("max_split_size_mb has no effect with expandable segments"), "{text}");
    assert!(!text.contains("kept apart"), "{text}");
    let text = advice(settings(&conf).as_recorded());
    assert!(text.contains("nothing bounds what these take instead; 100.00 MiB are kept apart so"), "{text}");
    for quiet in [EXPANDABLE, "policy:classic,max_split_size_mb:32", "policy:paged"] {
        let text = advice(settings(quiet));
        assert!(!text.contains("max_split_size_mb"), "{quiet}: {text}");
    }
}
