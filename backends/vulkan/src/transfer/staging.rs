//! Staging: bytes of the host are copied through a ring of the stream, piece by piece.

use super::record::Transfers;
use crate::error::VulkanError;
use crate::memory::READBACK;
use crate::streams::{Lane, LaneState, Piece, RING_BYTES, Ring};
use crate::time::Submission;

/// The largest piece in bytes: a quarter of the ring, so that the host fills one while the device empties another.
pub(crate) const PIECE_BYTES: u64 = RING_BYTES / 4;

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
            let oldest = state.ring.as_ref().map_or(0, Ring::oldest);
            if oldest > lane.submitted() {
                self.time.submit(lane, &mut state, &Submission::default())?;
            }
            drop(state);
            if lane.reached() < oldest {
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
        ring.reclaim(lane.reached());
        if let Some(piece) = ring.take(bytes, lane.open(), pinned) {
            return Ok(Some(piece));
        }
        ring.reclaim(self.time.query(lane)?);
        Ok(ring.take(bytes, lane.open(), pinned))
    }

    fn create_ring(&self) -> Result<Ring, VulkanError> {
        let (buffer, pointer) = self.memory.create_mapped(READBACK, RING_BYTES, || self.pages.reclaim())?;
        Ok(Ring::new(buffer, pointer))
    }
}
