//! Checked bytes: every block is marked by device work when it is granted, and verified before it is freed.
//!
//! A consistent layout says nothing about the bytes behind it: a wrong page may be mapped, and memory may be granted to
//! the next owner while the last owner's work is in progress. Device work that writes and reads shows both.

use std::collections::HashMap;

use millpond::{Allocator, Buffer, Error, Stream};
use millpond_backend::{Backend, BackendError, ClassId, Point, StreamId, Transfer};

use crate::evidence::Evidence;
use crate::marks::{self, TABLE_BYTES};
use crate::own;
use crate::watch::Watch;

/// The distance between the marks inside a block, in bytes, where the device does not have smaller pages.
const PAGE_BYTES: u64 = 2 << 20;

/// The reason why a checked replay ended early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckError<E: BackendError> {
    /// The allocator reported something other than out of memory.
    #[error(transparent)]
    Allocator(#[from] Error<E>),
    /// A block did not hold what was written to it.
    #[error(transparent)]
    WrongByte(#[from] WrongByte),
    /// The device cannot write and read bytes, which a check and work of a given length take.
    #[error("{device} neither fills nor copies, so that it can be given no work; replay without checks and work")]
    NoTransfer {
        /// The device's name.
        device: String,
    },
    /// The driver failed while bytes were written or read.
    #[error("the driver failed in `{call}` while bytes were checked")]
    Driver {
        /// The name of the backend's call.
        call: &'static str,
        /// The driver's own error.
        source: E,
    },
}

/// A byte that differs from what was written.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "event {event} of pass {pass} frees block {block} ({bytes} bytes on {stream}{}), whose byte {offset} holds \
     {found:#04x} where {expected:#04x} was written: memory was shared, moved or reused too early",
    at_address(*address)
)]
pub struct WrongByte {
    /// The pass, counted from 0, which is the cold one.
    pub pass: usize,
    /// The event of the trace, counted from 0: the free before which the block was read. For a block that is never
    /// freed, the number of events.
    pub event: usize,
    /// The block's number in the trace.
    pub block: u32,
    /// The size of the block in bytes, after rounding.
    pub bytes: u64,
    /// The stream that it was allocated on.
    pub stream: StreamId,
    /// Its device address, where there is one.
    pub address: Option<u64>,
    /// The offset in the block, in bytes.
    pub offset: u64,
    /// The value that was written there.
    pub expected: u8,
    /// The value that was found there.
    pub found: u8,
}

fn at_address(address: Option<u64>) -> String {
    address.map_or(String::new(), |address| format!(" at {address:#x}"))
}

pub(crate) type Mover<'a, B> = dyn Transfer<Segment = <B as Backend>::Segment, Error = <B as Backend>::Error> + 'a;

/// Marks blocks and checks the marks.
///
/// It queues the following around a block, in this order:
/// - at the grant, the block's marks are written on its stream: copies from a table of marks;
/// - at the use on another stream, the home stream is submitted, and the other waits for it, on the device if it can;
/// - at the free, the marks are copied into the evidence of the home stream, and then written once more on the home
///   stream and on every stream that used the block. This last work may still be in progress when the block is freed:
///   if the memory is granted again too early, it overwrites the marks of the next block.
///
/// None of this waits on the host where streams wait for each other on the device: evidence is read and compared when
/// there is no room for more, and at the end of a pass.
pub(crate) struct Checker<'a, B: Backend> {
    backend: &'a B,
    mover: &'a Mover<'a, B>,
    class: ClassId,
    page_bytes: u64,
    /// The number of its thread among those that replay at the same time.
    thread: usize,
    pass: usize,
    /// True at the numbers of the blocks that outlive their pass, which is the first.
    kept: Vec<bool>,
    /// The table of marks, and its copy on the device after the first use.
    table: Vec<u8>,
    on_device: Option<B::Segment>,
    /// The streams whose work reads that copy.
    readers: Vec<StreamId>,
    evidence: Vec<(StreamId, Evidence<B>)>,
    /// For each live block, the streams besides the home stream that use it.
    used: HashMap<u32, Vec<StreamId>>,
    blocks: u64,
}

impl<'a, B: Backend> Checker<'a, B> {
    pub(crate) fn new(allocator: &'a Allocator<B>, thread: usize, pass: usize) -> Result<Self, CheckError<B::Error>> {
        let backend = allocator.backend();
        let mover = backend.transfer();
        let mover = mover.ok_or_else(|| CheckError::NoTransfer { device: backend.caps().name.clone() })?;
        let page_bytes = backend.caps().pages.map_or(PAGE_BYTES, |pages| pages.granularity.min(PAGE_BYTES));
        Ok(Self {
            backend,
            mover,
            class: allocator.class(),
            page_bytes,
            thread,
            pass,
            kept: Vec::new(),
            table: marks::table(),
            on_device: None,
            readers: Vec::new(),
            evidence: Vec::new(),
            used: HashMap::new(),
            blocks: 0,
        })
    }

    /// Sets the blocks that are written in the first pass and read when the last one is over.
    pub(crate) fn keeping(mut self, kept: Vec<bool>) -> Self {
        self.kept = kept;
        self
    }

    /// Returns the number of blocks that were checked so far.
    pub(crate) fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Returns the pieces of a block that are marked: (offset in the block, bytes, place in the table).
    fn pieces(&self, id: u32, buffer: &Buffer<B>) -> impl Iterator<Item = (u64, u64, u64)> + use<B> {
        let is_kept = self.kept.get(id as usize).is_some_and(|kept| *kept);
        let (thread, pass) = (self.thread, if is_kept { 0 } else { self.pass });
        let pieces = marks::pieces(buffer.offset(), buffer.capacity(), self.page_bytes);
        pieces.map(move |(offset, bytes)| (offset, bytes, marks::place(thread, pass, id, offset)))
    }

    /// Returns the table on the device, for work of that stream to read. No work writes to it any more.
    fn table_for(&mut self, stream: StreamId) -> Result<&B::Segment, CheckError<B::Error>> {
        if !self.readers.contains(&stream) {
            self.readers.push(stream);
        }
        let (backend, class) = (self.backend, self.class);
        if self.on_device.is_none() {
            let segment = backend.reserve(class, TABLE_BYTES);
            let segment = segment.map_err(|source| CheckError::Driver { call: "reserve", source })?;
            let segment = self.on_device.insert(segment);
            let uploaded = self.mover.upload(stream, &self.table, segment, 0);
            uploaded.map_err(|source| CheckError::Driver { call: "upload", source })?;
            let point = submitted(backend, stream)?;
            wait(backend, point)?;
        }
        match &self.on_device {
            Some(segment) => Ok(segment),
            None => unreachable!("it was just put there"),
        }
    }

    fn write(&mut self, id: u32, buffer: &Buffer<B>, stream: StreamId) -> Result<(), CheckError<B::Error>> {
        let Some(segment) = buffer.segment() else { return Ok(()) };
        let (mover, pieces) = (self.mover, self.pieces(id, buffer));
        let table = self.table_for(stream)?;
        for (offset, bytes, place) in pieces {
            let written = mover.copy(stream, (table, place), (segment, buffer.offset() + offset), bytes);
            written.map_err(|source| CheckError::Driver { call: "copy", source })?;
        }
        Ok(())
    }

    fn verify(&mut self, event: usize, id: u32, buffer: &Buffer<B>) -> Result<(), CheckError<B::Error>> {
        let Some(segment) = buffer.segment() else { return Ok(()) };
        let home = buffer.stream();
        let pieces = self.pieces(id, buffer);
        let at = match self.evidence.iter().position(|(stream, _)| *stream == home) {
            Some(at) => at,
            None => {
                self.evidence.push((home, Evidence::new(self.backend, self.class, home)?));
                self.evidence.len() - 1
            }
        };
        let about = WrongByte {
            pass: self.pass,
            event,
            block: id,
            bytes: buffer.capacity(),
            stream: home,
            address: buffer.address(),
            offset: 0,
            expected: 0,
            found: 0,
        };
        for (offset, bytes, place) in pieces {
            let (from, about) = ((segment, buffer.offset() + offset), WrongByte { offset, ..about.clone() });
            self.evidence[at].1.take(self.mover, &self.table, from, (bytes, place), about)?;
        }
        Ok(())
    }

    /// Makes later work of a stream come after all work of another so far: on the device where it supports that, and
    /// otherwise by waiting on the host.
    fn order(&self, stream: StreamId, earlier: StreamId) -> Result<(), CheckError<B::Error>> {
        if stream == earlier {
            return Ok(());
        }
        // A device waits only for what was submitted.
        let point = submitted(self.backend, earlier)?;
        match self.backend.stream_wait() {
            Some(waits) => {
                waits.wait_for(stream, point).map_err(|source| CheckError::Driver { call: "wait_for", source })
            }
            None => wait(self.backend, point),
        }
    }
}

/// Submits a stream and returns the point that covers its work.
fn submitted<B: Backend>(backend: &B, stream: StreamId) -> Result<Point, CheckError<B::Error>> {
    let tick = backend.submit(stream).map_err(|source| CheckError::Driver { call: "submit", source })?;
    Ok(Point { stream, tick })
}

fn wait<B: Backend>(backend: &B, point: Point) -> Result<(), CheckError<B::Error>> {
    let reached = backend.wait(point).map_err(|source| CheckError::Driver { call: "wait", source })?;
    assert!(reached >= point.tick, "{point} was submitted, and a wait for it ended at tick {reached}");
    Ok(())
}

impl<B: Backend> Watch<B> for Checker<'_, B> {
    type Error = CheckError<B::Error>;

    fn granted(&mut self, id: u32, buffer: &Buffer<B>, stream: &Stream<B>) -> Result<(), Self::Error> {
        self.write(id, buffer, stream.id())
    }

    fn used(&mut self, id: u32, buffer: &Buffer<B>, stream: &Stream<B>) -> Result<(), Self::Error> {
        let (home, other) = (buffer.stream(), stream.id());
        let used = self.used.entry(id).or_default();
        if other != home && !used.contains(&other) {
            used.push(other);
            self.order(other, home)?;
        }
        Ok(())
    }

    fn freeing(&mut self, event: usize, id: u32, buffer: &Buffer<B>) -> Result<(), Self::Error> {
        let home = buffer.stream();
        self.verify(event, id, buffer)?;
        self.blocks += 1;
        // Each writer waits for the one before it, so that they do not race.
        let mut last = home;
        self.write(id, buffer, home)?;
        for other in self.used.remove(&id).unwrap_or_default() {
            self.order(other, last)?;
            self.write(id, buffer, other)?;
            last = other;
        }
        Ok(())
    }

    fn over(&mut self) -> Result<(), Self::Error> {
        self.pass += 1;
        self.evidence.iter_mut().try_for_each(|(_, evidence)| evidence.judge(self.mover, &self.table))
    }
}

impl<B: Backend> Drop for Checker<'_, B> {
    fn drop(&mut self) {
        for (_, evidence) in self.evidence.drain(..) {
            evidence.close(self.backend);
        }
        if let Some(table) = self.on_device.take() {
            own::release(self.backend, table, &self.readers);
        }
    }
}
