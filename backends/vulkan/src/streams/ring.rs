//! The staging ring: which bytes of the host memory are in use through which a stream's transfers copy.

use std::collections::VecDeque;
use std::ptr::NonNull;

use ash::vk;

use crate::open::HostPointer;

/// The size of a ring in bytes. Each lane that moves bytes of the host has one.
pub(crate) const RING_BYTES: u64 = 4 << 20;
/// The alignment of pieces in bytes, at which devices copy fastest.
const PIECE_ALIGNMENT: u64 = 64;

/// A mapped buffer whose bytes are handed out in a circle.
pub(crate) struct Ring {
    buffer: vk::Buffer,
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
    /// Returns a ring of mapped bytes, [`RING_BYTES`] of them.
    pub(crate) fn new(buffer: vk::Buffer, pointer: HostPointer) -> Ring {
        Ring { buffer, pointer, head: 0, pieces: VecDeque::new(), next: 0 }
    }

    /// Removes the pieces whose tick is reached.
    pub(crate) fn reclaim(&mut self, reached: u64) {
        while self.pieces.front().is_some_and(|piece| piece.tick <= reached && !piece.pinned) {
            self.pieces.pop_front();
        }
    }

    /// Hands out a piece for commands of that tick, if there is room.
    pub(crate) fn take(&mut self, bytes: u64, tick: u64, pinned: bool) -> Option<Piece> {
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
        Some(Piece { buffer: self.buffer, offset, pointer: HostPointer(pointer), number })
    }

    /// Notes that the host has read a pinned piece.
    pub(crate) fn unpin(&mut self, number: u64) {
        let piece = self.pieces.iter_mut().find(|piece| piece.number == number);
        if let Some(piece) = piece {
            piece.pinned = false;
        }
    }

    /// Returns the tick of the oldest piece, or 0 if no piece is in use.
    pub(crate) fn oldest(&self) -> u64 {
        self.pieces.front().map_or(0, |piece| piece.tick)
    }
}
