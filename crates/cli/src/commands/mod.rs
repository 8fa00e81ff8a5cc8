//! The commands. Each reads its arguments, calls the library and prints.

pub(crate) mod bench;
pub(crate) mod compare;
pub(crate) mod completions;
pub(crate) mod conformance;
pub(crate) mod devices;
pub(crate) mod diff;
pub(crate) mod golden;
pub(crate) mod import;
pub(crate) mod man;
pub(crate) mod replay;
pub(crate) mod report;
pub(crate) mod sameness;
pub(crate) mod tune;

use std::path::Path;

use millpond_trace::printable;

use crate::failure::Failure;
use crate::output::Output;

/// Checks that a table is asked for in one form.
///
/// # Errors
///
/// Returns [`Failure::Input`] for Markdown in JSON.
fn one_form(markdown: bool, output: &Output) -> Result<(), Failure> {
    if markdown && output.is_json() {
        return Err(Failure::Input("--markdown is a way to print the table; give it or --json".into()));
    }
    Ok(())
}

/// Returns the name of a file in results: printable, and without the endings that give its format.
fn name_of(path: &Path, endings: &[&str]) -> String {
    let full = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
    let mut name = full.as_ref();
    for ending in endings {
        name = name.strip_suffix(ending).filter(|rest| !rest.is_empty()).unwrap_or(name);
    }
    printable(name).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lose_their_endings() {
        let endings = [".gz", ".zst", ".trace"];
        for (path, expected) in
            [("a/gnn.trace.gz", "gnn"), ("gnn.trace", "gnn"), ("b/gnn.trace.zst", "gnn"), ("gnn.txt", "gnn.txt")]
        {
            assert_eq!(name_of(Path::new(path), &endings), expected, "{path}");
        }
        assert_eq!(name_of(Path::new("-"), &endings), "-");
        assert_eq!(name_of(Path::new(".gz"), &endings), ".gz");
    }
}
