//! Running tests with a fault on, and what is found.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{PoisonError, RwLock};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::{Fault, SWITCH};

/// The text that is added at the end of each [`switch_file`](super::switch_file): the switch, which reads the
/// environment once.
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
pub(crate) use mutant_switch::mutant;
"#;

/// The test program that checks the sources, which the faults change.
const LEFT_OUT: &str = "tidy";

/// Held for reading by every run of a test program with a fault on, and for writing by one that must run alone.
static RUNS: RwLock<()> = RwLock::new(());

/// A test program of the copy; of one whose tests all lie in modules, the tests of one module. A crate's tests are few
/// programs because each takes long to link. What a hunt counts, orders by time and stops is a file of tests, as if it
/// were a program.
#[derive(Clone, Debug)]
pub struct Program {
    package: String,
    name: String,
    folder: PathBuf,
    executable: PathBuf,
    /// The tests of the module, by their whole names; `None` for all tests of the program.
    tests: Option<Vec<String>>,
}

impl Program {
    /// Returns the name of a test as results have it, which begins with what was run. What went wrong beside the tests
    /// is in parentheses.
    fn named(&self, test: &str) -> String {
        match self.tests.is_some() && !test.starts_with('(') {
            true => test.to_owned(),
            false => format!("{}::{test}", self.name),
        }
    }

    /// Returns the arguments of a run without the tests that have one of these parts in their names.
    fn arguments(&self, skip: &[String]) -> Vec<String> {
        match &self.tests {
            None => skip.iter().flat_map(|part| ["--skip".to_owned(), part.clone()]).collect(),
            Some(tests) => {
                let is_left = |test: &&String| !skip.iter().any(|part| test.contains(part.as_str()));
                // A module of which nothing is left runs nothing, where no name at all would be every test.
                let left = tests.iter().filter(is_left).cloned().chain(std::iter::once("(none)".to_owned()));
                std::iter::once("--exact".to_owned()).chain(left).collect()
            }
        }
    }
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
    /// Only the programs or modules of these names, or of these packages, are run; without any, all are.
    pub only: Vec<String>,
}

/// The tests that caught a fault, by package: `program::test`, or `module::test` where the modules are hunted apart.
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
        if message["profile"]["test"] == true && name != LEFT_OUT {
            let whole = Program { package, name, folder, executable: executable.into(), tests: None };
            match message["target"]["kind"][0] == "test" {
                true => programs.append(&mut divided(whole)?),
                false => programs.push(whole),
            }
        }
    }
    Ok(programs)
}

/// Returns a test program as one program for each of its modules.
fn divided(whole: Program) -> Result<Vec<Program>, String> {
    let mut list = Command::new(&whole.executable);
    list.args(["--list", "--format=terse"]).current_dir(&whole.folder).env("CARGO_MANIFEST_DIR", &whole.folder);
    let listed = list.output().map_err(|error| format!("{}: {error}", whole.executable.display()))?;
    let Some(modules) = modules(&String::from_utf8_lossy(&listed.stdout)) else { return Ok(vec![whole]) };
    let part = |(name, tests)| Program { name, tests: Some(tests), ..whole.clone() };
    Ok(modules.into_iter().map(part).collect())
}

/// Returns the tests of each module, given what a test program lists; `None` if a test lies in no module, or there are
/// no tests.
fn modules(listed: &str) -> Option<BTreeMap<String, Vec<String>>> {
    let mut modules = BTreeMap::<String, Vec<String>>::new();
    for test in listed.lines().filter_map(|line| line.strip_suffix(": test")) {
        let (module, _) = test.split_once("::")?;
        modules.entry(module.to_owned()).or_default().push(test.to_owned());
    }
    (!modules.is_empty()).then_some(modules)
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
        let ran = run(program, 0, Duration::from_secs(600), true, effort);
        if ran != Ran::Passed {
            return Err(format!("{} {} fails with no fault on: {:?}", program.package, program.name, ran.failed()));
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
        let has_devices = ["backends/", "engines/"].iter().any(|folder| fault.path.starts_with(folder));
        has_devices && fault.path.starts_with(&*own.to_string_lossy())
    };
    let (own, others): (Vec<_>, Vec<_>) = programs.iter().partition(|(program, _)| is_own(program));
    let mut found = Found::default();
    for (program, time) in own.into_iter().chain(others) {
        let limit = *time * 6 + Duration::from_secs(10);
        let failed = confirmed(|| run(program, fault.number, limit, effort.programs > 2, effort));
        if !failed.is_empty() {
            found
                .caught_by
                .entry(program.package.clone())
                .or_default()
                .extend(failed.iter().map(|test| program.named(test)));
            if found.programs() >= effort.programs {
                break;
            }
        }
    }
    found
}

/// The result of a run of a test program.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Ran {
    Passed,
    /// The tests that failed, or what else went wrong, in parentheses.
    Failed(Vec<String>),
    /// It was stopped at the limit, and no test had failed.
    NoEnd,
}

impl Ran {
    /// Returns the tests that failed, or what else went wrong.
    fn failed(self) -> Vec<String> {
        match self {
            Self::Passed => Vec::new(),
            Self::Failed(tests) => tests,
            Self::NoEnd => vec!["(no end)".to_owned()],
        }
    }
}

/// Runs a test program, and once more while no other program runs if it came to no end: a program that waited for the
/// processor has caught nothing. Returns what failed, in the second run if there was one.
fn confirmed(mut run: impl FnMut() -> Ran) -> Vec<String> {
    let beside_others = RUNS.read().unwrap_or_else(PoisonError::into_inner);
    let first = run();
    drop(beside_others);
    if first != Ran::NoEnd {
        return first.failed();
    }
    let _alone = RUNS.write().unwrap_or_else(PoisonError::into_inner);
    run().failed()
}

/// Runs a test program with a fault on, up to its end or only to the first test that fails.
fn run(program: &Program, number: u32, limit: Duration, to_the_end: bool, effort: &Effort) -> Ran {
    let told = program.executable.with_extension(format!("{number}.told"));
    let Ok(file) = File::create(&told) else { return Ran::Failed(vec!["(no file for what it prints)".to_owned()]) };
    let mut command = Command::new(&program.executable);
    command.current_dir(&program.folder).env("CARGO_MANIFEST_DIR", &program.folder).env(SWITCH, number.to_string());
    command.args(program.arguments(&effort.skip));
    command.stdin(Stdio::null()).stdout(file).stderr(Stdio::null());
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return Ran::Failed(vec![format!("(did not start: {error})")]),
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
    let failed = failed_in(&told);
    let _ = std::fs::remove_file(&told);
    match status {
        _ if !failed.is_empty() => Ran::Failed(failed),
        Some(status) if status.success() => Ran::Passed,
        Some(status) => Ran::Failed(vec![format!("({status})")]),
        None => Ran::NoEnd,
    }
}

/// Returns the tests that failed, by what a program has printed so far.
fn failed_in(told: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(told).unwrap_or_default();
    let failed = text.lines().filter_map(|line| line.strip_prefix("test ")?.strip_suffix(" ... FAILED"));
    failed.map(|name| name.replace(" - should panic", "")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lets a program with these results in turn be confirmed. Returns what failed, and the number of runs.
    fn after(results: &[Ran]) -> (Vec<String>, usize) {
        let mut runs = 0;
        let failed = confirmed(|| {
            // No other program may run beside the second run.
            assert_eq!(RUNS.try_read().is_ok(), runs == 0, "run {runs}");
            runs += 1;
            results[runs - 1].clone()
        });
        (failed, runs)
    }

    #[test]
    fn a_program_that_comes_to_no_end_catches_a_fault_only_if_it_does_so_alone() {
        let named = |name: &str| vec![name.to_owned()];
        let failed = Ran::Failed(named("a"));
        assert_eq!(after(&[Ran::NoEnd, Ran::Passed]), (vec![], 2));
        assert_eq!(after(&[Ran::NoEnd, Ran::NoEnd]), (named("(no end)"), 2));
        assert_eq!(after(&[Ran::NoEnd, failed.clone()]), (named("a"), 2));
        assert_eq!(after(&[failed]), (named("a"), 1));
        assert_eq!(after(&[Ran::Passed]), (vec![], 1));
    }

    #[test]
    fn a_program_is_divided_where_every_test_lies_in_a_module() {
        let parts = modules("b::one: test\na::c::two: test\nb::three: test\n").expect("all lie in modules");
        let [a, b] = [vec!["a::c::two".to_owned()], vec!["b::one".to_owned(), "b::three".to_owned()]];
        assert_eq!(parts, BTreeMap::from([("a".to_owned(), a), ("b".to_owned(), b)]));
        assert_eq!((modules("b::one: test\ntwo: test\n"), modules("")), (None, None));
    }

    #[test]
    fn a_part_runs_its_own_tests_and_names_them_as_a_program_would() {
        let whole =
            Program { package: "p".into(), name: "b".into(), folder: "f".into(), executable: "e".into(), tests: None };
        let part = Program { tests: Some(["b::one", "b::two"].map(str::to_owned).to_vec()), ..whole.clone() };
        assert_eq!((whole.named("one"), part.named("b::one")), ("b::one".to_owned(), "b::one".to_owned()));
        assert_eq!((whole.named("(no end)"), part.named("(no end)")), ("b::(no end)".into(), "b::(no end)".into()));
        let skip = ["tw".to_owned()];
        assert_eq!(whole.arguments(&skip), ["--skip", "tw"]);
        assert_eq!(part.arguments(&skip), ["--exact", "b::one", "(none)"]);
        assert_eq!(part.arguments(&["b".to_owned()]), ["--exact", "(none)"]);
    }

    #[cfg(unix)]
    #[test]
    fn a_program_is_stopped_at_its_limit_and_has_no_end() {
        use std::os::unix::fs::PermissionsExt;

        let folder = std::env::temp_dir().join(format!("millpond-hunt-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let effort = Effort { programs: 1, skip: Vec::new(), only: Vec::new() };
        let ran = |name: &str, script: &str| {
            let executable = folder.join(name);
            std::fs::write(&executable, format!("#!/bin/sh\n{script}\n")).expect("a script");
            std::fs::set_permissions(&executable, PermissionsExt::from_mode(0o700)).expect("a program");
            let program =
                Program { package: "p".into(), name: name.into(), folder: folder.clone(), executable, tests: None };
            run(&program, 1, Duration::from_millis(500), true, &effort)
        };
        let found = [
            ran("slow", "exec sleep 60"),
            ran("caught", "echo 'test a ... FAILED'; exec sleep 60"),
            ran("good", "echo 'test a ... ok'"),
            ran("dead", "exit 3"),
        ];
        std::fs::remove_dir_all(&folder).expect("the folder goes");
        let failed = |text: &str| Ran::Failed(vec![text.to_owned()]);
        assert_eq!(found, [Ran::NoEnd, failed("a"), Ran::Passed, failed("(exit status: 3)")]);
    }
}
