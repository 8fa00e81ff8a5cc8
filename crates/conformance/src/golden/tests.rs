//! Tests that every recording is read. Departures from the format are in the table of malformed inputs.

use std::path::PathBuf;

use super::*;

fn corpus() -> Vec<PathBuf> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/corpus/golden");
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

#[test]
fn the_smallest_recording_is_read_in_full() {
    let path = corpus().into_iter().find(|path| path.ends_with("limited-large.jsonl.gz")).unwrap();
    let recording = Recording::read(path).unwrap();
    assert_eq!((recording.name.as_str(), recording.seed, recording.shape.as_str()), ("limited", 14, "large"));
    assert_eq!(recording.total, 150_109_880_320);
    // 700 MiB, and the 1e-9 of the device by which the share was raised.
    assert_eq!(recording.limit_bytes, Some(700 * (1 << 20) + 150));
    let begin = &recording.ops[0];
    assert_eq!((begin.line, &begin.kind, begin.changed.len()), (2, &OpKind::Begin, 122));
    assert_eq!(begin.layout.as_deref(), Some(&[][..]));
    let failed = recording.ops.iter().find_map(|op| match &op.kind {
        OpKind::Alloc { id, addr: None, oom: Some(message), .. } => Some((*id, message.clone())),
        _ => None,
    });
    let (id, message) = failed.unwrap();
    assert!(id == 24 && message.starts_with("CUDA out of memory. Tried to allocate 96.00 MiB."), "{id}: {message}");
}

#[test]
fn every_recording_is_valid() {
    let paths = corpus();
    assert_eq!(paths.len(), 17);
    // Only the smaller ones, because the replay reads all of them.
    for path in paths.iter().filter(|path| path.metadata().unwrap().len() < 200_000) {
        let recording = Recording::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert!(recording.ops.len() > 400, "{}: {}", path.display(), recording.ops.len());
    }
}

#[test]
fn a_missing_file_is_named() {
    let message = Recording::read("/nonexistent/golden").unwrap_err().to_string();
    assert!(message.starts_with("cannot open /nonexistent/golden: "), "{message}");
}
