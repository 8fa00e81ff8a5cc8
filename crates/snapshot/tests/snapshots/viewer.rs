//! PyTorch's own `_memory_viz.py` on the pickles that are written here: every command of it that works on a snapshot of
//! PyTorch works on ours, and prints the same.
//!
//! The file is that of the environment variable `MILLPOND_MEMORY_VIZ`, or of an installed PyTorch. It needs Python
//! alone.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use millpond_snapshot::Snapshot;

/// The commands with their arguments behind the file, and what each must print or write.
const COMMANDS: [(&[&str], &str); 8] = [
    (&["stats"], "total_reserved: 24.0MiB"),
    (&["trace"], "raise OutOfMemoryError # 80.0GiB requested, 12.1KiB free in CUDA"),
    (&["segments"], "stream_0;seg_139828029030400;active_allocated;train.py:31:step;linear.py:125:forward"),
    (&["memory"], "stream_94026421337600;inactive;<non-python> 0"),
    (&["trace_plot"], "Active Memory Timeline"),
    (&["trace_plot", "-s"], "Active Cached Memory Timeline"),
    (&["trace_plot", "-f"], "Active Memory Timeline"),
    (&["segment_plot"], "Allocator State History"),
];

fn python() -> String {
    std::env::var("PYTHON").unwrap_or_else(|_| "python3".into())
}

/// Returns the path of `_memory_viz.py`, if there is one and a Python to run it.
fn viewer() -> Option<PathBuf> {
    let path = match std::env::var_os("MILLPOND_MEMORY_VIZ") {
        Some(path) => PathBuf::from(path),
        None => {
            let find = "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])";
            let output = Command::new(python()).args(["-c", find]).output().ok()?;
            PathBuf::from(String::from_utf8(output.stdout).ok()?.trim()).join("cuda/_memory_viz.py")
        }
    };
    let runs = Command::new(python()).arg("--version").output().is_ok_and(|output| output.status.success());
    (runs && path.is_file()).then_some(path)
}

/// Runs a command of the viewer and returns what it printed and wrote.
fn run(viewer: &Path, folder: &Path, pickle: &Path, args: &[&str]) -> String {
    let written = folder.join("output");
    let _ = fs::remove_file(&written);
    let mut command = Command::new(python());
    // The flame graphs are drawn by a program in this folder, which is downloaded unless it is there.
    command.arg(viewer).arg(args[0]).arg(pickle).args(&args[1..]).env("HOME", folder).current_dir(folder);
    if !matches!(args[0], "stats" | "trace") {
        command.arg("-o").arg(&written);
    }
    let output = command.output().expect("Python starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {errors}");
    String::from_utf8_lossy(&output.stdout).into_owned() + &fs::read_to_string(&written).unwrap_or_default()
}

#[test]
fn every_command_of_pytorchs_viewer_works() {
    let Some(viewer) = viewer() else {
        eprintln!("SKIPPED: there is no _memory_viz.py (install PyTorch, or set MILLPOND_MEMORY_VIZ to its path)");
        return;
    };
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("viewer");
    fs::create_dir_all(folder.join(".cache")).expect("a folder");
    let flamegraph = folder.join(".cache/flamegraph.pl");
    fs::write(&flamegraph, "#!/bin/sh\nexec cat\n").expect("a file");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        fs::set_permissions(&flamegraph, fs::Permissions::from_mode(0o755)).expect("a file of ours");
    }
    let theirs = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/example.4.pickle");
    let ours = folder.join("ours.pickle");
    Snapshot::read(&theirs).expect("a snapshot").write(&ours).expect("a file");
    for (args, part) in COMMANDS {
        let printed = run(&viewer, &folder, &ours, args);
        assert!(printed.contains(part), "{args:?}: {part:?} is not in:\n{printed}");
        // Plots hold the snapshot, whose fields stand in another order.
        if !args[0].ends_with("plot") {
            assert_eq!(printed, run(&viewer, &folder, &theirs, args), "{args:?}");
        }
    }
}
