//! The staging ring: page-locked bytes of the host, one ring per stream, through which pageable bytes are copied.

use std::collections::VecDeque;
use std::ptr::NonNull;

use cudarc::driver::sys::CUstream;
use millpond_backend::{Point, StreamId, Tick};

use crate::CudaError;
use crate::device::Device;
use crate::lane::{Lane, LaneState};
use crate::memory::Taken;
use crate::segment::HostPointer;

/// The size of a ring in bytes.
const RING_BYTES: u64 = 4 << 20;
/// The largest piece in bytes.
pub(crate) const PIECE_BYTES: usize = 1 << 20;
/// The alignment of pieces in bytes.
const PIECE_ALIGNMENT: u64 = 256;

/// Page-locked memory whose bytes are handed out in a circle.
pub(crate) struct Ring {
    pointer: HostPointer,
    cursor: Cursor,
}

/// Which bytes of a ring are in use.
#[derive(Default)]
struct Cursor {
    /// Bytes handed out since the ring was made, including those skipped at its end.
    head: u64,
    /// The pieces, in the order in which they were handed out.
    pieces: VecDeque<InUse>,
    /// The number of the next piece.
    next: u64,
}

/// Bytes that may not be handed out again yet.
struct InUse {
    number: u64,
    /// The position where the piece begins, counted as `head` is. The bytes skipped before it belong to it.
    start: u64,
    /// The tick that covers the device's use. Unknown until the copy is queued.
    tick: Option<u64>,
    /// Whether the host still has to read it.
    pinned: bool,
}

/// A piece of a ring.
#[derive(Clone, Copy)]
pub(crate) struct Piece {
    pub(crate) number: u64,
    pub(crate) pointer: NonNull<u8>,
}

impl Cursor {
    /// Removes the pieces whose tick is reached.
    fn reclaim(&mut self, reached: u64) {
        let free = |piece: &InUse| !piece.pinned && piece.tick.is_some_and(|tick| tick <= reached);
        while self.pieces.front().is_some_and(free) {
            self.pieces.pop_front();
        }
    }

    /// Hands out bytes if there is room: returns the piece's number and its offset.
    fn take(&mut self, bytes: u64, pinned: bool) -> Option<(u64, u64)> {
        if self.pieces.is_empty() {
            self.head = 0;
        }
        let bytes = bytes.next_multiple_of(PIECE_ALIGNMENT);
        let at = self.head % RING_BYTES;
        let skipped = if at + bytes > RING_BYTES { RING_BYTES - at } else { 0 };
        let tail = self.pieces.front().map_or(self.head, |piece| piece.start);
        if self.head + skipped + bytes > tail + RING_BYTES {
            return None;
        }
        let (number, start) = (self.next, self.head);
        self.next += 1;
        self.head += skipped + bytes;
        self.pieces.push_back(InUse { number, start, tick: None, pinned });
        Some((number, (start + skipped) % RING_BYTES))
    }

    fn piece(&mut self, number: u64) -> Option<&mut InUse> {
        self.pieces.iter_mut().find(|piece| piece.number == number)
    }
}

impl Ring {
    /// Hands out a piece of the ring if there is room.
    fn take(&mut self, bytes: u64, pinned: bool) -> Option<Piece> {
        let (number, offset) = self.cursor.take(bytes, pinned)?;
        // SAFETY: the offset and the bytes behind it lie within the ring, as `Cursor::take` guarantees.
        let pointer = unsafe { self.pointer.0.add(offset as usize) };
        Some(Piece { number, pointer })
    }

    /// Sets the tick that covers the device's use of a piece, after its copy was queued or failed to be.
    pub(crate) fn queued(&mut self, number: u64, tick: u64) {
        if let Some(piece) = self.cursor.piece(number) {
            piece.tick = Some(tick);
        }
    }

    /// Notes that the host has read a pinned piece.
    pub(crate) fn unpin(&mut self, number: u64) {
        if let Some(piece) = self.cursor.piece(number) {
            piece.pinned = false;
        }
    }
}

impl Device {
    /// Runs `work` under the lane's lock with a piece of its ring and the stream's handle, and returns the piece and
    /// the tick that covers it. If the ring is full, waits for the oldest piece, with the lock released.
    ///
    /// Fails if the stream is being captured: the tick of the oldest piece is not closed before the capture ends, and a
    /// graph would read what the ring holds at a later time. Where the capture begins while the work is being queued,
    /// it is not known whether the graph contains the work.
    pub(crate) fn with_piece(
        &self,
        call: &'static str,
        stream: StreamId,
        lane: &Lane,
        bytes: usize,
        pinned: bool,
        work: impl FnOnce(Piece, CUstream) -> Result<(), CudaError>,
    ) -> Result<(Piece, Tick), CudaError> {
        let _bound = self.bind_relaxed()?;
        loop {
            let stay = lane.stay();
            let handle = self.usable(call, stream, &stay)?;
            let mut state = lane.state.lock();
            let ring = self.ring(&mut state)?;
            ring.cursor.reclaim(lane.reached());
            if let Some(piece) = ring.take(bytes as u64, pinned) {
                let queued = self.uncaptured(call, stream, handle).and_then(|()| work(piece, handle));
                let queued = queued.and_then(|()| self.uncaptured(call, stream, handle));
                let tick = lane.mark();
                ring.queued(piece.number, tick.0);
                if queued.is_err() {
                    ring.unpin(piece.number);
                }
                return queued.map(|()| (piece, tick));
            }
            let oldest = ring.cursor.pieces.front().and_then(|piece| piece.tick);
            drop(stay);
            match oldest.filter(|&tick| tick > lane.reached()).map(Tick) {
                Some(tick) => {
                    drop(state);
                    if self.wait(Point { stream, tick })? < tick {
                        return Err(CudaError::Capturing { call, stream });
                    }
                }
                // Another thread is about to read the oldest piece.
                None => lane.unpinned.wait(&mut state),
            }
        }
    }

    fn ring<'s>(&self, state: &'s mut LaneState) -> Result<&'s mut Ring, CudaError> {
        match &mut state.ring {
            Some(ring) => Ok(ring),
            none => {
                let (pointer, _) = self.take_host(RING_BYTES)?;
                Ok(none.insert(Ring { pointer, cursor: Cursor::default() }))
            }
        }
    }

    /// Gives a ring back. No copy may be in progress through it.
    pub(crate) fn destroy_ring(&self, ring: Ring) {
        self.give(Taken::Host { pointer: ring.pointer });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_in_use_never_share_a_byte() {
        let (mut cursor, mut used, mut tick) = (Cursor::default(), VecDeque::new(), 0_u64);
        for round in 0..2000_u64 {
            let bytes = 1 + round * 7919 % PIECE_BYTES as u64;
            match cursor.take(bytes, false) {
                Some((number, offset)) => {
                    assert!(offset + bytes <= RING_BYTES, "{bytes} bytes at {offset}");
                    let meets = |&(_, from, to): &(u64, u64, u64)| offset < to && from < offset + bytes;
                    assert!(!used.iter().any(meets), "{bytes} bytes at {offset}, with {used:?}");
                    tick += 1;
                    if let Some(piece) = cursor.piece(number) {
                        piece.tick = Some(tick);
                    }
                    used.push_back((tick, offset, offset + bytes));
                }
                None => {
                    let (oldest, ..) = used.pop_front().expect("an empty ring has room");
                    cursor.reclaim(oldest);
                }
            }
        }
        assert!(tick > 500, "{tick} pieces were handed out");
    }

    #[test]
    fn a_pinned_piece_stays_until_it_is_read() {
        let mut cursor = Cursor::default();
        let (number, _) = cursor.take(100, true).expect("an empty ring has room");
        cursor.reclaim(u64::MAX);
        cursor.piece(number).expect("it is not queued yet").tick = Some(1);
        cursor.reclaim(1);
        assert!(cursor.piece(number).is_some(), "the host has not read it");
        cursor.piece(number).expect("just seen").pinned = false;
        cursor.reclaim(1);
        assert!(cursor.piece(number).is_none());
    }
}
