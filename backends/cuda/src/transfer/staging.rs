//! The staging ring: page-locked bytes of the host, one ring per stream, through which pageable bytes are copied.

use std::ptr::NonNull;

use cudarc::driver::sys::CUstream;
use millpond_backend::{Point, StreamId, Tick};
use millpond_kit::Ring;

use super::Transfers;
use crate::error::CudaError;
use crate::gear::Gear;
use crate::streams::handle::HostPointer;
use crate::streams::lane::{Lane, LaneState};

/// The size of a ring in bytes.
const RING_BYTES: u64 = 4 << 20;
/// The largest piece in bytes.
pub(super) const PIECE_BYTES: usize = 1 << 20;
/// The alignment of pieces in bytes.
const PIECE_ALIGNMENT: u64 = 256;

/// A piece of a ring.
#[derive(Clone, Copy)]
pub(super) struct Piece {
    pub(super) number: u64,
    pub(super) pointer: NonNull<u8>,
}

impl Piece {
    /// Hands out a piece of the ring if there is room.
    fn take(ring: &mut Ring<HostPointer>, bytes: u64, pinned: bool) -> Option<Piece> {
        let piece = ring.take(bytes, pinned)?;
        // SAFETY: the offset and the bytes behind it lie within the ring's buffer, as `Ring::take` guarantees.
        let pointer = unsafe { ring.buffer().0.add(piece.offset as usize) };
        Some(Piece { number: piece.number, pointer })
    }
}

impl<G: Gear> Transfers<G> {
    /// Runs `work` under the lane's lock with a piece of its ring and the stream's handle, and returns the piece and
    /// the tick that covers it. If the ring is full, waits for the oldest piece, with the lock released.
    ///
    /// Fails if the stream is being captured: the tick of the oldest piece is not closed before the capture ends, and a
    /// graph would read what the ring holds at a later time. Where the capture begins while the work is being queued,
    /// it is not known whether the graph contains the work.
    pub(super) fn with_piece(
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
            ring.reclaim(lane.clock.reached());
            if let Some(piece) = Piece::take(ring, bytes as u64, pinned) {
                let queued = self.uncaptured(call, stream, handle).and_then(|()| work(piece, handle));
                let queued = queued.and_then(|()| self.uncaptured(call, stream, handle));
                let tick = lane.clock.mark();
                ring.cover(piece.number, tick);
                if queued.is_err() {
                    ring.unpin(piece.number);
                }
                return queued.map(|()| (piece, tick));
            }
            let oldest = ring.oldest();
            drop(stay);
            match oldest.filter(|&tick| tick > lane.clock.reached()) {
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

    fn ring<'s>(&self, state: &'s mut LaneState) -> Result<&'s mut Ring<HostPointer>, CudaError> {
        match &mut state.ring {
            Some(ring) => Ok(ring),
            none => {
                let (pointer, _) = self.take_host(RING_BYTES)?;
                Ok(none.insert(Ring::new(pointer, RING_BYTES, PIECE_ALIGNMENT)))
            }
        }
    }
}
