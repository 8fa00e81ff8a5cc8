//! Where traces come from: files, standard input, or the binary itself.

use std::io;
use std::path::{Path, PathBuf};

use millpond::trace::{Trace, TraceError};

use crate::commands::name_of;
use crate::failure::Failure;

/// The built-in trace: the training of a GPT-2, as PyTorch's allocator was asked on an H200.
const BUILT_IN: (&str, &[u8]) =
    ("gpt2_train", include_bytes!("../../../../../tests/corpus/traces/gpt2_train.trace.gz"));

/// A trace to be read.
pub(super) enum Source {
    BuiltIn,
    Input,
    File(PathBuf),
}

/// What the arguments name; the built-in trace where they name nothing.
pub(super) fn sources(paths: &[PathBuf]) -> Vec<Source> {
    if paths.is_empty() {
        return vec![Source::BuiltIn];
    }
    let source = |path: &PathBuf| if path == Path::new("-") { Source::Input } else { Source::File(path.clone()) };
    paths.iter().map(source).collect()
}

impl Source {
    /// What results call it.
    pub(super) fn name(&self) -> String {
        match self {
            Self::BuiltIn => BUILT_IN.0.into(),
            Self::Input => "-".into(),
            Self::File(path) => name_of(path, &[".gz", ".zst", ".trace"]),
        }
    }

    /// Reads it.
    ///
    /// # Errors
    ///
    /// [`Failure::Input`] that names the file and the line.
    pub(super) fn read(&self) -> Result<Trace, Failure> {
        match self {
            Self::BuiltIn => match Trace::from_reader(BUILT_IN.1) {
                Ok(trace) => Ok(trace),
                Err(error) => panic!("the built-in trace is malformed: {error}"),
            },
            Self::Input => Trace::from_reader(io::stdin().lock())
                .map_err(|error| Failure::Input(format!("standard input: {error}; give a trace"))),
            Self::File(path) => Trace::read(path).map_err(|error| Failure::Input(explain(path, &error))),
        }
    }
}

fn explain(path: &Path, error: &TraceError) -> String {
    match error {
        TraceError::Open { .. } => format!("{error}; give the path of a trace, or none for the built-in one"),
        error => format!("{}: {error}; docs/trace-format.md describes the format", path.display()),
    }
}
