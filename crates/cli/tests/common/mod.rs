//! Running the command as people do, and files for it to read.

#![allow(dead_code)] // Each test file uses its part.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// No file, so no driver.
const NO_DRIVER: &str = "/nonexistent/driver.json";

/// What a run of the command came to.
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    fn of(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
        Self { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }

    /// The lines of standard output, each a JSON value, after a run without fault.
    pub(crate) fn json(&self) -> Vec<Value> {
        assert_eq!(self.code, Some(0), "{}", self.stderr);
        self.values()
    }

    /// The lines of standard output, each a JSON value.
    pub(crate) fn values(&self) -> Vec<Value> {
        self.stdout.lines().map(|line| serde_json::from_str(line).expect(line)).collect()
    }

    /// Checks the exit code, and that standard error says each of these.
    pub(crate) fn fails(&self, code: i32, says: &[&str]) {
        assert_eq!(self.code, Some(code), "stdout: {}\nstderr: {}", self.stdout, self.stderr);
        for text in says {
            assert!(self.stderr.contains(text), "expected {text:?} in: {}", self.stderr);
        }
    }
}

/// The command, in an environment that configures nothing and where no driver is found: results are the same on a
/// machine with a GPU.
pub(crate) fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_millpond"));
    command.args(args).env("VK_DRIVER_FILES", NO_DRIVER).env("VK_ICD_FILENAMES", NO_DRIVER);
    // The driver of CUDA, if there is one, lists no device then.
    command.env("CUDA_VISIBLE_DEVICES", "-1");
    for variable in millpond::ENVIRONMENT {
        command.env_remove(variable);
    }
    command
}

/// Runs the command with the drivers of this machine.
pub(crate) fn run_on_machine(args: &[&str]) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_millpond"));
    // Some drivers complain on standard error where this is not set.
    command.args(args).env("XDG_RUNTIME_DIR", env!("CARGO_TARGET_TMPDIR"));
    for variable in millpond::ENVIRONMENT {
        command.env_remove(variable);
    }
    Ran::of(command.output().expect("the command starts"))
}

/// The rows of `millpond devices` for the devices of a backend that open here. Without any this says so on standard
/// error, and fails where the environment requires the backend.
pub(crate) fn devices(backend: &str) -> Vec<Value> {
    let rows = run_on_machine(&["devices", "--format", "json"]).json();
    let found: Vec<Value> =
        rows.into_iter().filter(|row| row["backend"] == backend && row["available"] == true).collect();
    if found.is_empty() {
        let required = std::env::var("MILLPOND_REQUIRE").unwrap_or_default();
        assert!(!required.split(',').any(|name| name.trim() == backend), "{backend} is required and has no device");
        eprintln!("SKIPPED: there is no {backend} device on this machine");
    }
    found
}

/// Runs the command to its end.
pub(crate) fn run(args: &[&str]) -> Ran {
    Ran::of(command(args).output().expect("the command starts"))
}

/// Runs the command on the simulated CUDA driver, with no other driver, where there is one: on Linux.
#[cfg(all(feature = "cuda", target_os = "linux"))]
pub(crate) fn run_on_simulated_cuda(args: &[&str]) -> Ran {
    // Cargo builds it beside the tests. It has the driver's name inside, and whoever is loaded first is the driver.
    let test = std::env::current_exe().expect("a running test");
    let library = test.with_file_name("libmillpond_cuda_driver.so");
    assert!(library.is_file(), "{} is missing: it is built with the tests", library.display());
    let mut command = command(args);
    command.env("LD_PRELOAD", library).env_remove("CUDA_VISIBLE_DEVICES");
    Ran::of(command.output().expect("the command starts"))
}

/// Runs the command with a configuration in the environment.
pub(crate) fn run_with(variable: &str, value: &str, args: &[&str]) -> Ran {
    Ran::of(command(args).env(variable, value).output().expect("the command starts"))
}

/// Runs the command with a text on standard input.
pub(crate) fn run_on_input(input: &[u8], args: &[&str]) -> Ran {
    let mut command = command(args);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the command starts");
    child.stdin.take().expect("piped").write_all(input).expect("it reads");
    Ran::of(child.wait_with_output().expect("it ends"))
}

/// A file of the corpus.
pub(crate) fn corpus(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/corpus").join(name);
    path.to_str().expect("UTF-8").to_string()
}

/// A file that goes with the test.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    /// `name` is unique among the tests that run at the same time.
    pub(crate) fn new(name: &str, content: &[u8]) -> Self {
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
        let path = folder.join(format!("{}-{name}", std::process::id()));
        std::fs::write(&path, content).expect("a scratch file");
        Self(path)
    }

    pub(crate) fn path(&self) -> &str {
        self.0.to_str().expect("UTF-8")
    }

    /// What the command calls it, when its name ends so.
    pub(crate) fn name(&self, ending: &str) -> String {
        let name = self.0.file_name().expect("a name").to_str().expect("UTF-8");
        name.strip_suffix(ending).expect(ending).to_string()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
