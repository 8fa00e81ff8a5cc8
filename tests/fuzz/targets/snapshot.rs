//! Any bytes, alone and as the pickle of a snapshot's field: the reader returns within its limits, and what it accepts
//! can be written in every format and read again.

#![no_main]

use libfuzzer_sys::fuzz_target;
use millpond_snapshot::{Limits, Snapshot, SnapshotError, VmaDevice};

/// Limits beyond which an input is not worth the time.
const LIMITS: Limits = Limits { bytes: 1 << 20, expansion: 64, values: 1 << 14 };

fn survives(content: &[u8]) {
    let snapshot = match Snapshot::parse(content, &LIMITS) {
        Ok(snapshot) => snapshot,
        Err(error) => {
            if let SnapshotError::Content { place, .. } = &error {
                assert!(place.at <= content.len() as u64, "{error}");
            }
            assert!(error.to_string().len() < 10_000, "{error}");
            return;
        }
    };
    let blocks: usize = snapshot.segments.iter().map(|segment| segment.blocks.len()).sum();
    assert!(blocks as u64 <= LIMITS.values, "{blocks} blocks");
    assert!(snapshot.diff(&snapshot, 2).segments.iter().all(|change| change.growth() != 0));
    snapshot.write_vma(&VmaDevice::default(), Vec::new()).expect("memory takes it");
    for written in [snapshot.write_json(Vec::new()), snapshot.write_pickle(Vec::new())] {
        let written = written.expect("memory takes it");
        assert_eq!(Snapshot::parse(&written, &Limits::NONE).expect("what was written can be read"), snapshot);
    }
}

fuzz_target!(|bytes: &[u8]| {
    survives(bytes);
    let _ = Snapshot::from_reader(bytes, &LIMITS);
    // A beginning that the fuzzer would hardly find.
    survives(&[b"\x80\x04}(\x8c\x08segments]\x8c\x0ddevice_traces", bytes, b"u."].concat());
});
