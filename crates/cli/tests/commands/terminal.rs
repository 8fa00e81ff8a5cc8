//! What the command looks like: widths, colours, interrupts, completions.

use std::io::Read as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::common::{Folder, Scratch, command, corpus, run};

/// Checks that no line is wider than a terminal of 80 columns.
fn fits(text: &str) {
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "{} characters: {line}\n{text}", line.chars().count());
    }
}

#[test]
fn tables_fit_80_columns() {
    let trace: String = (0..40).map(|id| format!("a {id} 9000000 0\n")).collect();
    let long = "a_trace_with_a_very_long_name_as_file_names_of_ranks_and_steps_are.trace";
    let long = Scratch::new(long, trace.as_bytes());
    for args in [
        &["replay", "--passes", "1"][..],
        &["replay", "--compare", "--passes", "1"],
        &["replay", "--touch", "--passes", "1", "--policy", "paged,classic"],
        &["replay", "--limit", "0.9x", "--allow-oom", "--passes", "1", "--compare"],
    ] {
        let ran = run(&[args, &[long.path()]].concat());
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        fits(&ran.stdout);
        assert!(ran.stdout.contains("waste") && ran.stdout.contains('…'), "{}", ran.stdout);
    }
    const KIND: &str = "simulated, closing by Backend, reuse InOrder, completion Immediate";
    for args in [&["devices"][..], &["bench", "--quick"], &["conformance", "--only", KIND]] {
        let ran = run(&[args, if args[0] == "devices" { &[] } else { &["--device", "sim"] }].concat());
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        fits(&ran.stdout);
    }
}

/// What was left out is named, and there with `--wide`.
#[test]
fn columns_that_were_left_out_are_told() {
    let args = ["replay", "--passes", "1", "--policy", "paged", &corpus("traces/gnn.trace.gz")];
    let text = run(&args).stdout;
    let note = text.split("left out: ").nth(1).expect("a note").replace('\n', " ");
    assert!(note.contains("events") && note.contains("--wide has them"), "{text}");
    let wide = run(&[&args[..], &["--wide"]].concat()).stdout;
    assert!(wide.contains("  events  ") && wide.contains("all driver") && !wide.contains("left out"), "{wide}");
}

#[test]
fn nothing_is_coloured_in_a_pipe() {
    let failing = corpus("traces/no_such.trace");
    for args in
        [&["devices"][..], &["tune", "--budget", "20"], &["--help"], &["replay", "--help"], &["replay", &failing]]
    {
        let ran = run(args);
        assert!(!ran.stdout.contains('\u{1b}') && !ran.stderr.contains('\u{1b}'), "{args:?}: {}", ran.stdout);
    }
}

#[test]
fn json_is_asked_for_in_two_ways() {
    let args = ["replay", "--passes", "0", "--no-times", "--policy", "classic"];
    let short = run(&[&args[..], &["--json"]].concat()).json();
    let keys = |rows: &[serde_json::Value]| rows[0].as_object().expect("an object").len();
    assert_eq!(keys(&short), keys(&run(&[&args[..], &["--format", "json"]].concat()).json()));
    run(&["devices", "--json", "--format", "text"]).fails(2, &["--json"]);
}

/// Wherever there is a table, `--json` has a value a line instead, and `--wide` every column.
#[test]
fn every_table_is_there_as_json_and_in_full() {
    let folder = Folder::new("forms");
    let (trace, page, out) = (corpus("traces/gnn.trace.gz"), folder.path("page.html"), folder.path("a.trace"));
    let snapshot = |name: &str| format!("{}/../snapshot/tests/fixtures/{name}", env!("CARGO_MANIFEST_DIR"));
    let (before, after) = (snapshot("example.json"), snapshot("later.pickle"));
    let golden = corpus("golden/default-small.jsonl.gz");
    for args in [
        &["devices"][..],
        &["replay", "--device", "sim", "--passes", "1", "--compare", &trace],
        &["report", "--passes", "0", "-o", &page, "--pattern", "streams"],
        &["tune", "--budget", "20", &trace],
        &["bench", "--quick", "--device", "sim"],
        &["import", &before, "-o", &out],
        &["diff", &before, &after],
        &["golden", &golden],
        &["sameness", "--device", "sim", "--seeds", "2"],
        &["conformance", "--device", "sim", "--only", "reuse InOrder, completion Immediate", "--group", "limits"],
        &["conformance", "--soak", "3"],
    ] {
        assert!(!run(&[args, &["--json"]].concat()).json().is_empty(), "{args:?}");
        let wide = run(&[args, &["--wide"]].concat());
        assert_eq!(wide.code, Some(0), "{args:?}: {}", wide.stderr);
        assert!(!wide.stdout.is_empty() && !wide.stdout.contains("left out"), "{args:?}: {}", wide.stdout);
    }
    for args in [&["replay", "--markdown"][..], &["tune", "--markdown"], &["sameness", "--markdown", "--device", "sim"]]
    {
        let args = [args, &["--json", &trace]].concat();
        run(&args).fails(2, &["--markdown is a way to print the table; give it or --json"]);
    }
}

#[test]
fn a_replay_that_runs_out_of_memory_exits_with_4() {
    let gnn = corpus("traces/gnn.trace.gz");
    let args = ["replay", "--limit", "4GiB", "--passes", "0", &gnn];
    let ran = run(&args);
    ran.fails(4, &["allocations were refused for lack of memory: ", "--allow-oom"]);
    assert!(ran.stdout.contains("OOMs"), "the table is printed all the same: {}", ran.stdout);
    assert_eq!(run(&[&args[..], &["--allow-oom"]].concat()).code, Some(0));
    for args in [&["--help"][..], &["replay", "--help"], &["tune", "--help"]] {
        let help = run(args).stdout;
        assert!(help.contains("  4  ") && help.contains("130  "), "{args:?}: {help}");
    }
}

#[test]
fn mistyped_names_are_answered_with_what_was_probably_meant() {
    run(&["replay", "--policy", "clasic"]).fails(2, &["similar value", "'classic'"]);
    run(&["replay", "--policy", "expandible"]).fails(2, &["similar value", "'expandable'"]);
    run(&["replay", "--pattern", "groving"]).fails(2, &["did you mean `growing`?"]);
    run(&["replay", "--device", "vulcan"]).fails(2, &["did you mean `vulkan`?"]);
    run(&["replay", "--conf", "max_split_size:64"]).fails(2, &["did you mean `max_split_size_mb`?"]);
    run(&["replay", &corpus("traces/gnn.trace")]).fails(2, &["did you mean `", "gnn.trace.gz`?"]);
    run(&["replya"]).fails(2, &["'replay'"]);
    run(&["replay", "--polcy", "classic"]).fails(2, &["'--policy'"]);
}

#[test]
fn every_help_teaches_by_examples() {
    for name in ["devices", "replay", "golden", "bench", "sameness", "conformance", "tune", "completions", "man"] {
        let help = run(&[name, "--help"]).stdout;
        let examples = help.split("Examples:").nth(1).unwrap_or_else(|| panic!("{name} has no examples: {help}"));
        assert!(examples.matches(&format!("\n  millpond {name}")).count() >= 2, "{name}: {examples}");
    }
}

/// The names of all commands.
const COMMANDS: [&str; 13] = [
    "devices",
    "replay",
    "import",
    "diff",
    "compare",
    "report",
    "golden",
    "bench",
    "sameness",
    "conformance",
    "tune",
    "completions",
    "man",
];

#[test]
fn help_fits_80_columns() {
    let pages = COMMANDS.iter().flat_map(|name| [vec![*name, "--help"], vec![*name, "-h"]]);
    for args in pages.chain([vec!["--help"], vec!["-h"], vec!["help"]]) {
        let output = command(&args).env("COLUMNS", "80").output().expect("the command starts");
        assert_eq!(output.status.code(), Some(0), "{args:?}");
        fits(&String::from_utf8(output.stdout).expect("UTF-8"));
    }
    let listed = run(&["--help"]).stdout;
    let (commands, developers) = listed.split_once("For developers of allocators and backends:").expect("a heading");
    for name in COMMANDS {
        let is_theirs = ["golden", "sameness", "conformance", "bench"].contains(&name);
        let line = |text: &str| text.lines().any(|line| line.starts_with(&format!("  {name} ")));
        assert_eq!((line(commands), line(developers)), (!is_theirs, is_theirs), "{name}: {listed}");
    }
}

#[test]
fn the_options_of_a_replay_have_headings() {
    let help = run(&["replay", "--help"]).stdout;
    for (heading, option) in [
        ("Input:", "--pattern"),
        ("Device:", "--device"),
        ("Policy:", "--limit"),
        ("Load:", "--in-flight"),
        ("Output:", "--json"),
    ] {
        let section = help.split(&format!("\n{heading}\n")).nth(1).unwrap_or_else(|| panic!("no {heading} in {help}"));
        let mut own = section.lines().take_while(|line| line.is_empty() || line.starts_with(' '));
        assert!(own.any(|line| line.trim_start().starts_with(option)), "{option} is not under {heading}: {help}");
    }
}

#[test]
fn completions_are_there_for_three_shells() {
    for (shell, mark) in
        [("bash", "complete -F _millpond"), ("zsh", "#compdef millpond"), ("fish", "complete -c millpond")]
    {
        let script = run(&["completions", shell]).stdout;
        assert!(script.contains(mark) && script.contains("tune") && script.contains("in-flight"), "{shell}");
    }
    // Values too: of the policies, and of the devices.
    let (policies, devices) = ("paged tight classic expandable direct auto", "cuda vulkan wgpu sim");
    let script = run(&["completions", "bash"]).stdout;
    assert!(script.contains(policies) && script.contains(devices), "{script}");
    let script = run(&["completions", "fish"]).stdout;
    assert!(script.contains("tight\\t'paged that waits") && script.contains("vulkan\\t''"), "{script}");
    let script = run(&["completions", "zsh"]).stdout;
    assert!(script.contains("tight\\:\"paged that waits") && script.contains("(cuda vulkan wgpu sim)"), "{script}");
    run(&["completions", "csh"]).fails(2, &["bash, zsh, fish"]);
    // A shell reads the script, where it is there.
    let script = Scratch::new("completions.bash", run(&["completions", "bash"]).stdout.as_bytes());
    if let Ok(output) = Command::new("bash").args(["-n", script.path()]).output() {
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn man_has_a_page_of_every_command() {
    let page = run(&["man"]).stdout;
    assert!(page.contains(".TH millpond 1") && page.contains("millpond\\-replay(1)"), "{page}");
    let page = run(&["man", "replay"]).stdout;
    for part in [".TH millpond-replay 1", "\\-\\-in\\-flight", "Exit codes:", "growing", "expandable_segments:True"] {
        assert!(page.contains(part), "{part} in {page}");
    }
    run(&["man", "repaly"]).fails(2, &["no command is called `repaly`", "did you mean `replay`?"]);
    let folder = Folder::new("man");
    let pages = folder.path("man1");
    let told = run(&["man", "-o", &pages]);
    assert_eq!((told.code, told.stdout.lines().count()), (Some(0), 1 + COMMANDS.len()), "{}", told.stderr);
    for name in COMMANDS {
        let page = std::fs::read_to_string(format!("{pages}/millpond-{name}.1")).expect(name);
        assert_eq!(page, run(&["man", name]).stdout, "{name}");
    }
    assert!(std::path::Path::new(&pages).join("millpond.1").is_file());
}

#[test]
fn watching_without_a_terminal_writes_lines() {
    let args = ["replay", "--watch", "--passes", "2", "--policy", "paged,classic", &corpus("traces/gnn.trace.gz")];
    let ran = run(&args);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    for policy in ["paged", "classic"] {
        let last = ran.stderr.lines().rfind(|line| line.starts_with(&format!("gnn under {policy}: ")));
        let last = last.unwrap_or_else(|| panic!("no line on {policy}: {}", ran.stderr));
        assert!(last.contains("pass 3 of 3") && last.contains("driver calls") && last.ends_with("0 refused"), "{last}");
    }
    assert!(!ran.stderr.contains(['\r', '\u{1b}']) && ran.stdout.contains("waste"), "{}", ran.stderr);
    run(&[&args[..], &["--markdown"]].concat()).fails(2, &["--watch", "--markdown"]);
}

/// Runs a command, presses Ctrl-C once it is under way, and returns its exit code and its output.
#[cfg(unix)]
fn interrupted(args: &[&str]) -> (Option<i32>, String, String) {
    let mut child = command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the command starts");
    std::thread::sleep(Duration::from_millis(1500));
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().expect("kill").success());
    let (mut stdout, mut stderr) = (String::new(), String::new());
    child.stdout.take().expect("piped").read_to_string(&mut stdout).expect("UTF-8");
    child.stderr.take().expect("piped").read_to_string(&mut stderr).expect("UTF-8");
    (child.wait().expect("it ends").code(), stdout, stderr)
}

#[cfg(unix)]
#[test]
fn an_interrupt_prints_what_there_is_and_exits_with_130() {
    let gnn = corpus("traces/gnn.trace.gz");
    for (args, mark) in [
        (&["replay", "--device", "sim", "--passes", "100000000", &gnn][..], "waste"),
        (&["replay", "--device", "sim", "--for", "2h", "--threads", "2", &gnn], "waste"),
        (&["tune", "--budget", "2h", &gnn], "the best so far, and not checked"),
        (&["conformance", "--soak", "100000000"], "refusals"),
    ] {
        let (code, stdout, stderr) = interrupted(args);
        assert_eq!(code, Some(130), "{args:?}: {stdout}\n{stderr}");
        assert!(stdout.replace('\n', " ").contains(mark), "{args:?}: {stdout}");
        assert!(stderr.contains("interrupted"), "{args:?}: {stderr}");
    }
}
