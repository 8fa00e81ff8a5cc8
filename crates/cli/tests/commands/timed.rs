//! Recordings that say how far their device was, in the commands that replay them.

use serde_json::Value;

use crate::common::{Scratch, run};

/// Each block of 40 MiB is used on another stream, freed, and followed by a request of the same size.
fn program(name: &str, device: &str) -> Scratch {
    let mut text = String::from("# {\"counted\": true, \"format\": 3}\n");
    let mut events = 0;
    for id in 0..4 {
        let reached = if device == "done" { format!("r {id}\n") } else { String::new() };
        let lines = format!("a {id} 41943040 0\nu {id} 1\nf {id}\nm {id} 1\n{reached}o {}\n", 1000 * id);
        events += lines.lines().count();
        text += &lines;
    }
    let end = "m 8 0\nm 9 1\nr 8\nr 9\n";
    text += &format!("{end}# end {}\n", events + end.lines().count());
    Scratch::new(name, text.as_bytes())
}

/// Returns the bytes that each policy reserves for it, by what `replay` prints.
fn replayed(trace: &Scratch, extra: &[&str]) -> Vec<u64> {
    let args = [&["replay", "--format", "json", "--passes", "0", "--device", "sim", trace.path()], extra].concat();
    let bytes = |row: &Value| row["peak_reserved_bytes"].as_u64().expect("bytes") >> 20;
    run(&args).json().iter().map(bytes).collect()
}

#[test]
fn a_replay_reserves_what_the_recorded_device_was_too_late_to_free() {
    let (done, late) = (program("timed-done.trace", "done"), program("timed-late.trace", "late"));
    // Under `paged` the stream waits on the device.
    for (policy, expected) in [("classic", [40, 160]), ("paged", [40, 40])] {
        let of = |trace, extra: &[&str]| replayed(trace, &[&["--policy", policy], extra].concat());
        assert_eq!([of(&done, &[]), of(&late, &[])].concat(), expected, "{policy}");
        assert_eq!(of(&late, &["--in-flight", "1"]), [40], "{policy}: the work is what is asked for");
        assert_eq!(of(&late, &["--in-flight", "0"]), [40], "{policy}: and none with 0");
    }
}

/// A report replays, too, and says the same.
#[test]
fn a_report_is_of_the_same_run() {
    let (done, late) = (program("report-done.trace", "done"), program("report-late.trace", "late"));
    for (trace, is_late) in [(&done, false), (&late, true)] {
        let page = format!("{}.html", trace.path());
        let row = run(&["report", "--json", "--policy", "classic", "-o", &page, trace.path()]).json().remove(0);
        let headlines = row["headlines"].to_string();
        assert_eq!(headlines.contains("120 MiB more than this program ever uses"), is_late, "{headlines}");
        std::fs::remove_file(page).expect("the page");
    }
}

/// What `tune` finds holds where the device is as late as it was: a replay of what it recommends comes to the same.
#[test]
fn settings_are_tried_with_the_recorded_work() {
    let trace = program("tune-late.trace", "late");
    let row = run(&["tune", "--json", "--budget", "40", trace.path()]).json().remove(0);
    let recommended = &row["recommended"];
    let conf = recommended["conf"].as_str().expect("a configuration");
    let args = ["replay", "--json", "--device", "sim", "--passes", "1", "--conf", conf, trace.path()];
    let again = run(&args).json().remove(0);
    assert_eq!(again["life_peak_reserved_bytes"], recommended["peak_reserved_bytes"], "{conf}");
}

/// Readers of format 3 refuse lines that break its rules, and say which.
#[test]
fn a_look_without_a_time_is_refused() {
    let trace = Scratch::new("no-time.trace", b"a 0 4096 0\no\n");
    for command in ["replay", "report", "tune"] {
        run(&[command, trace.path()]).fails(2, &["line 2"]);
    }
}

/// A table says what work is in flight: what was recorded, or none.
#[test]
fn the_title_names_recorded_work() {
    let trace = program("titled.trace", "late");
    let titles = [(&[][..], ", work in flight as recorded"), (&["--in-flight", "0"], ", no work in flight")];
    for (extra, title) in titles {
        let table = run(&[&["replay", "--device", "sim", trace.path()], extra].concat()).stdout;
        assert!(table.contains(title), "{table}");
        let search = run(&[&["tune", "--budget", "10", trace.path()], extra].concat()).stdout;
        assert!(search.contains(title), "{search}");
    }
}
