//! `millpond conformance`, as people start it. Whether the allocator passes is checked by the suite's own tests.

use std::collections::BTreeSet;

use crate::common::run;

const KIND: &str = "simulated, closing by Backend, reuse InOrder, completion Immediate";

#[test]
fn every_scenario_has_a_line_and_failures_decide_the_exit_code() {
    let ran = run(&["conformance", "--device", "sim", "--only", KIND, "--format", "json"]);
    let rows = ran.values();
    let count = |outcome: &str| rows.iter().filter(|row| row["outcome"] == outcome).count();
    let failed = count("failed");
    assert!(count("passed") > 100, "{} passed", count("passed"));
    assert_eq!(count("passed") + failed + count("skipped") + count("differs"), rows.len());
    if failed == 0 {
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
    } else {
        ran.fails(1, &[&format!("{failed} of {} scenarios failed", rows.len())]);
    }
    assert!(rows.iter().all(|row| row["device"].as_str().is_some_and(|name| name.contains(KIND))));
    assert!(rows.iter().all(|row| row["outcome"] == "passed" || row["detail"].is_string()), "with a reason");
    let names: BTreeSet<_> = rows.iter().map(|row| row["scenario"].as_str().expect("a scenario")).collect();
    assert_eq!(names.len(), rows.len(), "each once");
}

#[test]
fn the_table_counts_by_device_and_by_group() {
    let groups = ["alignment", "reuse", "threads", "decisions"];
    let ran = run(&["conformance", "--only", KIND, "--group", "reuse,decisions", "--group", "alignment,threads"]);
    assert!(matches!(ran.code, Some(0 | 1)), "{}", ran.stderr);
    let rows: Vec<Vec<&str>> = ran.stdout.lines().map(|line| line.split_whitespace().collect()).collect();
    let totals: Vec<_> = rows.iter().filter(|row| row.first() == Some(&"all")).collect();
    assert_eq!(totals.len(), 2, "{}", ran.stdout);
    assert_eq!(totals[0][1..5], totals[1][1..5]);
    let named: Vec<_> = rows.iter().filter(|row| row.len() > 5).map(|row| row[0]).collect();
    assert!(groups.iter().all(|group| named.contains(group)), "{}", ran.stdout);
    assert!(!named.contains(&"faults") && !named.contains(&"sizes"), "{}", ran.stdout);
    run(&["conformance", "--group", "limit"]).fails(2, &["limit", "limits"]);
}

/// Scenarios that run side by side are the same, and are told in the same order.
#[test]
fn side_by_side_scenarios_are_told_in_order() {
    let told = |jobs: &str| -> Vec<_> {
        let groups = "reuse,budget,threads,faults";
        let ran = run(&["conformance", "--only", KIND, "--group", groups, "--jobs", jobs, "--device", "sim", "--json"]);
        let told = |row: serde_json::Value| (row["scenario"].clone(), row["outcome"].clone());
        ran.values().into_iter().map(told).collect()
    };
    let one = told("1");
    assert!(one.len() > 40, "{} scenarios", one.len());
    assert_eq!(told("3"), one);
    run(&["conformance", "--jobs", "0"]).fails(2, &["--jobs"]);
    run(&["conformance", "--soak", "1", "--jobs", "2"]).fails(2, &["cannot be used with"]);
}

#[test]
fn a_soak_runs_seeds_that_repeat() {
    let ran = run(&["conformance", "--soak", "6", "--seed", "100", "--format", "json"]);
    let mut rows = ran.json();
    rows.sort_by_key(|row| row["seed"].as_u64());
    let seeds: Vec<_> = rows.iter().map(|row| row["seed"].as_u64()).collect();
    assert_eq!(seeds, (100..106).map(Some).collect::<Vec<_>>());
    assert!(rows.iter().all(|row| row["outcome"] == "passed"), "{}", ran.stdout);
    let again = run(&["conformance", "--soak", "1", "--seed", "103", "--format", "json"]);
    assert_eq!(again.json(), rows[3..4]);
    let table = run(&["conformance", "--soak", "6", "--seed", "100"]);
    assert_eq!(table.code, Some(0), "{}", table.stderr);
    let rows = table.stdout.lines().skip(1).filter(|line| !line.starts_with("in "));
    let runs = rows.filter_map(|row| row.split_whitespace().nth(1)?.parse::<u64>().ok());
    assert_eq!(runs.sum::<u64>(), 6, "{}", table.stdout);
}

#[test]
fn what_the_suite_does_not_heed_is_refused() {
    run(&["conformance", "--soak", "0"]).fails(2, &["--soak"]);
    run(&["conformance", "--seed", "1"]).fails(2, &["--soak"]);
    run(&["conformance", "--soak", "1", "--device", "sim"]).fails(2, &["cannot be used with"]);
    run(&["conformance", "--soak", "2", "--seed", &u64::MAX.to_string()]).fails(2, &["leave the seeds"]);
    run(&["conformance", "--device", "sim:bytes=1GiB"]).fails(2, &["`--device sim` without options"]);
    run(&["conformance", "--device", "abacus"]).fails(2, &["no backend is called `abacus`"]);
    run(&["conformance", "--only", "steam"]).fails(2, &["no device has `steam` in its name", KIND]);
}
