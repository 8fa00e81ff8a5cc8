//! The formats, and how they are told apart.

use std::fmt;

use crate::error::ImportError;
use crate::lifetimes;
use crate::rmm;
use crate::stalloc;

/// A format of recordings.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Format {
    /// A snapshot of PyTorch, as a pickle, a file of `torch.save` or JSON.
    PyTorch,
    /// The log of RMM's `logging_resource_adaptor`: `Thread,Time,Action,Pointer,Size,Stream`.
    Rmm,
    /// Lifetimes of buffers, as MiniMalloc and TelaMalloc use them: `id,lower,upper,size`.
    Lifetimes,
    /// The log of STAlloc's tracer: `1 ADDRESS SIZE STREAM` and `0 ADDRESS SIZE STREAM`.
    Stalloc,
}

impl Format {
    /// All formats.
    pub const ALL: [Format; 4] = [Format::PyTorch, Format::Rmm, Format::Lifetimes, Format::Stalloc];

    /// Returns its name, as it is written on command lines and in headers.
    pub const fn name(self) -> &'static str {
        match self {
            Format::PyTorch => "pytorch",
            Format::Rmm => "rmm",
            Format::Lifetimes => "lifetimes",
            Format::Stalloc => "stalloc",
        }
    }

    /// Returns what it is, for people.
    pub const fn about(self) -> &'static str {
        match self {
            Format::PyTorch => "a snapshot of PyTorch",
            Format::Rmm => "a log of RMM",
            Format::Lifetimes => "a table of lifetimes",
            Format::Stalloc => "a log of STAlloc",
        }
    }

    /// Returns the format of a name.
    pub fn by_name(name: &str) -> Option<Format> {
        Self::ALL.into_iter().find(|format| format.name() == name)
    }

    /// Finds the format by the beginning of the content.
    ///
    /// # Errors
    ///
    /// Returns an error with the beginning if it is none of them.
    pub fn of(content: &[u8]) -> Result<Format, ImportError> {
        let start = content.iter().position(|byte| !byte.is_ascii_whitespace());
        let is_json = start.is_some_and(|start| matches!(content[start], b'{' | b'['));
        if is_json || content.starts_with(&[0x80]) || content.starts_with(b"PK\x03\x04") {
            return Ok(Format::PyTorch);
        }
        let line = content.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).find(|line| !line.is_empty());
        let line = line.unwrap_or_default();
        let shown = &line[..line.len().min(1000)];
        if rmm::is_head(shown) {
            Ok(Format::Rmm)
        } else if lifetimes::is_head(shown) {
            Ok(Format::Lifetimes)
        } else if stalloc::is_line(shown) {
            Ok(Format::Stalloc)
        } else {
            let found = match shown {
                [] => "the file is empty".into(),
                _ if shown.starts_with(b"# {") || shown.starts_with(b"a 0 ") => {
                    "it looks like a trace of Millpond, which needs no import".into()
                }
                _ => format!("`{}`", shown[..shown.len().min(60)].escape_ascii()),
            };
            Err(ImportError::Unknown { found })
        }
    }
}

/// Prints its name.
impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
