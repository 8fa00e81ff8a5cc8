//! Running tests with a fault on, and what is found.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::{Fault, SWITCH};

/// What [`SWITCH_FILE`](super::SWITCH_FILE) gets at its end: the switch, which reads the environment once.
pub const SWITCH_CODE: &str = r#"
mod mutant_switch {
    extern crate std;
    use core::sync::atomic::{AtomicU32, Ordering};
    static ON: AtomicU32 = AtomicU32::new(u32::MAX);
    #[allow(missing_docs)]
    pub fn mutant(number: u32) -> bool {
        match ON.load(Ordering::Relaxed) {
            u32::MAX => {
                let told = std::env::var("MILLPOND_MUTANT").ok().and_then(|text| text.parse().ok()).unwrap_or(0);
                ON.store(told, Ordering::Relaxed);
                told == number
            }
            on => on == number,
        }
    }
}
pub use mutant_switch::mutant;
"#;

/// Test programs that judge the sources, which the faults change.
const LEFT_OUT: [&str; 2] = ["tidy", "mutants"];

/// A test program of the copy.
#[derive(Clone, Debug)]
pub struct Program {
    package: String,
    name: String,
    folder: PathBuf,
    executable: PathBuf,
}

/// A test program with how long it takes where no fault is on.
pub type Timed = (Program, Duration);

/// Which tests caught a fault, by package: `program::test`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Found {
    caught_by: BTreeMap<String, BTreeSet<String>>,
}

impl Found {
    /// Some test caught it.
    pub fn is_caught(&self) -> bool {
        !self.caught_by.is_empty()
    }

    /// Adds what another run has found.
    pub fn add(&mut self, other: Found) {
        for (package, tests) in other.caught_by {
            self.caught_by.entry(package).or_default().extend(tests);
        }
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tests: usize = self.caught_by.values().map(BTreeSet::len).sum();
        match self.caught_by.iter().next() {
            Some((package, first)) => {
                let first = first.first().map_or("", String::as_str);
                write!(f, "caught by {tests} in {} packages ({package} {first})", self.caught_by.len())
            }
            None => write!(f, "SURVIVES"),
        }
    }
}

/// Builds the tests of these packages in the copy.
///
/// # Errors
///
/// If the copy cannot be built.
pub fn build(copy: &Path, target: &Path, packages: &[String]) -> Result<Vec<Program>, String> {
    let mut cargo = Command::new("cargo");
    cargo.args(["test", "--no-run", "--lib", "--tests", "--message-format=json-render-diagnostics"]).current_dir(copy);
    cargo.env("CARGO_TARGET_DIR", target).stderr(Stdio::inherit());
    for package in packages {
        cargo.args(["-p", package]);
    }
    let output = cargo.output().map_err(|error| format!("cargo: {error}"))?;
    if !output.status.success() {
        return Err("the copy with the faults in it cannot be built: see above".to_owned());
    }
    let mut programs = Vec::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let Ok(message) = serde_json::from_str::<serde_json::Value>(line) else { continue };
        let (Some(executable), Some(manifest)) = (message["executable"].as_str(), message["manifest_path"].as_str())
        else {
            continue;
        };
        let name = message["target"]["name"].as_str().unwrap_or_default().to_owned();
        let folder = Path::new(manifest).parent().unwrap_or(copy).to_owned();
        let package = message["package_id"].as_str().unwrap_or_default();
        let package = packages.iter().filter(|known| package.contains(known.trim_start_matches("millpond-")));
        let package = package.max_by_key(|known| known.len()).cloned().unwrap_or_default();
        if message["profile"]["test"] == true && !LEFT_OUT.contains(&name.as_str()) {
            programs.push(Program { package, name, folder, executable: executable.into() });
        }
    }
    Ok(programs)
}

/// Runs every program with no fault on.
///
/// # Errors
///
/// If a test fails.
pub fn baseline(programs: &[Program]) -> Result<Vec<Timed>, String> {
    let mut timed = Vec::new();
    for program in programs {
        let begin = Instant::now();
        let failed = run(program, 0, Duration::from_secs(600), true);
        if !failed.is_empty() {
            return Err(format!("{} {} fails with no fault on: {failed:?}", program.package, program.name));
        }
        println!("{:6.1} s {} {}", begin.elapsed().as_secs_f64(), program.package, program.name);
        timed.push((program.clone(), begin.elapsed()));
    }
    timed.sort_by_key(|(_, time)| *time);
    Ok(timed)
}

/// Finds what catches a fault: the first program that does, or all.
pub fn hunt(fault: &Fault, programs: &[Timed], all: bool) -> Found {
    let is_own = |program: &Program| {
        let root = program.executable.ancestors().nth(4).unwrap_or(Path::new(""));
        let own = program.folder.strip_prefix(root.join("tree")).unwrap_or(&program.folder);
        fault.path.starts_with("backends/") && fault.path.starts_with(&*own.to_string_lossy())
    };
    let (own, others): (Vec<_>, Vec<_>) = programs.iter().partition(|(program, _)| is_own(program));
    let mut found = Found::default();
    for (program, time) in own.into_iter().chain(others) {
        let failed = run(program, fault.number, *time * 8 + Duration::from_secs(30), all);
        if !failed.is_empty() {
            let named = failed.into_iter().map(|test| format!("{}::{test}", program.name));
            found.caught_by.entry(program.package.clone()).or_default().extend(named);
            if !all {
                break;
            }
        }
    }
    found
}

/// Runs a test program with a fault on, up to its end or only to the first test that fails. Answers those that failed.
fn run(program: &Program, number: u32, limit: Duration, to_the_end: bool) -> Vec<String> {
    let told = program.executable.with_extension(format!("{number}.told"));
    let Ok(file) = File::create(&told) else { return vec!["(no file for what it prints)".to_owned()] };
    let mut command = Command::new(&program.executable);
    command.current_dir(&program.folder).env("CARGO_MANIFEST_DIR", &program.folder).env(SWITCH, number.to_string());
    command.stdin(Stdio::null()).stdout(file).stderr(Stdio::null());
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return vec![format!("(did not start: {error})")],
    };
    let begin = Instant::now();
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break Some(status),
            Ok(None) if begin.elapsed() < limit && (to_the_end || failed_in(&told).is_empty()) => {
                std::thread::sleep(Duration::from_millis(20));
            }
            _ => {
                let _ = child.kill();
                let _ = child.wait();
                break None;
            }
        }
    };
    let mut failed = failed_in(&told);
    let _ = std::fs::remove_file(&told);
    match status {
        None if failed.is_empty() => failed.push("(no end)".to_owned()),
        Some(status) if !status.success() && failed.is_empty() => failed.push(format!("({status})")),
        _ => {}
    }
    failed
}

/// The tests that failed, by what a program has printed so far.
fn failed_in(told: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(told).unwrap_or_default();
    let failed = text.lines().filter_map(|line| line.strip_prefix("test ")?.strip_suffix(" ... FAILED"));
    failed.map(|name| name.replace(" - should panic", "")).collect()
}

/// The table of what is known, as a page.
pub fn table(faults: &[Fault], found: &BTreeMap<String, Found>) -> String {
    let mut out = String::from(
        "# Planted faults, and what catches them\n\n\
         Written by `scripts/mutants.sh --table` from what its runs have found. A row says one test that catches the\n\
         fault, how many do, and in which packages. A run stops at the first test program that catches a fault unless\n\
         it was told `--all`, so the numbers are at least these.\n",
    );
    let nothing = Found::default();
    let of = |fault: &Fault| found.get(&fault.name).unwrap_or(&nothing);
    let caught = faults.iter().filter(|fault| of(fault).is_caught()).count();
    out += &format!("\n{} faults, {caught} caught, {} not.\n", faults.len(), faults.len() - caught);
    let rooms: BTreeSet<&str> = faults.iter().map(|fault| fault.room.as_str()).collect();
    for room in rooms {
        out += &format!(
            "\n## {room}\n\n| fault | rule | caught by, for one | tests | packages |\n|---|---|---|---|---|\n"
        );
        for fault in faults.iter().filter(|fault| fault.room == room) {
            let found = of(fault);
            let (first, packages) = match found.caught_by.iter().next() {
                Some((_, tests)) => {
                    let named = tests.iter().find(|test| !test.ends_with(')')).or(tests.first());
                    let packages: Vec<_> = found.caught_by.keys().map(String::as_str).collect();
                    (format!("`{}`", named.map_or("", String::as_str)), packages.join(", "))
                }
                None => (fault.harmless.clone().unwrap_or_else(|| "nothing".to_owned()), String::new()),
            };
            let tests: usize = found.caught_by.values().map(BTreeSet::len).sum();
            out += &format!("| {} | {} | {first} | {tests} | {packages} |\n", fault.name, fault.breaks);
        }
    }
    out
}
