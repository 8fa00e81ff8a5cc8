//! Any bytes behind a valid beginning: the reader returns, and a recording that it accepts is consistent.

#![no_main]

use std::fmt::Write as _;
use std::io::Read;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use millpond_conformance::golden::{OpKind, Recording};
use millpond_core::stats::MemoryStats;

/// A header and the operation `begin`, which the fuzzer would hardly find.
static BEGINNING: LazyLock<String> = LazyLock::new(|| {
    let mut text = String::from(
        "{\"name\":\"n\",\"seed\":1,\"conf\":\"\",\"limit_mb\":0,\"shape\":\"s\",\"torch\":\"2.11\",\"total\":1}\n",
    );
    text.push_str("{\"op\":\"begin\",\"d\":{");
    for (index, (key, value)) in MemoryStats::default().flat().iter().enumerate() {
        let comma = if index == 0 { "" } else { "," };
        write!(text, "{comma}\"{key}\":{value}").expect("a string takes any text");
    }
    text.push_str("}}\n");
    text
});

fuzz_target!(|bytes: &[u8]| {
    // The bytes alone: headers, and compressed input.
    let _ = Recording::from_reader(bytes);
    if let Ok(recording) = Recording::from_reader(BEGINNING.as_bytes().chain(bytes)) {
        for (index, op) in recording.ops.iter().enumerate() {
            assert_eq!(op.line, index + 2);
            assert_eq!(op.kind == OpKind::Begin, index == 0);
            if let OpKind::Alloc { addr, oom, .. } = &op.kind {
                assert!(addr.is_some() != oom.is_some());
            }
            for row in op.layout.iter().flatten() {
                assert_eq!(row.blocks.iter().map(|block| block.size).sum::<u64>(), row.total);
            }
        }
    }
});
