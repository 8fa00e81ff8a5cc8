//! The command on the Vulkan devices of this machine, those in software included. Without any, that is said and skipped.

mod common;

use common::{corpus, devices, run, run_on_machine};
use serde_json::Value;

fn rows(args: &[&str]) -> Vec<Value> {
    run_on_machine(args).json()
}

#[test]
fn a_replay_decides_what_it_decides_on_the_simulated_device() {
    let file = corpus("traces/bert_multistream.trace.gz");
    for device in devices("vulkan") {
        let name = device["device"].as_str().expect("a name");
        let base = ["replay", "--passes", "1", "--scale", "64", "--format", "json", "--compare", &file];
        let on = |device: &str| rows(&[&base[..], &["--device", device]].concat());
        let (real, simulated) = (on(name), on("sim:pages=none"));
        let policies: Vec<_> = real.iter().map(|row| row["policy"].as_str().expect("a policy")).collect();
        assert!(policies.contains(&"classic") && policies.contains(&"direct"), "{policies:?}");
        for expected in &simulated {
            let found = real.iter().find(|row| row["policy"] == expected["policy"]).expect("the same policies");
            // Where the driver tells how much memory is left, it is asked before the allocator grows.
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
    for device in devices("vulkan") {
        let name = device["device"].as_str().expect("a name");
        let base = ["replay", "--passes", "1", "--scale", "64", "--format", "json", "--touch", "--device", name, &file];
        let blocks = |rows: &[Value]| rows[0]["checked_blocks"].as_u64().expect("a number");
        let alone = blocks(&rows(&base));
        assert!(alone > 2 * 9000, "{alone} blocks on {name}");
        assert_eq!(blocks(&rows(&[&base[..], &["--threads", "2"]].concat())), 2 * alone, "{name}");
        if device["page_granularity_bytes"].is_u64() {
            assert_eq!(blocks(&rows(&[&base[..], &["--policy", "paged"]].concat())), alone, "paged on {name}");
        }
    }
}

#[test]
fn a_device_is_described_and_one_in_software_used_only_by_name() {
    let found = devices("vulkan");
    for device in &found {
        assert!(device["facts"]["driver"].is_string() && device["facts"]["queue families"].is_string(), "{device}");
        assert_eq!(device["closing"], "submit");
        let has_pages = device["page_granularity_bytes"].is_u64();
        let missing = device["missing"].as_array().expect("a list");
        let lacks = |what: &str| missing.iter().any(|text| text.as_str().is_some_and(|text| text.starts_with(what)));
        assert_eq!(lacks("sparse buffers"), !has_pages, "{device}");
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
    run(&["replay", "--device", "vulkan"]).fails(3, &["install", "VK_DRIVER_FILES", "millpond devices"]);
    run(&["replay", "--device", "vulkan:x"]).fails(2, &["`x` is no option", "validation"]);
    if !devices("vulkan").is_empty() {
        let ran = run_on_machine(&["replay", "--device", "vulkan:99"]);
        ran.fails(3, &["no Vulkan device 99", "millpond devices"]);
    }
}
