//! `millpond compare`, as people start it.

use crate::common::{Scratch, corpus, run};
use serde_json::{Value, json};

fn replayed(more: &[&str]) -> Vec<Value> {
    let trace = corpus("traces/gnn.trace.gz");
    let args = ["replay", "--device", "sim", "--policy", "paged,classic", "--passes", "2", "--json", &trace];
    run(&[&args[..], more].concat()).json()
}

/// Returns a file of results.
fn file(name: &str, rows: &[Value]) -> Scratch {
    let lines: String = rows.iter().map(|row| format!("{row}\n")).collect();
    Scratch::new(name, lines.as_bytes())
}

/// Returns the rows with the times of the host set, so that no test depends on them.
fn timed(rows: &[Value], passes: [f64; 3]) -> Vec<Value> {
    let mut rows = rows.to_vec();
    for row in &mut rows {
        row["cold_ns_per_event"] = passes[0].into();
        row["warm_ns_per_event"] = passes[1].into();
        row["ns_per_event_by_pass"] = json!(passes);
    }
    rows
}

#[test]
fn what_differs_by_more_than_the_spread_is_told() {
    let rows = replayed(&[]);
    let before = timed(&rows, [200.0, 100.0, 110.0]);
    let mut after = timed(&rows, [205.0, 104.0, 110.0]);
    let (a, b) = (file("alike-a.json", &before), file("alike-b.json", &after));
    let alike = run(&["compare", a.path(), b.path()]);
    assert_eq!(alike.code, Some(0), "{}", alike.stderr);
    assert!(alike.stdout.contains("No difference in 2 results beyond the spread"), "{}", alike.stdout);
    assert!(alike.stdout.contains("alike-a.json: 2 results, simulated H200, on "), "{}", alike.stdout);
    assert_eq!(run(&["compare", a.path(), b.path(), "--json"]).json(), [Value::Null; 0]);

    after[0]["warm_ns_per_event"] = 130.0.into();
    after[1]["peak_reserved_bytes"] = (after[1]["peak_reserved_bytes"].as_u64().expect("bytes") + 512).into();
    let b = file("differs-b.json", &after[..]);
    let found = run(&["compare", a.path(), b.path(), "--json"]).json();
    assert_eq!(found.len(), 2, "{found:?}");
    assert_eq!((&found[0]["policy"], &found[0]["measure"]), (&"paged".into(), &"warm".into()));
    assert_eq!((&found[0]["a"], &found[0]["b"]), (&100.0.into(), &130.0.into()));
    assert!(found[0]["change"].as_f64().is_some_and(|change| (change - 0.3).abs() < 1e-9), "{found:?}");
    assert!(found[0]["spread"].as_f64().is_some_and(|spread| spread > 5.0 && spread < 15.0), "{found:?}");
    assert_eq!(
        (&found[1]["policy"], &found[1]["measure"], &found[1]["spread"]),
        (&"classic".into(), &"reserved".into(), &0.0.into())
    );
    let text = run(&["compare", a.path(), b.path()]);
    assert_eq!(text.code, Some(0));
    assert!(text.stdout.contains("gnn under paged") && text.stdout.contains("+30.0 %"), "{}", text.stdout);
}

#[test]
fn results_that_one_file_alone_has_and_other_traces_are_told() {
    let rows = timed(&replayed(&[]), [200.0, 100.0, 110.0]);
    let mut other = rows[..1].to_vec();
    other[0]["trace_digest"] = "0".into();
    let (a, b) = (file("only-a.json", &rows), file("only-b.json", &other));
    let ran = run(&["compare", a.path(), b.path()]);
    assert!(ran.stdout.contains("only in A: gnn under classic"), "{}", ran.stdout);
    assert!(ran.stderr.contains("gnn under paged: the traces are not the same"), "{}", ran.stderr);
    let found = run(&["compare", a.path(), b.path(), "--json"]).json();
    assert_eq!((&found[0]["policy"], &found[0]["only_in"]), (&"classic".into(), &"A".into()));
    // One pass says nothing of how far equal runs are apart.
    let mut once = rows.clone();
    once.iter_mut().for_each(|row| row["ns_per_event_by_pass"] = json!([200.0]));
    let once = file("once.json", &once);
    let slower = file("slower.json", &timed(&rows, [900.0, 900.0, 900.0])[..1]);
    let ran = run(&["compare", once.path(), slower.path()]);
    assert!(ran.stderr.contains("times without a spread were left out: 2"), "{}", ran.stderr);
}

#[test]
fn totals_of_other_numbers_of_passes_are_not_compared() {
    let two = timed(&replayed(&[]), [200.0, 100.0, 110.0]);
    let mut three = two.clone();
    for row in &mut three {
        row["passes"] = 3.into();
        row["all_driver_calls"] = 1_000_000.into();
    }
    let (two, three) = (file("two.json", &two), file("three.json", &three));
    let ran = run(&["compare", two.path(), three.path()]);
    assert!(ran.stdout.contains("No difference in 2 results"), "{}", ran.stdout);
    assert!(ran.stderr.contains("gnn under paged: passes: 2 in A, 3 in B, so totals of all passes"), "{}", ran.stderr);
}

#[test]
fn times_of_one_run_are_said_to_be() {
    let rows = timed(&replayed(&[]), [200.0, 100.0, 110.0]);
    let slower = timed(&rows, [900.0, 900.0, 910.0]);
    let (a, b) = (file("run-a.json", &rows), file("run-b.json", &slower));
    let says = "times differ more from run to run than from pass to pass";
    assert!(run(&["compare", a.path(), b.path()]).stderr.contains(says));
    let several = |rows: &[Value], name: &str| file(name, &[rows, rows].concat());
    let (a, b) = (several(&rows, "runs-a.json"), several(&slower, "runs-b.json"));
    assert!(!run(&["compare", a.path(), b.path()]).stderr.contains(says));
}

#[test]
fn the_clock_of_a_simulated_driver_is_not_compared_with_a_real_one() {
    let rows = timed(&replayed(&[]), [200.0, 100.0, 110.0]);
    let mut real = rows.clone();
    for row in &mut real {
        row["device"] = "cuda".into();
        row["device_name"] = "a GPU".into();
        row["driver_time_us"] = 1e9.into();
    }
    let (a, b) = (file("clock-a.json", &rows), file("clock-b.json", &real));
    let ran = run(&["compare", a.path(), b.path()]);
    assert!(ran.stdout.contains("No difference in 2 results"), "{}", ran.stdout);
    assert!(ran.stdout.contains("clock-b.json: 2 results, a GPU through cuda, "), "{}", ran.stdout);
}

#[test]
fn traces_of_one_name_are_not_equal_runs() {
    let mut rows = timed(&replayed(&[])[..1], [9.0, 9.0, 9.0]);
    rows.push(rows[0].clone());
    rows[1]["trace_digest"] = "0".into();
    rows[1]["peak_reserved_bytes"] = 1.into();
    let (ab, ba) = (file("ab.json", &rows), file("ba.json", &[rows[1].clone(), rows[0].clone()]));
    assert!(run(&["compare", ab.path(), ba.path(), "--json"]).json().is_empty());
    let mut other = rows.clone();
    other[1]["peak_reserved_bytes"] = 2.into();
    let found = run(&["compare", ab.path(), file("other.json", &other).path(), "--json"]).json();
    assert_eq!((found.len(), &found[0]["a"], &found[0]["b"]), (1, &1.0.into(), &2.0.into()));
    let mut wild = rows[..1].to_vec();
    wild[0]["warm_ns_per_event"] = 1e300.into();
    wild[0]["ns_per_event_by_pass"] = json!([1e300, 1e300, 2e300]);
    let ran = run(&["compare", file("tame.json", &rows[..1]).path(), file("wild.json", &wild).path()]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
}

/// Devices that differ in their options alone are no runs of one device, whose spread would hide what differs.
#[test]
fn devices_with_other_options_in_one_file_are_not_equal_runs() {
    let trace = corpus("traces/gnn.trace.gz");
    let on = |device: &str| {
        let args = ["replay", "--device", device, "--policy", "paged", "--passes", "2", "--json", &trace];
        run(&args).json()
    };
    let both = on("sim,sim:cost=free");
    assert_eq!((&both[0]["device_options"], &both[1]["device_options"]), (&Value::Null, &"cost=free".into()));
    let (one, two) = (file("one.json", &on("sim:cost=free")), file("two.json", &timed(&both, [9.0, 9.0, 9.0])));
    let ran = run(&["compare", one.path(), two.path()]);
    assert!(ran.stdout.contains("The files have no result in common"), "{}", ran.stdout);
    assert!(ran.stdout.contains("only in B: sim: gnn under paged; sim:cost=free: gnn under paged"), "{}", ran.stdout);
    let (sim, free) = (file("sim.json", &both[..1]), file("free.json", &both[1..]));
    let found = run(&["compare", sim.path(), free.path(), "--json"]).json();
    assert!(found.iter().any(|row| row["measure"] == "driver"), "{found:?}");
}

#[test]
fn measurements_are_compared_by_their_rounds() {
    let bench = |ns: f64| {
        let (least, most) = (ns - 1.0, ns + 1.0);
        json!({ "group": "cached", "case": "hit", "bytes": 512, "ns": ns, "ns_least": least, "ns_most": most })
    };
    let (a, b) = (file("bench-a.json", &[bench(50.0)]), file("bench-b.json", &[bench(60.0)]));
    let found = run(&["compare", a.path(), b.path(), "--json"]).json();
    assert_eq!((found.len(), &found[0]["case"], &found[0]["spread"]), (1, &"hit".into(), &2.0.into()));
    let near = file("bench-c.json", &[bench(51.5)]);
    assert!(run(&["compare", a.path(), near.path(), "--json"]).json().is_empty());
    // What `bench` prints is what is read.
    let rows = run(&["bench", "--quick", "--device", "sim:bytes=64MiB", "--json"]).json();
    assert!(rows.iter().any(|row| row["ns_most"].as_f64() >= row["ns_least"].as_f64() && row["ns_least"].is_f64()));
    let own = file("bench-own.json", &rows);
    assert!(run(&["compare", own.path(), own.path(), "--json"]).json().is_empty());
}

#[test]
fn files_that_are_no_results_are_refused() {
    let good = file("good.json", &[json!({ "trace": "a", "policy": "paged", "peak_reserved_bytes": 7 })]);
    let trace = corpus("traces/gnn.trace.gz");
    for (bad, says) in [
        (trace.as_str(), "line 1: this is no result of `replay` or `bench`"),
        ("/dev/null", "there is no result in it; make one with `millpond replay --json > FILE`"),
        ("no/such.json", "cannot read no/such.json"),
    ] {
        run(&["compare", good.path(), bad]).fails(2, &[bad, says]);
        run(&["compare", bad, good.path()]).fails(2, &[bad, says]);
    }
}
