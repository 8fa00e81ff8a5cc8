//! Fills and copies as queued work. Any alignment and any length is allowed.

use std::sync::Arc;

use millpond_backend::{Closing, Point, StreamId};
use millpond_kit::Misuse;
use parking_lot::Mutex;

use crate::error::SimError;
use crate::error::calls::CallKind;
use crate::space::Piece;
use crate::space::segment::Segment;
use crate::streams::lane::Op;
use crate::time::Time;

/// How well the device overwrites memory ([`Transfer::overwrite`](millpond_backend::Transfer::overwrite)), for tests of
/// code that checks whether it does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Overwriting {
    /// Every byte is overwritten, on the stream that was asked for.
    Sound,
    /// Nothing is overwritten, and the call reports success.
    LeftOut,
    /// The bytes are overwritten on this stream, whatever stream was asked for.
    OnStream(StreamId),
    /// All bytes are overwritten except this number of bytes at the end.
    AllBut(u64),
}

fn start(device: &Time, stream: StreamId) -> Result<(), SimError> {
    if !device.caps.transfer {
        return Err(Misuse::Unsupported { call: CallKind::Transfer.name(), missing: None }.into());
    }
    device.lane(stream);
    device.enter(CallKind::Transfer)
}

fn queue(device: &Time, stream: StreamId, op: Op, reads: Vec<Piece>, writes: Vec<Piece>) {
    let mut state = device.state();
    device.queue(&mut state, stream, op, reads, writes);
    device.settle(&mut state);
}

/// Returns an error if the bytes to read are not kept.
fn expect_kept(call: &'static str, from: &Segment, bytes: u64) -> Result<(), SimError> {
    if from.is_kept() || bytes == 0 { Ok(()) } else { Err(SimError::NotKept { call, bytes }) }
}

/// Returns the work that writes to a segment: `op`, or what stands for it where nothing is kept.
fn writing(to: &Segment, op: impl FnOnce() -> Op) -> Op {
    if to.is_kept() { op() } else { Op::Unkept }
}

/// Returns whether any byte is in both lists.
fn overlap(reads: &[Piece], writes: &[Piece]) -> bool {
    let meets = |a: &Piece, b: &Piece| {
        a.memory.device == b.memory.device
            && a.physical == b.physical
            && a.start < b.start + b.bytes
            && b.start < a.start + a.bytes
    };
    reads.iter().any(|read| writes.iter().any(|write| meets(read, write)))
}

/// Implements `fill`.
pub(crate) fn fill(
    device: &Time,
    stream: StreamId,
    segment: &Segment,
    offset: u64,
    bytes: u64,
    value: u8,
) -> Result<(), SimError> {
    start(device, stream)?;
    let writes = segment.pieces(offset, bytes)?;
    queue(device, stream, writing(segment, || Op::Fill(value)), Vec::new(), writes);
    device.charge(device.costs.fill.at(bytes));
    Ok(())
}

/// Implements `overwrite`.
pub(crate) fn overwrite(
    device: &Time,
    how: Overwriting,
    stream: StreamId,
    segment: &Segment,
    offset: u64,
    bytes: u64,
) -> Result<(), SimError> {
    match how {
        Overwriting::Sound => fill(device, stream, segment, offset, bytes, 0),
        Overwriting::LeftOut => Ok(()),
        Overwriting::OnStream(other) => fill(device, other, segment, offset, bytes, 0),
        Overwriting::AllBut(end) => fill(device, stream, segment, offset, bytes.saturating_sub(end), 0),
    }
}

/// Implements `copy`.
pub(crate) fn copy(
    device: &Time,
    stream: StreamId,
    from: (&Segment, u64),
    to: (&Segment, u64),
    bytes: u64,
) -> Result<(), SimError> {
    start(device, stream)?;
    if to.0.is_kept() {
        expect_kept("copy", from.0, bytes)?;
    }
    let reads = from.0.pieces(from.1, bytes)?;
    let writes = to.0.pieces(to.1, bytes)?;
    if overlap(&reads, &writes) {
        let (from, to) = (from.0.address + from.1, to.0.address + to.1);
        return Err(Misuse::Overlap { from, to, bytes }.into());
    }
    queue(device, stream, writing(to.0, || Op::Copy), reads, writes);
    Ok(())
}

/// Implements `upload`.
pub(crate) fn upload(
    device: &Time,
    stream: StreamId,
    from: &[u8],
    segment: &Segment,
    offset: u64,
) -> Result<(), SimError> {
    start(device, stream)?;
    let writes = segment.pieces(offset, from.len() as u64)?;
    queue(device, stream, writing(segment, || Op::Upload(from.to_vec())), Vec::new(), writes);
    Ok(())
}

/// Implements `download`.
pub(crate) fn download(
    device: &Time,
    stream: StreamId,
    segment: &Segment,
    offset: u64,
    to: &mut [u8],
) -> Result<(), SimError> {
    start(device, stream)?;
    expect_kept("download", segment, to.len() as u64)?;
    let reads = segment.pieces(offset, to.len() as u64)?;
    let arrived = Arc::new(Mutex::new(Vec::new()));
    let mut state = device.state();
    let tick = device.queue(&mut state, stream, Op::Download(Arc::clone(&arrived)), reads, Vec::new());
    let point = Point { stream, tick };
    device.finish(&mut state, point, device.caps.closing == Closing::Submit);
    device.settle(&mut state);
    drop(state);
    let bytes = arrived.lock();
    if bytes.len() != to.len() {
        return Err(SimError::Circle { point });
    }
    to.copy_from_slice(&bytes);
    Ok(())
}
