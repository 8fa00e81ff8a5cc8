//! The limit that is enough for a trace that exceeds one: what is left of the text is counted and not kept.

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Read};

use crate::limits::Limit;
use crate::parse::{Parser, Reached};

/// The most bytes that are read to find out what is enough: 16 GiB.
const BYTES_MAX: u64 = 16 << 30;

/// Returns the value of a limit that is enough for a trace, given what was read before and the text from there on.
/// Returns `None` if it is not known: the expansion depends on how the compression goes on, the text does not end
/// within 16 GiB, or it cannot be read.
///
/// Costs a look at each line of the text, and eight bytes for each stream.
pub(crate) fn enough(limit: Limit, before: Reached, parser: &Parser, text: impl Read) -> Option<u64> {
    let mut text = BufReader::new(text.take(BYTES_MAX));
    let (mut events, mut details, mut bytes) = (before.events, before.details, before.bytes);
    let mut streams = HashSet::new();
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = text.read_until(b'\n', &mut line).ok()?;
        if read == 0 {
            break;
        }
        bytes += read as u64;
        match line[0] {
            b'a' | b'f' | b'c' | b'u' | b'm' | b'w' | b'e' | b't' => events += 1,
            b'p' | b'k' | b'n' => details += 1,
            _ => {}
        }
        if matches!(line[0], b'a' | b'u' | b'm')
            && let Some(stream) = last_number(&line)
            && !parser.names(stream)
        {
            streams.insert(stream);
        }
    }
    if text.get_ref().limit() == 0 {
        return None;
    }
    match limit {
        Limit::Events => Some(events),
        Limit::Streams => Some(parser.different_streams() + streams.len() as u64),
        Limit::Details => Some(details),
        Limit::TextBytes => Some(bytes),
        Limit::Expansion => None,
    }
}

/// Returns the number at the end of a line.
fn last_number(line: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(line.trim_ascii_end()).ok()?;
    text.rsplit(' ').next()?.parse().ok()
}
