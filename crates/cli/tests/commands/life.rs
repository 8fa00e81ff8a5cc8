//! `millpond replay` of programs that live long, as people start it.

use crate::common::{corpus, run, run_on_input, run_with};
use serde_json::Value;

fn trace(name: &str) -> String {
    corpus(&format!("traces/{name}.trace.gz"))
}

fn rows(args: &[&str]) -> Vec<Value> {
    // An empty configuration is one: no other policy is put beside the device's own.
    run_with("MILLPOND_CONF", "", &[&["replay", "--device", "sim", "--format", "json"], args].concat()).json()
}

fn count(row: &Value, key: &str) -> u64 {
    row[key].as_u64().unwrap_or_else(|| panic!("{key} is {}", row[key]))
}

fn ratio(row: &Value, key: &str) -> f64 {
    row[key].as_f64().unwrap_or_else(|| panic!("{key} is {}", row[key]))
}

#[test]
fn each_pass_and_the_whole_life_are_told() {
    let row = &rows(&["--policy", "classic", "--passes", "3", "--vary", "5%:seed=2", &trace("gnn")])[0];
    let calls: Vec<u64> =
        row["driver_calls_by_pass"].as_array().expect("a list").iter().filter_map(Value::as_u64).collect();
    assert_eq!(calls.len(), 4, "{row}");
    assert_eq!((count(row, "driver_calls"), count(row, "last_driver_calls")), (calls[0], calls[3]));
    assert_eq!(count(row, "all_driver_calls"), calls.iter().sum::<u64>());
    assert_eq!(count(row, "warm_driver_calls"), calls[1..].iter().sum::<u64>());
    assert!(calls[1..].iter().any(|&calls| calls > 0), "sizes that vary take more from the driver: {row}");
    let times: Vec<f64> =
        row["driver_time_us_by_pass"].as_array().expect("a list").iter().filter_map(Value::as_f64).collect();
    assert!((times.iter().sum::<f64>() - ratio(row, "all_driver_time_us")).abs() < 0.01, "{row}");
    assert_eq!(times[3], ratio(row, "last_driver_time_us"));
    let life = count(row, "life_peak_reserved_bytes") as f64 / count(row, "life_peak_live_bytes") as f64;
    assert!((life - ratio(row, "life_reserved_over_live")).abs() < 1e-9 && life > ratio(row, "reserved_over_live"));

    let args = ["replay", "--passes", "3", "--policy", "classic", "--vary", "5%:seed=2", "--wide", &trace("gnn")];
    let text = run(&args).stdout;
    assert!(text.starts_with("On sim (simulated H200), sizes varied by 5%:seed=2; "), "{text}");
    let line = text.lines().nth(3).expect("a row");
    assert!(line.contains(&format!("  {:.1} %  ", 100.0 * (life - 1.0))), "{text}");
    assert!(line.split_whitespace().any(|cell| cell == calls.iter().sum::<u64>().to_string()), "{text}");
    let one = run(&["replay", "--passes", "0", &trace("gnn")]).stdout;
    assert!(!one.contains("life") && !one.contains("all calls"), "one pass is no life: {one}");
}

#[test]
fn several_policies_are_put_side_by_side() {
    let args = ["--policy", "tight,classic,expandable", "--passes", "1", &trace("gnn")];
    let rows = rows(&args);
    let policies: Vec<_> = rows.iter().map(|row| row["policy"].as_str().expect("a policy")).collect();
    assert_eq!(policies, ["tight", "classic", "expandable"]);
    assert_eq!(rows[2]["driver_time_over_expandable"], 1.0);
    assert!(run(&[&["replay"][..], &args].concat()).stdout.contains("of exp."));
}

/// Blocks that live long are allocated once: later passes have fewer events, and need nothing from the driver even
/// where nothing is cached but those.
#[test]
fn kept_blocks_are_allocated_once() {
    let trace = b"a 0 41943040 0\na 1 4096 0\nf 1\na 2 4096 0\nf 2\nf 0\n";
    let args = ["replay", "-", "--device", "sim", "--policy", "direct", "--passes", "2", "--format", "json"];
    let plain = &run_on_input(trace, &args).json()[0];
    let kept = &run_on_input(trace, &[&args[..], &["--keep"]].concat()).json()[0];
    assert_eq!((&plain["driver_calls_by_pass"], &kept["driver_calls_by_pass"]), (&[6, 6, 6].into(), &[5, 4, 4].into()));
    assert_eq!((&kept["keep"], &kept["passes"], count(kept, "peak_live_bytes")), (&true.into(), &2.into(), 41_947_136));
}

#[test]
fn work_in_flight_costs_memory_or_waits() {
    let file = trace("bert_multistream");
    let base = ["--policy", "tight,paged,classic", "--passes", "1"];
    let idle = rows(&[&base[..], &[&file]].concat());
    let busy = rows(&[&base[..], &["--in-flight", "200", &file]].concat());
    for (idle, busy) in idle.iter().zip(&busy) {
        let more = count(busy, "peak_reserved_bytes").cmp(&count(idle, "peak_reserved_bytes"));
        let waits = count(busy, "waits") + count(busy, "stalls") > 0;
        // In this program no block is used on two streams, so that `classic` reuses all memory in order.
        let costs = idle["policy"] != "classic";
        assert_eq!(more.is_gt() || waits, costs, "{idle} {busy}");
        // Where streams wait, memory that is placed differently may also be somewhat less.
        assert!(more.is_ge() || idle["policy"] == "tight", "{idle} {busy}");
        assert!(idle.get("stalls").is_none() && busy.get("checked_blocks").is_none());
        assert_eq!(busy["in_flight"], "200 events");
    }
    assert!(count(&busy[0], "waits") + count(&busy[0], "stalls") > 0, "{}", busy[0]);
    assert_eq!(count(&busy[2], "waits"), 0, "classic waits for nothing on the device");
    let again = rows(&[&base[..], &["--in-flight", "200", &file]].concat());
    for key in ["life_peak_reserved_bytes", "driver_calls_by_pass", "waits", "last_waits"] {
        assert!(
            busy.iter().zip(&again).all(|(busy, again)| busy[key] == again[key]),
            "{key}: it is the same every time"
        );
    }
    let checked = rows(&["--in-flight", "50", "--touch", "--passes", "0", "--pattern", "many_streams"]);
    assert!(count(&checked[0], "checked_blocks") > 0, "{}", checked[0]);
    run(&["replay", "--in-flight", "50s"]).fails(2, &["is neither", "such as 200", "50us"]);
}

/// Four streams whose kernels run side by side take less time than those that have the device in turn. There waits of
/// streams for each other cost time, and balanced pays with memory instead, once it has found that out. Where one
/// kernel runs at a time they cost none, and it pays nothing.
#[test]
fn kernels_run_on_a_simulated_clock() {
    let file = trace("bert_multistream");
    let timed = |work| rows(&["--policy", "tight,paged,classic", "--passes", "2", "--in-flight", work, &file]);
    let (small, large) = (timed("20us:small"), timed("20us"));
    let life = |row: &Value| ratio(row, "life_reserved_over_live");
    let time = |row: &Value| row["warm_ns_per_event"].as_f64().expect("a number");
    let [tight, paged, classic] = [0, 1, 2].map(|at| time(&small[at]));
    assert!(tight > 2.0 * classic && paged < 1.6 * classic, "{tight} {paged} {classic}");
    assert!((1.4..1.6).contains(&life(&small[1])) && life(&small[0]) < 1.12, "{} {}", small[0], small[1]);
    let [tight, paged, alone] = [0, 1, 2].map(|at| time(&large[at]));
    assert!(alone > 3.0 * classic, "one kernel at a time: {alone}, side by side: {classic}");
    assert!(tight < 1.02 * alone && paged < 1.02 * alone, "waits are free: {tight} {paged} {alone}");
    assert!(life(&large[1]) < 1.12, "nor is memory spent: {}", large[1]);
    let cold = |row: &Value| row["cold_ns_per_event"].as_f64().expect("a number");
    assert!(cold(&large[1]) < 1.02 * cold(&large[2]), "{} {}", large[1], large[2]);
    // `tight` asks fewer streams, and spends nothing whatever it finds out.
    let told = |rows: &[Value]| rows[1]["slack_stats"]["sharing"].clone();
    assert_eq!((told(&small), told(&large)), ("side by side".into(), "in turn".into()));
    assert_eq!(small[0]["in_flight"], "20.0 us in small kernels");
    assert_eq!(timed("20us:small")[1]["warm_ns_per_event"], small[1]["warm_ns_per_event"], "the clock is simulated");
}

#[test]
fn traces_become_one_program() {
    let (first, second) = (trace("gnn"), trace("prefetch"));
    let alone = rows(&["--passes", "0", &first, &second]);
    let joined = |how| rows(&["--passes", "1", "--together", how, &first, &second]);
    let (alternate, beside) = (joined("alternate"), joined("beside"));
    assert_eq!((alternate.len(), beside.len()), (1, 1));
    assert_eq!((&beside[0]["trace"], &beside[0]["torch_peak_reserved_bytes"]), (&"gnn+prefetch".into(), &Value::Null));
    let live = |row: &Value| count(row, "peak_live_bytes");
    assert_eq!(live(&alternate[0]), live(&alone[0]).max(live(&alone[1])), "one ends before the other begins");
    assert!(live(&beside[0]) > live(&alternate[0]) && live(&beside[0]) <= live(&alone[0]) + live(&alone[1]));
    let events = |row: &Value| count(row, "events");
    assert_eq!(events(&beside[0]), events(&alone[0]) + events(&alone[1]));
    assert!(events(&alternate[0]) >= events(&beside[0]), "what the first leaves is freed at its end");
}

/// Programs that share an allocator and repeat themselves find the same places in each pass, as a place depends on what
/// is free and not on when the device was asked last. `paged` asks for each loan, and `tight` for few.
#[test]
fn programs_beside_each_other_come_to_an_end_with_driver_calls() {
    for (first, second) in [("bert_multistream", "serving_kv"), ("gnn", "serving_kv")] {
        let traces = [first, second].map(trace);
        let of = &["--passes", "8", "--policy", "tight,paged", "--together", "beside", &traces[0], &traces[1]];
        let rows = rows(of);
        let calls = rows[0]["driver_calls_by_pass"].as_array().expect("a list");
        assert_eq!(rows[1]["driver_calls_by_pass"].as_array(), Some(calls), "{first} and {second}: asked more often");
        assert!(calls[5..].iter().all(|calls| *calls == 0), "{first} and {second}: {calls:?}");
    }
}

#[test]
fn lives_are_replayed_by_one_thread() {
    for extra in [&["--keep"][..], &["--vary", "5%"], &["--in-flight", "9"]] {
        run(&[&["replay", "--threads", "2"], extra].concat()).fails(2, &["are for one thread", "--threads"]);
    }
    run(&["replay", "--vary", "5"]).fails(2, &["is no variation", "5%:seed=7"]);
    run(&["replay", "--together", "mixed"]).fails(2, &["alternate", "beside"]);
}
