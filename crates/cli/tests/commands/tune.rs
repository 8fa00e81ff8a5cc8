//! `millpond tune`, as people start it.

use crate::common::{Scratch, corpus, run};
use millpond::conf;
use millpond_trace::{Pattern, Trace, TraceWriter};
use serde_json::Value;

/// The first events of a pattern, so that a search is short.
fn short(name: &str) -> Scratch {
    let trace = Pattern::Streams.trace(1);
    let beginning = Trace { events: trace.events[..3000].to_vec(), ..trace };
    let mut writer = TraceWriter::new(Vec::new(), &beginning.header).expect("a text");
    beginning.events.iter().for_each(|event| writer.event(event).expect("a sound event"));
    Scratch::new(name, &writer.finish().expect("a text"))
}

fn number(value: &Value, key: &str) -> f64 {
    value[key].as_f64().unwrap_or_else(|| panic!("{key} of {value}"))
}

#[test]
fn the_frontier_is_one_and_the_recommendation_is_on_it() {
    let trace = short("frontier.trace");
    let ran = run(&["tune", "--json", "--budget", "150", trace.path()]);
    let row = &ran.json()[0];
    let frontier = row["frontier"].as_array().expect("a frontier");
    assert!(frontier.len() > 2, "{frontier:?}");
    for pair in frontier.windows(2) {
        let rises = number(&pair[0], "peak_reserved_bytes") < number(&pair[1], "peak_reserved_bytes");
        let falls = number(&pair[0], "driver_time_us") > number(&pair[1], "driver_time_us");
        assert!(rises && falls, "{pair:?}");
    }
    let default = &row["default"];
    let best = &row["recommended"];
    assert!(frontier.contains(best) || best == default, "{best}");
    let beaten = |point: &Value| {
        number(point, "peak_reserved_bytes") <= number(default, "peak_reserved_bytes")
            && number(point, "driver_time_us") <= number(default, "driver_time_us")
    };
    assert!(frontier.iter().any(beaten), "the default is on it, or beaten: {default}");
    assert_eq!((&default["policy"], &row["settings_tried"]), (&"paged".into(), &150.into()));
    let sum: f64 = ["settings_whole", "settings_beaten", "settings_unfit"].map(|key| number(row, key)).iter().sum();
    assert_eq!((sum, &row["checked"]["variations"]), (150.0, &8.into()));
    assert!(ran.stderr.contains("streams") && ran.stderr.contains("--in-flight 200"), "{}", ran.stderr);
}

/// What is recommended is read by `replay --conf`, and comes to the same there.
#[test]
fn the_recommendation_reproduces_its_figures() {
    let trace = short("again.trace");
    for extra in [&["--in-flight", "50"][..], &[]] {
        let row = run(&[&["tune", "--json", "--budget", "120", trace.path()], extra].concat()).json().remove(0);
        for tried in [&row["recommended"], &row["default"]] {
            let text = tried["conf"].as_str().expect("a configuration");
            conf::parse(text).expect(text);
            let args = ["replay", "--json", "--device", "sim", "--passes", "1", "--conf", text, trace.path()];
            let replayed = run(&[&args[..], extra].concat()).json().remove(0);
            assert_eq!(replayed["life_peak_reserved_bytes"], tried["peak_reserved_bytes"], "{text}");
            assert_eq!(replayed["all_driver_calls"], tried["driver_calls"], "{text}");
            assert_eq!(replayed["all_driver_time_us"], tried["driver_time_us"], "{text}");
            assert_eq!(replayed["policy"], tried["policy"], "{text}");
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_answer_whatever_the_threads() {
    let trace = short("seed.trace");
    let tune = |seed: &str, threads: &str| {
        let args = ["tune", "--json", "--no-times", "--budget", "150", "--seed", seed, "--threads", threads];
        run(&[&args[..], &[trace.path()]].concat()).json().remove(0)
    };
    let one = tune("7", "1");
    assert_eq!(one, tune("7", "3"));
    assert_ne!(one["frontier"], tune("8", "2")["frontier"]);
    assert!(one.get("seconds").is_none());
}

#[test]
fn a_limit_that_nothing_fits_is_told() {
    let trace = short("unfit.trace");
    let ran = run(&["tune", "--budget", "60", "--limit", "0.5x", trace.path()]);
    ran.fails(
        4,
        &["nothing fits the limit of 0.5x live", "under all of 60 settings", "without a cache it reserves 2.0"],
    );
    let words = ran.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("60 out of memory") && !words.contains("Recommended"), "{words}");
    let json = run(&["tune", "--json", "--budget", "60", "--limit", "1MiB", trace.path()]);
    assert_eq!((json.code, &json.values()[0]["recommended"]), (Some(4), &Value::Null));
}

#[test]
fn what_is_recommended_under_a_limit_stays_within_it() {
    let trace = short("limit.trace");
    let row = run(&["tune", "--json", "--budget", "100", "--limit", "1.02x", trace.path()]).json().remove(0);
    let limit = number(&row, "limit_bytes");
    assert!(number(&row["recommended"], "peak_reserved_bytes") <= limit, "{row}");
    assert!(row["frontier"].as_array().expect("a frontier").iter().all(|p| number(p, "peak_reserved_bytes") <= limit));
}

#[test]
fn a_page_says_what_to_set_what_it_gives_and_how_sure_that_is() {
    let trace = short("a_program_with_a_rather_long_name_of_its_own.trace");
    let text = run(&["tune", "--budget", "100", trace.path()]).stdout;
    for part in ["100 settings tried in", "res/live", "* ", "policy:", "Checked on 8 variations"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert!(
        text.lines().filter(|line| !line.starts_with("  policy:")).all(|line| line.chars().count() <= 80),
        "{text}"
    );
    assert!(!text.contains(['\r', '\u{1b}']), "{text}");
}

#[test]
fn several_traces_are_one_table() {
    let (one, two) = (short("one.trace"), short("two.trace"));
    let args = ["tune", "--budget", "60", "--no-times", one.path(), two.path()];
    let text = run(&args).stdout;
    assert_eq!(text.lines().filter(|line| line.contains(" tuned ")).count(), 2, "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let markdown = run(&[&args[..], &["--markdown"]].concat()).stdout;
    assert!(markdown.contains("| trace | settings | reserved | res/live | calls | driver | configuration |"));
    assert_eq!(markdown.lines().filter(|line| line.contains("| default |")).count(), 2, "{markdown}");
    run(&["tune", "--markdown", "--json"]).fails(2, &["--markdown"]);
}

#[test]
fn wrong_usage_is_refused_with_what_is_right() {
    run(&["tune", "--budget", "much"]).fails(2, &["such as 1000", "such as 60s"]);
    run(&["tune", "--device", "smi"]).fails(2, &["did you mean `sim`?"]);
    run(&["tune", &corpus("traces/gnm.trace.gz")]).fails(2, &["gnn.trace.gz`?"]);
    let small = run(&["tune", "--budget", "20", "--device", "sim:bytes=64MiB"]);
    small.fails(4, &["nothing fits the device's memory", "must be live at once"]);
}
