//! `millpond golden`: recordings of PyTorch's allocator, replayed and compared.

use std::io;
use std::path::{Path, PathBuf};

use millpond_conformance::golden::{Outcome, Recording, replay};
use serde::Serialize;

use super::name_of;
use crate::failure::Failure;
use crate::files::{self, shown};
use crate::output::progress::Progress;
use crate::output::{Output, tell};

/// What `--help` prints behind the arguments.
pub(crate) const HELP: &str = "\
Prints `NAME: matched M of N` for each file, and the first difference in full: statistics, layout, addresses and \
out-of-memory amounts are compared after every operation.

Examples:
  millpond golden tests/corpus/golden/*.jsonl.gz
  millpond golden --json recording.jsonl | jq -r .difference";

/// `millpond golden`.
#[derive(Debug, clap::Args)]
pub(crate) struct GoldenArgs {
    /// Recordings (`*.jsonl.gz`, `*.jsonl`); `-` is standard input
    #[arg(value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,
}

/// One recording, as JSON.
#[derive(Serialize)]
struct Row<'a> {
    name: &'a str,
    file: &'a str,
    matched: usize,
    total: usize,
    is_match: bool,
    difference: Option<&'a str>,
}

/// Replays every file, also after one that cannot be read or that differs.
///
/// # Errors
///
/// Returns [`Failure::Input`] if a file cannot be read, or else [`Failure::Check`] if one differs.
pub(crate) fn run(args: &GoldenArgs, output: &mut Output) -> Result<(), Failure> {
    files::check(&args.files, &[])?;
    let progress = Progress::new(args.files.len());
    let (mut unreadable, mut differing) = (0, 0);
    for path in &args.files {
        let name = name_of(path, &[".gz", ".zst", ".jsonl"]);
        progress.doing(name.clone());
        let outcome = outcome_of(path);
        progress.aside(|| match outcome {
            Ok(outcome) => {
                differing += usize::from(!outcome.is_match());
                print(output, &name, path, &outcome);
            }
            Err(what) => {
                unreadable += 1;
                tell(&format!("error: {what}"));
            }
        });
        progress.step();
    }
    drop(progress);
    let files = args.files.len();
    if unreadable > 0 {
        let what = format!("{unreadable} of {files} files could not be replayed; give recordings in the golden format");
        return Err(Failure::Input(what));
    }
    if differing > 0 {
        let what = format!("{differing} of {files} recordings differ; their first differences are shown above");
        return Err(Failure::Check(what));
    }
    Ok(())
}

fn outcome_of(path: &Path) -> Result<Outcome, String> {
    let recording =
        if files::is_input(path) { Recording::from_reader(io::stdin().lock()) } else { Recording::read(path) };
    let recording = recording.map_err(|error| match error {
        error @ millpond_conformance::golden::GoldenError::Open { .. } => error.to_string(),
        error => format!("{}: {error}", shown(path)),
    })?;
    replay(&recording).map_err(|error| format!("{}: its configuration is refused: {error}", shown(path)))
}

fn print(output: &mut Output, name: &str, path: &Path, outcome: &Outcome) {
    let Outcome { matched, total, ref difference } = *outcome;
    if output.is_json() {
        let file = path.to_string_lossy();
        let (is_match, difference) = (outcome.is_match(), difference.as_deref());
        output.json(&Row { name, file: &file, matched, total, is_match, difference });
        return;
    }
    let mut text = format!("{name}: matched {matched} of {total}\n");
    for line in difference.iter().flat_map(|difference| difference.lines()) {
        text += &format!("  {line}\n");
    }
    output.text(&text);
}
