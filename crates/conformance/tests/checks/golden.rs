//! A test that every recording of PyTorch's allocator is reproduced, operation by operation.

use std::path::Path;

use millpond_conformance::golden::{Recording, replay};

#[test]
fn every_recording_is_matched() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/corpus/golden");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 17, "only {} recordings are there", files.len());
    let mut failed = Vec::new();
    for file in &files {
        let recording = Recording::read(file).unwrap();
        let outcome = replay(&recording).unwrap();
        let name = file.file_name().unwrap().to_string_lossy();
        println!("{name}: matched {} of {}", outcome.matched, outcome.total);
        if let Some(difference) = outcome.difference {
            failed.push(format!("{name}: {difference}"));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
