//! Any bytes: the parser answers, whole or in pieces, and what it accepts survives being written.

#![no_main]

use libfuzzer_sys::fuzz_target;
use millpond::trace::Trace;

/// More text than this is not worth the time, in bytes.
const LIMIT: u64 = 16 << 20;

fuzz_target!(|bytes: &[u8]| {
    let plain = Trace::parse(bytes);
    let streamed = Trace::from_reader_bounded(bytes, LIMIT);
    if let Ok(trace) = &plain {
        assert_eq!(streamed.as_ref().expect("what parses as a whole does so from a reader"), trace);
    }
    if let Ok(trace) = streamed {
        let text = trace.write_to(Vec::new()).expect("a valid trace can be written");
        assert_eq!(Trace::parse(&text).expect("what was written can be read"), trace);
        // Neither may panic, whatever the order of frees and completions.
        assert_eq!(trace.live_peak() == 0, trace.allocations() == 0);
    }
});
