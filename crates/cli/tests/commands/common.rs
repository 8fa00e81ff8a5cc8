//! Runs of the command as people start it, and files for it to read.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// A path without a file, so that no driver is found.
const NO_DRIVER: &str = "/nonexistent/driver.json";

/// The result of a run of the command.
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

    /// Returns the lines of standard output, each a JSON value.
    ///
    /// # Panics
    ///
    /// If the run failed.
    pub(crate) fn json(&self) -> Vec<Value> {
        assert_eq!(self.code, Some(0), "{}", self.stderr);
        self.values()
    }

    /// Returns the lines of standard output, each a JSON value.
    pub(crate) fn values(&self) -> Vec<Value> {
        self.stdout.lines().map(|line| serde_json::from_str(line).expect(line)).collect()
    }

    /// Checks the exit code, and that standard error contains each of the texts.
    pub(crate) fn fails(&self, code: i32, says: &[&str]) {
        assert_eq!(self.code, Some(code), "stdout: {}\nstderr: {}", self.stdout, self.stderr);
        for text in says {
            assert!(self.stderr.contains(text), "expected {text:?} in: {}", self.stderr);
        }
    }
}

/// Returns the command in an environment that configures nothing and where no driver is found, so that results are the
/// same on a machine with a GPU.
pub(crate) fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_millpond"));
    command.args(args).env("VK_DRIVER_FILES", NO_DRIVER).env("VK_ICD_FILENAMES", NO_DRIVER);
    // The driver of CUDA, if there is one, then lists no device.
    command.env("CUDA_VISIBLE_DEVICES", "-1");
    for variable in millpond::ENVIRONMENT {
        command.env_remove(variable);
    }
    command
}

/// Runs the command with the drivers of this machine.
pub(crate) fn run_on_machine(args: &[&str]) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_millpond"));
    // Some drivers print warnings on standard error where this is not set.
    command.args(args).env("XDG_RUNTIME_DIR", env!("CARGO_TARGET_TMPDIR"));
    for variable in millpond::ENVIRONMENT {
        command.env_remove(variable);
    }
    Ran::of(command.output().expect("the command starts"))
}

/// Returns the rows of `millpond devices` for the devices of a backend that open here. If there are none, this prints
/// so on standard error, and fails where the environment requires the backend.
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

/// Runs the command on the simulated CUDA driver, without any other driver. Available on Linux only.
#[cfg(all(feature = "cuda", target_os = "linux"))]
pub(crate) fn run_on_simulated_cuda(args: &[&str]) -> Ran {
    // Cargo builds the library beside the tests. It has the driver's library name, and the library loaded first is the
    // one that is used.
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

/// Returns the path of a file of the corpus.
pub(crate) fn corpus(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/corpus").join(name);
    path.to_str().expect("UTF-8").to_string()
}

/// A temporary file, which is removed when it is dropped.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    /// Creates the file. `name` has to be unique among the tests that run at the same time.
    pub(crate) fn new(name: &str, content: &[u8]) -> Self {
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
        let path = folder.join(format!("{}-{name}", std::process::id()));
        std::fs::write(&path, content).expect("a scratch file");
        Self(path)
    }

    pub(crate) fn path(&self) -> &str {
        self.0.to_str().expect("UTF-8")
    }

    /// Returns the name of the file in results, without the given ending.
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

/// A temporary folder, which is removed when it is dropped.
pub(crate) struct Folder(PathBuf);

impl Folder {
    /// Creates the folder. `name` has to be unique among the tests.
    pub(crate) fn new(name: &str) -> Self {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }

    /// Returns the path of a file in it.
    pub(crate) fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("UTF-8").to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
