//! What holds for the files of every command: inputs are not replaced, `-` is a stream, and what a file says neither
//! ends a command in another way than an error nor acts on a terminal.

use std::fs;
use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::common::{Folder, Scratch, corpus, run, run_on_input};

const LOG: &[u8] = b"1 0x10 512 0\n1 0x20 4096 0\n0 0x10 512 0\n";
const TRACE: &str = "a 0 4194304 0\na 1 1048576 0\nf 0\nf 1\n";

fn snapshot(name: &str) -> String {
    format!("{}/../snapshot/tests/fixtures/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// An input under any of its names is refused as an output, before it is read, and is there still.
#[cfg(unix)]
#[test]
fn no_command_replaces_its_input() {
    let folder = Folder::new("inputs");
    let at = |name: &str| folder.path(name);
    fs::write(at("in"), LOG).expect("a file");
    fs::hard_link(at("in"), at("hard")).expect("a link");
    std::os::unix::fs::symlink(at("in"), at("soft")).expect("a link");
    let says = ["is read and would be replaced: give another path for the output"];
    for name in ["in", "hard", "soft"] {
        run(&["import", &at("in"), "-o", &at(name)]).fails(2, &says);
        run(&["report", &at("in"), "-o", &at(name)]).fails(2, &says);
        run(&["replay", &at("in"), "--report", &at(name)]).fails(2, &says);
        run(&["replay", &at("in"), "--snapshot", &at(name)]).fails(2, &says);
        let from_it = ["import", "-", "-o", &at(name)];
        let child = crate::common::command(&from_it).stdin(fs::File::open(at("in")).expect("a file")).output();
        assert_eq!(child.expect("it runs").status.code(), Some(2), "standard input is that file");
        assert_eq!(fs::read(at("in")).expect("a file"), LOG);
    }
    fs::create_dir(at("plots")).expect("a folder");
    fs::write(at("plots/x-timeline.svg"), TRACE).expect("a file");
    fs::copy(at("plots/x-timeline.svg"), at("x.trace")).expect("a file");
    let plots = ["--passes", "0", "--svg", &at("plots"), "-o", &at("page")];
    run(&[&["report", &at("x.trace"), &at("plots/x-timeline.svg")], &plots[..]].concat()).fails(2, &says);
}

#[test]
fn two_outputs_have_two_names() {
    let folder = Folder::new("doubles");
    let (page, plots) = (folder.path("page"), folder.path("plots"));
    let replay = ["replay", "--device", "sim", "--policy", "classic", "--passes", "0", "--pattern", "streams"];
    let says = ["is written twice: give another path for the output"];
    run(&[&replay[..], &["--report", &page, "--snapshot", &page]].concat()).fails(2, &says);
    let dotted = folder.path("./page");
    run(&[&replay[..], &["--report", &page, "--snapshot", &dotted]].concat()).fails(2, &says);
    run(&[&replay[..], &["--report", "-", "--snapshot", "-"]].concat()).fails(2, &says);
    fs::create_dir(&plots).expect("a folder");
    let inside = format!("{plots}/streams-timeline.svg");
    run(&[&replay[..], &["--report", &inside, "--svg", &plots]].concat()).fails(2, &says);
    run(&["diff", "-", "-"]).fails(2, &["standard input is named twice, and can be read once"]);
    run(&["replay", "-", "-"]).fails(2, &["standard input is named twice"]);
    assert!(!std::path::Path::new(&page).exists());
}

/// What cannot be written is told before anything is read, here a file that is not there.
#[test]
fn a_missing_folder_is_found_out_first() {
    let folder = Folder::new("missing");
    let (none, file) = (folder.path("none/file"), folder.path("file"));
    fs::write(&file, "").expect("a file");
    let inside = format!("{file}/plots");
    let says = ["cannot be written", "give another path"];
    for args in [
        &["import", "no.pickle", "-o", &none][..],
        &["report", "no.trace", "-o", &none],
        &["replay", "no.trace", "--report", &none],
        &["replay", "no.trace", "--snapshot", &none],
        &["replay", "no.trace", "--svg", &inside],
        &["report", "no.trace", "-o", &folder.path("page"), "--svg", &file],
        &["conformance", "--soak", "1", "--record", &none],
    ] {
        let ran = run(args);
        ran.fails(2, &says);
        assert!(!ran.stderr.contains("no.trace") && !ran.stderr.contains("no.pickle"), "{}", ran.stderr);
    }
    assert_eq!(fs::read_dir(folder.path("")).expect("a folder").count(), 1, "nothing is left");
}

/// Two traces of one name have plots of their own.
#[test]
fn plots_of_one_name_are_numbered() {
    let folder = Folder::new("numbered");
    let traces = ["a", "b", "c"].map(|name| {
        fs::create_dir_all(folder.path(name)).expect("a folder");
        let trace = folder.path(&format!("{name}/run.trace"));
        fs::write(&trace, TRACE).expect("a trace");
        trace
    });
    let (page, plots) = (folder.path("page.html"), folder.path("plots"));
    let args = ["report", "--passes", "0", "-o", &page, "--svg", &plots, &traces[0], &traces[1], &traces[2]];
    assert_eq!(run(&args).code, Some(0));
    let mut names: Vec<_> =
        fs::read_dir(plots).expect("a folder").map(|entry| entry.expect("a file").file_name()).collect();
    names.sort_unstable();
    assert_eq!(names, ["run-2-timeline.svg", "run-3-timeline.svg", "run-timeline.svg"]);
}

/// `-` is standard output of every command that writes a file, and what it prints goes to standard error then.
#[test]
fn a_dash_is_standard_output() {
    let imported = run_on_input(LOG, &["import", "-", "-o", "-"]);
    assert_eq!(imported.code, Some(0), "{}", imported.stderr);
    assert!(imported.stdout.starts_with("# {") && imported.stdout.ends_with("\n# end 3\n"), "{}", imported.stdout);
    assert!(imported.stderr.contains("a log of STAlloc"), "{}", imported.stderr);
    let replayed = run_on_input(imported.stdout.as_bytes(), &["replay", "--device", "sim", "--passes", "0", "-"]);
    assert_eq!(replayed.code, Some(0), "{}", replayed.stderr);
    let page = run(&["report", "--passes", "0", "--pattern", "streams", "-o", "-"]);
    assert!(page.code == Some(0) && page.stdout.starts_with("<!doctype html>"), "{}", page.stderr);
    assert!(page.stdout.trim_end().ends_with("</html>") && page.stderr.contains("MiB"), "{}", page.stderr);
    let replay = ["replay", "--device", "sim", "--policy", "classic", "--passes", "0", "--pattern", "streams"];
    let page = run(&[&replay[..], &["--report", "-"]].concat());
    assert!(page.stdout.starts_with("<!doctype html>") && page.stderr.contains("waste"), "{}", page.stderr);
    let pickle = crate::common::command(&[&replay[..], &["--snapshot", "-"]].concat()).output().expect("it runs");
    assert!(pickle.stdout.starts_with(&[0x80, 2]) && pickle.stdout.ends_with(b"."), "a pickle");
    let record = run(&["conformance", "--soak", "2", "--operations", "5", "--record", "-"]);
    assert!(record.code == Some(0) && record.stdout.starts_with("# A soak of 2 runs"), "{}", record.stdout);
    assert_eq!(record.stdout.matches("# A soak").count(), 1);
    assert!(record.stderr.contains("refusals"), "{}", record.stderr);
}

/// A reader that goes away is no error, and a full device is one.
#[cfg(target_os = "linux")]
#[test]
fn streams_may_close_and_may_be_full() {
    let scratch = Scratch::new("streams.txt", LOG);
    for to in ["-", "/dev/stdout", "/dev/full"] {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").expect("the full device");
        let mut command = crate::common::command(&["import", scratch.path(), "-o", to]);
        let output = command.stdout(full).output().expect("it runs");
        assert_eq!(output.status.code(), Some(2), "{to}: {}", String::from_utf8_lossy(&output.stderr));
    }
    assert_eq!(run(&["import", scratch.path(), "-o", "/dev/null"]).code, Some(0));
    let large: String = (0..100_000).map(|block| format!("1 0x{:x} 512 0\n", block * 512 + 512)).collect();
    let large = Scratch::new("large.txt", large.as_bytes());
    let mut command = crate::common::command(&["import", large.path(), "-o", "-"]);
    let mut child =
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().expect("it runs");
    drop(child.stdout.take());
    assert_eq!(child.wait_with_output().expect("it ends").status.code(), Some(0));
}

/// `-` is standard input of every command that reads.
#[test]
fn a_dash_is_standard_input() {
    let pickle = fs::read(snapshot("later.pickle")).expect("a snapshot");
    let named = run(&["diff", &snapshot("example.json"), &snapshot("later.pickle")]);
    let piped = run_on_input(&pickle, &["diff", &snapshot("example.json"), "-"]);
    let behind_names = |text: &str| text.split_once("\n\n").expect("a table").1.to_owned();
    assert_eq!((piped.code, behind_names(&piped.stdout)), (Some(0), behind_names(&named.stdout)));
    let golden = fs::read(corpus("golden/expand-large.jsonl.gz")).expect("a recording");
    let ran = run_on_input(&golden, &["golden", "-"]);
    assert!(ran.code == Some(0) && ran.stdout.starts_with("-: matched "), "{}", ran.stderr);
    let same = ["sameness", "--device", "sim", "-"];
    assert_eq!(run_on_input(TRACE.as_bytes(), &same).code, Some(0));
    assert_eq!(run_on_input(TRACE.as_bytes(), &["tune", "--budget", "5", "-"]).code, Some(0));
    run_on_input(b"x", &["golden", "-"]).fails(2, &["error: -: line 1: the text ends inside this line"]);
    run_on_input(b"x", &["diff", "-", &snapshot("example.json")]).fails(2, &["standard input: byte 0: expected a"]);
}

/// Every command that takes a trace takes a recording of another tool, whatever its name.
#[test]
fn recordings_are_known_by_their_content() {
    let folder = Folder::new("recordings");
    let (misnamed, page) = (folder.path("a.trace"), folder.path("page.html"));
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(&fs::read(snapshot("example.4.pickle")).expect("a snapshot")).expect("memory");
    let packed = encoder.finish().expect("memory");
    fs::write(&misnamed, &packed).expect("a file");
    for args in [
        &["report", "--passes", "0", "-o", &page, &misnamed][..],
        &["replay", "--device", "sim", "--passes", "0", &misnamed],
        &["tune", "--budget", "5", &misnamed],
        &["sameness", "--device", "sim", &misnamed],
    ] {
        let ran = run(args);
        assert_eq!(ran.code, Some(0), "{args:?}: {}", ran.stderr);
        assert!(
            ran.stderr.contains("a.trace is a snapshot of PyTorch; run `millpond import` to see"),
            "{}",
            ran.stderr
        );
    }
    let piped = run_on_input(&packed, &["replay", "--device", "sim", "--passes", "0", "-"]);
    assert!(piped.code == Some(0) && piped.stderr.contains("standard input is a snapshot"), "{}", piped.stderr);
    let two = run(&["report", "-o", &page, &snapshot("two_devices.pickle")]);
    two.fails(2, &["choose one with `millpond import --device N`"]);
    run(&["report", "-o", &page, &misnamed, "--trace-limits", "events=3"])
        .fails(2, &["raise `events` of the limits to ", ": --trace-limits events="]);
    // A header may speak of what other logs have.
    let header = "# {\"workload\": \"Layer : F, action, pointer\"}\n";
    let plain = run_on_input(format!("{header}{TRACE}").as_bytes(), &["replay", "--device", "sim", "-"]);
    assert_eq!((plain.code, plain.stderr.as_str()), (Some(0), ""));
}

/// A recording ends out of memory as a rule. Its refused request is part of the report, and of a replay, as it stands
/// and in two logs of which the first breaks off; what settings suit the program is found without it.
#[test]
fn a_replay_of_a_recording_has_its_refused_requests() {
    let log = b"Thread,Time,Action,Pointer,Size,Stream\n1,10:00:00:000001,allocate,0x10,41943040,0x0\n\
        1,10:00:00:000002,allocate failure,(nil),52428800,0x0\n1,10:00:00:000003,fre";
    let folder = Folder::new("refused");
    let page = folder.path("page.html");
    let kept = "a request that failed there is made here too, and freed at once";
    let cut = "the last line has no line break, as if it was cut off";
    for args in
        [&["report", "--limit", "64MiB", "-o", &page, "-"][..], &["replay", "--device", "sim", "--limit", "64MiB", "-"]]
    {
        run_on_input(log, args).fails(4, &[kept, cut, "note: standard input: "]);
    }
    let tuned = run_on_input(log, &["tune", "--budget", "5", "--limit", "64MiB", "-"]);
    assert!(tuned.code == Some(0) && !tuned.stderr.contains(kept) && tuned.stderr.contains(cut), "{}", tuned.stderr);
    let imported = run_on_input(log, &["import", "-o", &folder.path("a.trace"), "-"]);
    assert!(imported.stdout.contains(&format!("note: {cut}")), "{}", imported.stdout);
}

/// A trace that was cut at the end of a line is no shorter program.
#[test]
fn a_cut_trace_is_refused() {
    let folder = Folder::new("cut");
    let trace = folder.path("whole.trace");
    run_on_input(LOG, &["import", "-", "-o", &trace]);
    let text = fs::read_to_string(&trace).expect("a trace");
    let cut: String = text.lines().take(3).map(|line| format!("{line}\n")).collect();
    run_on_input(cut.as_bytes(), &["replay", "--device", "sim", "-"])
        .fails(2, &["line 4: the trace was cut off here, after 2 events", "remove `counted` from the header"]);
    // The advice is true.
    let kept = cut.replace("\"counted\":true,", "");
    assert_eq!(run_on_input(kept.as_bytes(), &["replay", "--device", "sim", "-"]).code, Some(0));
}

/// Numbers that would size something are refused where they stand, with the exit code of bad input.
#[test]
fn numbers_beyond_bounds_are_bad_input() {
    let huge = "1152921504606846976";
    let page = Folder::new("huge");
    let page = page.path("page.html");
    let trace = format!("a 0 {huge} 0\n");
    for args in [
        &["replay", "--device", "sim", "-"][..],
        &["report", "-o", &page, "-"],
        &["tune", "--budget", "5", "-"],
        &["sameness", "--device", "sim", "-"],
    ] {
        run_on_input(trace.as_bytes(), args).fails(2, &["standard input: line 1: the size is", huge]);
    }
    for log in [format!("1 0x10 {huge} 0\n"), format!("id,lower,upper,size\na,0,1,{huge}\n")] {
        run_on_input(log.as_bytes(), &["import", "-", "-o", &page]).fails(2, &["standard input: line ", huge]);
    }
    // What is below the bound runs out of memory, or a varied size exceeds it: neither is the device's failure.
    let most = format!("a 0 {} 0\n", (1_u64 << 60) - 1);
    assert_eq!(run_on_input(most.as_bytes(), &["replay", "--device", "sim", "--passes", "0", "-"]).code, Some(4));
    let varied = ["replay", "--device", "sim", "--passes", "9", "--vary", "20%", "--allow-oom", "-"];
    assert_ne!(run_on_input(most.as_bytes(), &varied).code, Some(3));
    let limit = run(&["import", &snapshot("large.pickle"), "-o", &page, "--limits", "text_bytes=1000"]);
    limit.fails(2, &["raise `text_bytes` of the limits to ", ": --limits text_bytes="]);
}

/// Whatever a file is called and says, nothing of it acts on a terminal or breaks a picture.
#[cfg(unix)]
#[test]
fn control_characters_are_escaped_everywhere() {
    let folder = Folder::new("control");
    let hostile = "a\u{1b}[2J\u{9b}31m\r\nb\u{7}";
    let header = serde_json::json!({ "workload": hostile, "gpu": hostile });
    let trace = folder.path(&format!("{hostile}.trace"));
    fs::write(&trace, format!("# {header}\n{TRACE}")).expect("a trace");
    let broken = folder.path(&format!("{hostile}.broken"));
    fs::write(&broken, format!("{hostile}\n")).expect("a file");
    let frames = [serde_json::json!({ "name": hostile, "filename": hostile, "line": 1 })];
    let block = serde_json::json!({ "address": 1, "size": 512, "state": "active_allocated", "frames": frames });
    let (one, other) = (folder.path("one.json"), folder.path("other.json"));
    for (path, blocks) in [(&one, vec![]), (&other, vec![block])] {
        let segments = [serde_json::json!({ "address": 1, "total_size": 512, "blocks": blocks, hostile: 5 })];
        let events = [serde_json::json!({ "action": hostile, "addr": 1, "size": 1, "stream": 0 })];
        let snapshot = serde_json::json!({ "segments": segments, "device_traces": [events] });
        fs::write(path, snapshot.to_string()).expect("a snapshot");
    }
    let (page, plots) = (folder.path("page.html"), folder.path("plots"));
    for args in [
        &["replay", "--device", "sim", "--passes", "0", &trace][..],
        &["replay", "--device", "sim", "--passes", "0", "--json", &trace],
        &["report", "--passes", "0", "-o", &page, "--svg", &plots, &trace],
        &["tune", "--budget", "5", &trace],
        &["replay", &broken],
        &["golden", &broken],
        &["diff", &one, &other],
        &["diff", &one, &other, "--json"],
        &["diff", &one, &broken],
        &["import", &other, "-o", &folder.path(&format!("{hostile}.out"))],
        &["import", &broken, "-o", &page],
        &["import", &folder.path(&format!("{hostile}.none")), "-o", &page],
        &["report", &trace, "-o", &trace],
    ] {
        let ran = run(args);
        for text in [&ran.stdout, &ran.stderr] {
            let found = text.chars().find(|c| c.is_control() && *c != '\n');
            assert_eq!(found, None, "{args:?}: {text:?}");
        }
    }
    let pictures: Vec<_> = fs::read_dir(&plots).expect("plots").map(|entry| entry.expect("a plot").path()).collect();
    assert_eq!(pictures.len(), 1);
    for path in pictures.iter().map(|path| path.to_str().expect("UTF-8")).chain([page.as_str()]) {
        let text = fs::read_to_string(path).expect("text");
        let found = text.chars().find(|c| c.is_control() && !"\n\t".contains(*c));
        assert_eq!(found, None, "{path}");
    }
}
