//! A backend to begin with: memory of the host as a device, which runs everything at once.
//!
//! It has all that a backend must have, and transfers. Copy it, put your driver's calls instead of the vectors, and
//! run `tests/conformance.rs` after each step. What your device has beyond this (virtual memory, waits on the device,
//! host addresses, a budget) are further traits of `millpond-backend`: implement one, return it from the method of
//! [`Backend`] that is named for it, and announce it in [`Caps`]. The suite then tests it.
//!
//! # Ticks of a device that runs everything at once
//!
//! A tick is a number for the work of a stream, and time is asked in two ways: [`mark`](Backend::mark) returns the
//! tick that covers all work recorded so far, and [`reached`](Backend::reached) the newest tick whose work is done.
//! Where each call returns when its work is done, that would be the same number, but for one rule: work that is
//! recorded *after* `reached` has returned a tick must not be covered by it. So each stream has an open tick. `mark`
//! returns it, and `reached` closes it: it returns the open tick, as all work in it is done, and opens the next. This
//! is [`Closing::Backend`]: the backend ends ticks by itself, and no caller has to submit anything.
#![allow(unsafe_code)] // The contract's trait and one of its methods are unsafe.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};

use millpond_backend::{
    Backend, BackendError, Caps, Class, ClassId, ClassKind, Closing, Fault, Point, Reuse, StreamId, Tick, Transfer,
};

/// Memory of the host as a device.
pub struct HostDevice {
    caps: Caps,
    /// The bytes of all segments.
    used: AtomicU64,
    /// The open tick of each stream.
    streams: RwLock<Vec<AtomicU64>>,
}

/// A segment: what a driver's allocation is elsewhere.
#[derive(Debug)]
pub struct Segment {
    bytes: Mutex<Box<[u8]>>,
}

/// What can go wrong.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum HostError {
    /// There is no room.
    #[error("{asked} bytes are asked for, and {free} of the device's {total} are free")]
    Full {
        /// The bytes that were asked for.
        asked: u64,
        /// The bytes that are free.
        free: u64,
        /// All bytes of the device.
        total: u64,
    },
    /// A transfer leaves its segment.
    #[error("bytes {offset} to {offset}+{bytes} leave a segment of {length}")]
    OutOfRange {
        /// Where the transfer begins.
        offset: u64,
        /// How long it is.
        bytes: u64,
        /// How long the segment is.
        length: u64,
    },
    /// There is no such stream.
    #[error("stream {} is not one of this device", .0.0)]
    NoStream(StreamId),
}

impl BackendError for HostError {
    fn fault(&self) -> Fault {
        match self {
            HostError::Full { .. } => Fault::OutOfMemory,
            HostError::OutOfRange { .. } | HostError::NoStream(_) => Fault::Other,
        }
    }
}

impl HostDevice {
    /// Creates a device of that many bytes. They are taken from the host when they are reserved.
    pub fn new(total_bytes: u64) -> HostDevice {
        let class = Class::new(ClassKind::Device, "host", total_bytes);
        // Work of a stream is done in the order of its calls, so memory can be reused in that order.
        let caps = Caps::new("memory of the host", vec![class], Reuse::InOrder, Closing::Backend).with_transfer(true);
        HostDevice { caps, used: AtomicU64::new(0), streams: RwLock::default() }
    }

    /// Returns the bytes of all segments that were reserved and not released.
    pub fn used_bytes(&self) -> u64 {
        self.used.load(Ordering::Acquire)
    }

    /// Closes the open tick of a stream and returns it.
    fn close(&self, stream: StreamId) -> Result<Tick, HostError> {
        let streams = self.streams.read().unwrap_or_else(PoisonError::into_inner);
        let open = streams.get(stream.0 as usize).ok_or(HostError::NoStream(stream))?;
        Ok(Tick(open.fetch_add(1, Ordering::AcqRel)))
    }
}

impl Segment {
    /// Lends the bytes, as a kernel of this device would use them.
    pub fn lock(&self) -> MutexGuard<'_, Box<[u8]>> {
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns a range of a segment's bytes.
fn part(whole: &mut [u8], offset: u64, bytes: u64) -> Result<&mut [u8], HostError> {
    let length = whole.len() as u64;
    match offset.checked_add(bytes) {
        Some(end) if end <= length => Ok(&mut whole[offset as usize..end as usize]),
        _ => Err(HostError::OutOfRange { offset, bytes, length }),
    }
}

// SAFETY: segments are vectors of their own, as long as was asked for. All work is done when the call that records it
// returns, and `close` returns a tick only once, so that none is reported before work that it covers. Ticks only rise,
// and the number of a stream is its place in a list from which nothing is taken.
unsafe impl Backend for HostDevice {
    type Segment = Segment;
    type Page = ();
    type Error = HostError;

    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn create_stream(&self) -> Result<StreamId, HostError> {
        let mut streams = self.streams.write().unwrap_or_else(PoisonError::into_inner);
        streams.push(AtomicU64::new(1));
        Ok(StreamId(streams.len() as u32 - 1))
    }

    fn has_stream(&self, stream: StreamId) -> bool {
        (stream.0 as usize) < self.streams.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    fn reserve(&self, _class: ClassId, bytes: u64) -> Result<Segment, HostError> {
        let total = self.caps.classes[0].total_bytes;
        let add = |used: u64| used.checked_add(bytes).filter(|&sum| sum <= total);
        match self.used.fetch_update(Ordering::AcqRel, Ordering::Acquire, add) {
            Ok(_) => Ok(Segment { bytes: Mutex::new(vec![0; bytes as usize].into()) }),
            Err(used) => Err(HostError::Full { asked: bytes, free: total - used, total }),
        }
    }

    unsafe fn release(&self, segment: Segment) {
        self.used.fetch_sub(segment.lock().len() as u64, Ordering::AcqRel);
    }

    fn address(&self, _segment: &Segment) -> Option<u64> {
        None
    }

    fn mark(&self, stream: StreamId) -> Tick {
        let streams = self.streams.read().unwrap_or_else(PoisonError::into_inner);
        Tick(streams[stream.0 as usize].load(Ordering::Acquire))
    }

    fn reached(&self, stream: StreamId) -> Result<Tick, HostError> {
        self.close(stream)
    }

    fn wait(&self, point: Point) -> Result<Tick, HostError> {
        self.close(point.stream)
    }

    fn transfer(&self) -> Option<&dyn Transfer<Segment = Segment, Error = HostError>> {
        Some(self)
    }
}

impl Transfer for HostDevice {
    type Segment = Segment;
    type Error = HostError;

    fn fill(&self, _stream: StreamId, segment: &Segment, offset: u64, bytes: u64, value: u8) -> Result<(), HostError> {
        part(&mut segment.lock(), offset, bytes)?.fill(value);
        Ok(())
    }

    fn can_copy(&self, _segment: &Segment) -> bool {
        true
    }

    fn copy(&self, _stream: StreamId, from: (&Segment, u64), to: (&Segment, u64), bytes: u64) -> Result<(), HostError> {
        // Both ends may be one segment, which is locked once at a time.
        let read = part(&mut from.0.lock(), from.1, bytes)?.to_vec();
        part(&mut to.0.lock(), to.1, bytes)?.copy_from_slice(&read);
        Ok(())
    }

    fn upload(&self, _stream: StreamId, from: &[u8], segment: &Segment, offset: u64) -> Result<(), HostError> {
        part(&mut segment.lock(), offset, from.len() as u64)?.copy_from_slice(from);
        Ok(())
    }

    fn download(&self, _stream: StreamId, segment: &Segment, offset: u64, to: &mut [u8]) -> Result<(), HostError> {
        to.copy_from_slice(part(&mut segment.lock(), offset, to.len() as u64)?);
        Ok(())
    }
}
