//! `millpond replay`, as people start it.

use std::collections::BTreeMap;

use crate::common::{Scratch, corpus, run, run_on_input, run_with};
use millpond::Allocator;
use millpond::settings::{Settings, Ties};
use millpond_replay::Replay;
use millpond_sim::Sim;
use millpond_trace::Trace;
use serde_json::Value;

const TRACES: [&str; 7] =
    ["bert_multistream", "gnn", "gpt2_train", "llm_generate", "prefetch", "resnet50_amp", "serving_kv"];

/// The bytes that `serving_kv` reserves where the driver's addresses rise, as the simulated device's do. PyTorch
/// reserved 1222639616 bytes when the trace was recorded and 1279262720 when PyTorch replayed it: its choice between
/// equally good blocks followed the addresses that the driver happened to give, and with them the peak.
const SERVING_KV_RISING: u64 = 1_245_708_288;

fn trace(name: &str) -> String {
    corpus(&format!("traces/{name}.trace.gz"))
}

fn replay_all(extra: &[&str]) -> BTreeMap<String, Value> {
    let files = TRACES.map(trace);
    let mut args = vec!["replay", "--format", "json", "--passes", "0"];
    args.extend(extra);
    args.extend(files.iter().map(String::as_str));
    let rows = run(&args).json();
    let names: Vec<_> = rows.iter().map(|row| row["trace"].as_str().expect("a name")).collect();
    assert_eq!(names, TRACES, "in the order given");
    rows.iter().map(|row| (row["trace"].as_str().expect("a name").to_string(), row.clone())).collect()
}

/// Returns the peak reserved bytes of one of the peers on every trace.
fn peer(name: &str) -> BTreeMap<String, u64> {
    let text = std::fs::read_to_string(corpus("peers.csv")).expect("the peers");
    let rows = text.lines().skip(1).map(|line| line.split(',').collect::<Vec<_>>());
    let own = rows.filter(|cells| cells[0] == name);
    own.map(|cells| (cells[1].to_string(), cells[6].parse().expect("bytes"))).collect()
}

#[test]
fn classic_reserves_what_pytorch_reserved() {
    for (name, row) in replay_all(&["--policy", "classic"]) {
        let expected = match name.as_str() {
            "serving_kv" => Value::from(SERVING_KV_RISING),
            _ => row["torch_peak_reserved_bytes"].clone(),
        };
        assert!(expected.is_u64(), "{name} has no recorded peak");
        assert_eq!(row["peak_reserved_bytes"], expected, "{name}");
        assert_eq!((&row["num_ooms"], &row["num_alloc_retries"]), (&0.into(), &0.into()), "{name}");
    }
}

#[test]
fn expandable_segments_reserve_what_pytorch_reserved() {
    let peers = peer("torch_expandable");
    for (name, row) in replay_all(&["--policy", "classic", "--conf", "expandable_segments:True"]) {
        assert_eq!(row["peak_reserved_bytes"], peers[&name], "{name}");
        assert_eq!(row["policy"], "expandable");
    }
}

/// The default policy reserves a few percent more than is live, on each program and on all together.
#[test]
fn paged_reserves_little_more_than_is_live() {
    let rows = replay_all(&["--policy", "paged"]);
    let (mut logarithms, mut above) = (0.0, Vec::new());
    for (name, row) in &rows {
        assert_eq!((&row["policy"], &row["conf"]), (&"paged".into(), &"policy:paged".into()), "{name}");
        assert_eq!((&row["num_ooms"], &row["num_alloc_retries"]), (&0.into(), &0.into()), "{name}");
        let ratio = row["reserved_over_live"].as_f64().expect("a ratio");
        if !(1.0..=1.12).contains(&ratio) {
            above.push(format!("{name}: {ratio:.4} is not from 1 to 1.12"));
        }
        logarithms += ratio.ln();
    }
    let mean = (logarithms / rows.len() as f64).exp();
    assert!(above.is_empty() && mean <= 1.04, "the geometric mean is {mean:.4}; {}", above.join("; "));
}

/// With rising addresses, ties by address and ties by birth are the same ties.
#[test]
fn serving_kv_does_not_depend_on_the_tie_rule_where_addresses_rise() {
    let replay = Replay::new(&Trace::read(trace("serving_kv")).expect("a trace"));
    for ties in [Ties::Birth, Ties::Address] {
        let settings = Settings { ties, ..Settings::default() };
        let allocator = Allocator::builder(Sim::new()).settings(settings).build().expect("valid settings");
        replay.run(&allocator, 0).expect("no driver fails");
        assert_eq!(allocator.max_memory_reserved(), SERVING_KV_RISING, "{ties:?}");
    }
}

#[test]
fn without_a_trace_a_real_one_is_replayed() {
    let ran = run(&["replay", "--wide"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
    let lines: Vec<&str> = ran.stdout.lines().collect();
    assert_eq!(lines[0], "On sim (simulated H200); cold and warm in ns per event");
    for column in ["trace", "policy", "cold", "warm", "live", "reserved", "PyTorch", "waste", "calls", "all"] {
        assert!(lines[2].split_whitespace().any(|word| word == column), "{column} in {}", lines[2]);
    }
    let policies: Vec<_> = lines[3..].iter().filter_map(|line| line.split_whitespace().nth(1)).collect();
    assert_eq!(policies, ["paged", "classic"], "{}", ran.stdout);
    // 15.54 GiB are what PyTorch reserved: `paged` reserves less, and `classic` the same, to the byte.
    assert_eq!([3, 4].map(|line| lines[line].matches("15.54 GiB").count()), [1, 2], "{}", ran.stdout);
    let one = run(&["replay", "--policy", "paged", "--passes", "0", "--wide"]).stdout;
    assert!(one.contains("  events  ") && one.contains("  71301  "), "{one}");
}

/// What is compared by default shows in 80 columns what it is about, and one replay is of what is configured.
#[test]
fn without_a_policy_two_are_compared_by_their_waste() {
    let args = ["replay", "--passes", "1", &trace("gnn")];
    let text = run(&args).stdout;
    let head = text.lines().nth(2).expect("a head");
    assert!(head.chars().count() <= 80 && ["policy", "reserved", "waste"].iter().all(|name| head.contains(name)));
    for (row, line) in run(&[&args[..], &["--json"]].concat()).json().iter().zip(text.lines().skip(3)) {
        let waste = 100.0 * (row["reserved_over_live"].as_f64().expect("a ratio") - 1.0);
        assert!(line.contains(row["policy"].as_str().expect("a policy")), "{line}");
        assert!(line.contains(&format!("  {waste:.1} %  ")), "{waste}: {line}");
    }
    let policies = |more: &[&str]| -> Vec<Value> {
        let rows = run(&[&args[..], more, &["--json"]].concat()).json();
        rows.iter().map(|row| row["policy"].clone()).collect()
    };
    assert_eq!(policies(&[]), ["paged", "classic"]);
    assert_eq!(policies(&["--conf", "slack:0.1"]), ["paged"]);
    assert_eq!(policies(&["--conf", ""]), ["paged"]);
    assert_eq!(policies(&["--policy", "auto"]), ["paged"]);
    assert_eq!(policies(&["--device", "sim:pages=none"]), ["classic"], "there is no other");
    let ran = run_with("MILLPOND_CONF", "policy:direct", &[&args[..], &["--json"]].concat());
    assert_eq!(ran.json().len(), 1);
}

#[test]
fn json_has_one_value_a_line_with_the_agreed_keys() {
    let rows = run(&["replay", "--format", "json", "--passes", "1", "--policy", "classic"]).json();
    assert_eq!(rows.len(), 1);
    let row = &rows[0];
    for (key, value) in [("trace", "gpt2_train"), ("device", "sim"), ("policy", "classic"), ("conf", "policy:classic")]
    {
        assert_eq!(row[key], value, "{key}");
    }
    for (key, value) in [
        ("events", 71_301_u64),
        ("peak_live_bytes", 13_271_941_480),
        ("peak_reserved_bytes", 16_680_747_008),
        ("num_alloc_retries", 0),
        ("num_ooms", 0),
        ("warm_driver_calls", 0),
    ] {
        assert_eq!(row[key], value, "{key}");
    }
    for key in ["cold_ns_per_event", "warm_ns_per_event", "driver_time_us"] {
        assert!(row[key].as_f64().is_some_and(|value| value > 0.0), "{key} is {}", row[key]);
    }
    assert!(row["driver_calls"].as_u64().is_some_and(|calls| calls > 0));
    let ratio = row["reserved_over_live"].as_f64().expect("a ratio");
    assert!((ratio - 1.257).abs() < 0.001, "{ratio}");
    assert!(row.get("stats").is_none() && row.get("memory_summary").is_none());
    let pages = row["page_stats"].as_object().expect("an object");
    assert!(pages.len() == 8 && pages.values().all(|count| count == 0), "classic has no pages: {pages:?}");
}

#[test]
fn page_statistics_are_those_of_paged() {
    let args = ["replay", "--pattern", "many_streams", "--passes", "0", "--stats"];
    let row = &run(&[&args[..], &["--format", "json"]].concat()).json()[0];
    let count = |key| row["page_stats"][key].as_u64().expect("a count");
    assert!(count("created") > 0 && count("moved") + count("moved_behind_wait") > 0, "{}", row["page_stats"]);
    assert_eq!(count("pages"), count("created") - count("released"));
    assert_eq!(count("shadows"), count("moved") - count("unmapped"));

    let text = run(&args).stdout;
    for key in ["created", "released", "moved", "moved_behind_wait", "returned", "shadows"] {
        let line = text.lines().find(|line| line.starts_with(&format!("page_stats.{key} "))).expect(key);
        assert!(line.ends_with(&format!(" {}", count(key))), "{line}");
    }
    assert!(!run(&args[..5]).stdout.contains("page_stats"), "only where statistics are asked for");
    assert!(!run(&[&args[..], &["--policy", "classic"]].concat()).stdout.contains("page_stats"));
}

/// What is reserved beyond the slack is told with the streams whose work is under way at the end.
#[test]
fn slack_statistics_say_what_is_beyond_and_what_work_pins() {
    let file = trace("bert_multistream");
    let args =
        ["replay", "--device", "sim", "--passes", "0", "--in-flight", "500", "--stats", "--conf", "slack:0.02", &file];
    let row = &run(&[&args[..], &["--format", "json"]].concat()).json()[0];
    let stats = row["slack_stats"].as_object().expect("an object");
    let keys: Vec<_> = stats.keys().map(String::as_str).collect();
    assert_eq!(keys, ["beyond_bytes", "bound_bytes", "most_live_bytes", "pinned_by", "pinned_bytes", "sharing"]);
    let bytes = |key: &str| stats[key].as_u64().expect("bytes");
    assert_eq!(bytes("bound_bytes"), bytes("most_live_bytes") + bytes("most_live_bytes") / 50);
    assert_eq!(bytes("beyond_bytes"), row["peak_reserved_bytes"].as_u64().expect("bytes") - bytes("bound_bytes"));
    let pinned = stats["pinned_by"].as_array().expect("a list");
    let of = |key: &str| pinned.iter().map(|by| by[key].as_u64().expect("a number")).collect::<Vec<_>>();
    assert!(of("stream").is_sorted() && of("own_bytes").iter().sum::<u64>() > 0, "{pinned:?}");
    assert!(of("bytes").iter().sum::<u64>() >= bytes("pinned_bytes"), "{stats:?}");

    let text = run(&args).stdout;
    let line = |key: &str| text.lines().find(|line| line.starts_with(&format!("slack_stats.{key} "))).expect("a line");
    assert!(line("beyond_bytes").ends_with(&format!(" {}", bytes("beyond_bytes"))), "{text}");
    assert!(line("sharing").ends_with(" untold"), "work for a number of events takes no time: {text}");
    let (stream, own) = (of("stream")[0], of("own_bytes")[0]);
    assert!(line(&format!("pinned_by.{stream}.own_bytes")).ends_with(&format!(" {own}")), "{text}");

    let args = ["replay", "--pattern", "streams", "--passes", "0", "--policy", "classic", "--stats"];
    assert!(!run(&args).stdout.contains("slack_stats"), "classic has no bound");
    assert!(run(&[&args[..], &["--format", "json"]].concat()).json()[0]["slack_stats"]["bound_bytes"].is_null());
}

#[test]
fn compare_puts_the_policies_side_by_side() {
    let file = trace("gnn");
    let rows = run(&["replay", "--compare", "--passes", "0", "--format", "json", &file]).json();
    let policies: Vec<_> = rows.iter().map(|row| row["policy"].as_str().expect("a policy")).collect();
    assert_eq!(policies, ["paged", "tight", "classic", "expandable", "direct"]);
    let reserved: Vec<_> = rows.iter().map(|row| row["peak_reserved_bytes"].as_u64().expect("bytes")).collect();
    let [paged, tight, classic, expandable, direct] = reserved[..] else { panic!("{reserved:?}") };
    assert!(classic > expandable && expandable > paged && paged >= tight && tight > direct, "{reserved:?}");
    assert!(rows.iter().all(|row| row["warm_ns_per_event"].is_null()), "no warm pass, no figure");

    let times: Vec<_> = rows.iter().map(|row| row["driver_time_us"].as_f64().expect("a time")).collect();
    for (row, time) in rows.iter().zip(&times) {
        let over = row["driver_time_over_expandable"].as_f64().expect("a ratio");
        assert!((over - time / times[3]).abs() < 1e-9, "{row}");
    }

    let text = run(&["replay", "--compare", "--passes", "0", &file]).stdout;
    assert_eq!(text.lines().filter(|line| line.starts_with("gnn ")).count(), 5, "{text}");
    assert!(!text.contains("\nall "), "one trace needs no totals: {text}");

    let fewer = run(&["replay", "--compare", "--passes", "0", "--device", "sim:pages=none", &file]);
    assert!(fewer.stderr.contains("no virtual memory: paged, tight, expandable"), "{}", fewer.stderr);
    assert_eq!(fewer.stdout.lines().filter(|line| line.starts_with("gnn ")).count(), 2, "{}", fewer.stdout);
}

#[test]
fn several_traces_end_in_a_line_for_each_policy() {
    let (first, second) = (trace("gnn"), trace("prefetch"));
    let args = ["replay", "--compare", "--passes", "1", &first, &second];
    let text = run(&[&args[..], &["--wide"]].concat()).stdout;
    assert!(text.lines().all(|line| line.chars().count() <= 160), "{text}");
    let rows = run(&[&args[..], &["--format", "json"]].concat()).json();
    assert_eq!(rows.len(), 10, "JSON has the traces alone");
    let totals: Vec<Vec<&str>> =
        text.lines().filter(|line| line.starts_with("all 2 ")).map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(totals.len(), 5, "{text}");
    for (total, at) in totals.iter().zip(0..) {
        let number = |row: usize, key: &str| rows[row][key].as_f64().expect("a number");
        assert_eq!(total[2], rows[at]["policy"]);
        let mean = (number(at, "reserved_over_live") * number(at + 5, "reserved_over_live")).sqrt();
        assert_eq!(total[3..5], [&*format!("{:.1}", 100.0 * (mean - 1.0)), "%"]);
        let mean = (number(at, "life_reserved_over_live") * number(at + 5, "life_reserved_over_live")).sqrt();
        assert_eq!(total[5..7], [&*format!("{:.1}", 100.0 * (mean - 1.0)), "%"]);
        assert_eq!(total[7], (number(at, "driver_calls") + number(at + 5, "driver_calls")).to_string());
        let time = |at| number(at, "driver_time_us") + number(at + 5, "driver_time_us");
        assert_eq!(total[10], format!("{:.3}", time(at) / time(3)), "{total:?}");
    }
}

#[test]
fn markdown_without_times_is_the_same_every_time() {
    let args = ["replay", "--compare", "--markdown", "--no-times", "--passes", "1", &trace("gnn")];
    let text = run(&args).stdout;
    assert_eq!(run(&args).stdout, text);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "On sim (simulated H200)");
    assert!(lines[2].starts_with("| trace | policy | live | reserved | PyTorch | waste |"), "{text}");
    assert!(
        lines[3].starts_with("| --- | --- | ---: |") && lines[4].starts_with("| gnn | paged | 6.11 GiB |"),
        "{text}"
    );
    run(&[&args[..], &["--format", "json"]].concat()).fails(2, &["--markdown"]);
    run(&[&args[..], &["--stats"]].concat()).fails(2, &["--stats", "cannot be used with"]);
}

#[test]
fn summary_and_stats_come_in_both_formats() {
    let file = trace("gnn");
    let base = ["replay", "--passes", "0", "--summary", "--stats", &file];
    let text = run(&base).stdout;
    assert!(text.contains("Millpond memory summary, device ID 0"), "{text}");
    assert!(text.contains("\nallocated_bytes.all.peak "), "{text}");

    let rows = run(&[&base[..], &["--format", "json"]].concat()).json();
    let stats = rows[0]["stats"].as_object().expect("an object");
    assert_eq!(stats.len(), 122);
    assert_eq!(stats["reserved_bytes.all.peak"], rows[0]["peak_reserved_bytes"]);
    assert!(rows[0]["memory_summary"].as_str().is_some_and(|table| table.contains("Cur Usage")));
}

#[test]
fn a_limit_is_kept_and_refusals_are_counted_and_explained_once() {
    let args = [
        "replay",
        "--limit",
        "4GiB",
        "--passes",
        "1",
        "--format",
        "json",
        "--allow-oom",
        "--policy",
        "paged",
        &trace("gnn"),
    ];
    let ran = run(&args);
    let row = &ran.json()[0];
    assert_eq!(row["limit_bytes"], 4_u64 << 30);
    assert!(row["peak_reserved_bytes"].as_u64().is_some_and(|bytes| bytes <= 4 << 30), "{row}");
    assert!(row["num_ooms"].as_u64().is_some_and(|ooms| ooms > 1), "{row}");
    assert!(row["num_alloc_retries"].as_u64().is_some_and(|retries| retries > 0), "{row}");
    assert!(ran.stderr.starts_with("note: gnn under paged: allocations refused in 2 passes: "), "{}", ran.stderr);
    assert_eq!(ran.stderr.matches("out of memory on device 0").count(), 1, "{}", ran.stderr);
    assert!(ran.stderr.contains("4.00 GiB allowed") && !ran.stderr.contains("What to do:"), "{}", ran.stderr);
}

#[test]
fn where_a_policy_refuses_it_is_told_which_would_have_fitted() {
    let args = ["replay", "--device", "sim", "--policy", "classic", "--limit", "1.04x", "--passes", "0", &trace("gnn")];
    let ran = run(&args);
    assert_eq!(ran.code, Some(4), "{}", ran.stderr);
    let told = ran.stderr.split("note: gnn: ").nth(1).expect("which policies fit");
    assert!(told.starts_with("Of the policies, expandable, direct, paged and tight fit in 6.36 GiB:\n"), "{told}");
    assert!(
        told.contains("\n  classic     refuses ") && told.contains("\n  paged       fits, and reserves "),
        "{told}"
    );
    let code = |policy| run(&[&args[..3], &["--policy", policy], &args[5..]].concat()).code;
    assert_eq!(["classic", "expandable", "direct", "paged"].map(code), [Some(4), Some(0), Some(0), Some(0)]);

    let none = run(&["replay", "--device", "sim", "--limit", "0.5x", "--passes", "0", &trace("gnn")]);
    let expected = "No policy fits in 3.06 GiB: 6.11 GiB must be live at once, 3.06 GiB more:";
    assert!(none.stderr.contains(expected), "{}", none.stderr);
    let allowed = run(&[&args[..], &["--allow-oom"]].concat());
    assert_eq!((allowed.code, allowed.stderr.contains("Of the policies")), (Some(0), false), "{}", allowed.stderr);
}

#[test]
fn a_limit_may_be_a_multiple_of_what_each_trace_has_alive() {
    let traces = [trace("gnn"), trace("prefetch")];
    let args = [
        "replay", "--limit", "1.10x", "--passes", "0", "--format", "json", "--policy", "paged", &traces[0], &traces[1],
    ];
    let rows = run(&args).json();
    // By hand: 6,563,430,144 * 1.1 = 7,219,773,158.4 and 3,050,163,535 * 1.1 = 3,355,179,888.5
    let expected = [(6_563_430_144_u64, 7_219_773_158_u64), (3_050_163_535, 3_355_179_888)];
    for (row, (live, limit)) in rows.iter().zip(expected) {
        assert_eq!((&row["peak_live_bytes"], &row["limit_bytes"]), (&live.into(), &limit.into()));
        assert!(row["peak_reserved_bytes"].as_u64().is_some_and(|bytes| bytes <= limit), "{row}");
    }
    let text = run(&args[..5]).stdout;
    assert!(text.starts_with("On sim (simulated H200), limited to 1.10x live; "), "{text}");
}

#[test]
fn patterns_are_replayed_like_traces() {
    let args = ["replay", "--pattern", "growing", "--pattern", "streams:seed=7", "--passes", "0", "--format", "json"];
    let rows = run(&[&args[..], &["--policy", "paged"]].concat()).json();
    assert_eq!((&rows[0]["trace"], &rows[0]["events"]), (&"growing".into(), &25_664.into()));
    assert_eq!(rows[1]["trace"], "streams:seed=7");
    assert_eq!(rows.len(), 2, "no built-in trace beside patterns");
    assert!(rows.iter().all(|row| row["torch_peak_reserved_bytes"].is_null() && row["num_ooms"] == 0));
    run(&["replay", "--pattern", "rising"]).fails(2, &["no pattern is called `rising`", "sawtooth", "`all`"]);
}

#[test]
fn checked_bytes_are_right_and_change_nothing() {
    let policies = ["paged", "tight", "classic", "expandable", "direct"];
    for name in ["gnn", "resnet50_amp"] {
        let file = trace(name);
        let base = ["replay", "--compare", "--passes", "0", "--format", "json", &file];
        let plain = run(&base).json();
        let checked = run(&[&base[..], &["--touch"]].concat()).json();
        for ((plain, checked), policy) in plain.iter().zip(&checked).zip(policies) {
            assert_eq!(checked["policy"], policy);
            for key in ["peak_reserved_bytes", "driver_calls", "num_ooms", "events"] {
                assert_eq!(checked[key], plain[key], "{name} under {policy}: {key}");
            }
            assert!(checked["checked_blocks"].as_u64().is_some_and(|blocks| blocks > 9000), "{checked}");
            assert!(plain.get("checked_blocks").is_none());
        }
    }
}

/// `--compare` shows both ways to grow beside the other policies, and what each of them costs a busy device.
#[test]
fn compare_tells_growths_apart_by_what_they_wait_for() {
    let file = trace("prefetch");
    let device = ["--device", "sim:completion=random:5", "--scale", "16", "--passes", "1", &file];
    let args = [&["replay", "--compare", "--touch"][..], &device].concat();
    let rows = run(&[&args[..], &["--format", "json"]].concat()).json();
    let policies: Vec<_> = rows.iter().map(|row| row["policy"].as_str().expect("a policy")).collect();
    assert_eq!(policies, ["paged", "tight", "classic", "expandable", "direct"]);
    assert_eq!(rows[1]["conf"], "policy:paged,growth:tight");
    let count = |row: usize, key: &str| rows[row][key].as_u64().expect("a count");
    assert!(count(1, "waits") > count(0, "waits"), "moving behind waits: {rows:?}");
    assert_eq!((count(2, "waits"), count(2, "stalls")), (0, 0), "classic takes more instead");
    let text = run(&args).stdout;
    for (row, policy) in policies.iter().enumerate() {
        let line = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let cells = line.into_iter().find(|cells| cells.get(1) == Some(policy)).expect("a row");
        let shown: Vec<u64> = cells[cells.len() - 3..].iter().map(|cell| cell.parse().expect("a count")).collect();
        let sum = |key: &str| count(row, key) + count(row, &format!("warm_{key}"));
        assert_eq!(shown, [sum("stalls"), sum("waits"), count(row, "checked_blocks")], "{text}");
    }
}

#[test]
fn a_replay_for_a_time_tells_how_far_it_came() {
    let args = ["replay", "--pattern", "phases", "--policy", "classic", "--for", "300ms"];
    let began = std::time::Instant::now();
    let row = &run(&[&args[..], &["--touch", "--format", "json"]].concat()).json()[0];
    assert!(began.elapsed().as_millis() >= 300);
    let count = |key: &str| row[key].as_u64().expect("a count");
    assert!(count("events_replayed") >= count("events") * count("passes"), "{row}");
    assert!(count("checked_blocks") > 0 && count("checked_blocks") <= count("events_replayed"), "{row}");
    // One of several threads may get much further than another.
    let row = &run(&[&args[..], &["--touch", "--threads", "2", "--format", "json"]].concat()).json()[0];
    assert!(row["checked_blocks"].as_u64() > Some(0) && row["events_replayed"].as_u64() > Some(0), "{row}");
    let text = run(&args).stdout;
    let cells: Vec<&str> = text.lines().nth(3).expect("a row").split_whitespace().collect();
    assert!(cells.last().is_some_and(|passes| passes.parse::<f64>().is_ok_and(|passes| passes > 1.0)), "{text}");
    run(&[&args[..], &["--passes", "1"]].concat()).fails(2, &["cannot be used with"]);
    run(&["replay", "--for", "20"]).fails(2, &["is no time", "such as 20s"]);
}

/// Blocks are used on several streams, and the device completes its work in a random order.
#[test]
fn bytes_are_right_where_streams_cross() {
    let device = ["--device", "sim:completion=random:5", "--touch"];
    let ran = run(&[&["replay", "--pattern", "many_streams", "--passes", "0"][..], &device].concat());
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
    assert!(ran.stdout.starts_with("On sim (simulated H200), bytes checked; "), "{}", ran.stdout);
    // The trace has completions itself: the device uses block 0 until `c 0`.
    let trace = b"a 0 4194304 0\na 1 4194304 1\nu 1 0\nf 0\na 2 4194304 0\nf 1\nc 0\na 3 4194304 0\nf 2\nf 3\n";
    let rows = run_on_input(trace, &[&["replay", "-", "--format", "json"][..], &device].concat()).json();
    assert_eq!(rows[0]["checked_blocks"], 4 * 6, "four blocks in six passes");
}

#[test]
fn a_small_device_runs_out_too() {
    let ran = run(&["replay", "--device", "sim:bytes=1GiB,cost=free", "--passes", "0", "--format", "json"]);
    ran.fails(4, &["refused for lack of memory"]);
    let row = &ran.values()[0];
    assert!(row["num_ooms"].as_u64().is_some_and(|ooms| ooms > 0), "{row}");
    assert_eq!(row["driver_time_us"], 0.0);
    assert!(ran.stderr.contains("total capacity of 1024.00 MiB"), "{}", ran.stderr);
}

#[test]
fn reuse_after_completion_serves_the_same_program() {
    let args = ["replay", "--device", "sim:reuse=after-done", "--passes", "1", "--format", "json", &trace("gnn")];
    for (policy, over_torch) in [("classic", 1.0..=1.0), ("paged", 0.0..=0.5)] {
        let row = &run(&[&args[..], &["--policy", policy]].concat()).json()[0];
        let bytes = |key| row[key].as_f64().expect("bytes");
        let ratio = bytes("peak_reserved_bytes") / bytes("torch_peak_reserved_bytes");
        assert!(over_torch.contains(&ratio), "{policy} reserves {ratio:.3} times what PyTorch did");
        assert_eq!(row["num_ooms"], 0, "{policy}");
    }
}

#[test]
fn the_environment_configures_and_arguments_overrule_it() {
    let file = trace("gnn");
    let policy = |variable, value, extra: &[&str]| {
        let args = [&["replay", "--passes", "0", "--format", "json", file.as_str()], extra].concat();
        run_with(variable, value, &args).json()[0]["policy"].clone()
    };
    assert_eq!(policy("MILLPOND_CONF", "policy:direct", &[]), "direct");
    let expandable = ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True");
    assert_eq!(policy(expandable.0, expandable.1, &["--policy", "classic"]), "expandable");
    assert_eq!(policy("PYTORCH_ALLOC_CONF", "policy:direct", &["--policy", "classic"]), "classic");
    assert_eq!(policy("MILLPOND_CONF", "policy:direct", &["--conf", ""]), "paged");
    assert_eq!(policy("MILLPOND_CONF", "", &["--device", "sim:pages=none"]), "classic");

    // The default has no segments that could expand, and a note says so.
    let ran = run_with(expandable.0, expandable.1, &["replay", "--passes", "0", "--format", "json", &file]);
    assert_eq!(ran.json()[0]["policy"], "paged");
    assert!(ran.stderr.contains("without effect under paged: expandable_segments"), "{}", ran.stderr);
}

#[test]
fn a_trace_comes_from_standard_input_too() {
    let rows = run_on_input(b"a 0 4096 0\na 1 512 0\nf 0\nf 1\n", &["replay", "-", "--format", "json"]).json();
    assert_eq!((&rows[0]["trace"], &rows[0]["peak_live_bytes"]), (&"-".into(), &4608.into()));
    assert!(rows[0]["torch_peak_reserved_bytes"].is_null());
}

#[test]
fn a_malformed_configuration_is_refused_with_its_place_and_the_keys() {
    for (text, says) in [
        ("max_split_size_mb:64,expandable_segments:yes", "--conf: at byte 41:"),
        ("max_split:64", "--conf: at byte 0: unknown key `max_split`"),
        ("garbage", "must be followed by `:`"),
    ] {
        run(&["replay", "--conf", text]).fails(2, &[says, "garbage_collection_threshold", "roundup_power2_divisions"]);
    }
    run_with("PYTORCH_ALLOC_CONF", "backend:mine", &["replay"]).fails(2, &["PYTORCH_ALLOC_CONF: at byte 8:"]);
    run(&["replay", "--device", "sim:pages=none", "--conf", "expandable_segments:True"])
        .fails(2, &["expandable_segments needs virtual memory, which simulated H200 does not have"]);
    run(&["replay", "--device", "sim:pages=none", "--policy", "paged"])
        .fails(2, &["policy:paged needs virtual memory, which simulated H200 does not have"]);
}

#[test]
fn a_malformed_trace_is_refused_with_its_line() {
    let scratch = Scratch::new("bad.trace", b"a 0 4096 0\nf 1\n");
    let ran = run(&["replay", scratch.path()]);
    ran.fails(2, &[scratch.path(), "line 2", "f 1"]);
    assert_eq!(ran.stdout, "");
}

#[test]
fn a_missing_trace_ends_the_run_after_what_was_done() {
    let ran = run(&["replay", "--passes", "0", &trace("gnn"), "no/such.trace.gz"]);
    ran.fails(2, &["cannot open no/such.trace.gz", "give the path of a trace"]);
    assert!(ran.stdout.contains("\ngnn "), "{}", ran.stdout);
}

/// The names of the policies, in the order in which all of them are told everywhere.
const NAMES: &str = "paged, tight, classic, expandable, direct";

#[test]
fn wrong_usage_is_refused_with_what_is_right() {
    run(&["replay", "--device", "abacus"]).fails(2, &["no backend is called `abacus`", "sim", "millpond devices"]);
    run(&["replay", "--device", "sim:colour=red"])
        .fails(2, &["unknown option `colour`", "bytes, reuse, pages, cost, completion and contents"]);
    run(&["replay", "--policy", "random"]).fails(2, &["'random'", NAMES]);
    run(&["report", "--policy", "random"]).fails(2, &["'random'", NAMES]);
    run(&["replay", "--policy", "direct,x:1"]).fails(2, &["'x:1'", NAMES]);
    run(&["replay", "--conf", "policy:tight"]).fails(2, &["here `tight` is written policy:paged,growth:tight"]);
    run(&["replay", "--policy", "direct", "--compare"]).fails(2, &["cannot be used with"]);
    run(&["replay", "--limit", "1.5GiB"]).fails(2, &["`1.5GiB` is no size", "MiB", "1.10x"]);
    run(&["replay", "--limit", "12"]).fails(2, &["12 bytes: did you mean 12GiB? So few bytes are written 12B"]);
    run(&["replay", "--limit", "12B", "--passes", "0", "--pattern", "streams"])
        .fails(4, &["refused for lack of memory"]);
    run(&["replay", "--passes=-1"]).fails(2, &["--passes"]);
}

#[test]
fn threads_share_one_allocator_and_find_their_own_bytes() {
    let device = ["--device", "sim:completion=random:2", "--touch", "--threads", "3", "--passes", "1"];
    let args = [&["replay", "--pattern", "streams", "--scale", "16", "--format", "json"][..], &device].concat();
    let row = &run(&args).json()[0];
    let alone =
        &run(&["replay", "--pattern", "streams", "--scale", "16", "--passes", "1", "--format", "json"]).json()[0];
    assert_eq!((&row["threads"], &row["scale"], &row["events"]), (&3.into(), &16.into(), &alone["events"]));
    let blocks = run(&["replay", "--pattern", "streams", "--touch", "--passes", "1", "--format", "json"]).json();
    let blocks = blocks[0]["checked_blocks"].as_u64().expect("a number");
    assert_eq!(row["checked_blocks"], 3 * blocks);
    let live = |row: &Value| row["peak_live_bytes"].as_u64().expect("bytes");
    assert!(live(row) >= live(alone) && live(row) <= 3 * live(alone), "{row} {alone}");
    run(&["replay", "--threads", "0"]).fails(2, &["0 is not in 1..=256"]);
}

#[test]
fn a_scaled_trace_is_a_smaller_program() {
    let whole = &run(&["replay", "--passes", "0", "--format", "json", &trace("gnn")]).json()[0];
    let ran = run(&["replay", "--passes", "0", "--format", "json", "--scale", "64", &trace("gnn")]);
    let scaled = &ran.json()[0];
    let live = |row: &Value| row["peak_live_bytes"].as_f64().expect("bytes");
    let ratio = live(whole) / live(scaled);
    assert!((32.0..=64.0).contains(&ratio), "sizes are rounded up to 512: {ratio}");
    assert_eq!((&scaled["events"], &scaled["torch_peak_reserved_bytes"]), (&whole["events"], &Value::Null));
    let text = run(&["replay", "--passes", "0", "--scale", "64", "--threads", "2", &trace("gnn")]).stdout;
    assert!(text.starts_with("On sim (simulated H200), by 2 threads, sizes divided by 64; "), "{text}");
}

#[test]
fn a_trace_of_nothing_is_no_success() {
    for (name, text) in [("empty.trace", ""), ("comment.trace", "# {\"workload\": \"none\"}\n")] {
        let file = Scratch::new(name, text.as_bytes());
        run(&["replay", "--device", "sim", file.path()]).fails(2, &[name, "nothing to replay"]);
    }
    run_on_input(b"", &["replay", "--device", "sim", "-"]).fails(2, &["standard input", "nothing to replay"]);
}

#[test]
fn a_limit_of_the_reader_is_told_with_how_to_raise_it() {
    let text: String = (0..1025).map(|stream| format!("m {stream} {stream}\n")).collect();
    let file = Scratch::new("many.trace", text.as_bytes());
    let refused = run(&["replay", "--device", "sim", file.path()]);
    refused.fails(2, &["many.trace", "line 1025", "1024 different streams", "--trace-limits streams=1025"]);
    let args = [
        "replay",
        "--device",
        "sim",
        "--passes",
        "0",
        "--format",
        "json",
        "--trace-limits",
        "streams=1025",
        file.path(),
    ];
    assert_eq!(run(&args).json()[0]["events"], 1025);
    run(&["replay", "--trace-limits", "lines=3"]).fails(2, &["`lines` is no limit"]);
}

/// All modes run in one command and reserve the same: overwriting is device work that has no part in the decisions.
#[test]
fn scrubbing_is_put_beside_what_is_not_scrubbed() {
    let trace = trace("llm_generate");
    let args = [
        "replay",
        "--format",
        "json",
        "--passes",
        "1",
        "--policy",
        "paged",
        "--scrub",
        "off,other_streams,always",
        &trace,
    ];
    let rows = run(&args).json();
    let of = |key: &str| -> Vec<Value> { rows.iter().map(|row| row[key].clone()).collect() };
    assert_eq!(of("policy"), ["paged", "paged, scrub others", "paged, scrub always"]);
    assert_eq!(of("conf"), ["policy:paged", "policy:paged,scrub:other_streams", "policy:paged,scrub:always"]);
    assert!(of("peak_reserved_bytes").windows(2).all(|pair| pair[0] == pair[1]), "{:?}", of("peak_reserved_bytes"));
    let calls: Vec<_> = of("driver_calls").iter().map(|calls| calls.as_u64().expect("a count")).collect();
    assert!(calls[0] < calls[1] && calls[1] < calls[2], "{calls:?}");
    run(&["replay", "--scrub", "never"]).fails(2, &["--scrub: `never` is no mode", "other_streams"]);
}

#[test]
fn a_list_of_devices_is_taken_in_turn() {
    let args = ["replay", "--policy", "classic", "--passes", "0", "--device", "sim:bytes=64GiB,cost=free,sim"];
    let text = run(&[&args[..], &[&trace("gnn")]].concat()).stdout;
    assert_eq!(text.matches("On sim (simulated H200)").count(), 2, "{text}");
    let rows = run(&[&args[..], &["--json", &trace("gnn"), &trace("prefetch")]].concat()).json();
    let of = |key: &str| -> Vec<Value> { rows.iter().map(|row| row[key].clone()).collect() };
    assert_eq!(of("trace"), ["gnn", "prefetch", "gnn", "prefetch"]);
    let times: Vec<f64> = rows.iter().map(|row| row["driver_time_us"].as_f64().expect("a time")).collect();
    assert!(times[..2] == [0.0, 0.0] && times[2..].iter().all(|time| *time > 0.0), "{times:?}");
    let all = run(&[&args[..5], &["--device", "all", "--json", &trace("gnn")]].concat()).json();
    assert_eq!(all.last().expect("a device")["device"], "sim");
    run(&[&args[..], &["-"]].concat()).fails(2, &["several devices", "standard input can be read once"]);
    run(&[&args[..], &["--report", "none.html"]].concat()).fails(2, &["several devices", "name one device"]);
    run(&["replay", "--device", "sim,abacus"]).fails(2, &["no backend is called `abacus`"]);
}

/// A result says where, when and of which trace it was measured.
#[test]
fn json_says_what_was_measured_where_and_when() {
    let row = |more: &[&str]| {
        let args = ["replay", "--device", "sim", "--policy", "classic", "--passes", "0", "--json"];
        run(&[&args[..], more].concat()).json().remove(0)
    };
    let gnn = row(&[&trace("gnn")]);
    assert_eq!((&gnn["device"], &gnn["device_name"]), (&"sim".into(), &"simulated H200".into()));
    assert!(gnn["device_index"].is_null() && gnn["driver"].is_null(), "{gnn}");
    assert_eq!(gnn["version"], env!("CARGO_PKG_VERSION"));
    assert!(gnn["host"].as_str().is_some_and(|host| !host.is_empty()), "{gnn}");
    let date = gnn["date"].as_str().expect("a date");
    assert!(date.len() == "2026-01-01T00:00:00Z".len() && date.starts_with("20") && date.ends_with('Z'), "{date}");
    let digest = |row: &Value| row["trace_digest"].as_str().expect("a digest").to_owned();
    let plain = Trace::read(trace("gnn")).expect("a trace").write_to(Vec::new()).expect("memory");
    let plain = Scratch::new("digest.trace", &plain);
    assert_eq!(digest(&row(&[plain.path()])), digest(&gnn), "whatever the compression");
    assert_ne!(digest(&row(&["--scale", "2", &trace("gnn")])), digest(&gnn), "another program");
    assert_eq!(digest(&gnn).len(), 32);
}
