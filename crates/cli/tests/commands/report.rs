//! `millpond report` and `millpond replay --report`, as people start them.

use crate::common::{Folder, corpus, run};
use serde_json::Value;

fn trace(name: &str) -> String {
    corpus(&format!("traces/{name}.trace.gz"))
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).expect(path)
}

/// Returns the data of a page.
fn data(page: &str) -> Value {
    let (_, rest) = page.split_once("id=\"data\">").expect("data");
    serde_json::from_str(rest.split_once("</script>").expect("an end").0).expect("JSON")
}

#[test]
fn a_report_has_the_numbers_of_the_replay() {
    let folder = Folder::new("report");
    let page = folder.path("gnn.html");
    let args = ["--policy", "classic,tight", "--passes", "2", "--in-flight", "50"];
    let told = run(&[&["report", &trace("gnn"), "-o", &page, "--format", "json"], &args[..]].concat()).json();
    assert_eq!((told[0]["file"].as_str(), told.len()), (Some(page.as_str()), 1));
    let text = read(&page);
    assert_eq!(told[0]["bytes"].as_u64(), Some(text.len() as u64));
    let rows = run(&[&["replay", "--device", "sim", "--format", "json", &trace("gnn")], &args[..]].concat()).json();
    let program = &data(&text)["programs"][0];
    assert_eq!((program["name"].as_str(), rows.len()), (Some("gnn"), 2));
    for (run, row) in program["runs"].as_array().expect("runs").iter().zip(&rows) {
        assert_eq!(run["policy"], row["policy"]);
        assert_eq!((&run["live"], &run["reserved"]), (&row["peak_live_bytes"], &row["peak_reserved_bytes"]));
        let life = [&row["life_peak_live_bytes"], &row["life_peak_reserved_bytes"]];
        assert_eq!([&run["life"][0], &run["life"][1]], life, "{}", run["policy"]);
        let calls = run["passes"].as_array().expect("passes").iter().map(|pass| pass["calls"].clone());
        assert_eq!(Value::from_iter(calls), row["driver_calls_by_pass"], "{}", run["policy"]);
        assert_eq!(run["differs"], 0, "{}", run["policy"]);
    }
    assert!(!text.contains("http:") && !text.contains("https:"));
}

#[test]
fn a_replay_prints_the_same_with_a_report_beside_it() {
    let folder = Folder::new("replay-report");
    let (page, plots) = (folder.path("page.html"), folder.path("plots"));
    let args = ["replay", "--device", "sim", "--no-times", "--passes", "1", "--pattern", "streams"];
    let plain = run(&args);
    let with = run(&[&args[..], &["--report", &page, "--svg", &plots]].concat());
    assert_eq!((with.code, with.stdout), (Some(0), plain.stdout), "{}", with.stderr);
    assert!(read(&page).starts_with("<!doctype html>"));
    for name in ["streams-timeline.svg", "streams-life.svg"] {
        assert!(read(&format!("{plots}/{name}")).starts_with("<svg"), "{name}");
    }
}

#[test]
fn a_snapshot_is_a_pickle_or_by_its_name_a_dump_of_vma() {
    let folder = Folder::new("replay-snapshot");
    let (pickle, dump) = (folder.path("heap.pickle"), folder.path("heap.vma.json"));
    for file in [&pickle, &dump] {
        let args = ["replay", "--device", "sim", "--policy", "classic", "--passes", "0", "--pattern", "streams"];
        assert_eq!(run(&[&args[..], &["--snapshot", file]].concat()).code, Some(0), "{file}");
    }
    assert!(std::fs::read(&pickle).expect("a pickle").starts_with(&[0x80, 2]));
    let dump: Value = serde_json::from_str(&read(&dump)).expect("JSON");
    assert!(dump["DefaultPools"]["Type 0"]["Blocks"].as_object().is_some_and(|blocks| !blocks.is_empty()), "{dump}");
}

#[test]
fn a_refusal_is_in_the_page() {
    let folder = Folder::new("report-refusal");
    let page = folder.path("page.html");
    let args = ["report", "--passes", "0", "--limit", "1.04x", "--policy", "classic", &trace("gnn"), "-o", &page];
    let told = run(&args);
    told.fails(4, &["allocations were refused for lack of memory: ", "--allow-oom"]);
    assert!(told.stdout.contains("page.html"), "the page is written all the same: {}", told.stdout);
    assert_eq!(run(&[&args[..], &["--allow-oom"]].concat()).code, Some(0));
    assert!(told.stderr.contains("allocations refused in one pass"), "{}", told.stderr);
    let refusal = &data(&read(&page))["programs"][0]["runs"][0]["refusal"];
    assert!(refusal["requested"].as_u64() > refusal["hole"][1].as_u64(), "{refusal}");
    assert!(refusal["message"].as_str().is_some_and(|message| message.contains("out of memory")), "{refusal}");
    let fits = &data(&read(&page))["programs"][0]["fits"];
    let refused = |name: &str| {
        let policies = fits["policies"].as_array().expect("policies");
        policies.iter().find(|policy| policy[0] == name).expect(name)[1].as_u64().expect("a number")
    };
    assert!(refused("classic") > 0 && refused("paged") == 0, "{fits}");
    assert!(fits["sentence"].as_str().is_some_and(|sentence| told.stderr.contains(&sentence[..sentence.len() - 1])));
}

#[test]
fn a_report_opens_with_what_became_of_the_program() {
    let folder = Folder::new("report-headline");
    let page = folder.path("page.html");
    let limited = run(&["report", "--passes", "0", "--limit", "1.04x", &trace("gnn"), "-o", &page, "--allow-oom"]);
    let (_, told) = limited.stdout.split_once('\n').expect("a line after that of the file");
    assert!(told.starts_with("PyTorch's default allocator (`classic`) runs out of memory at event "), "{told}");
    assert!(told.contains("`PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True` fits, with "), "{told}");
    assert_eq!(data(&read(&page))["programs"][0]["headline"], told.trim_end());
    let first = "<p class=\"headline\">PyTorch&#39;s default allocator (<code>classic</code>) runs out of memory";
    assert!(read(&page).contains(first));

    let snapshot = corpus("readers/snapshot.pickle.gz");
    let recorded = run(&["report", "--passes", "0", &snapshot, "-o", &page]).stdout;
    let sentence =
        "The recorded program ran out of memory at event 9, when it asked for 80.0 GiB in `app/train.py:31 step`.";
    assert!(recorded.contains(sentence), "{recorded}");

    let programs = ["report", "--passes", "0", "--pattern", "streams", "--pattern", "many_streams", "-o", &page];
    let told = run(&programs).stdout;
    for name in ["streams", "many_streams"] {
        // These are no programs of PyTorch's.
        let sentence = format!("\n{name}: `classic` reserves ");
        assert!(told.contains(&sentence) && told.contains(" more than this program ever uses at once ("), "{told}");
        assert!(read(&page).contains(&format!("<li><strong>{name}</strong>: ")), "{name}");
    }
    let json = run(&[&programs[..], &["--format", "json"]].concat()).json();
    assert_eq!((json.len(), json[0]["headlines"].as_array().map(Vec::len)), (1, Some(2)), "{json:?}");
}

#[test]
fn plots_as_png_take_a_build_with_that_feature() {
    let folder = Folder::new("report-png");
    let (page, plots) = (folder.path("page.html"), folder.path("plots"));
    let told = run(&["report", "--passes", "0", "--pattern", "streams", "--png", &plots, "-o", &page]);
    if cfg!(not(feature = "png")) {
        told.fails(2, &["built without it", "--features png", "--svg"]);
        assert!(!std::path::Path::new(&plots).exists());
    } else if told.code == Some(0) {
        let picture = std::fs::read(format!("{plots}/streams-timeline.png")).expect("a picture");
        assert!(picture.starts_with(b"\x89PNG\r\n"));
    } else {
        told.fails(2, &["no font", "fonts-dejavu-core"]);
    }
}

#[test]
fn names_and_headers_of_traces_are_no_markup() {
    let folder = Folder::new("report-names");
    let hostile = "</script><script>alert(1)</script>";
    let header = serde_json::json!({ "workload": hostile, "gpu": "<b>" });
    let path = folder.path("<i>x.trace");
    std::fs::write(&path, format!("# {header}\na 0 1000 0\nf 0\n")).expect("a trace");
    let page = folder.path("page.html");
    assert_eq!(run(&["report", &path, "-o", &page]).code, Some(0));
    let text = read(&page);
    assert!(!text.contains("<i>") && !text.contains("<b>"), "markup of a label is in the page");
    assert_eq!((text.matches("<script").count(), text.matches("</script").count()), (2, 2));
    assert_eq!(data(&text)["programs"][0]["name"], "<i>x");
}

#[test]
fn what_cannot_be_shown_is_refused() {
    let folder = Folder::new("report-refused");
    let (empty, page) = (folder.path("empty.trace"), folder.path("page.html"));
    std::fs::write(&empty, "").expect("a trace");
    run(&["report", &empty, "-o", &page]).fails(2, &["there is no event in it"]);
    assert!(!std::path::Path::new(&page).exists(), "no page of nothing");
    let nowhere = folder.path("no/such/folder/page.html");
    run(&["report", "--passes", "0", "--pattern", "streams", "-o", &nowhere]).fails(2, &["cannot be written"]);
    run(&["replay", "--threads", "2", "--report", &page]).fails(2, &["leave out --threads"]);
    run(&["replay", "--for", "1s", "--report", &page]).fails(2, &["leave out --for"]);
}

#[test]
fn the_picture_of_the_documentation_is_what_is_drawn() {
    let folder = Folder::new("report-picture");
    let (page, plots) = (folder.path("page.html"), folder.path("plots"));
    let trace = trace("bert_multistream");
    let args = ["report", "--in-flight", "200", "--policy", "classic,paged,tight", "--passes", "0", &trace];
    assert_eq!(run(&[&args[..], &["-o", &page, "--svg", &plots]].concat()).code, Some(0));
    let committed = read(&corpus("../../docs/report-timeline.svg"));
    let is_same = read(&format!("{plots}/bert_multistream-timeline.svg")) == committed;
    assert!(is_same, "docs/report-timeline.svg is another: docs/design/maintaining.md says how to draw it");
}

/// The snapshot of a replay is one that `import` reads: the trace in it has the same blocks again, for each pass.
#[test]
fn a_snapshot_of_a_replay_holds_the_program() {
    let folder = Folder::new("snapshot");
    for name in ["replay.pickle", "replay.json"] {
        let (file, trace) = (folder.path(name), folder.path("again.trace"));
        let arguments = ["--format", "json", "replay", "--device", "sim", "--pattern", "many_streams"];
        let ran = run(&[&arguments[..], &["--policy", "paged", "--passes", "0", "--snapshot", &file]].concat());
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        let replayed: Value = serde_json::from_str(ran.stdout.lines().next().expect("a row")).expect("JSON");
        let imported = run(&["--format", "json", "import", &file, "-o", &trace]);
        assert_eq!(imported.code, Some(0), "{}", imported.stderr);
        let again = run(&["--format", "json", "replay", "--device", "sim", "--policy", "paged", &trace]);
        let again: Value = serde_json::from_str(again.stdout.lines().next().expect("a row")).expect("JSON");
        assert_eq!(again["peak_live_bytes"], replayed["peak_live_bytes"]);
        assert!(again["events"].as_u64() > Some(40_000), "{again}");
    }
    let several = run(&["replay", "--device", "sim", "--pattern", "all", "--snapshot", &folder.path("no.pickle")]);
    assert_eq!(several.code, Some(2), "{}", several.stderr);
    assert!(several.stderr.contains("--snapshot takes one trace and one policy"), "{}", several.stderr);
    assert!(!std::path::Path::new(&folder.path("no.pickle")).exists());
}
