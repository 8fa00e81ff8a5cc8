//! Staging: bytes of the host are copied through a ring of the stream, piece by piece.

use ash::vk;
use millpond_backend::Tick;
use millpond_kit::Ring;

use super::record::Transfers;
use crate::error::VulkanError;
use crate::memory::READBACK;
use crate::open::{HostPointer, MappedBuffer};
use crate::streams::{Lane, LaneState};
use crate::time::Submission;

/// The size of a ring in bytes. Each lane that moves bytes of the host has one.
const RING_BYTES: u64 = 4 << 20;
/// The alignment of pieces in bytes, at which devices copy fastest.
const PIECE_ALIGNMENT: u64 = 64;
/// The largest piece in bytes: a quarter of the ring, so that the host fills one while the device empties another.
pub(crate) const PIECE_BYTES: u64 = RING_BYTES / 4;

/// A piece of a ring, for the commands that use it.
#[derive(Clone, Copy)]
pub(crate) struct Piece {
    pub(crate) buffer: vk::Buffer,
    pub(crate) offset: u64,
    pub(crate) pointer: HostPointer,
    pub(crate) number: u64,
}

impl Piece {
    /// Hands out bytes of a ring for commands of the open tick of a lane, if there is room.
    fn take(ring: &mut Ring<MappedBuffer>, lane: &Lane, bytes: u64, pinned: bool) -> Option<Piece> {
        let millpond_kit::Piece { number, offset } = ring.take(bytes, pinned)?;
        ring.cover(number, lane.clock.open());
        let MappedBuffer { buffer, pointer } = *ring.buffer();
        // SAFETY: the ring hands out offsets within the buffer, all of which is mapped.
        let pointer = HostPointer(unsafe { pointer.0.add(offset as usize) });
        Some(Piece { buffer, offset, pointer, number })
    }
}

impl Transfers {
    /// Runs `work` under the lane's lock with a piece of its ring. If the ring is full, submits and waits for the
    /// oldest piece, with the lock released.
    pub(crate) fn with_piece<T>(
        &self,
        lane: &Lane,
        bytes: u64,
        pinned: bool,
        work: impl FnOnce(&mut LaneState, Piece) -> Result<T, VulkanError>,
    ) -> Result<T, VulkanError> {
        loop {
            let mut state = lane.state.lock();
            if let Some(piece) = self.take_piece(lane, &mut state, bytes, pinned)? {
                return work(&mut state, piece);
            }
            let oldest = state.ring.as_ref().and_then(Ring::oldest).unwrap_or(Tick::ZERO);
            if oldest > lane.clock.submitted() {
                self.time.submit(lane, &mut state, &Submission::default())?;
            }
            drop(state);
            if lane.clock.reached() < oldest {
                self.time.wait_for(lane, oldest)?;
            } else {
                // Another thread is about to read the oldest piece.
                std::thread::yield_now();
            }
        }
    }

    fn take_piece(
        &self,
        lane: &Lane,
        state: &mut LaneState,
        bytes: u64,
        pinned: bool,
    ) -> Result<Option<Piece>, VulkanError> {
        let ring = match &mut state.ring {
            Some(ring) => ring,
            none => none.insert(self.create_ring()?),
        };
        ring.reclaim(lane.clock.reached());
        if let Some(piece) = Piece::take(ring, lane, bytes, pinned) {
            return Ok(Some(piece));
        }
        ring.reclaim(self.time.query(lane)?);
        Ok(Piece::take(ring, lane, bytes, pinned))
    }

    fn create_ring(&self) -> Result<Ring<MappedBuffer>, VulkanError> {
        let mapped = self.memory.create_mapped(READBACK, RING_BYTES, || self.pages.reclaim())?;
        Ok(Ring::new(mapped, RING_BYTES, PIECE_ALIGNMENT))
    }
}
