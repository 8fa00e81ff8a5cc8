//! Blocks whose bytes are checked: marks are written when a block is granted, and read back before it is freed.

use millpond::backend::Transfer;
use millpond::{Allocator, Buffer, Error, Stream};
use millpond_sim::{Sim, SimError};

const MARK_EVERY: u64 = 2 << 20;

/// A block with marks in it.
struct Held {
    buffer: Buffer<Sim>,
    stream: usize,
    number: u64,
}

/// A program on a device that keeps bytes, with its blocks in numbered hands.
pub(crate) struct Hands {
    pub(crate) sim: Sim,
    pub(crate) allocator: Allocator<Sim>,
    pub(crate) streams: Vec<Stream<Sim>>,
    held: Vec<Option<Held>>,
    granted: u64,
}

impl Hands {
    /// Creates a program with `hands` empty hands.
    pub(crate) fn new(sim: Sim, allocator: Allocator<Sim>, streams: usize, hands: usize) -> Hands {
        let streams = super::device::streams(&allocator, streams);
        Hands { sim, allocator, streams, held: (0..hands).map(|_| None).collect(), granted: 0 }
    }

    /// Allocates into a hand. A block that it holds is freed first.
    pub(crate) fn take(&mut self, hand: usize, stream: usize, bytes: u64) -> Result<(), Error<SimError>> {
        self.free(hand);
        let buffer = self.streams[stream].allocate(bytes)?;
        self.granted += 1;
        let held = Held { buffer, stream, number: self.granted };
        self.mark(&held, held.number);
        self.held[hand] = Some(held);
        Ok(())
    }

    /// Frees the block in a hand, if there is one. Work that is queued before the free writes over its marks, so that a
    /// later user who gets the memory too early finds those among its own.
    pub(crate) fn free(&mut self, hand: usize) {
        self.free_but_read(hand, |_| true);
    }

    /// Allocates, and reads the block before only where `reads` says so of its stream, as reading waits for the
    /// device.
    pub(crate) fn free_but_read(&mut self, hand: usize, reads: impl Fn(usize) -> bool) {
        if let Some(held) = self.held[hand].take() {
            if reads(held.stream) {
                self.read(&held);
            }
            self.mark(&held, u64::MAX);
        }
    }

    /// Reads the block in every hand.
    pub(crate) fn read_all(&self) {
        self.held.iter().flatten().for_each(|held| self.read(held));
    }

    pub(crate) fn free_all(&mut self) {
        (0..self.held.len()).for_each(|hand| self.free(hand));
        self.sim.synchronize();
    }

    /// Drops everything, and returns the device.
    pub(crate) fn give_up(self) -> Sim {
        let Hands { sim, allocator, streams, held, .. } = self;
        drop((held, streams, allocator));
        sim
    }

    fn mark(&self, held: &Held, number: u64) {
        let Some(segment) = held.buffer.segment() else { return };
        for at in places(held.buffer.len()) {
            let mark = mark(number, at);
            let offset = held.buffer.offset() + at;
            match self.sim.upload(self.streams[held.stream].id(), &mark, segment, offset) {
                Ok(()) | Err(SimError::Lost) => {}
                Err(error) => panic!("block {number}, byte {at}: {error}"),
            }
        }
    }

    fn read(&self, held: &Held) {
        let Some(segment) = held.buffer.segment() else { return };
        for at in places(held.buffer.len()) {
            let mut found = [0; 16];
            let offset = held.buffer.offset() + at;
            match self.sim.download(self.streams[held.stream].id(), segment, offset, &mut found) {
                Ok(()) => assert_eq!(found, mark(held.number, at), "block {}, byte {at}", held.number),
                Err(SimError::Lost) => {}
                Err(error) => panic!("block {}, byte {at}: {error}", held.number),
            }
        }
    }
}

/// Returns where the marks of a block are: at regular distances, and at its end.
fn places(bytes: u64) -> impl Iterator<Item = u64> {
    let last = bytes.saturating_sub(16);
    (0..last).step_by(MARK_EVERY as usize).filter(move |at| at + 16 <= last).chain([last])
}

fn mark(number: u64, at: u64) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes[8..].copy_from_slice(&at.to_le_bytes());
    bytes
}
