//! Checked bytes: every block is marked by device work when it is granted, and verified before it is freed.
//!
//! A layout that is in perfect order says nothing of the bytes behind it: a page may be mapped where another belongs,
//! and memory may go to the next owner while the last one's work is under way. Device work that writes and reads shows
//! both.

use std::collections::HashMap;

use millpond_backend::{Backend, BackendError, Point, StreamId, Transfer};

use super::Watch;
use crate::allocator::Allocator;
use crate::buffer::{Buffer, Reuse};
use crate::error::Error;
use crate::stream::Stream;

/// Bytes marked at each end of a block.
const EDGE_BYTES: u64 = 64;
/// Bytes marked at the start of every page inside a block.
const STAMP_BYTES: u64 = 16;
/// How far apart those stamps are, where the device does not say that its pages are smaller.
const PAGE_BYTES: u64 = 2 << 20;

/// Why a checked replay ended early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckError<E: BackendError> {
    /// The allocator reported something other than out of memory.
    #[error(transparent)]
    Allocator(#[from] Error<E>),
    /// A block did not hold what was written to it.
    #[error(transparent)]
    WrongByte(#[from] WrongByte),
    /// The device cannot write and read bytes.
    #[error("{device} neither fills nor copies, so bytes cannot be checked on it; replay without the check")]
    NoTransfer {
        /// The device's name.
        device: String,
    },
    /// The driver failed while bytes were written or read.
    #[error("the driver failed in `{call}` while bytes were checked")]
    Driver {
        /// Which call of the backend.
        call: &'static str,
        /// The driver's own error.
        source: E,
    },
}

/// A byte that is not what was written.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "event {event} of pass {pass} frees block {block} ({bytes} bytes on {stream}{}), whose byte {offset} holds \
     {found:#04x} where {expected:#04x} was written: memory was shared, moved or reused too early",
    at_address(*address)
)]
pub struct WrongByte {
    /// Which pass, counted from 0: the cold one.
    pub pass: usize,
    /// Which event of the trace, counted from 0: the free before which the block was read. For a block that is never
    /// freed, the number of events.
    pub event: usize,
    /// The block's number in the trace.
    pub block: u32,
    /// How many bytes the block has, after rounding.
    pub bytes: u64,
    /// The stream that it was allocated on.
    pub stream: StreamId,
    /// Its device address, where there is one.
    pub address: Option<u64>,
    /// Where in the block, in bytes.
    pub offset: u64,
    /// What was written there.
    pub expected: u8,
    /// What is there.
    pub found: u8,
}

fn at_address(address: Option<u64>) -> String {
    address.map_or(String::new(), |address| format!(" at {address:#x}"))
}

type Mover<'a, B> = dyn Transfer<Segment = <B as Backend>::Segment, Error = <B as Backend>::Error> + 'a;

/// Marks blocks and verifies them.
///
/// What it queues around a block, in this order:
/// - at the grant, the block's marks are written on its stream;
/// - at the use on another stream, that stream waits for the home stream, on the device where it can;
/// - at the free, the marks are read on the home stream, and then written once more on the home stream and on every
///   stream that used the block. This last work may still be under way when the block is freed: if the memory goes on
///   to somebody else too early, it lands on their marks.
pub(super) struct Checker<'a, B: Backend> {
    backend: &'a B,
    mover: &'a Mover<'a, B>,
    page_bytes: u64,
    pass: usize,
    /// The streams beside the home stream that use a live block.
    used: HashMap<u32, Vec<StreamId>>,
    blocks: u64,
}

impl<'a, B: Backend> Checker<'a, B> {
    pub(super) fn new(allocator: &'a Allocator<B>) -> Result<Self, CheckError<B::Error>> {
        let backend = allocator.backend();
        let caps = backend.caps();
        let Some(mover) = backend.transfer() else {
            return Err(CheckError::NoTransfer { device: caps.name.clone() });
        };
        let page_bytes = caps.pages.map_or(PAGE_BYTES, |pages| pages.granularity.min(PAGE_BYTES));
        Ok(Self { backend, mover, page_bytes, pass: 0, used: HashMap::new(), blocks: 0 })
    }

    /// How many blocks were verified so far.
    pub(super) fn blocks(&self) -> u64 {
        self.blocks
    }

    pub(super) fn next_pass(&mut self) {
        self.pass += 1;
    }

    /// The pieces of a block that are marked: (offset in the block, bytes). Its ends, and the start of every page
    /// that begins between them, so that every page with a part of the block in it has a mark.
    fn pieces(&self, buffer: &Buffer<B>) -> impl Iterator<Item = (u64, u64)> + use<B> {
        pieces(buffer.offset(), buffer.capacity(), self.page_bytes)
    }

    fn write(&self, id: u32, buffer: &Buffer<B>, stream: StreamId) -> Result<(), CheckError<B::Error>> {
        let Some(segment) = buffer.segment() else { return Ok(()) };
        let mut marks = [0; EDGE_BYTES as usize];
        for (offset, bytes) in self.pieces(buffer) {
            let marks = &mut marks[..bytes as usize];
            put_marks(self.pass, id, offset, marks);
            let written = self.mover.upload(stream, marks, segment, buffer.offset() + offset);
            written.map_err(|source| CheckError::Driver { call: "upload", source })?;
        }
        Ok(())
    }

    fn verify(&self, event: usize, id: u32, buffer: &Buffer<B>, home: StreamId) -> Result<(), CheckError<B::Error>> {
        let Some(segment) = buffer.segment() else { return Ok(()) };
        let (mut marks, mut found) = ([0; EDGE_BYTES as usize], [0; EDGE_BYTES as usize]);
        for (offset, bytes) in self.pieces(buffer) {
            let (marks, found) = (&mut marks[..bytes as usize], &mut found[..bytes as usize]);
            put_marks(self.pass, id, offset, marks);
            let read = self.mover.download(home, segment, buffer.offset() + offset, found);
            read.map_err(|source| CheckError::Driver { call: "download", source })?;
            if let Some(at) = (0..marks.len()).find(|&at| marks[at] != found[at]) {
                return Err(CheckError::WrongByte(WrongByte {
                    pass: self.pass,
                    event,
                    block: id,
                    bytes: buffer.capacity(),
                    stream: home,
                    address: buffer.address(),
                    offset: offset + at as u64,
                    expected: marks[at],
                    found: found[at],
                }));
            }
        }
        Ok(())
    }

    /// Makes later work of a stream come after a point: on the device where it can wait, or else by waiting here.
    fn order(&self, stream: StreamId, point: Point) -> Result<(), CheckError<B::Error>> {
        if stream == point.stream {
            return Ok(());
        }
        match self.backend.stream_wait() {
            Some(waits) => {
                waits.stream_wait(stream, point).map_err(|source| CheckError::Driver { call: "stream_wait", source })
            }
            // A wait ends early at work that was never submitted. Devices to which that can happen have one stream
            // (wgpu) or waits of their own (Vulkan).
            None => self.backend.wait(point).map(drop).map_err(|source| CheckError::Driver { call: "wait", source }),
        }
    }

    fn point(&self, stream: StreamId) -> Point {
        Point { stream, tick: self.backend.mark(stream) }
    }
}

impl<B: Backend> Watch<B> for Checker<'_, B> {
    type Error = CheckError<B::Error>;

    fn granted(&mut self, id: u32, buffer: &Buffer<B>, stream: &Stream<B>) -> Result<(), Self::Error> {
        if let Reuse::After(point) = buffer.reuse() {
            self.order(stream.id(), point)?;
        }
        self.write(id, buffer, stream.id())
    }

    fn used(&mut self, id: u32, buffer: &Buffer<B>, stream: &Stream<B>) -> Result<(), Self::Error> {
        let (home, other) = (buffer.stream(), stream.id());
        let used = self.used.entry(id).or_default();
        if other != home && !used.contains(&other) {
            used.push(other);
            self.order(other, self.point(home))?;
        }
        Ok(())
    }

    fn freeing(&mut self, event: usize, id: u32, buffer: &Buffer<B>) -> Result<(), Self::Error> {
        let home = buffer.stream();
        self.verify(event, id, buffer, home)?;
        self.blocks += 1;
        // The writers come one behind the other: among themselves they must not race.
        let mut last = home;
        self.write(id, buffer, home)?;
        for other in self.used.remove(&id).unwrap_or_default() {
            self.order(other, self.point(last))?;
            self.write(id, buffer, other)?;
            last = other;
        }
        Ok(())
    }
}

/// The pieces of a block of `capacity` bytes, which starts at `start` of its segment, that are marked.
fn pieces(start: u64, capacity: u64, page_bytes: u64) -> impl Iterator<Item = (u64, u64)> {
    let edge = EDGE_BYTES.min(capacity);
    let first_page = start.next_multiple_of(page_bytes) - start;
    let last = capacity - edge;
    let pages = (first_page..last).step_by(usize::try_from(page_bytes).unwrap_or(usize::MAX));
    let inside = pages.filter(move |&offset| offset >= edge && offset + STAMP_BYTES <= last);
    let end = (last > 0).then_some((last, edge));
    std::iter::once((0, edge)).chain(inside.map(|offset| (offset, STAMP_BYTES))).chain(end)
}

/// Fills in what a piece of a block holds: no two pieces of any blocks in any passes hold the same.
fn put_marks(pass: usize, id: u32, offset: u64, marks: &mut [u8]) {
    let block = scattered((pass as u64) << 32 | u64::from(id));
    for (word, at) in marks.chunks_mut(8).zip((offset..).step_by(8)) {
        word.copy_from_slice(&scattered(block ^ at).to_le_bytes()[..word.len()]);
    }
}

/// Spreads a number over 64 bits, one to one.
fn scattered(number: u64) -> u64 {
    let mixed = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u64 = 2 << 20;

    fn all(start: u64, capacity: u64) -> Vec<(u64, u64)> {
        pieces(start, capacity, PAGE).collect()
    }

    #[test]
    fn both_ends_and_every_page_are_marked() {
        assert_eq!(all(0, 64), [(0, 64)]);
        assert_eq!(all(512, 512), [(0, 64), (448, 64)]);
        // From the last KiB of one page to the first of the third: three pages.
        assert_eq!(all(PAGE - 1024, PAGE + 2048), [(0, 64), (1024, 16), (1024 + PAGE, 16), (PAGE + 1984, 64)]);
        assert_eq!(all(4 * PAGE, 3 * PAGE), [(0, 64), (PAGE, 16), (2 * PAGE, 16), (3 * PAGE - 64, 64)]);
    }

    #[test]
    fn pieces_stay_inside_apart_and_leave_out_no_page() {
        for start in [0, 512, PAGE - 512, PAGE, 3 * PAGE + 1024] {
            for capacity in [512, 1024, PAGE - 512, PAGE, PAGE + 512, 5 * PAGE, 7 * PAGE + 1536] {
                let pieces = all(start, capacity);
                let ends: Vec<u64> = pieces.iter().map(|(offset, bytes)| offset + bytes).collect();
                assert!(pieces[1..].iter().zip(&ends).all(|((begin, _), end)| end <= begin), "{pieces:?}");
                assert_eq!(ends.last(), Some(&capacity), "{pieces:?}");
                let first = start / PAGE;
                let touched = (start + capacity - 1) / PAGE - first + 1;
                let mut marked: Vec<u64> = pieces.iter().map(|(offset, _)| (start + offset) / PAGE - first).collect();
                marked.dedup();
                assert_eq!(marked, (0..touched).collect::<Vec<_>>(), "{start} {capacity}: {pieces:?}");
            }
        }
    }

    #[test]
    fn marks_differ_by_pass_block_and_place() {
        let marks = |pass, id, offset| {
            let mut marks = [0; 16];
            put_marks(pass, id, offset, &mut marks);
            marks
        };
        let base = marks(0, 1, 512);
        assert_eq!(marks(0, 1, 512), base);
        for other in [marks(1, 1, 512), marks(0, 2, 512), marks(0, 1, 1024), marks(0, 1, 520)] {
            assert_ne!(other, base);
        }
    }
}
