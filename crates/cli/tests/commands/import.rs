//! `millpond import`, as people start it.

use crate::common::{Scratch, corpus, run, run_on_input};
use millpond_trace::Trace;

/// Returns the path of a snapshot that PyTorch could have written.
fn snapshot(name: &str) -> String {
    format!("{}/../snapshot/tests/fixtures/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// Returns the path of a trace to write, and removes the one of an earlier run.
fn target(name: &str) -> String {
    let path = format!("{}/{}-{name}", env!("CARGO_TARGET_TMPDIR"), std::process::id());
    let _ = std::fs::remove_file(&path);
    path
}

const RMM: &[u8] = b"Thread,Time,Action,Pointer,Size,Stream\n\
    7,10:32:09.106743,allocate,0x7f0000000000,1024,0\n7,10:32:09.106800,free,0x7f0000000000,1024,0\n";

#[test]
fn a_snapshot_becomes_a_trace_that_replays() {
    let trace = target("example.trace.zst");
    let ran = run(&["import", &snapshot("example.4.pickle"), "-o", &trace]);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
    let lines: Vec<&str> = ran.stdout.lines().collect();
    assert!(lines[0].ends_with("example.4.pickle: a snapshot of PyTorch, device 0"), "{}", ran.stdout);
    for line in ["  events           13", "  blocks            7", "  streams           2", "  live peak  8.00 MiB"] {
        assert!(lines.contains(&line), "{line:?} in {}", ran.stdout);
    }
    assert!(ran.stdout.contains("not carried over, or changed:\n"), "{}", ran.stdout);
    assert!(lines.contains(&"  1 allocations that were refused"), "{}", ran.stdout);

    let read = Trace::read(&trace).expect("a trace");
    assert_eq!((read.events.len(), read.header.workload()), (13, Some("example.4")));
    let replayed = run(&["replay", "--device", "sim", "--format", "json", "--passes", "0", &trace]).json();
    assert_eq!(
        replayed[0]["trace"],
        trace.rsplit('/').next().and_then(|name| name.strip_suffix(".trace.zst")).expect("a name")
    );
}

#[test]
fn json_tells_the_same() {
    let scratch = Scratch::new("rmm.csv", RMM);
    let trace = target("rmm.trace");
    let rows = run(&["import", scratch.path(), "-o", &trace, "--format", "json"]).json();
    let row = &rows[0];
    assert_eq!((&row["format"], &row["events"], &row["blocks"]), (&"rmm".into(), &2.into(), &1.into()));
    assert_eq!((&row["streams"], &row["live_peak_bytes"]), (&1.into(), &1024.into()));
    assert_eq!((&row["not_carried_over"], &row["notes"]), (&serde_json::json!([]), &serde_json::json!([])));
    let details = Trace::read(&trace).expect("a trace").details;
    assert_eq!([0, 1].map(|event| details.place(event).micros), [Some(0), Some(57)]);
    let plain = ["import", scratch.path(), "-o", &trace, "--no-details", "--format", "json"];
    assert_eq!(run(&plain).json()[0]["not_carried_over"][0], serde_json::json!({ "what": "times", "count": 2 }));
    let text = std::fs::read_to_string(&trace).expect("a trace");
    assert!(text.starts_with("# {") && text.ends_with("\na 0 1024 0\nf 0\n# end 2\n"), "{text}");
}

#[test]
fn standard_input_is_read() {
    let trace = target("input.trace");
    let ran = run_on_input(b"1 0x10 512 0\n", &["import", "--from", "stalloc", "-", "-o", &trace]);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
    assert!(ran.stdout.starts_with("standard input: a log of STAlloc\n"), "{}", ran.stdout);
    assert!(!ran.stdout.contains("not carried over"), "{}", ran.stdout);
}

#[test]
fn errors_name_the_place_and_the_fix() {
    let trace = target("never.trace");
    let two = snapshot("two_devices.pickle");
    run(&["import", &two, "-o", &trace]).fails(2, &["the snapshot has devices 0, 1; choose one with --device N"]);
    run(&["import", &two, "-o", &trace, "--device", "4"]).fails(2, &["nothing of device 4", "give another --device"]);
    run(&["import", &two, "-o", &trace, "--from", "csv"]).fails(2, &["`csv` is no format", "lifetimes"]);
    run(&["import", "no/such.pickle", "-o", &trace]).fails(2, &["cannot open no/such.pickle", "give the path"]);
    run(&["import", &two]).fails(2, &["--output <TRACE>"]);
    let noise = Scratch::new("noise.bin", b"\x7fELF\x02");
    run(&["import", noise.path(), "-o", &trace]).fails(2, &[noise.path(), "no format is known that begins with"]);
    let broken = Scratch::new("broken.csv", b"id,lower,upper,size\na,0,x,5\n");
    run(&["import", broken.path(), "-o", &trace]).fails(2, &["line 2, column 5: `x` is not a valid time"]);
    let code = Scratch::new("code.pickle", b"\x80\x02cos\nsystem\n.");
    run(&["import", code.path(), "-o", &trace]).fails(2, &["byte 2", "GLOBAL", "nothing of the file is run"]);
    let empty = Scratch::new("empty.json", b"{\"segments\": [], \"device_traces\": []}");
    run(&["import", empty.path(), "-o", &trace]).fails(2, &["_record_memory_history()", "no trace is written"]);
    let limited = ["import", &two, "-o", &trace, "--limits", "events=5"];
    let says = run(&limited).stderr;
    let (_, advice) = says.split_once("--limits ").expect("an option");
    let (advice, _) = advice.split_once(", or `none`").expect("all of them");
    assert!(says.contains("more than 10 values") && advice.starts_with("events="), "{says}");
    let raised = target("raised.trace");
    assert_eq!(run(&["import", &two, "-o", &raised, "--device", "1", "--limits", advice]).code, Some(0), "{advice}");
    assert!(!std::path::Path::new(&trace).exists());
    let good = Scratch::new("good.csv", RMM);
    run(&["import", good.path(), "-o", "/nonexistent/a.trace"]).fails(2, &["cannot be written", "give another path"]);
}

/// A part of a recording begins with what is live there, and says what it is of.
#[test]
fn a_part_of_a_recording_is_taken() {
    let trace = target("part.trace");
    let log = Scratch::new("part.csv", RMM);
    let part = |more: &[&str]| run(&[&["import", log.path(), "-o", &trace, "--no-details"], more].concat());
    let ran = part(&["--events", "1.."]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    for line in
        ["  1 events outside of the part", "  1 blocks from before the part, which are allocated at its beginning"]
    {
        assert!(ran.stdout.lines().any(|known| known == line), "{line:?} in {}", ran.stdout);
    }
    let text = std::fs::read_to_string(&trace).expect("a trace");
    assert!(text.ends_with("\na 0 1024 0\nf 0\n# end 2\n"), "{text}");
    assert_eq!(part(&["--since", "1s"]).code, Some(0));
    part(&["--events", "7.."]).fails(2, &["no event from 7 to the end: the recording has 2 events", "other --events"]);
    part(&["--events", "7..5"]).fails(2, &["`7..5` has no events", "such as 1000..2000"]);
    part(&["--since", "1"]).fails(2, &["`1` is no time", "such as 20s"]);
    let lives = Scratch::new("part-lives.csv", b"id,lower,upper,size\na,0,1,5\n");
    run(&["import", lives.path(), "-o", &trace, "--events", "0..1"]).fails(2, &["has no events in an order"]);
    let whole = corpus("traces/gnn.trace.gz");
    run(&["import", &whole, "-o", &trace, "--since", "1s"]).fails(2, &["it is a trace of Millpond"]);
}

/// Two small segments, the later at the lower address, and free blocks of one size in both: what is reserved depends on
/// which of them a request takes.
#[test]
fn a_replay_takes_the_addresses_of_the_recorded_segments() {
    const MIB: u64 = 1 << 20;
    let (high, low) = (0x7f00_0040_0000, 0x7f00_0020_0000_u64);
    let events = [
        ("segment_alloc", high, 2 * MIB),
        ("alloc", high, MIB),
        ("alloc", high + MIB, MIB),
        ("segment_alloc", low, 2 * MIB),
        ("alloc", low, MIB),
        ("alloc", low + MIB, MIB),
        ("free_requested", high + MIB, MIB),
        ("free_completed", high + MIB, MIB),
        ("free_requested", low + MIB, MIB),
        ("free_completed", low + MIB, MIB),
        ("alloc", low + MIB, 512),
        ("free_requested", high, MIB),
        ("free_completed", high, MIB),
        ("alloc", low + MIB + 512, 768 << 10),
        ("alloc", high, 768 << 10),
        ("alloc", high + (768 << 10), 768 << 10),
        ("alloc", high + (1536 << 10), 512 << 10),
    ];
    let events = events
        .map(|(action, addr, size)| serde_json::json!({ "action": action, "addr": addr, "size": size, "stream": 0 }));
    let snapshot = serde_json::json!({ "segments": [], "device_traces": [events] }).to_string();
    let (scratch, trace) = (Scratch::new("tie.json", snapshot.as_bytes()), target("tie.trace"));
    assert_eq!(run(&["import", scratch.path(), "-o", &trace]).code, Some(0));
    let reserved = |trace: &str, more: &[&str]| {
        let args = ["replay", "--device", "sim", "--policy", "classic", "--passes", "1", "--format", "json", trace];
        run(&[&args, more].concat()).json()[0]["peak_reserved_bytes"].as_u64()
    };
    assert_eq!(reserved(&trace, &["--as-recorded"]), Some(4 * MIB));
    assert_eq!(reserved(&trace, &[]), Some(6 * MIB), "ties go by birth");
    let text = std::fs::read_to_string(&trace).expect("a trace");
    let (header, events) = text.split_once('\n').expect("a header");
    assert!(header.contains("\"segment_addresses\":[[2097152,139637980921856],[2097152,139637978824704]]"), "{header}");
    let without = Scratch::new("tie-without.trace", events.as_bytes());
    assert_eq!(reserved(without.path(), &["--as-recorded"]), Some(6 * MIB), "the device's own addresses rise");
}

/// A trace needs no import: it is written as it is, in the compression that its new name asks for.
#[test]
fn a_trace_becomes_the_same_trace() {
    let (source, target) = (corpus("traces/gnn.trace.gz"), target("again.trace.zst"));
    let row = &run(&["import", &source, "-o", &target, "--json"]).json()[0];
    assert_eq!((&row["format"], &row["not_carried_over"]), (&"trace".into(), &serde_json::json!([])));
    assert_eq!(Trace::read(&target).expect("a trace"), Trace::read(&source).expect("a trace"));
    let empty = Scratch::new("no-event.trace", b"# {}\n");
    run(&["import", empty.path(), "-o", &target]).fails(2, &["there is no event in it", "no trace is written"]);
    run(&["import", &source, "-o", &target, "--limits", "events=3"]).fails(2, &["--limits events=18751, or `none`"]);
}

/// What no command can read is answered by each of them with the formats that there are.
#[test]
fn an_unknown_file_is_answered_with_the_formats_that_are_known() {
    let (page, trace) = (target("unknown.html"), target("unknown.trace"));
    let unknown = Scratch::new("unknown.bin", b"\x7fELF\x02\x01");
    let says = ["unknown.bin: no format is known", "a trace of Millpond", "a snapshot of PyTorch", "a log of RMM"];
    for args in [
        &["report", "-o", &page][..],
        &["import", "-o", &trace],
        &["replay", "--device", "sim"],
        &["tune", "--budget", "5"],
        &["sameness", "--device", "sim"],
    ] {
        let ran = run(&[args, &[unknown.path()]].concat());
        ran.fails(2, &says);
        assert!(!ran.stderr.contains("trace-format.md"), "{}", ran.stderr);
    }
    assert!(!std::path::Path::new(&page).exists() && !std::path::Path::new(&trace).exists());
}
