//! `millpond diff`, as people start it.

use crate::common::{Scratch, run};

fn snapshot(name: &str) -> String {
    format!("{}/../snapshot/tests/fixtures/{name}", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn tables_tell_what_grew_in_80_columns() {
    let (before, after) = (snapshot("example.4.pickle"), snapshot("later.pickle"));
    let ran = run(&["diff", &before, &after]);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
    for line in ran.stdout.lines() {
        assert!(line.chars().count() <= 80, "{} characters: {line}", line.chars().count());
    }
    let has =
        |parts: &[&str]| ran.stdout.lines().any(|line| line.split_whitespace().collect::<Vec<_>>().starts_with(parts));
    for parts in [
        &["segments", "3", "3", "0"][..],
        &["allocated", "3.00", "MiB", "11.00", "MiB", "+8.00", "MiB"],
        &["active_pending_free", "4.00", "MiB", "0", "bytes", "-4.00", "MiB", "-1"],
        &["up", "to", "8.00", "MiB", "0", "bytes", "8.00", "MiB", "+8.00", "MiB", "+1"],
        &["0x55843b717e00", "4.00", "MiB"],
        &["??:0:at::detail::empty_generic()", "5.00", "MiB", "9.00", "MiB", "+4.00", "MiB", "0"],
        &["0x7f2c48000000", "0", "new", "20.00", "MiB"],
        &["0x7f2c42000000", "0", "gone", "20.00", "MiB"],
    ] {
        assert!(has(parts), "{parts:?} in\n{}", ran.stdout);
    }
}

#[test]
fn places_are_told_apart_by_their_frames_and_counted() {
    let (before, after) = (snapshot("legacy.pickle"), snapshot("later.pickle"));
    let ran = run(&["diff", &before, &after, "--frames", "3", "--rows", "1"]);
    let is_shortened = |line: &str| line.starts_with("??:0:at::detail::") && line.contains('…');
    assert!(ran.stdout.lines().any(is_shortened), "{}", ran.stdout);
    let wide = run(&["--wide", "diff", &before, &after, "--frames", "3", "--rows", "1"]);
    assert!(wide.stdout.contains("??:0:at::detail::empty_generic() < line"), "{}", wide.stdout);
    assert!(ran.stdout.contains(" more: --rows "), "{}", ran.stdout);
    assert!(ran.stdout.lines().all(|line| line.chars().count() <= 80), "{}", ran.stdout);
}

#[test]
fn json_has_everything() {
    let (before, after) = (snapshot("example.json"), snapshot("later.pickle"));
    let row = run(&["diff", &before, &after, "--json", "--frames", "9"]).json().remove(0);
    assert_eq!(run(&["diff", &before, &after, "--format", "json", "--frames", "9"]).json()[0], row);
    assert_eq!(row["before"]["reserved_bytes"], 24 << 20);
    assert_eq!((&row["after"]["segments"], &row["segments"][1]["is"]), (&3.into(), &"new".into()));
    let place = &row["places"][0];
    assert_eq!(place["key"], "??:0:at::detail::empty_generic() < linear.py:125:forward < train.py:31:step");
    assert_eq!((&place["before_bytes"], &place["after_blocks"]), (&(5 << 20).into(), &2.into()));
    assert_eq!(row["states"].as_array().map(Vec::len), Some(3));
}

#[test]
fn equal_snapshots_have_no_difference() {
    let (one, other) = (snapshot("example.json"), snapshot("example.pt"));
    let ran = run(&["diff", &one, &other]);
    assert_eq!(ran.stdout.matches(": no difference\n").count(), 5, "{}", ran.stdout);
}

#[test]
fn errors_name_the_file_the_place_and_the_fix() {
    let good = snapshot("example.json");
    run(&["diff", &good, "no/such.json"]).fails(2, &["cannot open no/such.json", "give the path of a snapshot"]);
    run(&["diff", &good]).fails(2, &["<AFTER>"]);
    let wrong = Scratch::new("wrong.json", b"[{\"address\": \"x\"}]");
    let says = [wrong.path(), "byte 13, [0].address: found a text, expected a whole number"];
    run(&["diff", wrong.path(), &good]).fails(2, &says);
    run(&["diff", &good, &good, "--limits", "values=9"])
        .fails(2, &["more than 9 values", "raise `values` of its limits to 478: --limits values=478, or `none`"]);
    run(&["diff", &good, &good, "--limits", "events=9"]).fails(2, &["`events` is no limit"]);
}
