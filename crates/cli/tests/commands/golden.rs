//! `millpond golden`, as people start it.

use std::io::Read as _;

use crate::common::{Scratch, corpus, run};
use flate2::read::GzDecoder;

/// Returns the smallest recording, decompressed.
fn recording() -> String {
    let file = std::fs::File::open(corpus("golden/expand-large.jsonl.gz")).expect("a recording");
    let mut text = String::new();
    GzDecoder::new(file).read_to_string(&mut text).expect("gzip");
    text
}

/// Returns the recording with one statistic changed in the first line after the 100th that lists it.
fn tampered() -> String {
    let text = recording();
    let key = "\"num_device_alloc\":";
    let (line, start) = text
        .lines()
        .enumerate()
        .skip(100)
        .find_map(|(number, line)| Some((number, line.find(key)? + key.len())))
        .expect("a later allocation by the driver");
    let changed = |(number, text): (usize, &str)| {
        if number == line {
            format!("{}9{}\n", &text[..start], text[start..].trim_start())
        } else {
            format!("{text}\n")
        }
    };
    text.lines().enumerate().map(changed).collect()
}

#[test]
fn recordings_match() {
    let (small, large) = (corpus("golden/expand-limited.jsonl.gz"), corpus("golden/expand-large.jsonl.gz"));
    let ran = run(&["golden", &small, &large]);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
    let lines: Vec<&str> = ran.stdout.lines().collect();
    assert_eq!(lines.len(), 2);
    for (line, name) in lines.iter().zip(["expand-limited", "expand-large"]) {
        let counts = line.strip_prefix(&format!("{name}: matched ")).expect(line);
        let (matched, total) = counts.split_once(" of ").expect(line);
        assert_eq!(matched, total);
        assert!(total.parse::<usize>().is_ok_and(|total| total > 100), "{line}");
    }
}

#[test]
fn a_difference_is_shown_in_full_and_fails() {
    let scratch = Scratch::new("tampered.jsonl", tampered().as_bytes());
    let ran = run(&["golden", scratch.path(), &corpus("golden/expand-limited.jsonl.gz")]);
    ran.fails(1, &["1 of 2 recordings differ"]);
    let lines: Vec<&str> = ran.stdout.lines().collect();
    assert!(lines[0].starts_with(&format!("{}: matched ", scratch.name(".jsonl"))), "{}", ran.stdout);
    assert!(lines[1].starts_with("  line "), "{}", ran.stdout);
    assert!(ran.stdout.contains("num_device_alloc"), "{}", ran.stdout);
    assert!(
        lines.last().is_some_and(|line| line.starts_with("expand-limited: matched")),
        "the next one is replayed too"
    );

    let json = run(&["golden", "--format", "json", scratch.path()]);
    assert_eq!(json.code, Some(1));
    let row = &json.values()[0];
    assert_eq!(row["is_match"], false);
    assert!(row["matched"].as_u64() < row["total"].as_u64(), "{row}");
    assert!(row["difference"].as_str().is_some_and(|text| text.contains("num_device_alloc")), "{row}");
}

#[test]
fn json_says_what_matched() {
    let file = corpus("golden/expand-large.jsonl.gz");
    let rows = run(&["golden", "--format", "json", &file]).json();
    assert_eq!(rows.len(), 1);
    assert_eq!((&rows[0]["name"], &rows[0]["is_match"]), (&"expand-large".into(), &true.into()));
    assert_eq!(rows[0]["matched"], rows[0]["total"]);
    assert!(rows[0]["difference"].is_null());
}

#[test]
fn what_is_no_recording_is_refused_and_the_rest_replayed() {
    let scratch = Scratch::new("noise.jsonl", b"{\"op\": 1}\n");
    let ran = run(&["golden", scratch.path(), "no/such.jsonl.gz", &corpus("golden/expand-large.jsonl.gz")]);
    ran.fails(2, &[scratch.path(), "line 1", "cannot open no/such.jsonl.gz", "2 of 3 files could not be replayed"]);
    assert!(ran.stdout.starts_with("expand-large: matched "), "{}", ran.stdout);
    run(&["golden"]).fails(2, &["<FILE>"]);
}
