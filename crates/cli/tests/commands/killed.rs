//! Commands that are killed while they write, and disks that are full: a path has the old file or the new one, and
//! never a part.
//!
//! A command is killed once it has written a share of its file, each time another one, so that the points are spread
//! over the writing. A full disk is a limit on the size of files, which is reached at a byte. `MILLPOND_KILLS` is the
//! number of points for each command, and `MILLPOND_KILLS_RECORD` a file for the table, which `scripts/outputs.sh`
//! commits.

#![cfg(target_os = "linux")]

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::common::{Folder, command};

/// The points for each command unless told.
const POINTS: u64 = 6;

/// A command that writes, and the file that is looked at. `{}` in an argument stands for its folder.
struct Writer {
    name: &'static str,
    args: &'static [&'static str],
    file: &'static str,
}

const REPLAY: &str = "replay --device sim --policy classic --passes 0 {}/program";

const WRITERS: [Writer; 9] = [
    Writer { name: "import, as text", args: &["import", "{}/log", "-o", "{}/out/a.trace"], file: "a.trace" },
    Writer { name: "import, with gzip", args: &["import", "{}/log", "-o", "{}/out/a.trace.gz"], file: "a.trace.gz" },
    Writer { name: "import, with zstd", args: &["import", "{}/log", "-o", "{}/out/a.trace.zst"], file: "a.trace.zst" },
    Writer {
        name: "report",
        args: &["report", "--passes", "0", "{}/program", "-o", "{}/out/page.html"],
        file: "page.html",
    },
    Writer { name: "replay --report", args: &[REPLAY, "--report", "{}/out/page.html"], file: "page.html" },
    Writer { name: "replay --svg", args: &[REPLAY, "--svg", "{}/out"], file: "program-timeline.svg" },
    Writer { name: "replay --snapshot, a pickle", args: &[REPLAY, "--snapshot", "{}/out/a.pickle"], file: "a.pickle" },
    Writer { name: "replay --snapshot, JSON", args: &[REPLAY, "--snapshot", "{}/out/a.json"], file: "a.json" },
    Writer {
        name: "conformance --record",
        args: &["conformance", "--soak", "20", "--operations", "5", "--record", "{}/out/soak.md"],
        file: "soak.md",
    },
];

const OLD: &[u8] = b"the old file";

impl Writer {
    /// Returns the command with a folder.
    fn args(&self, folder: &Folder) -> Vec<String> {
        let root = folder.path("");
        let root = root.trim_end_matches('/');
        self.args
            .iter()
            .flat_map(|arg| if *arg == REPLAY { arg.split(' ').collect() } else { vec![*arg] })
            .map(|arg| arg.replace("{}", root))
            .collect()
    }

    /// Puts the folder as it was before.
    fn prepare(&self, folder: &Folder) {
        let out = folder.path("out");
        let _ = fs::remove_dir_all(&out);
        fs::create_dir(&out).expect("a folder");
        fs::write(format!("{out}/{}", self.file), OLD).expect("a file");
    }

    /// Returns whether the new file is there, and which other files are, whose writing did not end.
    ///
    /// # Panics
    ///
    /// If what is there is neither the old file nor a whole new one.
    fn state(&self, folder: &Folder, new: &[u8], at: &str) -> (bool, usize) {
        let content = fs::read(folder.path(&format!("out/{}", self.file))).expect("the old file or the new one");
        let is_new = content != OLD;
        if is_new {
            let is_whole = match Path::new(self.file).extension().and_then(|name| name.to_str()) {
                // Ctrl-C has `replay` write what was there so far, so this may be another snapshot, which can be read.
                Some("pickle" | "json") => command(&["report", &folder.path(&format!("out/{}", self.file)), "-o", "-"])
                    .output()
                    .is_ok_and(|page| page.status.success()),
                Some("md") => content.ends_with(b"|\n"),
                // Times differ from run to run; a part is shorter and lacks the end.
                _ => content[content.len().saturating_sub(8)..] == new[new.len().saturating_sub(8)..],
            };
            assert!(is_whole, "{} {at}: a part of {} bytes", self.name, content.len());
        }
        (is_new, unfinished(folder))
    }
}

/// Returns how many files are there in part.
fn unfinished(folder: &Folder) -> usize {
    let entries = fs::read_dir(folder.path("out")).expect("a folder");
    entries.filter(|entry| entry.as_ref().is_ok_and(|entry| is_part(&entry.path()))).count()
}

fn is_part(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(".millpond-"))
}

/// Returns the bytes of files that were written so far: of any that are not the old one.
fn written(folder: &Folder) -> Option<u64> {
    let entries = fs::read_dir(folder.path("out")).ok()?;
    let sizes = entries.filter_map(|entry| entry.ok()?.metadata().ok()).map(|found| found.len());
    sizes.filter(|size| *size != OLD.len() as u64).max()
}

/// Kills the command once a share of the file is written, and returns what is there then.
fn kill(writer: &Writer, folder: &Folder, new: &[u8], point: (u64, u64), signal: &str) -> (bool, usize) {
    writer.prepare(folder);
    let args = writer.args(folder);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let mut child = command(&args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
    let share = new.len() as u64 * point.0 / point.1;
    while written(folder).is_none_or(|written| written < share) && child.try_wait().expect("a child").is_none() {}
    let _ = Command::new("kill").args([signal, &child.id().to_string()]).stderr(Stdio::null()).status();
    child.wait().expect("it ends");
    writer.state(folder, new, &format!("killed by {signal} at {share} bytes"))
}

/// Runs the command where no file may be larger than some blocks of 512 bytes. Returns its exit code and what is there.
fn fill(writer: &Writer, folder: &Folder, new: &[u8], blocks: u64) -> (Option<i32>, bool, usize) {
    writer.prepare(folder);
    let inner = command(&[]);
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -f \"$1\"; shift; exec \"$@\"", "sh", &blocks.to_string()]);
    limited.arg(inner.get_program()).args(writer.args(folder));
    for (name, value) in inner.get_envs() {
        match value {
            Some(value) => limited.env(name, value),
            None => limited.env_remove(name),
        };
    }
    let code = limited.stdout(Stdio::null()).stderr(Stdio::null()).status().expect("it runs").code();
    let (is_new, unfinished) = writer.state(folder, new, &format!("at {blocks} blocks"));
    (code, is_new, unfinished)
}

/// Returns the row of a command: how often it was killed and the disk filled, and what was there.
fn row(writer: &Writer, folder: &Folder, points: u64) -> String {
    writer.prepare(folder);
    let args = writer.args(folder);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    assert!(command(&args).output().expect("it runs").status.success(), "{}", writer.name);
    let new = fs::read(folder.path(&format!("out/{}", writer.file))).expect("the new file");
    let (mut old, mut fresh) = (0, 0);
    for point in 0..points {
        // Every third signal is KILL. No process can catch it, so it alone may leave a file.
        let signal = ["-INT", "-TERM", "-KILL"][point as usize % 3];
        let (is_new, unfinished) = kill(writer, folder, &new, (point, points), signal);
        if signal != "-KILL" {
            assert_eq!(unfinished, 0, "{} killed by {signal} at point {point}", writer.name);
        }
        *(if is_new { &mut fresh } else { &mut old }) += 1;
    }
    let blocks = new.len() as u64 / 512;
    let mut full = 0;
    for point in 0..points {
        let (code, is_new, unfinished) = fill(writer, folder, &new, (blocks * point / points).min(blocks - blocks / 8));
        assert_eq!((code, is_new, unfinished), (Some(2), false, 0), "{} at point {point}", writer.name);
        full += 1;
    }
    let (code, is_new, _) = fill(writer, folder, &new, blocks * 2 + 8);
    assert_eq!((code, is_new), (Some(0), true), "{} where there is room", writer.name);
    assert_eq!(old + fresh, points);
    format!("| {} | {points} | 0 | {full} | 0 |\n", writer.name)
}

#[test]
fn a_path_has_the_old_file_or_the_new_one() {
    let points = std::env::var("MILLPOND_KILLS").ok().and_then(|points| points.parse().ok()).unwrap_or(POINTS);
    let folder = Folder::new("killed");
    let log: String =
        (1..40_000).map(|block| format!("1 0x{:x} {} 0\n", block * 4096, 512 + block * 7 % 4096)).collect();
    fs::write(folder.path("log"), log).expect("a log");
    let program: String = (0..3000).map(|block| format!("a {block} {} 0\n", 512 + block * 4096 % 3_000_000)).collect();
    fs::write(folder.path("program"), program).expect("a trace");
    let mut table = String::from("| command | killed | parts | full disks | parts |\n|---|---:|---:|---:|---:|\n");
    for writer in &WRITERS {
        let _ = write!(table, "{}", row(writer, &folder, points));
    }
    println!("{table}");
    if let Ok(path) = std::env::var("MILLPOND_KILLS_RECORD") {
        fs::write(path, table).expect("the record");
    }
}
