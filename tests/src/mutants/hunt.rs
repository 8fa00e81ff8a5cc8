//! Running tests with a fault on, and what is found.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::{Fault, SWITCH};

/// The text that is added at the end of [`SWITCH_FILE`](super::SWITCH_FILE): the switch, which reads the environment
/// once.
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

/// The test programs that check the sources, which the faults change.
const LEFT_OUT: [&str; 2] = ["tidy", "mutants"];

/// A test program of the copy.
#[derive(Clone, Debug)]
pub struct Program {
    package: String,
    name: String,
    folder: PathBuf,
    executable: PathBuf,
}

/// A test program with the time that it takes where no fault is on.
pub type Timed = (Program, Duration);

/// The results of all runs so far.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Notes {
    /// The description of each run: its day, its machine, and what it ran.
    pub runs: BTreeSet<String>,
    /// The results by the name of the fault; one that is missing was not tried.
    pub found: BTreeMap<String, Found>,
}

/// The extent of a hunt.
#[derive(Clone, Debug)]
pub struct Effort {
    /// The number of programs that have to catch a fault before the hunt goes on to the next.
    pub programs: usize,
    /// Tests that are not run, by a part of their names.
    pub skip: Vec<String>,
    /// Only the programs of these names, or of these packages, are run; without any, all are.
    pub only: Vec<String>,
}

/// The tests that caught a fault, by package: `program::test`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Found {
    caught_by: BTreeMap<String, BTreeSet<String>>,
}

impl Found {
    /// Returns whether some test caught it.
    pub fn is_caught(&self) -> bool {
        !self.caught_by.is_empty()
    }

    /// Returns the number of test programs that caught it.
    pub fn programs(&self) -> usize {
        let program = |test: &String| test.split("::").next().unwrap_or_default().to_owned();
        let of = |tests: &BTreeSet<String>| tests.iter().map(program).collect::<BTreeSet<_>>().len();
        self.caught_by.values().map(of).sum()
    }

    /// Returns the packages whose tests caught it.
    pub fn packages(&self) -> impl Iterator<Item = &str> {
        self.caught_by.keys().map(String::as_str)
    }

    /// Returns one test that caught it, by name where it has one.
    pub fn first(&self) -> &str {
        let all = || self.caught_by.values().flatten();
        all().find(|test| !test.ends_with(')')).or_else(|| all().next()).map_or("", String::as_str)
    }

    /// Adds the results of another run.
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

/// Runs every program with no fault on, and returns the programs with their times.
///
/// # Errors
///
/// If a test fails.
pub fn baseline(programs: &[Program], effort: &Effort) -> Result<Vec<Timed>, String> {
    let mut timed = Vec::new();
    let is_meant = |named: &String| effort.only.is_empty() || effort.only.contains(named);
    for program in programs.iter().filter(|program| is_meant(&program.package) || is_meant(&program.name)) {
        let begin = Instant::now();
        let failed = run(program, 0, Duration::from_secs(600), true, effort);
        if !failed.is_empty() {
            return Err(format!("{} {} fails with no fault on: {failed:?}", program.package, program.name));
        }
        println!("{:6.1} s {} {}", begin.elapsed().as_secs_f64(), program.package, program.name);
        timed.push((program.clone(), begin.elapsed()));
    }
    timed.sort_by_key(|(_, time)| *time);
    Ok(timed)
}

/// Finds the tests that catch a fault. The quickest programs run first, until as many programs have caught it as are
/// asked for. Where those are few, a program is stopped once a test of it has failed.
pub fn hunt(fault: &Fault, programs: &[Timed], effort: &Effort) -> Found {
    let is_own = |program: &Program| {
        let root = program.executable.ancestors().nth(4).unwrap_or(Path::new(""));
        let own = program.folder.strip_prefix(root.join("tree")).unwrap_or(&program.folder);
        fault.path.starts_with("backends/") && fault.path.starts_with(&*own.to_string_lossy())
    };
    let (own, others): (Vec<_>, Vec<_>) = programs.iter().partition(|(program, _)| is_own(program));
    let mut found = Found::default();
    for (program, time) in own.into_iter().chain(others) {
        let failed = run(program, fault.number, *time * 6 + Duration::from_secs(10), effort.programs > 2, effort);
        if !failed.is_empty() {
            let named = failed.into_iter().map(|test| format!("{}::{test}", program.name));
            found.caught_by.entry(program.package.clone()).or_default().extend(named);
            if found.programs() >= effort.programs {
                break;
            }
        }
    }
    found
}

/// Runs a test program with a fault on, up to its end or only to the first test that fails. Returns the tests that
/// failed.
fn run(program: &Program, number: u32, limit: Duration, to_the_end: bool, effort: &Effort) -> Vec<String> {
    let told = program.executable.with_extension(format!("{number}.told"));
    let Ok(file) = File::create(&told) else { return vec!["(no file for what it prints)".to_owned()] };
    let mut command = Command::new(&program.executable);
    command.current_dir(&program.folder).env("CARGO_MANIFEST_DIR", &program.folder).env(SWITCH, number.to_string());
    command.args(effort.skip.iter().flat_map(|name| ["--skip", name.as_str()]));
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

/// Returns the tests that failed, by what a program has printed so far.
fn failed_in(told: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(told).unwrap_or_default();
    let failed = text.lines().filter_map(|line| line.strip_prefix("test ")?.strip_suffix(" ... FAILED"));
    failed.map(|name| name.replace(" - should panic", "")).collect()
}
