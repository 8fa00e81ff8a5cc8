//! The staging ring: host memory through which bytes are copied to the device and back.

use std::collections::VecDeque;
use std::ptr::NonNull;

use ash::vk;

use crate::VulkanError;
use crate::classes::READBACK;
use crate::device::Device;
use crate::lane::{Lane, LaneState};
use crate::segment::{Backed, HostPointer};
use crate::submit::Submission;

/// The size of a ring in bytes. Each lane that moves bytes of the host has one.
pub(crate) const RING_BYTES: u64 = 4 << 20;
/// The largest piece in bytes: a quarter of the ring, so that the host fills one while the device empties another.
pub(crate) const PIECE_BYTES: u64 = RING_BYTES / 4;
/// The alignment of pieces in bytes, at which devices copy fastest.
const PIECE_ALIGNMENT: u64 = 64;

/// A mapped buffer whose bytes are handed out in a circle.
pub(crate) struct Ring {
    backed: Backed,
    pointer: HostPointer,
    /// Bytes handed out since the ring was made, including those skipped at its end.
    head: u64,
    /// The pieces, in the order in which they were handed out.
    pieces: VecDeque<InUse>,
    next: u64,
}

/// Bytes of a ring that may not be handed out again yet.
struct InUse {
    number: u64,
    /// The position where the piece begins, counted as `head` is. The bytes skipped before it belong to it.
    start: u64,
    /// The tick that covers its use by the device.
    tick: u64,
    /// Whether the host still has to read it.
    pinned: bool,
}

/// A piece of a ring, for the commands that use it.
#[derive(Clone, Copy)]
pub(crate) struct Piece {
    pub(crate) buffer: vk::Buffer,
    pub(crate) offset: u64,
    pub(crate) pointer: HostPointer,
    pub(crate) number: u64,
}

impl Ring {
    /// Removes the pieces whose tick is reached.
    fn reclaim(&mut self, reached: u64) {
        while self.pieces.front().is_some_and(|piece| piece.tick <= reached && !piece.pinned) {
            self.pieces.pop_front();
        }
    }

    /// Hands out a piece for commands of that tick, if there is room.
    fn take(&mut self, bytes: u64, tick: u64, pinned: bool) -> Option<Piece> {
        if self.pieces.is_empty() {
            self.head = 0;
        }
        let bytes = bytes.next_multiple_of(PIECE_ALIGNMENT);
        let at = self.head % RING_BYTES;
        let offset = if at + bytes > RING_BYTES { 0 } else { at };
        let skipped = if offset == at { 0 } else { RING_BYTES - at };
        let tail = self.pieces.front().map_or(self.head, |piece| piece.start);
        if self.head + skipped + bytes > tail + RING_BYTES {
            return None;
        }
        let (number, start) = (self.next, self.head);
        self.next += 1;
        self.head += skipped + bytes;
        self.pieces.push_back(InUse { number, start, tick, pinned });
        // SAFETY: `offset + bytes` is within the ring, all of which is mapped.
        let pointer: NonNull<u8> = unsafe { self.pointer.0.add(offset as usize) };
        Some(Piece { buffer: self.backed.buffer, offset, pointer: HostPointer(pointer), number })
    }

    /// Notes that the host has read a pinned piece.
    pub(crate) fn unpin(&mut self, number: u64) {
        let piece = self.pieces.iter_mut().find(|piece| piece.number == number);
        if let Some(piece) = piece {
            piece.pinned = false;
        }
    }

    /// Returns the buffer, to be destroyed.
    pub(crate) fn into_backed(self) -> Backed {
        self.backed
    }
}

impl Device {
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
            let oldest = state.ring.as_ref().and_then(|ring| ring.pieces.front()).map_or(0, |piece| piece.tick);
            if oldest > lane.submitted() {
                self.submit(lane, &mut state, &Submission::default())?;
            }
            drop(state);
            if lane.reached() < oldest {
                self.wait_for(lane, oldest)?;
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
        ring.reclaim(self.query(lane)?);
        Ok(ring.take(bytes, lane.open(), pinned))
    }

    fn create_ring(&self) -> Result<Ring, VulkanError> {
        let backed = self.create_backed(READBACK, RING_BYTES)?;
        match backed.allocation.mapped_ptr() {
            Some(pointer) => {
                Ok(Ring { backed, pointer: HostPointer(pointer.cast()), head: 0, pieces: VecDeque::new(), next: 0 })
            }
            None => panic!("memory type {} is host visible and was not mapped", self.memory_type(READBACK)),
        }
    }
}
