//! The list of faults fits the code: `scripts/mutants.sh` can plant every one of them.

use std::collections::BTreeSet;
use std::fs;

use millpond_tests::mutants::{self, Fault};
use millpond_tests::workspace;

fn faults() -> Vec<Fault> {
    mutants::all(&workspace::root()).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn every_fault_finds_its_text() {
    let root = workspace::root();
    let wrong = mutants::stale(&faults(), |path| fs::read_to_string(root.join(path)).ok());
    assert!(wrong.is_empty(), "{} faults cannot be planted:\n  {}", wrong.len(), wrong.join("\n  "));
}

/// `scripts/rules.py` can switch each rule of its list off.
#[test]
fn every_rule_that_is_measured_finds_its_text() {
    let root = workspace::root();
    let read = |path: &str| fs::read_to_string(root.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
    let list: toml::Table = read("tests/rules.toml").parse().expect("the list is TOML");
    let rules = list["rule"].as_array().expect("a list of rules");
    assert!(!rules.is_empty());
    for change in rules.iter().flat_map(|rule| rule["change"].as_array().expect("a list of changes")) {
        let [path, find, put] = ["path", "find", "put"].map(|key| change[key].as_str().expect("a text"));
        let text = read(&format!("crates/core/src/{path}"));
        assert_eq!(text.matches(find).count(), 1, "{path} has not once: {find}");
        assert!(put.contains("OFF"), "{put}");
    }
}

/// Each name in the test command is that of a fault: one that was renamed would not be planted any more.
#[test]
fn the_test_command_plants_faults_that_exist() {
    let script = fs::read_to_string(workspace::root().join("scripts/test.sh")).expect("the test command is there");
    let script = script.replace("\\\n", " ");
    let call = script.lines().find(|line| line.starts_with("scripts/mutants.sh ")).expect("it plants faults");
    let words = call.split_whitespace().skip_while(|word| *word != "millpond-core").skip(1);
    let names: Vec<String> = words.map(str::to_owned).collect();
    assert!(!names.is_empty(), "{call}");
    assert_eq!(mutants::expect_known(&names, &faults()), Ok(()));
    let unknown = mutants::expect_known(&["no-such-fault".to_owned()], &faults());
    assert!(unknown.is_err_and(|error| error.contains("no-such-fault")));
}

/// The rules of time, reuse, claims and accounting are in these files.
#[test]
fn every_file_with_such_a_rule_has_its_faults() {
    let faults = faults();
    let paths: BTreeSet<&str> = faults.iter().map(|fault| fault.path.as_str()).collect();
    let core = [
        ("books", &["headroom", "pages", "pending", "turns", "windows"][..]),
        ("coordinator", &["checkpoint", "pools", "retire", "stats"]),
        ("plan", &["ladder", "mod", "pages", "phase", "refusal", "run", "segments", "sweep"]),
        ("paged", &["gather", "idle", "job", "kept", "taker", "ways"]),
        ("governor", &["balanced", "pace", "sizes"]),
        ("memory", &["claim", "extend", "foreign", "guards", "home", "join", "mod", "seen"]),
        ("shard", &["free", "mod", "put_off", "snug", "spots", "take", "view"]),
    ];
    let shell = ["lane", "drive", "state", "pinned/uses", "pinned/buffer"];
    let clocks = ["sim/src/time/ticks", "cuda/src/time/close", "vulkan/src/time/timeline", "wgpu/src/streams/clock"];
    let kit = ["clock", "submits", "ring"];
    let capi = ["addresses", "boundary", "handles", "places", "pools", "served", "source", "streams", "watch"];
    let capi = capi.into_iter().chain(["table/blocks", "table/live", "table/named", "table/opened", "table/pools"]);
    let readers = ["trace/src/file", "trace/src/parse", "trace/src/rules", "snapshot/src/read/convert"];
    let readers = readers.into_iter().chain(["snapshot/src/read/json", "snapshot/src/read/pickle"]);
    let readers = readers.chain(["import/src/lifetimes", "import/src/pytorch", "import/src/rmm", "import/src/stalloc"]);
    let readers = readers.chain(["trace/src/output", "trace/src/text", "trace/src/content", "import/src/lines"]);
    let replay = ["acts", "check", "flight", "history", "outcome", "replay", "submits", "timed", "until", "vary"];
    let queues = ["cuda/src/memory/mod", "cuda/src/time/ask", "vulkan/src/pages/binds", "wgpu/src/time/completion"];
    let any = ["contract", "device", "options/mod"];
    let lent = ["arguments", "buffer", "encoder", "fresh", "home", "objects", "pass", "queue", "scopes"];
    let in_core = core.iter().flat_map(|(folder, files)| files.iter().map(move |file| (folder, file)));
    let expected = in_core.map(|(folder, file)| format!("crates/core/src/{folder}/{file}.rs"));
    let expected = expected.chain(shell.map(|file| format!("crates/millpond/src/{file}.rs")));
    let expected = expected.chain(kit.map(|file| format!("crates/kit/src/{file}.rs")));
    let expected = expected.chain(capi.map(|file| format!("crates/capi/src/{file}.rs")));
    let expected = expected.chain(any.map(|file| format!("crates/any/src/{file}.rs")));
    let expected = expected.chain(readers.map(|file| format!("crates/{file}.rs")));
    let expected = expected.chain(replay.map(|file| format!("crates/replay/src/{file}.rs")));
    let expected = expected.chain(lent.map(|file| format!("engines/wgpu/src/{file}.rs")));
    for path in expected.chain(clocks.into_iter().chain(queues).map(|file| format!("backends/{file}.rs"))) {
        assert!(paths.contains(path.as_str()), "no fault is listed for {path}");
    }
}

/// The list of a fault is found by the folder of its file, or by what is told apart there: checkpoints, windows,
/// page-locked memory, sleep, what backends keep until the device is done with it, and what Vulkan's has the driver do.
#[test]
fn every_fault_is_in_the_list_of_its_folder() {
    let folders = |room: &str| match room {
        "backends" => vec!["backends/".to_owned()],
        "queues" => vec!["backends/".to_owned(), "crates/kit/src/".to_owned()],
        "vulkan" => vec!["backends/vulkan/src/".to_owned()],
        "kit" => vec!["crates/kit/src/".to_owned()],
        "shell" => vec!["crates/millpond/src/".to_owned()],
        "pinned" => vec!["crates/millpond/src/pinned".to_owned()],
        "any" | "replay" | "capi" => vec![format!("crates/{room}/src/")],
        "readers" => ["trace/src/", "snapshot/src/", "import/src/", "conformance/src/golden/"]
            .map(|name| format!("crates/{name}"))
            .to_vec(),
        "outputs" => ["trace", "report"].map(|name| format!("crates/{name}/src/")).to_vec(),
        "lent" => vec!["engines/wgpu/src/".to_owned()],
        "meter" => vec!["crates/core/src/meter.rs".to_owned()],
        "checkpoints" => ["coordinator/checkpoint.rs", "segment.rs", "shard/spots.rs"]
            .map(|file| format!("crates/core/src/{file}"))
            .to_vec(),
        "memory" => ["memory/", "segment.rs"].map(|file| format!("crates/core/src/{file}")).to_vec(),
        "paged" => ["governor", "paged"].map(|file| format!("crates/core/src/{file}/")).to_vec(),
        "windows" => ["books", "coordinator", "memory", "paged", "plan", "shard"]
            .map(|file| format!("crates/core/src/{file}"))
            .to_vec(),
        "sleep" => [
            "core/src/shard/closed.rs",
            "core/src/plan/groups.rs",
            "core/src/coordinator/groups.rs",
            "millpond/src/sleep/",
        ]
        .map(|file| format!("crates/{file}"))
        .to_vec(),
        room => vec![format!("crates/core/src/{room}/")],
    };
    let misplaced = |fault: &Fault| !folders(&fault.room).iter().any(|folder| fault.path.starts_with(folder));
    let misplaced = faults().into_iter().filter(misplaced).map(|fault| format!("{} in {}", fault.path, fault.room));
    let misplaced: Vec<_> = misplaced.collect();
    assert!(misplaced.is_empty(), "faults that are listed under another folder: {misplaced:#?}");
}

#[test]
fn a_fault_that_the_code_has_left_behind_is_told() {
    let mut faults = faults();
    faults[0].find = "a text that is nowhere".to_owned();
    let root = workspace::root();
    let wrong = mutants::stale(&faults, |path| fs::read_to_string(root.join(path)).ok());
    assert!(wrong.iter().any(|line| line.contains(&faults[0].name)), "{wrong:?}");
}
