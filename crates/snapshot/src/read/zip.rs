//! Finds the pickle in a file of `torch.save`: a zip file whose first entry is `NAME/data.pkl`, uncompressed.
//!
//! A pickle knows its own end, so nothing else of the zip file is needed.

use super::source::Source;
use super::tree::at;
use crate::error::{Problem, SnapshotError};

/// The bytes that an entry of a zip file begins with.
pub(super) const MAGIC: &[u8] = b"PK\x03\x04";
/// The bytes of an entry before its name.
const HEAD_BYTES: usize = 30;

/// Takes what stands before the pickle.
///
/// # Errors
///
/// Returns an error if the first entry is another one, is compressed, or has no content.
pub(super) fn skip_to_pickle(source: &mut Source<'_>) -> Result<(), SnapshotError> {
    const FIRST: &str = "the first entry of a zip file";
    let Some(head) = source.ahead(HEAD_BYTES)?.first_chunk::<HEAD_BYTES>().copied() else {
        return Err(source.ends(FIRST));
    };
    let number = |place: usize| usize::from(u16::from_le_bytes([head[place], head[place + 1]]));
    let (method, name_bytes, extra_bytes) = (number(8), number(26), number(28));
    let Some(name) = source.ahead(HEAD_BYTES + name_bytes)?.get(HEAD_BYTES..HEAD_BYTES + name_bytes) else {
        return Err(source.ends(FIRST));
    };
    if name != b"data.pkl" && !name.ends_with(b"/data.pkl") {
        let found = format!("`{}`", name.escape_ascii().to_string().chars().take(60).collect::<String>());
        return Err(at(HEAD_BYTES as u64, Problem::Zip { found }));
    }
    if method != 0 {
        return Err(at(8, Problem::Zip { found: "data.pkl, compressed".into() }));
    }
    let start = HEAD_BYTES + name_bytes + extra_bytes;
    if source.ahead(start + 1)?.len() <= start {
        return Err(source.ends(FIRST));
    }
    source.skip(start);
    Ok(())
}
