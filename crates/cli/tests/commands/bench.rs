//! `millpond bench`, quickly, on the simulated device and on those of this machine.

use std::collections::BTreeSet;

use crate::common::{devices, run, run_on_machine};
use serde_json::Value;

fn groups(rows: &[Value]) -> BTreeSet<&str> {
    rows.iter().map(|row| row["group"].as_str().expect("a group")).collect()
}

fn expect_sound(rows: &[Value]) {
    for row in rows {
        assert!(row["ns"].as_f64().is_some_and(|ns| ns >= 0.0), "{row}");
        let quantiles = ["p50_ns", "p99_ns", "p999_ns"].map(|key| row[key].as_u64());
        assert!(quantiles.is_sorted(), "{row}");
        assert_eq!(row["group"] == "cached", quantiles[0].is_some(), "{row}");
        assert_eq!(row["group"] == "transfer", row["gib_per_s"].is_f64(), "{row}");
        assert_eq!(row["group"] == "pinned", row["waste"].is_f64() && row["driver_calls"].is_u64(), "{row}");
        assert_eq!(row["group"] == "peer", row["times_millpond"].is_f64(), "{row}");
    }
    let cached = rows.iter().filter(|row| row["group"] == "cached").count();
    assert_eq!(cached, 3, "a row for each kind of segment");
}

#[test]
fn the_simulated_device_tells_what_its_calls_would_cost() {
    let ran = run(&["bench", "--quick", "--device", "sim", "--format", "json"]);
    let rows = ran.json();
    expect_sound(&rows);
    assert_eq!(groups(&rows), BTreeSet::from(["driver", "cached", "streams", "pages", "trace"]));
    assert!(
        ["transfers", "scrubbing", "pinned memory"].iter().all(|group| {
            ran.stderr.contains(&format!("note: {group} left out: a simulated device moves bytes in no time"))
        }),
        "{}",
        ran.stderr
    );
    for row in &rows {
        let of_driver = ["driver", "pages"].contains(&row["group"].as_str().expect("a group"));
        assert_eq!(row["clock"], if of_driver { "device" } else { "host" }, "{row}");
    }
    for row in &rows {
        assert_eq!(
            (&row["device_name"], &row["version"]),
            (&"simulated H200".into(), &env!("CARGO_PKG_VERSION").into())
        );
        assert_eq!(row["group"] == "trace", row["trace_digest"].is_string(), "{row}");
    }
    // The simulated clock is the same on every machine: it has the times that an H200 took.
    let again = run(&["bench", "--quick", "--device", "sim", "--format", "json"]).json();
    let simulated = |rows: &[Value]| -> Vec<Value> {
        let mut rows: Vec<_> = rows.iter().filter(|row| row["clock"] == "device").cloned().collect();
        rows.iter_mut().for_each(|row| row["date"] = Value::Null);
        rows
    };
    assert_eq!(simulated(&rows), simulated(&again));
    assert!(simulated(&rows).iter().all(|row| row["ns"].as_f64() > Some(1000.0)), "an H200's calls take microseconds");
    let again = |row: &&Value| row["group"] == "pages" && row["case"] == "map a page once more, for another stream";
    assert_eq!(rows.iter().filter(again).count(), 1);
}

#[test]
fn a_table_is_for_people_and_what_is_missing_is_left_out() {
    let ran = run(&["bench", "--quick", "--device", "sim:pages=none,bytes=64MiB"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.stdout.starts_with("On sim (simulated H200); medians of 3 rounds\n"), "{}", ran.stdout);
    assert!(ran.stdout.contains("take a segment") && !ran.stdout.contains("map a page"), "{}", ran.stdout);
    assert!(ran.stdout.contains("sizes divided by "), "the trace is made to fit: {}", ran.stdout);
    assert!(ran.stderr.contains("note: pages left out: the device has no virtual memory"), "{}", ran.stderr);
    let two = run(&["bench", "--quick", "--device", "sim:pages=none,bytes=64MiB,sim:pages=none"]).stdout;
    assert_eq!(two.matches("On sim (simulated H200); medians").count(), 2, "{two}");
    run(&["bench", "--device", "cuda"]).fails(3, &["cuda", "millpond devices"]);
}

#[test]
fn devices_of_this_machine_are_measured_beside_their_peers() {
    for backend in ["cuda", "vulkan", "wgpu"] {
        for device in devices(backend) {
            let name = device["device"].as_str().expect("a name");
            let rows = run_on_machine(&["bench", "--quick", "--device", name, "--format", "json"]).json();
            expect_sound(&rows);
            let mut expected = BTreeSet::from(["driver", "cached", "streams", "transfer", "scrub", "trace", "peer"]);
            if device["page_granularity_bytes"].is_u64() {
                expected.insert("pages");
            }
            if backend != "wgpu" {
                expected.insert("pinned");
            }
            assert_eq!(groups(&rows), expected, "{name}");
            assert!(rows.iter().all(|row| row["clock"] == "host" && row["device"] == backend), "{name}");
        }
    }
}
