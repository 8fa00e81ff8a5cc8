//! Reads a recording from JSON lines.

use std::fmt;
use std::io::{BufRead, BufReader, Read};

use millpond_trace::{BYTES_MAX, Content, FREE_TEXT_BYTES, printable};
use serde::Deserialize;
use serde::de::{Deserializer, Error as _, MapAccess, Visitor};

use super::rules::Rules;
use super::{BlockRow, BlockState, GoldenError, Op, OpKind, Recording, SegmentRow};

/// The length of the longest line, in bytes.
const LINE_BYTES_MAX: u64 = 16 << 20;
/// The length of the longest text, in bytes. What it means takes up to six times as much memory.
const TEXT_BYTES_MAX: u64 = 256 << 20;
/// The most bytes of text for each byte that was read, beyond the first MiB.
const EXPANSION_MAX: u64 = 64;
/// The most operations.
const OPS_MAX: usize = 1 << 20;

/// Reads a whole recording.
pub(super) fn read(reader: impl Read) -> Result<Recording, GoldenError> {
    let failed = |line, error| GoldenError::Read { line, error };
    let content = Content::new(reader).map_err(|error| failed(0, error))?;
    let mut reader = BufReader::with_capacity(64 << 10, content.take(TEXT_BYTES_MAX + 1));
    let (mut line, mut text, mut total) = (0, Vec::new(), 0);
    let mut recording: Option<(Recording, Rules)> = None;
    loop {
        text.clear();
        let read = reader.by_ref().take(LINE_BYTES_MAX + 1).read_until(b'\n', &mut text);
        total += read.map_err(|error| failed(line, error))? as u64;
        line += 1;
        let wrong = |problem| GoldenError::Line { line, problem };
        if total > TEXT_BYTES_MAX {
            return Err(wrong(format!("the text is longer than {TEXT_BYTES_MAX} bytes")));
        }
        if total > FREE_TEXT_BYTES + reader.get_ref().get_ref().taken().saturating_mul(EXPANSION_MAX) {
            let problem = format!("the text is longer than {EXPANSION_MAX} bytes for each byte of the compressed file");
            return Err(wrong(problem));
        }
        let Some(content) = text.strip_suffix(b"\n") else {
            return end(recording.map(|(recording, _)| recording), text.len() as u64).map_err(wrong);
        };
        match &mut recording {
            None => recording = Some((header(content).map_err(wrong)?, Rules::default())),
            Some((recording, _)) if recording.ops.len() == OPS_MAX => {
                return Err(wrong(format!("the recording has more than {OPS_MAX} operations")));
            }
            Some((recording, rules)) => {
                let op = op(line, content).map_err(wrong)?;
                rules.check(&op).map_err(wrong)?;
                recording.ops.push(op);
            }
        }
    }
}

/// Returns the recording at the end of the text, where `rest` bytes follow the last line break.
fn end(recording: Option<Recording>, rest: u64) -> Result<Recording, String> {
    match recording {
        _ if rest > LINE_BYTES_MAX => Err(format!("the line is longer than {LINE_BYTES_MAX} bytes")),
        _ if rest > 0 => Err("the text ends inside this line; it may be cut off".into()),
        None => Err("the text is empty, expected a header".into()),
        Some(recording) if recording.ops.is_empty() => Err("the text ends, expected `begin`".into()),
        Some(recording) => Ok(recording),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawHeader {
    name: String,
    seed: u64,
    conf: String,
    limit_mb: u32,
    shape: String,
    torch: String,
    total: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawOp {
    op: String,
    #[serde(default, deserialize_with = "present")]
    id: Option<u32>,
    #[serde(default, deserialize_with = "present")]
    size: Option<u64>,
    #[serde(default, deserialize_with = "present")]
    stream: Option<u32>,
    #[serde(default, deserialize_with = "present")]
    addr: Option<u64>,
    #[serde(default, deserialize_with = "present")]
    oom: Option<bool>,
    #[serde(default, deserialize_with = "present")]
    msg: Option<String>,
    d: Changed,
    #[serde(default, deserialize_with = "present")]
    segments: Option<Vec<RawSegment>>,
}

/// Deserializes a field that may be absent, but not null.
fn present<'de, T: Deserialize<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

/// The members of an object, sorted by name, each name once.
struct Changed(Vec<(String, i64)>);

impl<'de> Deserialize<'de> for Changed {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = Changed;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of statistics")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Changed, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry::<String, i64>()? {
                    members.push(member);
                }
                members.sort_unstable_by(|a, b| a.0.cmp(&b.0));
                match members.windows(2).find(|pair| pair[0].0 == pair[1].0) {
                    Some(pair) => Err(A::Error::custom(format!("the statistic `{}` is there twice", pair[0].0))),
                    None => Ok(Changed(members)),
                }
            }
        }
        deserializer.deserialize_map(Members)
    }
}

/// Parses a line of JSON. The error message has the column only, because the caller adds the line.
fn json<'a, T: Deserialize<'a>>(content: &'a [u8]) -> Result<T, String> {
    serde_json::from_slice(content).map_err(|error| {
        let message = error.to_string();
        let place = format!(" at line {} column {}", error.line(), error.column());
        format!("column {}: {}", error.column(), printable(message.strip_suffix(&place).unwrap_or(&message)))
    })
}

fn header(content: &[u8]) -> Result<Recording, String> {
    let raw: RawHeader = json(content)?;
    if raw.total == 0 {
        return Err("`total` is 0, must be the device's bytes".into());
    }
    Ok(Recording {
        limit_bytes: limit_bytes(raw.limit_mb, raw.total)?,
        name: raw.name,
        seed: raw.seed,
        conf: raw.conf,
        shape: raw.shape,
        torch: raw.torch,
        total: raw.total,
        ops: Vec::new(),
    })
}

/// Returns the limit as PyTorch computed it: it was set as a fraction of the device's memory, and fractions are
/// doubles.
fn limit_bytes(limit_mb: u32, total: u64) -> Result<Option<u64>, String> {
    if limit_mb == 0 {
        return Ok(None);
    }
    let bytes = u64::from(limit_mb) << 20;
    if bytes > total {
        return Err(format!("`limit_mb` is {limit_mb}, must not exceed the device's {total} bytes"));
    }
    let share = bytes as f64 / total as f64 + 1e-9;
    Ok(Some((share * total as f64) as u64))
}

fn op(line: usize, content: &[u8]) -> Result<Op, String> {
    let mut raw: RawOp = json(content)?;
    let kind = kind(&mut raw)?;
    let surplus = [
        ("id", raw.id.is_some()),
        ("size", raw.size.is_some()),
        ("stream", raw.stream.is_some()),
        ("addr", raw.addr.is_some()),
        ("oom", raw.oom.is_some()),
        ("msg", raw.msg.is_some()),
    ];
    if let Some((field, _)) = surplus.into_iter().find(|(_, there)| *there) {
        return Err(format!("`{}` has no `{field}`; remove it", raw.op));
    }
    let layout = raw.segments.map(|rows| rows.into_iter().map(segment).collect()).transpose()?;
    Ok(Op { line, kind, changed: raw.d.0, layout })
}

/// Removes the fields of the operation from `raw` and returns the operation.
fn kind(raw: &mut RawOp) -> Result<OpKind, String> {
    let RawOp { op, id, stream, .. } = raw;
    Ok(match op.as_str() {
        "begin" => OpKind::Begin,
        "alloc" => return alloc(raw),
        "free" => OpKind::Free { id: need(op, "id", id)? },
        "record_stream" => OpKind::RecordStream { id: need(op, "id", id)?, stream: need(op, "stream", stream)? },
        "busy" => OpKind::Busy { stream: need(op, "stream", stream)? },
        "sync" => OpKind::Sync,
        "empty_cache" => OpKind::EmptyCache,
        "reset_peak" => OpKind::ResetPeak,
        unknown => {
            return Err(format!(
                "unknown operation {unknown:?}, expected begin, alloc, free, record_stream, busy, sync, empty_cache \
                 or reset_peak"
            ));
        }
    })
}

fn alloc(raw: &mut RawOp) -> Result<OpKind, String> {
    let RawOp { op, id, size, stream, addr, oom, msg, .. } = raw;
    let (id, size, stream) = (need(op, "id", id)?, need(op, "size", size)?, need(op, "stream", stream)?);
    if size == 0 {
        return Err("`size` is 0, must be at least 1".into());
    }
    if size > BYTES_MAX {
        return Err(format!("`size` is {size}, must be at most 2^60 - 1, the largest request"));
    }
    let (addr, oom) = match (addr.take(), oom.take()) {
        (Some(addr), None) => (Some(addr), None),
        (None, Some(true)) => (None, Some(need(op, "msg", msg)?)),
        (None, Some(false)) => return Err("`oom` is false; leave it out and give `addr`".into()),
        (None, None) => return Err("`alloc` needs `addr`, or `oom` and `msg`".into()),
        (Some(_), Some(_)) => return Err("`alloc` has both `addr` and `oom`; it succeeded or it failed".into()),
    };
    Ok(OpKind::Alloc { id, size, stream, addr, oom })
}

fn need<T>(op: &str, field: &str, value: &mut Option<T>) -> Result<T, String> {
    value.take().ok_or_else(|| format!("`{op}` needs `{field}`"))
}

type RawSegment = (u64, u64, u8, u32, Vec<(u64, u64, BlockState)>);

fn segment((address, total, large, stream, blocks): RawSegment) -> Result<SegmentRow, String> {
    if large > 1 {
        return Err(format!("the segment at {address} is marked {large}, must be 0 (small) or 1 (large)"));
    }
    let blocks = blocks.into_iter().map(|(size, requested, state)| BlockRow { size, requested, state }).collect();
    Ok(SegmentRow { address, total, large: large == 1, stream, blocks })
}
