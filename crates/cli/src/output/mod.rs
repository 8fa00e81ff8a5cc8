//! Standard output and standard error: what is written to which, and what happens when the reader has gone away.

pub(crate) mod progress;
mod style;
mod table;
mod wrap;

use std::io::{self, ErrorKind, Write as _};

use clap::ValueEnum;
use console::Term;
use serde::Serialize;

use crate::failure::Failure;

pub(crate) use style::{Paint, Style, written};
pub(crate) use table::{Align, Table};
pub(crate) use wrap::{WIDTH, hanging, wrapped};

/// How results are printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Format {
    /// Tables for people
    Text,
    /// One JSON value per line
    Json,
}

/// Results, on standard output.
///
/// A reader that goes away is no error: all later output is dropped, and commands that have nothing else to do check
/// [`is_open`](Output::is_open) and stop. Any other failure is kept for [`finish`](Output::finish).
pub(crate) struct Output {
    format: Format,
    /// The width of texts and tables, in characters.
    width: usize,
    style: Style,
    broken: Option<io::Error>,
    /// Whether standard output is taken by a file that was asked for there.
    is_taken: bool,
}

impl Output {
    /// Opens standard output. Tables are 80 characters wide at most, or as wide as the terminal if that is wider; with
    /// `wide` they are as wide as they are.
    pub(crate) fn new(format: Format, wide: bool) -> Self {
        let terminal = Term::stdout().size_checked().map_or(0, |(_, columns)| usize::from(columns));
        let width = if wide { usize::MAX } else { terminal.max(wrap::WIDTH) };
        Self { format, width, style: Style::of_output(), broken: None, is_taken: false }
    }

    /// Has results go to standard error, as a file was asked for on standard output.
    pub(crate) fn make_room(&mut self) {
        self.is_taken = true;
        self.style = Style::of_messages();
    }

    /// Returns the width of texts and tables, in characters.
    pub(crate) fn width(&self) -> usize {
        self.width
    }

    /// Returns whether texts are coloured.
    pub(crate) fn style(&self) -> Style {
        self.style
    }

    /// Returns a table that fits, and below it which columns were left out.
    pub(crate) fn table(&self, table: &Table) -> String {
        let fitted = table.fitted(self.width, self.style);
        if fitted.left_out.is_empty() {
            return fitted.text;
        }
        let note = format!("(for {} columns left out: {}; --wide has them)", self.width, fitted.left_out.join(", "));
        format!("{}{}\n", fitted.text, wrapped(&note, self.width).join("\n"))
    }

    /// Returns whether results are written as JSON.
    pub(crate) fn is_json(&self) -> bool {
        self.format == Format::Json
    }

    /// Returns whether all writes so far succeeded, so that further output can still be read.
    pub(crate) fn is_open(&self) -> bool {
        self.broken.is_none()
    }

    /// Writes a text and flushes it. Control characters in it are escaped.
    pub(crate) fn text(&mut self, text: &str) {
        self.put(&written(text));
    }

    /// Writes a script, which has no text of a file in it, unchanged.
    pub(crate) fn script(&mut self, script: &str) {
        self.put(script);
    }

    fn put(&mut self, text: &str) {
        let write = |mut out: Box<dyn io::Write>| out.write_all(text.as_bytes()).and_then(|()| out.flush());
        if self.is_open() {
            let out: Box<dyn io::Write> =
                if self.is_taken { Box::new(io::stderr().lock()) } else { Box::new(io::stdout().lock()) };
            self.broken = write(out).err();
        }
    }

    /// Writes a value as one line of JSON.
    pub(crate) fn json(&mut self, value: &impl Serialize) {
        match serde_json::to_string(value) {
            // In JSON a control character stands in a string alone.
            Ok(line) => {
                let escape = |c: char| if c.is_control() { format!("\\u{:04x}", u32::from(c)) } else { c.into() };
                let has_control = line.contains(char::is_control);
                self.put(&(if has_control { line.chars().map(escape).collect() } else { line } + "\n"));
            }
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

/// Writes a line for people to standard error, with control characters escaped. A failure to write is ignored, as it
/// could not be reported anywhere. On a terminal the word before the first colon is coloured: `error` or `note`.
pub(crate) fn tell(text: &str) {
    let paint = |word, paint| {
        let rest = text.strip_prefix(word)?;
        Some(format!("{}{rest}", Style::of_messages().paint(paint, word)))
    };
    let painted = paint("error:", Paint::Bad).or_else(|| paint("note:", Paint::Notice));
    let _ = writeln!(io::stderr().lock(), "{}", written(painted.as_deref().unwrap_or(text)));
}
