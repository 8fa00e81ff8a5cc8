//! The errors of snapshots.

use std::fmt;
use std::io;
use std::path::PathBuf;

use millpond_trace::printable;

use crate::limits::Limit;

/// The reason why a snapshot could not be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// The file could not be opened or created.
    #[error("cannot open {}: {error}", printable(&path.to_string_lossy()))]
    Open {
        /// The path of the file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// Reading or decompressing failed part of the way.
    #[error("reading failed after {read} bytes: {error}")]
    Read {
        /// The number of bytes of content before it.
        read: u64,
        /// The system's or the decompressor's error.
        error: io::Error,
    },
    /// The content does not follow its format, or is no snapshot.
    #[error("{place}: {problem}")]
    Content {
        /// Where.
        place: Place,
        /// The problem.
        problem: Problem,
    },
    /// The content has more than the reader accepts.
    #[error(
        "byte {at}: the file has more than {most} {limit}, the most that this reader accepts; to read it, raise `{}` \
         of its limits{}", limit.name(), to(*enough)
    )]
    Limit {
        /// The limit.
        limit: Limit,
        /// Its value.
        most: u64,
        /// The number of bytes of content before what exceeds it.
        at: u64,
        /// The value of the limit that is enough for this file, where it was found out.
        enough: Option<u64>,
    },
    /// Writing failed.
    #[error("writing failed: {0}")]
    Write(io::Error),
}

/// Returns the value to which a limit is to be raised, as a part of a sentence.
fn to(enough: Option<u64>) -> String {
    enough.map_or(String::new(), |enough| format!(" to {enough}"))
}

/// A place in the content of a file.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Place {
    /// The number of bytes before it; of a compressed file, of its decompressed content.
    pub at: u64,
    /// The way to the value from the root, such as `segments[3].blocks[0].size`; empty where a format, and not a value,
    /// is at fault.
    pub path: String,
}

/// Prints the byte, and the way to the value where there is one.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "byte {}", self.at)?;
        if self.path.is_empty() { Ok(()) } else { write!(f, ", {}", self.path) }
    }
}

/// The problem at one place.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// A file without content.
    #[error("the file is empty, expected a snapshot as JSON or as a pickle")]
    Empty,
    /// A beginning that is neither of a pickle nor of JSON.
    #[error(
        "expected a snapshot: a pickle of protocol 2 to 5, a file of `torch.save`, or JSON that begins with {{ or ["
    )]
    NoSnapshot,
    /// A file that ends too early.
    #[error("the file ends here, expected {expected}; it may be cut off")]
    End {
        /// What would have to follow.
        expected: &'static str,
    },
    /// Something behind the end.
    #[error("{bytes} bytes follow the end of the snapshot, expected none")]
    Trailing {
        /// The number of bytes.
        bytes: u64,
    },
    /// Something in a JSON text that may not stand there.
    #[error("found {found}, expected {expected}")]
    Json {
        /// What is there.
        found: String,
        /// What would have to be there.
        expected: &'static str,
    },
    /// A key that stands twice in a dictionary.
    #[error("the key is twice in one dictionary")]
    Twice,
    /// Text that is not UTF-8.
    #[error("the text is not UTF-8")]
    NotText,
    /// A number beyond 64 bits.
    #[error("the whole number does not fit in 64 bits")]
    TooBig,
    /// Values that lie too deep in each other, or in themselves.
    #[error("values lie more than {most} deep in each other, or in themselves; those of a snapshot do not")]
    Depth {
        /// The most.
        most: usize,
    },
    /// A pickle of another protocol.
    #[error("the pickle has protocol {version}, expected 2 to 5")]
    Protocol {
        /// The protocol.
        version: u8,
    },
    /// A byte that is no instruction.
    #[error("{code:#04x} is no instruction of a pickle of protocol 2 to 5")]
    Instruction {
        /// The byte.
        code: u8,
    },
    /// An instruction for something else than plain data.
    #[error("the instruction {name} is for {what}, which a snapshot has none of; nothing of the file is run")]
    Refused {
        /// Its name in Python's module `pickletools`.
        name: &'static str,
        /// What it is for.
        what: &'static str,
    },
    /// An instruction that takes more values than there are.
    #[error("the instruction {name} needs {needs}, and there is none")]
    Missing {
        /// Its name.
        name: &'static str,
        /// What it needs.
        needs: &'static str,
    },
    /// A reference to something that was not remembered.
    #[error("nothing was remembered under the number {index}")]
    Unremembered {
        /// The number.
        index: u64,
    },
    /// A length beyond the end.
    #[error("a text of {bytes} bytes begins here, and only {left} follow")]
    Length {
        /// The length.
        bytes: u64,
        /// The bytes that follow.
        left: u64,
    },
    /// A key that is no text.
    #[error("a key of a dictionary is {found}, expected a text")]
    Key {
        /// What it is.
        found: &'static str,
    },
    /// An entry of a zip file that cannot be read.
    #[error("the zip file begins with {found}, expected data.pkl, uncompressed, as `torch.save` writes it")]
    Zip {
        /// What it begins with.
        found: String,
    },
    /// A field that is not there.
    #[error("the field `{field}` is missing")]
    NoField {
        /// Its name.
        field: &'static str,
    },
    /// A value of the wrong kind.
    #[error("found {found}, expected {expected}")]
    Kind {
        /// What it is.
        found: &'static str,
        /// What it would have to be.
        expected: &'static str,
    },
    /// A size or an address out of range.
    #[error("{what} is {value}, must be at most {most}")]
    Range {
        /// What it is.
        what: &'static str,
        /// Its value.
        value: u64,
        /// The most.
        most: u64,
    },
    /// Blocks that lie beyond the end of all addresses.
    #[error("the blocks end beyond the last address, 2^64 - 1")]
    Beyond,
}
