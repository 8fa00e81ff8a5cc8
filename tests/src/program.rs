//! Operations done on an allocator alone, as a program does them: with kernels that touch what was granted.

use millpond::backend::{Backend, Budget, ClassId, Point};
use millpond::{Allocator, Buffer, Error, Stream};
use millpond_sim::{Access, Sim, SimError};

use crate::pair::Op;

/// A program on a simulated device. Every granted block is written on its home stream, and read on each stream that it
/// is recorded on, so that the device detects memory that is granted too early.
pub struct Program {
    sim: Sim,
    allocator: Allocator<Sim>,
    streams: Vec<Stream<Sim>>,
    live: Vec<Buffer<Sim>>,
    points: Vec<Point>,
}

impl Program {
    /// Creates a program that has done nothing, on streams that it opens.
    ///
    /// # Panics
    ///
    /// If the device opens no stream.
    pub fn new(sim: Sim, allocator: Allocator<Sim>, streams: usize) -> Program {
        let open = |id| allocator.stream(id).unwrap_or_else(|error| panic!("{error}"));
        let streams = sim.open_streams(streams).into_iter().map(open).collect();
        Program { sim, allocator, streams, live: Vec::new(), points: Vec::new() }
    }

    /// Returns the allocator.
    pub fn allocator(&self) -> &Allocator<Sim> {
        &self.allocator
    }

    /// Returns the device.
    pub fn sim(&self) -> &Sim {
        &self.sim
    }

    /// Submits what was queued on every stream. Does nothing where the device closes ticks without submits, or is lost.
    pub fn submit(&self) {
        for stream in &self.streams {
            if let Err(error) = self.sim.submit(stream.id()) {
                assert_eq!(error, SimError::Lost, "{stream:?}");
            }
        }
    }

    /// Does one operation. After an error the program goes on without the block that it did not get.
    ///
    /// # Errors
    ///
    /// Returns the error of the allocator.
    pub fn step(&mut self, op: Op) -> Result<(), Error<SimError>> {
        let at = |place: usize| (!self.live.is_empty()).then(|| place % self.live.len());
        match op {
            Op::Allocate { bytes, stream } => {
                let stream = stream % self.streams.len();
                let buffer = self.streams[stream].allocate(bytes)?;
                self.touch(stream, &buffer, Access::Write);
                self.live.push(buffer);
            }
            Op::Free { block } => drop(at(block).map(|at| self.live.swap_remove(at))),
            Op::Record { block, stream } => {
                if let Some(at) = at(block) {
                    self.record(at, stream % self.streams.len())?;
                }
            }
            Op::Point { stream } => self.points.push(self.streams[stream % self.streams.len()].point()),
            Op::Until { block, point } => {
                if let (Some(at), false) = (at(block), self.points.is_empty()) {
                    self.live[at].used_until(self.points[point % self.points.len()])?;
                }
            }
            Op::Busy { stream } => drop(self.sim.busy(self.streams[stream % self.streams.len()].id())),
            Op::Complete { stream } => drop(self.sim.complete(self.streams[stream % self.streams.len()].id())),
            Op::Synchronize => self.sim.synchronize(),
            Op::Poll => self.allocator.poll()?,
            Op::EmptyCache => self.allocator.empty_cache()?,
            Op::ResetPeak => self.allocator.reset_peak_stats(),
            Op::ResetAccumulated => self.allocator.reset_accumulated_stats(),
        }
        Ok(())
    }

    /// Records that a stream uses a block, which a long kernel of the stream reads. Waits first until the block is
    /// written.
    fn record(&self, at: usize, stream: usize) -> Result<(), Error<SimError>> {
        self.submit();
        self.sim.synchronize();
        self.sim.busy(self.streams[stream].id());
        self.touch(stream, &self.live[at], Access::Read);
        self.live[at].record_stream(&self.streams[stream])
    }

    fn touch(&self, stream: usize, buffer: &Buffer<Sim>, access: Access) {
        if let Some(segment) = buffer.segment() {
            self.sim.use_range(self.streams[stream].id(), segment, buffer.offset(), buffer.len(), access);
        }
    }

    /// Frees every block, one after the other, and waits for the device.
    pub fn free_all(&mut self) {
        while let Some(buffer) = self.live.pop() {
            drop(buffer);
        }
        self.submit();
        self.sim.synchronize();
    }

    /// Drops the allocator with all that is left, and returns the device.
    pub fn give_up(self) -> Sim {
        let Program { sim, allocator, streams, live, .. } = self;
        drop((live, streams, allocator));
        sim
    }
}

/// Returns the number of bytes of the device's memory that are still held.
///
/// # Panics
///
/// If the device does not report its budget.
pub fn leaked(sim: &Sim) -> u64 {
    let total = sim.caps().class(ClassId::DEVICE).total_bytes;
    match Budget::budget(sim, ClassId::DEVICE) {
        Ok(budget) => total - budget.free_bytes,
        Err(error) => panic!("the device does not tell its budget: {error}"),
    }
}
