//! CUDA without a driver, and every command on the simulated driver.

#![cfg(all(feature = "cuda", target_os = "linux"))] // Where the simulated driver is.

use std::collections::BTreeSet;

use crate::common::{corpus, run, run_on_simulated_cuda};
use serde_json::Value;

fn rows(args: &[&str]) -> Vec<Value> {
    run_on_simulated_cuda(&[args, &["--format", "json"]].concat()).json()
}

#[test]
fn without_a_device_every_command_says_what_to_do() {
    let listed = run(&["devices", "--format", "json"]).json();
    let cuda = listed.iter().find(|row| row["backend"] == "cuda").expect("it is listed");
    assert_eq!(cuda["available"], false);
    // The first is given where there is no driver, the second where a driver lists no device.
    let remedies = ["install the NVIDIA driver", "CUDA_VISIBLE_DEVICES"];
    let told = |text: &str| remedies.iter().any(|remedy| text.contains(remedy));
    assert!(cuda["remedy"].as_str().is_some_and(told), "{cuda}");
    let trace = corpus("traces/gnn.trace.gz");
    let commands: [&[&str]; 5] = [
        &["replay", "--device", "cuda", &trace],
        &["replay", "--touch", "--device", "cuda:0,alloc=async", &trace],
        &["bench", "--quick", "--device", "cuda:0,pages=none"],
        &["sameness", "--device", "cuda:0", "--seeds", "1"],
        &["conformance", "--device", "cuda:0"],
    ];
    for args in commands {
        let ran = run(args);
        ran.fails(3, &["--device cuda", "millpond devices"]);
        assert!(told(&ran.stderr), "{}", ran.stderr);
    }
    run(&["replay", "--device", "cuda:x"]).fails(2, &["`x` is no option", "alloc=async"]);
}

#[test]
fn devices_are_listed_with_their_facts() {
    let listed = rows(&["devices"]);
    let devices: Vec<_> = listed.iter().filter(|row| row["backend"] == "cuda").collect();
    assert_eq!(devices.len(), 2, "{listed:?}");
    for (at, device) in devices.iter().enumerate() {
        assert_eq!((&device["available"], &device["closing"]), (&true.into(), &"backend".into()), "{device}");
        assert_eq!(device["device"], format!("cuda:{at}"));
        assert_eq!(device["facts"]["peers"], format!("cuda:{}", 1 - at));
        assert_eq!(device["facts"]["virtual memory"], "yes");
        assert!(device["facts"]["driver"].as_str().is_some_and(|driver| driver.starts_with("CUDA 1")), "{device}");
        assert!(device["facts"]["compute capability"].as_str().is_some_and(|told| told.contains('.')), "{device}");
        assert_eq!(device["missing"], Value::Array(Vec::new()));
        assert_eq!(device["classes"][0]["free_bytes"], device["classes"][0]["total_bytes"]);
        assert_eq!(device["default_policy"], "paged");
        let usage = &device["memory_usage"];
        assert_eq!((&usage["used_bytes"], &usage["untold_bytes"]), (&0.into(), &0.into()), "{device}");
        assert!(usage["process_bytes"].is_null() && usage["others_bytes"].is_null(), "nobody tells: {device}");
    }
    run_on_simulated_cuda(&["replay", "--device", "cuda:2"]).fails(3, &["no CUDA device 2", "millpond devices"]);
}

#[test]
fn it_is_the_first_choice_and_its_bytes_are_right() {
    let trace = corpus("traces/gnn.trace.gz");
    let base = ["replay", "--passes", "0", "--scale", "64", "--touch", &trace];
    let chosen = rows(&base);
    assert_eq!((&chosen[0]["device"], &chosen[0]["policy"]), (&"cuda".into(), &"paged".into()));
    assert!(chosen[0]["checked_blocks"].as_u64().is_some_and(|blocks| blocks > 9000), "{chosen:?}");
    for (device, policy) in [("cuda:1,pages=none", "classic"), ("cuda:0,alloc=async", "paged")] {
        let found = rows(&[&base[..], &["--device", device]].concat());
        assert_eq!((&found[0]["policy"], &found[0]["checked_blocks"]), (&policy.into(), &chosen[0]["checked_blocks"]));
    }
    let refused = ["replay", "--policy", "paged", "--device", "cuda:0,pages=none", &trace];
    assert_ne!(run_on_simulated_cuda(&refused).code, Some(0), "an option that is not heeded");
}

/// The library that reports memory by process does not know the devices of the simulated driver.
#[test]
fn a_summary_says_where_the_devices_memory_is() {
    let base = ["replay", "--device", "cuda:1", "--passes", "0", "--scale", "64", "--summary"];
    let trace = corpus("traces/gnn.trace.gz");
    let row = &rows(&[&base[..], &[&trace]].concat())[0];
    let usage = |key: &str| row["memory_usage"][key].as_u64().unwrap_or_else(|| panic!("no {key}: {row}"));
    let (used, reserved) = (usage("used_bytes"), usage("reserved_bytes"));
    assert_eq!((used, used), (reserved + usage("untold_bytes"), usage("total_bytes") - usage("free_bytes")));
    assert!(reserved > 0 && row["memory_usage"]["process_bytes"].is_null(), "{row}");
    let text = run_on_simulated_cuda(&[&base[..], &[&trace]].concat()).stdout;
    for told in ["Device memory in use", "reserved here", "context, others", "Device memory free"] {
        assert!(text.contains(told), "no {told}: {text}");
    }
    assert!(rows(&[&base[..7], &[&trace]].concat())[0].get("memory_usage").is_none());
}

#[test]
fn it_decides_what_the_simulated_device_decides() {
    let found = rows(&["sameness", "--device", "cuda:0", "--device", "cuda:1,alloc=async", "--seeds", "2"]);
    assert!(!found.is_empty());
    for row in &found {
        let cells = row["cells"].as_array().expect("a list");
        let digests: BTreeSet<_> = cells.iter().map(|cell| cell["digest"].as_str().expect("it was run")).collect();
        assert_eq!(digests.len(), 1, "{row}");
    }
}

#[test]
fn it_is_measured_beside_the_drivers_own_ways() {
    let found = rows(&["bench", "--quick", "--device", "cuda:0"]);
    let groups: BTreeSet<_> = found.iter().map(|row| row["group"].as_str().expect("a group")).collect();
    let known = ["driver", "cached", "streams", "pages", "transfer", "scrub", "pinned", "trace", "peer"];
    assert_eq!(groups, BTreeSet::from(known));
    let pinned: Vec<_> = found.iter().filter(|row| row["group"] == "pinned").collect();
    let [cached, roomy, driver] = pinned[..] else { panic!("{pinned:?}") };
    assert!(cached["waste"].as_f64() < Some(0.15), "{cached}");
    assert!(driver["driver_calls"].as_u64() >= Some(200), "each copy takes its memory and gives it back: {driver}");
    assert!(cached["driver_calls"].as_u64() < Some(100), "{cached}");
    assert!(roomy["driver_calls"].as_u64() < cached["driver_calls"].as_u64(), "{roomy} {cached}");
    for peer in ["cuMemAlloc and cuMemFree", "cuMemAllocAsync and cuMemFreeAsync"] {
        let is_peers = |row: &&Value| row["case"].as_str().is_some_and(|case| case.ends_with(peer));
        let measured: Vec<_> = found.iter().filter(is_peers).collect();
        assert_eq!(measured.len(), 3, "a row of {peer} for each of the cache's");
        assert!(measured.iter().all(|row| row["times_millpond"].is_f64() && row["device"] == "cuda"), "{measured:?}");
    }
}

#[test]
fn the_suite_certifies_the_device_as_it_was_asked_for() {
    let ran = run_on_simulated_cuda(&["conformance", "--device", "cuda:1,alloc=async,pages=none", "--only", "never"]);
    ran.fails(2, &["CUDA device 1", "cuMemAllocAsync, no pages"]);
    // The backend's own tests run all of it.
    let found = rows(&["conformance", "--device", "cuda:0,alloc=async", "--group", "space,time,transfers,sizes,paged"]);
    assert!(found.len() > 50, "{} scenarios", found.len());
}

#[test]
fn several_devices_are_told_apart() {
    let trace = corpus("traces/gnn.trace.gz");
    let args = ["replay", "--policy", "classic", "--passes", "0", "--scale", "64", &trace, "--device"];
    let found = rows(&[&args[..], &["sim,cuda:1,alloc=async,cuda:0"]].concat());
    let of = |key: &str| -> Vec<Value> { found.iter().map(|row| row[key].clone()).collect() };
    assert_eq!(of("device"), ["sim", "cuda", "cuda"]);
    assert_eq!(of("device_index"), [Value::Null, 1.into(), 0.into()]);
    assert!(found[1]["driver"].as_str().is_some_and(|driver| driver.starts_with("CUDA 1")), "{}", found[1]);
    let all = rows(&[&args[..], &["all"]].concat());
    let indices: Vec<_> =
        all.iter().filter(|row| row["device"] == "cuda").map(|row| row["device_index"].clone()).collect();
    assert_eq!(indices, [0, 1]);
}
