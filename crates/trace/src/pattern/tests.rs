//! Tests that patterns are valid, the same every time, and as their names say.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::Event;

const GIB: u64 = 1 << 30;
const SEEDS: [u64; 3] = [0, 1, 99];

/// Returns the live bytes after each event of a valid trace.
fn live(trace: &Trace) -> Vec<u64> {
    let (mut sizes, mut live) = (Vec::new(), 0);
    let step = |event: &Event| {
        match *event {
            Event::Allocate { bytes, .. } => {
                sizes.push(bytes);
                live += bytes;
            }
            Event::Free { id } => live -= sizes[id as usize],
            _ => {}
        }
        live
    };
    trace.events.iter().map(step).collect()
}

fn sizes_and_streams(trace: &Trace) -> Vec<(u64, u32)> {
    let allocated = |event: &Event| match *event {
        Event::Allocate { bytes, stream, .. } => Some((bytes, stream)),
        _ => None,
    };
    trace.events.iter().filter_map(allocated).collect()
}

#[test]
fn names_lead_back() {
    for pattern in Pattern::ALL {
        assert_eq!(Pattern::from_name(pattern.name()), Some(pattern));
        assert_eq!(pattern.to_string(), pattern.name());
        assert!((20..90).contains(&pattern.about().len()), "{pattern}: {}", pattern.about());
    }
    let names: BTreeSet<_> = Pattern::ALL.iter().map(|pattern| pattern.name()).collect();
    assert_eq!(names.len(), Pattern::ALL.len());
    assert_eq!(Pattern::from_name("Random"), None);
}

/// The writer checks events against the rules, and the reader counts the streams again.
#[test]
fn every_pattern_is_a_valid_trace() {
    for pattern in Pattern::ALL {
        let trace = pattern.trace(5);
        let text = trace.write_to(Vec::new()).unwrap_or_else(|error| panic!("{pattern}: {error}"));
        assert!(Trace::parse(&text).is_ok_and(|read| read == trace), "{pattern}");
        assert_eq!(trace.header.workload(), Some(format!("pattern {pattern}, seed 5").as_str()));
    }
}

#[test]
fn a_seed_gives_one_trace_and_another_seed_another() {
    for pattern in Pattern::ALL {
        assert!(pattern.trace(7) == pattern.trace(7), "{pattern}");
        assert!(pattern.trace(7).events != pattern.trace(8).events, "{pattern}");
    }
}

#[test]
fn peaks_and_lengths_are_what_is_promised_and_nothing_is_left() {
    for (pattern, seed) in Pattern::ALL.iter().flat_map(|pattern| SEEDS.map(|seed| (pattern, seed))) {
        let trace = pattern.trace(seed);
        assert!((GIB..=4 * GIB).contains(&trace.live_peak()), "{pattern}, seed {seed}: {} live", trace.live_peak());
        let events = if *pattern == Pattern::SmallPhase { 400_000..500_000 } else { 10_000..70_000 };
        assert!(events.contains(&trace.events.len()), "{pattern}, seed {seed}: {} events", trace.events.len());
        assert_eq!(live(&trace).last(), Some(&0), "{pattern}, seed {seed}");
    }
}

#[test]
fn streams_are_as_many_as_is_said() {
    let expected = BTreeMap::from(
        [(Pattern::Phases, 3), (Pattern::Streams, 32), (Pattern::ManyStreams, 32)]
            .map(|(pattern, streams)| (pattern.name(), streams)),
    );
    for pattern in Pattern::ALL {
        let streams = expected.get(pattern.name()).copied().unwrap_or(1);
        assert_eq!(pattern.trace(1).streams, streams, "{pattern}");
    }
}

#[test]
fn a_buffer_that_grows_is_there_twice_for_a_moment() {
    let trace = Pattern::Growing.trace(3);
    let later = &trace.events[32..];
    let sizes = sizes_and_streams(&trace);
    let bytes = |id: u32| sizes[id as usize].0;
    for pair in later[..later.len() - 32].chunks(2) {
        let [Event::Allocate { id: new, .. }, Event::Free { id: old }] = *pair else { panic!("{pair:?}") };
        assert!(bytes(new) > bytes(old) && bytes(new) - bytes(old) < 1 << 20, "{old} became {new}");
    }
}

#[test]
fn a_phase_begins_with_nothing_alive_and_a_size_comes_back_on_another_stream() {
    let trace = Pattern::Phases.trace(3);
    let live = live(&trace);
    let begins = (0..trace.events.len()).filter(|&at| at == 0 || live[at - 1] == 0);
    let phases: Vec<(u64, u32)> = begins
        .map(|at| match trace.events[at] {
            Event::Allocate { bytes, stream, .. } => (bytes, stream),
            event => panic!("a phase begins with {event:?}"),
        })
        .collect();
    assert_eq!(phases.len(), 12);
    for (first, again) in phases[..6].iter().zip(&phases[6..]) {
        assert!(first.0.abs_diff(again.0) <= first.0 / 15, "{first:?} and {again:?} have the same size, nearly");
        assert_ne!(first.1, again.1, "{first:?} and {again:?}");
    }
}

#[test]
fn a_saw_has_teeth() {
    let trace = Pattern::Sawtooth.trace(3);
    let (mut teeth, mut high) = (0, false);
    for live in live(&trace) {
        teeth += u32::from(high && live < GIB / 4);
        high = if high { live >= GIB / 4 } else { live > GIB * 3 / 2 };
    }
    assert_eq!(teeth, 20);
}

/// When the large blocks of a round are requested, a small part of the earlier blocks is live, scattered.
#[test]
fn survivors_are_few_and_one_to_a_segment() {
    let trace = Pattern::Survivors.trace(3);
    let (live, mut blocks, mut rounds) = (live(&trace), BTreeSet::new(), 0);
    for (at, event) in trace.events.iter().enumerate() {
        match *event {
            Event::Allocate { id, bytes, .. } => {
                let falls = matches!(trace.events[at - usize::from(at > 0)], Event::Free { .. });
                if bytes >= 32 << 20 && falls {
                    rounds += 1;
                    let before = live[at - 1];
                    assert!(before < GIB / 10, "{before} bytes survive");
                    assert!((40..600).contains(&blocks.len()), "{} survivors", blocks.len());
                }
                blocks.insert(id);
            }
            Event::Free { id } => assert!(blocks.remove(&id)),
            _ => {}
        }
    }
    assert_eq!(rounds, 6);
}

#[test]
fn each_stream_has_its_turn_and_leaves_nothing() {
    let trace = Pattern::Streams.trace(3);
    let order: Vec<u32> = sizes_and_streams(&trace).iter().map(|(_, stream)| *stream).collect();
    assert!(order.is_sorted(), "streams take turns");
    let empty = live(&trace).iter().filter(|live| **live == 0).count();
    assert_eq!(empty, 32);
}

#[test]
fn some_blocks_of_many_streams_are_used_on_a_second_one() {
    let trace = Pattern::ManyStreams.trace(3);
    let blocks = sizes_and_streams(&trace);
    let used = |event: &Event| if let Event::Use { id, stream } = *event { Some((id, stream)) } else { None };
    let used: Vec<_> = trace.events.iter().filter_map(used).collect();
    assert!((blocks.len() / 16..blocks.len() / 4).contains(&used.len()), "{} of {}", used.len(), blocks.len());
    assert!(used.iter().all(|&(id, stream)| blocks[id as usize].1 != stream), "the second stream is another");
}

#[test]
fn random_sizes_span_what_is_said() {
    let sizes: Vec<u64> = sizes_and_streams(&Pattern::Random.trace(3)).iter().map(|(bytes, _)| *bytes).collect();
    assert!(sizes.iter().all(|bytes| (512..=256 << 20).contains(bytes)));
    assert!(sizes.iter().any(|bytes| *bytes < 1024) && sizes.iter().any(|bytes| *bytes > 128 << 20));
}

#[test]
fn large_blocks_come_when_nearly_all_small_ones_are_gone() {
    let trace = Pattern::SmallPhase.trace(3);
    let small = sizes_and_streams(&trace).iter().filter(|(bytes, _)| *bytes <= 32 << 10).count();
    assert_eq!(small, 200_000);
    let large =
        trace.events.iter().position(|event| matches!(event, Event::Allocate { bytes, .. } if *bytes >> 20 > 0));
    let before = large.and_then(|at| at.checked_sub(1)).expect("large blocks after small ones");
    assert!(live(&trace)[before] < 16 << 20, "{} bytes of small blocks are left", live(&trace)[before]);
}

/// Tables of results name patterns by their seeds, so a seed means the same events in every version.
#[test]
fn the_events_of_a_seed_never_change() {
    let digest = |pattern: Pattern| {
        let fold = |digest: u64, number: u64| (digest ^ number).wrapping_mul(0x0000_0100_0000_01B3);
        pattern.trace(1).events.iter().fold(0xCBF2_9CE4_8422_2325, |digest, event| match *event {
            Event::Allocate { id, bytes, stream } => fold(fold(fold(digest, id.into()), bytes), stream.into()),
            Event::Free { id } => fold(fold(digest, 1 << 40), id.into()),
            Event::Use { id, stream } => fold(fold(fold(digest, 2 << 40), id.into()), stream.into()),
            other => panic!("a pattern has {other:?}"),
        })
    };
    let wanted = [
        2_417_251_783_301_025_164,
        5_928_247_086_667_139_123,
        2_753_231_277_143_394_794,
        1_623_575_668_184_644_682,
        11_829_242_945_544_787_482,
        13_939_750_176_396_218_268,
        18_258_642_099_139_354_185,
        3_758_170_519_791_071_438,
    ];
    assert_eq!(Pattern::ALL.map(digest), wanted);
}
