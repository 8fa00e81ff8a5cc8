//! Any bytes, in every format and behind the head of every table: the importer returns within its limits, and a trace
//! that it makes is valid.

#![no_main]

use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use millpond_import::{Format, Options, import, import_content};
use millpond_trace::{Limits, Trace};

/// Limits beyond which an input is not worth the time.
const LIMITS: Limits = Limits { text_bytes: 1 << 20, expansion: 64, events: 1 << 12, streams: 64, details: 1 << 12 };

const HEADS: [&str; 4] = ["", "Thread,Time,Action,Pointer,Size,Stream\n", "id,lower,upper,size\n", "1 0x10 512 0\n"];

fn survives(content: &[u8], format: Option<Format>) {
    let whole = Options { format, name: Some("fuzz".into()), limits: LIMITS, refused: true, ..Options::default() };
    let part = Options { events: Some(1..5), since: Some(Duration::from_secs(1)), ..whole.clone() };
    for options in [whole, part] {
        is_sound(content, &options);
    }
}

fn is_sound(content: &[u8], options: &Options) {
    match import_content(content, options) {
        Ok(imported) => {
            assert!(imported.trace.events.len() as u64 <= LIMITS.events);
            let text = imported.trace.write_to(Vec::new()).expect("the trace is valid");
            assert_eq!(Trace::parse(&text).expect("what was written can be read"), imported.trace);
        }
        Err(error) => assert!(error.to_string().len() < 10_000, "{error}"),
    }
}

fuzz_target!(|bytes: &[u8]| {
    for format in Format::ALL {
        survives(bytes, Some(format));
    }
    for head in HEADS {
        survives(&[head.as_bytes(), bytes].concat(), None);
    }
    let _ = import(bytes, &Options { limits: LIMITS, ..Options::default() });
});
