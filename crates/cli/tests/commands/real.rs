//! The command on the real devices of this machine, including those in software. Without any, the tests print so and
//! check nothing.

use crate::common::{corpus, devices, run, run_on_machine};
use serde_json::Value;

/// Returns the devices of every backend.
fn real_devices() -> Vec<Value> {
    ["cuda", "vulkan", "wgpu"].into_iter().flat_map(devices).collect()
}

fn rows(args: &[&str]) -> Vec<Value> {
    run_on_machine(args).json()
}

#[test]
fn a_replay_decides_what_it_decides_on_the_simulated_device() {
    let (streams, lone) = (corpus("traces/bert_multistream.trace.gz"), corpus("traces/gnn.trace.gz"));
    let cases =
        [["--policy", "classic", "--passes", "1", &streams], ["--compare", "--no-times", "--passes", "0", &lone]];
    for (device, args) in real_devices().iter().flat_map(|device| cases.map(|args| (device, args))) {
        let name = device["device"].as_str().expect("a name");
        let base = [&["replay", "--scale", "64", "--format", "json"][..], &args].concat();
        let on = |device: &str| rows(&[&base[..], &["--device", device]].concat());
        let (real, simulated) = (on(name), on("sim:pages=none"));
        assert!(!simulated.is_empty());
        for expected in &simulated {
            let found = real.iter().find(|row| row["policy"] == expected["policy"]).expect("the same policies");
            // Where the driver reports how much memory is left, the allocator queries it before it grows, which is a
            // call more.
            let calls = if device["budget"] == true { &[][..] } else { &["driver_calls", "warm_driver_calls"] };
            for &key in ["peak_reserved_bytes", "peak_live_bytes", "num_ooms"].iter().chain(calls) {
                assert_eq!(found[key], expected[key], "{key} under {} on {name}", expected["policy"]);
            }
        }
    }
}

#[test]
fn bytes_are_right_by_one_thread_and_by_several() {
    let file = corpus("traces/gnn.trace.gz");
    for device in real_devices() {
        let name = device["device"].as_str().expect("a name");
        let base = ["replay", "--passes", "0", "--scale", "64", "--format", "json", "--touch", "--device", name, &file];
        let blocks = |rows: &[Value]| rows[0]["checked_blocks"].as_u64().expect("a number");
        let alone = blocks(&rows(&base));
        assert!(alone > 9000, "{alone} blocks on {name}");
        assert_eq!(blocks(&rows(&[&base[..], &["--threads", "2"]].concat())), 2 * alone, "{name}");
        if device["page_granularity_bytes"].is_u64() {
            assert_eq!(blocks(&rows(&[&base[..], &["--policy", "paged"]].concat())), alone, "paged on {name}");
        }
    }
}

#[test]
fn a_device_is_described_and_one_in_software_used_only_by_name() {
    let found = real_devices();
    for device in &found {
        assert!(device["facts"]["driver"].is_string() && device["facts"]["kind"].is_string(), "{device}");
        assert_eq!(device["closing"], if device["backend"] == "cuda" { "backend" } else { "submit" });
        let has_pages = device["page_granularity_bytes"].is_u64();
        let missing = device["missing"].as_array().expect("a list");
        let is_told =
            missing.iter().any(|text| text.as_str().is_some_and(|text| text.contains("falls back to classic")));
        assert_eq!(is_told, !has_pages, "{device}");
        assert_eq!(device["default_policy"], if has_pages { "paged" } else { "classic" });
    }
    let software = |row: &Value| row["facts"]["kind"].as_str().is_some_and(|kind| kind.starts_with("software"));
    if !found.is_empty() && found.iter().all(software) {
        let ran = run_on_machine(&["replay", "--passes", "0", "--pattern", "streams", "--format", "json"]);
        assert_eq!(ran.json()[0]["device"], "sim");
    }
}

#[test]
fn a_device_that_is_not_there_is_refused_with_what_to_do() {
    let backends = [("vulkan", "validation", cfg!(feature = "vulkan")), ("wgpu", "polls", cfg!(feature = "wgpu"))];
    for (backend, options, _) in backends.into_iter().filter(|(_, _, is_built_in)| *is_built_in) {
        run(&["replay", "--device", backend]).fails(3, &["install", "millpond devices"]);
        run(&["replay", "--device", &format!("{backend}:x")]).fails(2, &["`x` is no option", options]);
        if !devices(backend).is_empty() {
            let ran = run_on_machine(&["replay", "--device", &format!("{backend}:99")]);
            ran.fails(3, &["99", "millpond devices"]);
        }
    }
}
