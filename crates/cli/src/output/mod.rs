//! Standard output and standard error: what is written to which, and what happens when the reader has gone away.

pub(crate) mod progress;
mod table;

use std::io::{self, ErrorKind, Write as _};

use serde::Serialize;

use crate::args::Format;
use crate::failure::Failure;

pub(crate) use table::{Align, Table};

/// Results, on standard output.
///
/// A reader that goes away is no error: all later output is dropped, and commands that have nothing else to do check
/// [`is_open`](Output::is_open) and stop. Any other failure is kept for [`finish`](Output::finish).
pub(crate) struct Output {
    format: Format,
    broken: Option<io::Error>,
}

impl Output {
    pub(crate) fn new(format: Format) -> Self {
        Self { format, broken: None }
    }

    /// Returns whether results are written as JSON.
    pub(crate) fn is_json(&self) -> bool {
        self.format == Format::Json
    }

    /// Returns whether all writes so far succeeded, so that further output can still be read.
    pub(crate) fn is_open(&self) -> bool {
        self.broken.is_none()
    }

    /// Writes a text unchanged and flushes it.
    pub(crate) fn text(&mut self, text: &str) {
        if self.is_open() {
            let mut stdout = io::stdout().lock();
            self.broken = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).err();
        }
    }

    /// Writes a value as one line of JSON.
    pub(crate) fn json(&mut self, value: &impl Serialize) {
        match serde_json::to_string(value) {
            Ok(line) => self.text(&(line + "\n")),
            Err(error) => panic!("a result of ours has no JSON form: {error}"),
        }
    }

    /// Checks that everything was written.
    ///
    /// # Errors
    ///
    /// Returns [`Failure::Input`] with the system's error, unless the error is that the reader closed the pipe.
    pub(crate) fn finish(self) -> Result<(), Failure> {
        match self.broken {
            Some(error) if error.kind() != ErrorKind::BrokenPipe => Err(Failure::Input(format!(
                "cannot write the results: {error}; send standard output somewhere that has room"
            ))),
            _ => Ok(()),
        }
    }
}

/// Writes a line for people to standard error. A failure to write is ignored, as it could not be reported anywhere.
pub(crate) fn tell(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}
