//! Any bytes: the parser returns, for the whole text and for pieces of it, and within bounds. A trace that it accepts
//! can be written and read again, and a replay of it ends.

#![no_main]

use libfuzzer_sys::fuzz_target;
use millpond_trace::{FREE_TEXT_BYTES, Limits, Trace};
use millpond::Allocator;
use millpond_replay::Replay;
use millpond_sim::Sim;

/// Limits beyond which an input is not worth the time.
const LIMITS: Limits = Limits { text_bytes: 16 << 20, expansion: 64, events: 1 << 20, streams: 64 };

/// The most events of a trace that is replayed.
const REPLAYED_EVENTS: usize = 2000;

fuzz_target!(|bytes: &[u8]| {
    let plain = Trace::parse(bytes);
    let streamed = Trace::from_reader_within(bytes, &LIMITS);
    if let (Ok(trace), Ok(pieces)) = (&plain, &streamed) {
        assert_eq!(pieces, trace);
    }
    let Ok(trace) = streamed else { return };
    // An event has at least two bytes of text.
    let text_max = FREE_TEXT_BYTES + LIMITS.expansion * bytes.len() as u64;
    assert!(trace.events.len() as u64 <= text_max / 2, "{} events of {} bytes", trace.events.len(), bytes.len());
    let text = trace.write_to(Vec::new()).expect("a valid trace can be written");
    assert_eq!(Trace::parse(&text).expect("what was written can be read"), trace);
    // Neither may panic, whatever the order of frees and completions.
    assert_eq!(trace.live_peak() == 0, trace.allocations() == 0);
    if trace.events.len() <= REPLAYED_EVENTS {
        let replay = Replay::new(&trace);
        assert!(u64::from(replay.streams()) <= LIMITS.streams, "{} streams", replay.streams());
        replay.run(&Allocator::new(Sim::new()), 0).expect("no driver fails");
    }
});
