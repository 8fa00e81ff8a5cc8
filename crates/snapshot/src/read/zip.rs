//! Finds the pickle in a file of `torch.save`: a zip file whose first entry is `NAME/data.pkl`, uncompressed.
//!
//! A pickle knows its own end, so nothing else of the zip file is needed.

use super::tree::at;
use crate::error::{Problem, SnapshotError};

/// The bytes that an entry of a zip file begins with.
pub(super) const MAGIC: &[u8] = b"PK\x03\x04";
/// The bytes of an entry before its name.
const HEAD_BYTES: usize = 30;

/// Returns the number of bytes before the pickle.
///
/// # Errors
///
/// Returns an error if the first entry is another one, is compressed, or has no content.
pub(super) fn pickle_at(bytes: &[u8]) -> Result<usize, SnapshotError> {
    let end = || at(bytes.len() as u64, Problem::End { expected: "the first entry of a zip file" });
    let head = bytes.get(..HEAD_BYTES).ok_or_else(end)?;
    let number = |place: usize| usize::from(u16::from_le_bytes([head[place], head[place + 1]]));
    let (method, name_bytes, extra_bytes) = (number(8), number(26), number(28));
    let name = bytes.get(HEAD_BYTES..HEAD_BYTES + name_bytes).ok_or_else(end)?;
    if name != b"data.pkl" && !name.ends_with(b"/data.pkl") {
        let found = format!("`{}`", name.escape_ascii().to_string().chars().take(60).collect::<String>());
        return Err(at(HEAD_BYTES as u64, Problem::Zip { found }));
    }
    if method != 0 {
        return Err(at(8, Problem::Zip { found: "data.pkl, compressed".into() }));
    }
    let start = HEAD_BYTES + name_bytes + extra_bytes;
    if start < bytes.len() { Ok(start) } else { Err(end()) }
}
