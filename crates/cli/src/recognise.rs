//! What a file is, found by its content: a trace, or a recording of another tool.

use std::io::Read;

use millpond_import::{Format, ImportError};
use millpond_trace::{Content, TraceError};

use crate::failure::Failure;

/// How much of a file is looked at to find out what it is.
const BEGINNING_BYTES: usize = 4096;

/// The letters of a trace's events and their details.
const LINES: &[u8] = b"afcumwetpknsli";

/// What a file is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Known {
    /// A trace of Millpond. An empty file is one without events.
    Trace,
    /// A recording of another tool, in this format.
    Recording(Format),
}

/// Returns the content of a file, decompressed, and what it is. `shown` is its name for readers.
///
/// # Errors
///
/// Returns [`Failure::Input`] if the file cannot be read, or has no format that is known; it then names those that are.
pub(crate) fn recognised<'a>(reader: impl Read + 'a, shown: &str) -> Result<(Content<'a>, Known), Failure> {
    let broken = |error| Failure::Input(format!("{shown}: {}", TraceError::Read { line: 0, error }));
    let mut content = Content::new(reader).map_err(broken)?;
    let known = known(content.beginning(BEGINNING_BYTES).map_err(broken)?);
    match known {
        Ok(known) => Ok((content, known)),
        Err(found) => Err(Failure::Input(format!("{shown}: {}", unknown(&found)))),
    }
}

/// Returns what begins so, or else the beginning for readers.
fn known(beginning: &[u8]) -> Result<Known, String> {
    match Format::of(beginning) {
        Ok(format) => Ok(Known::Recording(format)),
        Err(_) if begins_a_trace(beginning) => Ok(Known::Trace),
        Err(ImportError::Unknown { found }) => Err(found),
        Err(error) => Err(error.to_string()),
    }
}

fn begins_a_trace(beginning: &[u8]) -> bool {
    match beginning {
        [] | [b'#', ..] => true,
        [letter, b' ', ..] => LINES.contains(letter),
        [b'e' | b'i', b'\n', ..] => true,
        _ => false,
    }
}

fn unknown(found: &str) -> String {
    let formats = Format::ALL.map(Format::about).join(", ");
    format!(
        "no format is known that begins with {found}; the formats are a trace of Millpond, {formats}, each as it is or \
         compressed with gzip or zstd"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_known_by_its_beginning() {
        for (beginning, expected) in [
            (&b""[..], Known::Trace),
            (b"# {\"workload\":\"a\"}\na 0 1 0\n", Known::Trace),
            (b"m 0 0\n", Known::Trace),
            (b"p train.py:40 main\nk 0 0\n", Known::Trace),
            (b"i\ne\n", Known::Trace),
            (b"\x80\x04\x95", Known::Recording(Format::PyTorch)),
            (b"PK\x03\x04", Known::Recording(Format::PyTorch)),
            (b"{\"segments\": []}", Known::Recording(Format::PyTorch)),
            (b"Thread,Time,Action,Pointer,Size,Stream\n", Known::Recording(Format::Rmm)),
            (b"id,lower,upper,size\n", Known::Recording(Format::Lifetimes)),
            (b"1 0x10 512 0\n", Known::Recording(Format::Stalloc)),
        ] {
            assert_eq!(known(beginning), Ok(expected), "{}", beginning.escape_ascii());
        }
    }

    #[test]
    fn what_is_unknown_is_answered_with_the_formats() {
        let Err(Failure::Input(message)) = recognised(&b"\x7fELF\x02"[..], "a.out") else { panic!("known") };
        assert!(message.starts_with("a.out: no format is known that begins with `\\x7fELF\\x02`;"), "{message}");
        for format in Format::ALL {
            assert!(message.contains(format.about()), "{message}");
        }
    }
}
