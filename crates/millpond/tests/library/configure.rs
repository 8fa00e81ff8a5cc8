//! Settings that change while an allocator serves: each key acts or is named, and leaves the others alone.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use millpond::settings::{Divisions, IdleRelease, Policy, Settings};
use millpond::{Allocator, Buffer, Error, Stream, conf};
use millpond_sim::Sim;
use millpond_trace::Random;

const MIB: u64 = 1 << 20;

fn open(text: &str) -> (Allocator<Sim>, Stream<Sim>) {
    let sim = Sim::builder().total_bytes(1 << 30).build();
    let allocator = Allocator::builder(sim).conf(text).build().expect(text);
    let stream = allocator.create_stream().expect("a stream");
    (allocator, stream)
}

fn configure(allocator: &Allocator<Sim>, text: &str) {
    let done = allocator.configure(text).expect(text);
    assert_eq!((&done.kept[..], &done.ignored[..]), (&[][..], &[][..]), "{text}");
    allocator.check();
}

fn reserved_by(allocator: &Allocator<Sim>, stream: &Stream<Sim>, bytes: u64) -> (u64, Buffer<Sim>) {
    let before = allocator.memory_reserved();
    let buffer = stream.allocate(bytes).expect("there is room");
    (allocator.memory_reserved() - before, buffer)
}

/// Every key that acts: a text, what it makes of settings, and what can be seen of it on an allocator in use.
type Row = (&'static str, fn(&mut Settings), fn(&Allocator<Sim>, &Stream<Sim>));

fn rows() -> Vec<Row> {
    vec![
        (
            "max_split_size_mb:40",
            |to| to.max_split_bytes = Some(40 * MIB),
            |allocator, stream| {
                let (large, small) = (stream.allocate(80 * MIB).unwrap(), stream.allocate(30 * MIB).unwrap());
                drop((large, small));
                let buffer = stream.allocate(32 * MIB).unwrap();
                assert_eq!(buffer.capacity(), 32 * MIB);
                assert!(allocator.memory_reserved() >= 142 * MIB, "80 MiB are not cut for 32");
            },
        ),
        (
            "max_non_split_rounding_mb:60",
            |to| to.max_non_split_rounding_bytes = Some(60 * MIB),
            |allocator, stream| {
                configure(allocator, "max_split_size_mb:40");
                drop(stream.allocate(100 * MIB).unwrap());
                assert_eq!(stream.allocate(50 * MIB).unwrap().capacity(), 100 * MIB, "40 MiB more than were asked for");
            },
        ),
        (
            "large_segment_size_mb:32",
            |to| to.large_segment_bytes = 32 * MIB,
            |allocator, stream| {
                assert_eq!(reserved_by(allocator, stream, 3 * MIB).0, 32 * MIB);
            },
        ),
        (
            "roundup_power2_divisions:4",
            |to| to.divisions = Divisions([4; 16]),
            |_, stream| {
                assert_eq!([5000, 65 * MIB].map(|bytes| stream.allocate(bytes).unwrap().capacity()), [5120, 80 * MIB]);
            },
        ),
    ]
}

/// The rest of these rows: limits and idle memory.
fn more_rows() -> Vec<Row> {
    vec![
        (
            "garbage_collection_threshold:0.2",
            |to| to.gc_threshold = 0.2,
            |allocator, stream| {
                (0..4).for_each(|number| drop(stream.allocate((100 + 20 * number) * MIB).unwrap()));
                drop((0..3).map(|_| stream.allocate(150 * MIB).unwrap()).collect::<Vec<_>>());
                assert!(allocator.memory_reserved() < 800 * MIB, "{}", allocator.memory_reserved());
            },
        ),
        (
            "per_process_memory_fraction:0.25",
            |to| to.memory_fraction = 0.25,
            |allocator, stream| {
                assert_eq!(allocator.limit(), Some(256 * MIB));
                assert!(matches!(stream.allocate(300 * MIB), Err(Error::OutOfMemory(_))));
                configure(allocator, "per_process_memory_fraction:1");
                assert!(allocator.limit().is_none() && stream.allocate(300 * MIB).is_ok());
            },
        ),
        (
            "throw_on_cudamalloc_oom:True",
            |to| to.throw_on_oom = true,
            |allocator, stream| {
                configure(allocator, "per_process_memory_fraction:0.25");
                assert!(stream.allocate(300 * MIB).is_err());
                assert_eq!((allocator.stats().num_oom_rejections, allocator.stats().num_alloc_retries), (1, 0));
            },
        ),
        (
            "release_idle_after:1ms",
            |to| to.idle.after = Some(Duration::from_millis(1)),
            |allocator, stream| {
                drop(stream.allocate(200 * MIB).unwrap());
                let released = [0, 1, 2].map(|ms| allocator.release_idle_at(Duration::from_millis(ms)).unwrap());
                assert_eq!(released.iter().filter(|&&bytes| bytes >= 100 * MIB).count(), 1, "{released:?}");
                configure(allocator, "release_idle_after:off");
                drop(stream.allocate(200 * MIB).unwrap());
                let released = [3, 4, 5].map(|ms| allocator.release_idle_at(Duration::from_millis(ms)).unwrap());
                assert_eq!(released, [0; 3], "it is off");
            },
        ),
        (
            "keep_idle_mb:300",
            |to| to.idle.keep_bytes = 300 * MIB,
            |allocator, stream| {
                configure(allocator, "release_idle_after:1ms");
                drop(stream.allocate(200 * MIB).unwrap());
                let released = [0, 1, 2].map(|ms| allocator.release_idle_at(Duration::from_millis(ms)).unwrap());
                assert_eq!(released, [0; 3], "it stays");
            },
        ),
        (
            "release_idle_in_background:True",
            |to| to.idle.in_background = true,
            |allocator, stream| {
                drop(stream.allocate(200 * MIB).unwrap());
                configure(allocator, "release_idle_after:1ms");
                while allocator.idle_stats().releases == 0 {
                    thread::yield_now();
                }
                configure(allocator, "release_idle_in_background:False");
                let releases = allocator.idle_stats().releases;
                drop(stream.allocate(200 * MIB).unwrap());
                thread::sleep(Duration::from_millis(20));
                assert_eq!(allocator.idle_stats().releases, releases, "the thread has ended");
            },
        ),
    ]
}

#[test]
fn each_key_acts_at_once_and_leaves_the_others_alone() {
    let start = "policy:classic,max_split_size_mb:400,roundup_power2_divisions:1,keep_idle_mb:1";
    for (text, change, acts) in rows().into_iter().chain(more_rows()) {
        let (allocator, stream) = open(start);
        let before = allocator.settings();
        let held = [stream.allocate(5 * MIB).unwrap(), stream.allocate(60 * MIB).unwrap()];
        drop(stream.allocate(1).unwrap());
        configure(&allocator, text);
        let mut expected = before.clone();
        change(&mut expected);
        assert_ne!(expected, before, "{text}: the test sees a change");
        assert_eq!(allocator.settings(), expected, "{text}");
        drop(held);
        allocator.empty_cache().unwrap();
        acts(&allocator, &stream);
        allocator.check();
    }
}

/// The keys of this table, those that stay and those without an effect are all that there are.
#[test]
fn every_key_acts_or_is_named() {
    let named = [
        ("policy:direct", true),
        ("growth:tight", true),
        ("slack:0.2", true),
        ("scrub:always", true),
        ("expandable_segments:True", true),
        ("backend:native", false),
        ("expandable_segments_reserve:80G", false),
        ("expandable_segments_reserve_by_class:[a:1]", false),
        ("graph_capture_record_stream_reuse:True", false),
        ("pinned_free_catch_all:True", false),
        ("pinned_max_cached_size_mb:1", false),
        ("pinned_max_round_threshold_mb:1", false),
        ("pinned_num_register_threads:2", false),
        ("pinned_reserve_segment_size_mb:1", false),
        ("pinned_use_background_threads:True", false),
        ("pinned_use_cuda_host_register:True", false),
        ("release_lock_on_cudamalloc:True", false),
    ];
    // What `record_stream` does is in `held.rs`.
    let mut seen = vec!["record_stream"];
    seen.extend(rows().iter().chain(&more_rows()).map(|(text, ..)| text.split(':').next().unwrap()));
    for (text, is_kept) in named {
        let key = text.split(':').next().unwrap();
        // `growth` says nothing under `classic`, and segments say nothing under `paged`.
        let policy = if key == "growth" { "policy:paged" } else { "policy:classic" };
        let (allocator, _) = open(policy);
        let before = allocator.settings();
        let done = allocator.configure(text).unwrap();
        let expected = if is_kept { (vec![key], vec![]) } else { (vec![], vec![key]) };
        assert_eq!((done.kept, done.ignored), expected, "{text}");
        assert_eq!(allocator.settings(), before, "{text}");
        seen.push(key);
    }
    let of_hip = |key: &&str| !key.contains("hip");
    let mut all: Vec<_> = conf::keys().filter(of_hip).collect();
    all.sort_unstable();
    seen.sort_unstable();
    assert_eq!(seen, all);
}

#[test]
fn what_makes_no_difference_is_not_named() {
    for (start, text) in [
        ("policy:paged", "expandable_segments:True"),
        ("policy:paged", "expandable_segments:False,policy:auto,growth:balanced,slack:0.05,scrub:off"),
        ("policy:classic", "growth:tight,policy:classic,expandable_segments:False"),
        ("policy:classic,expandable_segments:True", "expandable_segments:True,slack:1"),
        ("policy:direct", "expandable_segments:True,slack:1"),
    ] {
        let (allocator, _) = open(start);
        let before = allocator.settings();
        configure(&allocator, text);
        assert_eq!(allocator.settings(), before, "{start}, {text}");
    }
}

#[test]
fn a_key_that_stays_does_not_keep_others_from_acting() {
    let (allocator, stream) = open("policy:classic,expandable_segments:True");
    let done = allocator.configure("expandable_segments:False,roundup_power2_divisions:4,policy:paged").unwrap();
    assert_eq!(done.kept, ["expandable_segments", "policy"]);
    assert_eq!(stream.allocate(5000).unwrap().capacity(), 5120);
}

#[test]
fn a_mistake_changes_nothing() {
    let (allocator, _) = open("policy:classic,max_split_size_mb:30");
    let before = allocator.settings();
    for (text, position) in [
        ("throw_on_cudamalloc_oom:True,slack:x", 35),
        ("keep_idle_mb:9,large_segment_size_mb:31", 15),
        ("garbage_collection_threshold:0.5,,", 33),
        ("max_split:1", 0),
    ] {
        assert_eq!(allocator.configure(text).unwrap_err().position, position, "{text}");
        assert_eq!(allocator.settings(), before, "{text}");
    }
}

/// A limit that was set in code stays until the key of the fraction is named.
#[test]
fn the_limit_changes_with_its_own_key_alone() {
    let (allocator, _) = open("per_process_memory_fraction:0.5");
    allocator.set_limit(Some(100 * MIB));
    configure(&allocator, "throw_on_cudamalloc_oom:True");
    assert_eq!(allocator.limit(), Some(100 * MIB));
    configure(&allocator, "per_process_memory_fraction:0.5");
    assert_eq!(allocator.limit(), Some(512 * MIB));
}

/// Draws a pair of a key that acts.
fn pair(random: &mut Random) -> (&'static str, String) {
    let mib = |random: &mut Random| format!("{}", 32 + random.below(100));
    let flag = |random: &mut Random| random.pick(&["True", "False"]).to_string();
    match random.below(11) {
        0 => ("max_split_size_mb", mib(random)),
        1 => ("max_non_split_rounding_mb", mib(random)),
        2 => ("large_segment_size_mb", format!("{}", 11 + random.below(21))),
        3 => ("roundup_power2_divisions", random.pick(&["1", "8", "[1:4,16:8,>:1]", "[>:2]"]).into()),
        4 => ("garbage_collection_threshold", random.pick(&["0.1", "0.75"]).into()),
        5 => ("per_process_memory_fraction", random.pick(&["1", "0.5", "0.25"]).into()),
        6 => ("throw_on_cudamalloc_oom", flag(random)),
        7 => ("release_idle_after", random.pick(&["off", "20s", "5min"]).into()),
        8 => ("keep_idle_mb", mib(random)),
        9 => ("record_stream", random.pick(&["wait", "hold"]).into()),
        _ => ("release_idle_in_background", flag(random)),
    }
}

/// Any sequence of texts leaves what one text says that has the last value of each key.
#[test]
fn a_sequence_of_changes_is_the_last_value_of_each_key() {
    for seed in 0..100 {
        let mut random = Random::new(seed);
        let policy = random.pick(&["paged", "classic", "direct", "classic,expandable_segments:True"]);
        let (allocator, stream) = open(&format!("policy:{policy}"));
        let (mut last, mut held) = (std::collections::BTreeMap::new(), Vec::new());
        for _ in 0..12 {
            let pairs: std::collections::BTreeMap<_, _> =
                (0..random.between(1, 3)).map(|_| pair(&mut random)).collect();
            let text = |pairs: &std::collections::BTreeMap<&str, String>| {
                pairs.iter().map(|(key, value)| format!("{key}:{value}")).collect::<Vec<_>>().join(",")
            };
            configure(&allocator, &text(&pairs));
            last.extend(pairs);
            let fresh = open(&format!("policy:{policy},{}", text(&last))).0;
            assert_eq!(allocator.settings(), fresh.settings(), "seed {seed}: {last:?}");
            assert_eq!(allocator.limit(), fresh.limit(), "seed {seed}: {last:?}");
            held.extend(stream.allocate(random.bytes(1, 30 * MIB)).ok());
            held.truncate(6);
        }
    }
}

/// Threads allocate while settings change. Each request is served by the old ones or by the new ones.
#[test]
fn settings_change_under_threads() {
    for policy in ["paged", "classic", "classic,expandable_segments:True"] {
        let (allocator, _) = open(&format!("policy:{policy}"));
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            for seed in 0..3 {
                let (allocator, is_over) = (&allocator, &is_over);
                scope.spawn(move || {
                    let (stream, mut random, mut held) =
                        (allocator.create_stream().unwrap(), Random::new(seed), vec![]);
                    while !is_over.load(Ordering::Relaxed) {
                        let bytes = if random.one_in(2) { 5000 } else { random.bytes(1, 40 * MIB) };
                        let Ok(buffer) = stream.allocate(bytes) else { continue };
                        assert!(bytes != 5000 || [5120, 6144].contains(&buffer.capacity()), "{}", buffer.capacity());
                        held.push(buffer);
                        held.truncate(4);
                    }
                });
            }
            let mut random = Random::new(7);
            for _ in 0..300 {
                let (key, value) = pair(&mut random);
                let _ = allocator.configure(&format!("{key}:{value}"));
                let _ = allocator.configure(random.pick(&["roundup_power2_divisions:2", "roundup_power2_divisions:1"]));
            }
            is_over.store(true, Ordering::Relaxed);
        });
        allocator.check();
        allocator.empty_cache().unwrap();
        assert_eq!(allocator.memory_reserved(), 0, "{policy}");
    }
}

/// What a builder is told and what an allocator is told later come to the same.
#[test]
fn idle_release_can_begin_later() {
    let (allocator, _) = open("policy:paged");
    configure(&allocator, "release_idle_after:30s,keep_idle_mb:5");
    let after = Some(Duration::from_secs(30));
    assert_eq!(allocator.settings().idle, IdleRelease { after, keep_bytes: 5 * MIB, in_background: false });
    assert!(matches!(allocator.settings().policy, Policy::Paged { .. }));
}
