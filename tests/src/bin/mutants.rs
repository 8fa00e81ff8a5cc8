//! Plants every listed fault in a copy of the tree, builds it once, and finds which tests catch each.
//!
//! `scripts/mutants.sh --help` says how to call it.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use millpond_tests::mutants::{self, Fault, hunt};
use millpond_tests::workspace;

const HELP: &str = "\
usage: scripts/mutants.sh [OPTIONS] [FAULT...]

Plants the faults of tests/mutants in a copy of the tree below target/mutants, builds the copy once, and runs its tests
with each fault on. Without names all faults are tried. What is found is kept, so that runs add up.

  --packages A,B   whose tests are run, in this order (default: millpond-core,millpond-tests,millpond-conformance,
                   millpond,millpond-replay,millpond-kit,millpond-sim,millpond-cuda,millpond-any,
                   millpond-capi). A fault's own
                   package goes first.
  --room A,B       only the faults of tests/mutants/A.toml and B.toml
  --jobs N         so many at a time (default: 1)
  --programs N     go on to the next fault once N test programs have caught one (default: 1); a program whose tests
                   all lie in modules counts as one program for each of them
  --only A,B       run only the test programs or modules of these names, or of these packages
  --skip A,B       leave out the tests with these parts in their names
  --again          also the faults that so many programs are known to catch
  --must-catch     fail if one of the faults is caught by nothing that is run
  --table          run nothing; write what is known to tests/mutants/RESULTS.md
";

/// The options of the command line.
struct Options {
    packages: Vec<String>,
    rooms: Vec<String>,
    jobs: usize,
    effort: hunt::Effort,
    again: bool,
    must_catch: bool,
    table: bool,
    names: Vec<String>,
}

fn options() -> Result<Options, String> {
    let packages = [
        "millpond-core",
        "millpond-tests",
        "millpond-conformance",
        "millpond",
        "millpond-replay",
        "millpond-kit",
        "millpond-sim",
        "millpond-cuda",
        "millpond-any",
        "millpond-capi",
    ];
    let packages = packages.map(str::to_owned).to_vec();
    let (rooms, names) = (Vec::new(), Vec::new());
    let effort = hunt::Effort { programs: 1, skip: Vec::new(), only: Vec::new() };
    let mut options =
        Options { packages, rooms, jobs: 1, effort, again: false, must_catch: false, table: false, names };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} needs a value\n\n{HELP}"));
        match word.as_str() {
            "--packages" => options.packages = value()?.split(',').map(str::to_owned).collect(),
            "--room" => options.rooms = value()?.split(',').map(str::to_owned).collect(),
            "--jobs" => options.jobs = value()?.parse().map_err(|error| format!("--jobs: {error}"))?,
            "--programs" => options.effort.programs = value()?.parse().map_err(|e| format!("--programs: {e}"))?,
            "--skip" => options.effort.skip = value()?.split(',').map(str::to_owned).collect(),
            "--only" => options.effort.only = value()?.split(',').map(str::to_owned).collect(),
            "--again" => options.again = true,
            "--must-catch" => options.must_catch = true,
            "--table" => options.table = true,
            "--help" => return Err(HELP.to_owned()),
            other if other.starts_with('-') => return Err(format!("{other} is no option\n\n{HELP}")),
            name => options.names.push(name.to_owned()),
        }
    }
    Ok(options)
}

/// Copies every file that git tracks or would track, with the faults planted. Files that have not changed are not
/// written, so that the next build is short.
fn plant(root: &Path, copy: &Path, faults: &[Fault]) -> Result<(), String> {
    let mut kept = BTreeSet::new();
    let switches: BTreeSet<String> = faults.iter().map(|fault| mutants::switch_file(&fault.path)).collect();
    let listing = ["ls-files", "-co", "--exclude-standard", "-z"];
    let listing =
        Command::new("git").args(listing).current_dir(root).output().map_err(|error| format!("git: {error}"))?;
    for path in String::from_utf8_lossy(&listing.stdout).split('\0').filter(|path| !path.is_empty()) {
        let Ok(bytes) = fs::read(root.join(path)) else { continue };
        kept.insert(copy.join(path));
        let here: Vec<_> = faults.iter().filter(|fault| fault.path == path).collect();
        let bytes = match String::from_utf8(bytes) {
            Ok(text) if !here.is_empty() || switches.contains(path) => {
                let text = mutants::planted(path, &text, &here).map_err(|wrong| wrong.join("\n"))?;
                if switches.contains(path) { text + hunt::SWITCH_CODE } else { text }.into_bytes()
            }
            Ok(text) => text.into_bytes(),
            Err(error) => error.into_bytes(),
        };
        let to = copy.join(path);
        if fs::read(&to).is_ok_and(|known| known == bytes) {
            continue;
        }
        let folder = to.parent().unwrap_or(copy);
        fs::create_dir_all(folder)
            .and_then(|()| fs::write(&to, bytes))
            .map_err(|e| format!("{}: {e}", to.display()))?;
    }
    remove_others(copy, &kept).map_err(|error| format!("{}: {error}", copy.display()))
}

/// Removes the files below a folder that are not in the set: files that the tree had at an earlier run and has no more.
fn remove_others(folder: &Path, kept: &BTreeSet<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            remove_others(&path, kept)?;
        } else if !kept.contains(&path) && path.file_name().is_none_or(|name| name != "Cargo.lock") {
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}

/// Describes a run: the day, the machine, and what is run.
fn about(options: &Options) -> String {
    let day = Command::new("date").args(["-u", "+%Y-%m-%d"]).output().map(|output| output.stdout).unwrap_or_default();
    let day = String::from_utf8_lossy(&day).trim().to_owned();
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let (arch, system) = (std::env::consts::ARCH, std::env::consts::OS);
    let skipped = options.effort.skip.join(", ");
    let without = if skipped.is_empty() { String::new() } else { format!(", without {skipped}") };
    let all = if options.effort.only.is_empty() { &options.packages } else { &options.effort.only };
    let (packages, most) = (all.join(", "), options.effort.programs);
    format!("{day}, {arch} {system}, {cores} cores: {packages}{without}; up to {most} programs for each fault")
}

fn run() -> Result<(), String> {
    let options = options()?;
    let root = workspace::root();
    let faults = mutants::all(&root)?;
    let folder = root.join("target/mutants");
    let (copy, notes) = (folder.join("tree"), folder.join("found.json"));
    let mut known: hunt::Notes = match fs::read_to_string(&notes) {
        Ok(text) => serde_json::from_str(&text).map_err(|error| format!("{}: {error}", notes.display()))?,
        Err(_) => hunt::Notes::default(),
    };
    if options.table {
        let path: PathBuf = root.join("tests/mutants/RESULTS.md");
        return fs::write(&path, mutants::table(&faults, &known))
            .map_err(|error| format!("{}: {error}", path.display()));
    }
    mutants::expect_known(&options.names, &faults)?;
    plant(&root, &copy, &faults)?;
    let programs = hunt::build(&copy, &folder.join("target"), &options.packages)?;
    let baseline = hunt::baseline(&programs, &options.effort)?;
    known.runs.insert(about(&options));
    let asked = |fault: &&Fault| {
        let is_named = options.names.is_empty() || options.names.contains(&fault.name);
        let is_new = options.again
            || !options.names.is_empty()
            || known.found.get(&fault.name).is_none_or(|f| f.programs() < options.effort.programs);
        is_named && is_new && (options.rooms.is_empty() || options.rooms.contains(&fault.room))
    };
    let chosen: Vec<Fault> = faults.iter().filter(asked).cloned().collect();
    let next = AtomicUsize::new(0);
    let (tell, told) = mpsc::channel();
    let mut missed = 0;
    std::thread::scope(|scope| {
        for _ in 0..options.jobs.max(1) {
            let (tell, next, chosen, baseline) = (tell.clone(), &next, &chosen, &baseline);
            let options = &options;
            scope.spawn(move || {
                while let Some(fault) = chosen.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let _ = tell.send((fault, hunt::hunt(fault, baseline, &options.effort)));
                }
            });
        }
        drop(tell);
        for (fault, now) in told {
            missed += usize::from(!now.is_caught());
            println!("{now} {}", fault.name);
            known.found.entry(fault.name.clone()).or_default().add(now);
            let text = serde_json::to_string_pretty(&known).map_err(|error| error.to_string())?;
            fs::write(&notes, text).map_err(|error| format!("{}: {error}", notes.display()))?;
        }
        Ok::<(), String>(())
    })?;
    let left: Vec<_> = chosen.iter().filter(|fault| !known.found[&fault.name].is_caught()).collect();
    println!("{} faults tried, {} of them caught by nothing that was run", chosen.len(), left.len());
    left.iter().for_each(|fault| println!("  {}: {}", fault.name, fault.breaks));
    if options.must_catch && missed > 0 {
        return Err(format!("{missed} of {} faults were caught by nothing in this run", chosen.len()));
    }
    Ok(())
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
