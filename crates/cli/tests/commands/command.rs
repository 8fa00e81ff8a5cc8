//! What holds for every command: help, devices, exit codes, and readers that go away.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use crate::common::{command, corpus, run};
use millpond_trace::Pattern;

#[test]
fn help_tells_the_exit_codes_and_examples() {
    for command in ["", "replay", "golden", "devices", "import", "diff"] {
        let args = [command, "--help"];
        let ran = run(if command.is_empty() { &args[1..] } else { &args });
        assert_eq!(ran.code, Some(0));
        assert!(ran.stdout.contains("Exit codes:"), "{args:?}: {}", ran.stdout);
    }
    assert!(run(&["replay", "--help"]).stdout.contains("millpond replay --compare"));
    let help = run(&["replay", "--help"]).stdout;
    let words = help.split_whitespace().collect::<Vec<_>>().join(" ");
    for pattern in Pattern::ALL {
        assert!(words.contains(&format!("{pattern} {}", pattern.about())), "{pattern}: {help}");
    }
    let line_of = |name: &str| help.lines().position(|line| line.trim_start().starts_with(&format!("- {name}:")));
    let lines = ["paged", "tight", "classic", "expandable", "direct", "auto"].map(line_of);
    assert!(lines.iter().all(Option::is_some) && lines.is_sorted(), "a line on each policy, in order: {help}");
    assert!(words.contains("tight: paged that waits") && words.contains("growth:tight"), "{help}");
    assert!(run(&["--version"]).stdout.starts_with("millpond "));
}

#[test]
fn wrong_usage_exits_with_2() {
    run(&[]).fails(2, &["Usage: millpond"]);
    run(&["fly"]).fails(2, &["fly"]);
    run(&["devices", "--format", "xml"]).fails(2, &["xml", "json"]);
}

#[test]
fn devices_lists_every_backend_and_what_is_missing() {
    let text = run(&["devices"]);
    assert_eq!(text.code, Some(0));
    assert!(text.stdout.contains("sim: simulated H200\n"), "{}", text.stdout);
    assert!(text.stdout.contains("139.80 GiB") && text.stdout.contains("pages of 2.00 MiB"), "{}", text.stdout);

    let rows = run(&["devices", "--format", "json"]).json();
    let backends: Vec<_> = rows.iter().map(|row| row["backend"].as_str().expect("a backend")).collect();
    for backend in ["cuda", "vulkan", "wgpu", "sim"] {
        assert!(backends.contains(&backend), "{backends:?}");
        assert!(text.stdout.contains(&format!("{backend}:")), "{}", text.stdout);
    }
    let sim = rows.iter().find(|row| row["backend"] == "sim").expect("the simulated device");
    assert_eq!((&sim["available"], &sim["device"]), (&true.into(), &"sim".into()));
    assert_eq!(sim["classes"][0]["total_bytes"], 150_109_880_320_u64);
    assert_eq!(sim["classes"][0]["free_bytes"], 150_109_880_320_u64);
    assert_eq!((&sim["reuse"], &sim["closing"]), (&"in-order".into(), &"backend".into()));
    assert_eq!(sim["default_policy"], "paged");
    let reason = sim["default_policy_reason"].as_str().expect("a reason");
    let words = text.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains(&format!("default policy paged: {reason}")), "{}", text.stdout);
}

/// A backend without a device says why when it is listed, and exits with 3 when it is asked for.
#[test]
fn a_missing_device_exits_with_3() {
    for row in run(&["devices", "--format", "json"]).json().iter().filter(|row| row["available"] == false) {
        assert!(row["reason"].as_str().is_some_and(|why| !why.is_empty()), "{row}");
        let backend = row["backend"].as_str().expect("a backend");
        run(&["replay", "--device", backend]).fails(3, &[backend, "millpond devices"]);
    }
}

/// A reader that takes one line and closes the pipe, as `head -1` does, ends the command without an error.
#[test]
fn a_reader_may_go_away() {
    let trace = corpus("traces/gnn.trace.gz");
    let mut args = vec!["replay", "--format", "json", "--passes", "0"];
    args.extend([trace.as_str(); 20]);
    let mut child = command(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the command starts");
    let mut reader = BufReader::new(child.stdout.take().expect("piped"));
    let mut line = String::new();
    reader.read_line(&mut line).expect("a line");
    assert!(line.starts_with("{\"trace\":\"gnn\""), "{line}");
    drop(reader);
    let ended = child.wait_with_output().expect("it ends");
    assert_eq!(ended.status.code(), Some(0));
    assert_eq!(String::from_utf8_lossy(&ended.stderr), "");
}

/// A full disk makes the command fail.
#[cfg(target_os = "linux")]
#[test]
fn results_that_cannot_be_written_exit_with_2() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("the full device");
    let output = command(&["devices"]).stdout(full).output().expect("the command starts");
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("cannot write the results"));
}

#[test]
fn nothing_moves_in_a_pipe() {
    let ran = run(&["replay", "--passes", "0", &corpus("traces/gnn.trace.gz")]);
    assert!(!ran.stdout.contains(['\r', '\u{1b}']) && ran.stderr.is_empty(), "{}", ran.stderr);
}
