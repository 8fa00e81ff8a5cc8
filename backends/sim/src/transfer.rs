//! Fills and copies as queued work. Any alignment and any length is allowed.

use std::sync::Arc;

use millpond_backend::{Closing, Point, StreamId, Tick, Transfer};
use parking_lot::Mutex;

use crate::control::Overwriting;
use crate::device::Device;
use crate::lane::Op;
use crate::space::Piece;
use crate::{CallKind, Segment, Sim, SimError};

impl Device {
    fn start_transfer(&self, stream: StreamId) -> Result<(), SimError> {
        if !self.caps.transfer {
            return Err(SimError::Unsupported { call: CallKind::Transfer });
        }
        self.lane(stream);
        self.enter(CallKind::Transfer)
    }

    fn queue_transfer(&self, stream: StreamId, op: Op, reads: Vec<Piece>, writes: Vec<Piece>) {
        let mut state = self.state();
        self.queue(&mut state, stream, op, reads, writes);
        self.settle(&mut state);
    }
}

/// Returns whether any byte is in both lists.
fn overlap(reads: &[Piece], writes: &[Piece]) -> bool {
    let meets = |a: &Piece, b: &Piece| {
        a.memory.device == b.memory.device
            && a.physical == b.physical
            && a.start < b.start + b.bytes
            && b.start < a.start + a.bytes
    };
    reads.iter().any(|read| writes.iter().any(|write| meets(read, write)))
}

impl Transfer for Sim {
    type Segment = Segment;
    type Error = SimError;

    fn fill(&self, stream: StreamId, segment: &Segment, offset: u64, bytes: u64, value: u8) -> Result<(), SimError> {
        self.device.start_transfer(stream)?;
        let writes = segment.pieces(offset, bytes)?;
        self.device.queue_transfer(stream, Op::Fill(value), Vec::new(), writes);
        self.device.charge(self.device.costs.fill.at(bytes));
        Ok(())
    }

    fn overwrite(&self, stream: StreamId, segment: &Segment, offset: u64, bytes: u64) -> Result<(), SimError> {
        let how = *self.device.overwriting.lock();
        match how {
            Overwriting::Sound => self.fill(stream, segment, offset, bytes, 0),
            Overwriting::LeftOut => Ok(()),
            Overwriting::OnStream(other) => self.fill(other, segment, offset, bytes, 0),
            Overwriting::AllBut(end) => self.fill(stream, segment, offset, bytes.saturating_sub(end), 0),
        }
    }

    /// Returns `true` always: simulated devices reach each other's memory.
    fn can_copy(&self, _segment: &Segment) -> bool {
        true
    }

    fn copy(&self, stream: StreamId, from: (&Segment, u64), to: (&Segment, u64), bytes: u64) -> Result<(), SimError> {
        self.device.start_transfer(stream)?;
        let reads = from.0.pieces(from.1, bytes)?;
        let writes = to.0.pieces(to.1, bytes)?;
        if overlap(&reads, &writes) {
            let (from, to) = (from.0.address + from.1, to.0.address + to.1);
            return Err(SimError::Overlap { from, to, bytes });
        }
        self.device.queue_transfer(stream, Op::Copy, reads, writes);
        Ok(())
    }

    fn upload(&self, stream: StreamId, from: &[u8], segment: &Segment, offset: u64) -> Result<(), SimError> {
        self.device.start_transfer(stream)?;
        let writes = segment.pieces(offset, from.len() as u64)?;
        self.device.queue_transfer(stream, Op::Upload(from.to_vec()), Vec::new(), writes);
        Ok(())
    }

    fn download(&self, stream: StreamId, segment: &Segment, offset: u64, to: &mut [u8]) -> Result<(), SimError> {
        let device = &*self.device;
        device.start_transfer(stream)?;
        let reads = segment.pieces(offset, to.len() as u64)?;
        let arrived = Arc::new(Mutex::new(Vec::new()));
        let mut state = device.state();
        let tick = device.queue(&mut state, stream, Op::Download(Arc::clone(&arrived)), reads, Vec::new());
        let point = Point { stream, tick: Tick(tick) };
        device.finish(&mut state, point, device.caps.closing == Closing::Submit);
        device.settle(&mut state);
        drop(state);
        let bytes = arrived.lock();
        if bytes.len() != to.len() {
            return Err(SimError::Circle { point });
        }
        to.copy_from_slice(&bytes);
        Ok(())
    }
}
