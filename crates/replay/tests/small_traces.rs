//! Small traces that describe large work: their cost is bounded by their size. A program of its own,
//! because the memory that is measured is the process's.

use std::io::Write as _;
use std::time::{Duration, Instant};

use flate2::Compression;
use flate2::write::GzEncoder;
use millpond::Allocator;
use millpond::backend::{Backend as _, StreamId};
use millpond_replay::Replay;
use millpond_sim::Sim;
use millpond_trace::{FREE_TEXT_BYTES, Limit, Trace, TraceError};

/// Returns the peak of this process's resident memory, in bytes, where the system reports it.
fn resident_peak() -> u64 {
    let told = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = told.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
    line.split_whitespace().next().and_then(|kib| kib.parse::<u64>().ok()).unwrap_or_default() << 10
}

/// Returns 33 million events, compressed into some 64 KB.
fn bomb() -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    for _ in 0..33_000 {
        encoder.write_all(&b"e\n".repeat(1000)).expect("memory takes everything");
    }
    encoder.finish().expect("memory takes everything")
}

#[test]
fn a_small_file_does_not_take_a_large_machine() {
    let bomb = bomb();
    assert!(bomb.len() < 70_000, "{} bytes", bomb.len());
    let (before, began) = (resident_peak(), Instant::now());
    let error = Trace::from_reader(&bomb[..]).expect_err("33 million events");
    let (grown, took) = (resident_peak().saturating_sub(before), began.elapsed());
    println!("{error}; {} MiB more at the peak, {took:?}", grown >> 20);
    // The text is limited to 1 MiB and 64 times the file, with two bytes of text and 24 bytes of memory for each event.
    let text = FREE_TEXT_BYTES + 64 * bomb.len() as u64;
    assert!(
        matches!(error, TraceError::Limit { limit: Limit::Expansion, most: 64, line, .. } if line <= text / 2),
        "{error}"
    );
    assert!(error.to_string().contains("raise `expansion`"), "{error}");
    assert!(grown <= text / 2 * 24 * 3, "{grown} bytes for {} of input", bomb.len());
    assert!(took < Duration::from_secs(10), "{took:?}");
}

#[test]
fn a_high_number_of_a_stream_opens_one_stream() {
    let trace = Trace::parse(b"a 0 1 65535\n").expect("a trace");
    let (replay, began) = (Replay::new(&trace), Instant::now());
    assert_eq!(replay.streams(), 1);
    let sim = Sim::new();
    let replayed = replay.run(&Allocator::new(sim.clone()), 0).expect("no driver fails");
    let took = began.elapsed();
    println!("{took:?}");
    assert_eq!((replayed.events, replayed.cold.ooms, sim.has_stream(StreamId(1))), (1, 0, false));
    assert!(took < Duration::from_secs(5), "{took:?}");
}
