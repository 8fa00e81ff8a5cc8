//! Operations done on an allocator alone, as a program does them: with kernels that touch what was granted.

use millpond::backend::{Backend, Budget, ClassId, Fault, Point};
use millpond::{Allocator, Buffer, Error, Stream};
use millpond_conformance::language::{Generator, Noted, Operation};
use millpond_sim::{Access, Sim, SimError};

/// A program on a simulated device. Every granted block is written on its home stream, and read on each stream that it
/// is used on, so that the device detects memory that is granted too early.
pub struct Program {
    sim: Sim,
    allocator: Allocator<Sim>,
    streams: Vec<Stream<Sim>>,
    live: Vec<(u32, Buffer<Sim>)>,
    points: Vec<(u32, Point)>,
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

    /// Draws the next operation of the program.
    pub fn draw(&self, generator: &mut Generator) -> Operation {
        let held: Vec<u32> = self.live.iter().map(|(number, _)| *number).collect();
        generator.next(&held)
    }

    /// Does a number of drawn operations, of which requests may be refused, and returns them.
    ///
    /// # Panics
    ///
    /// If an operation fails for another reason.
    pub fn record(&mut self, generator: &mut Generator, count: usize) -> Vec<Operation> {
        let mut next = || {
            let operation = self.draw(generator);
            self.do_or_refuse(operation);
            operation
        };
        (0..count).map(|_| next()).collect()
    }

    /// Does one operation, which may be refused for lack of memory.
    ///
    /// # Panics
    ///
    /// If it fails for another reason.
    pub fn do_or_refuse(&mut self, operation: Operation) {
        if let Err(error) = self.step(operation) {
            assert_eq!(error.fault(), Fault::OutOfMemory, "{operation:?}: {error}");
        }
    }

    /// Does one operation. After an error the program goes on without the block that it did not get.
    ///
    /// # Errors
    ///
    /// Returns the error of the allocator.
    ///
    /// # Panics
    ///
    /// If the operation is none that is drawn for such a program.
    pub fn step(&mut self, operation: Operation) -> Result<(), Error<SimError>> {
        match operation {
            Operation::Allocate { block, bytes, stream } => {
                let buffer = self.streams[stream].allocate(bytes)?;
                self.touch(stream, &buffer, Access::Write);
                self.live.push((block, buffer));
            }
            Operation::Free { block } => drop(self.at(block).map(|at| self.live.swap_remove(at))),
            Operation::Use { block, stream, noted, keep } => {
                if let Some(at) = self.at(block) {
                    self.use_elsewhere(at, stream, noted)?;
                    if !keep {
                        // The free comes after the submit wherever ticks are closed, so that its points are the same.
                        self.submit();
                        drop(self.live.swap_remove(at));
                    }
                }
            }
            Operation::Point { point, stream } => self.points.push((point, self.streams[stream].point())),
            Operation::Until { block, point } => {
                let known = self.points.iter().find(|(number, _)| *number == point);
                if let (Some(at), Some((_, point))) = (self.at(block), known) {
                    self.live[at].1.used_until(*point)?;
                }
            }
            Operation::Hold { stream } => drop(self.sim.busy(self.streams[stream].id())),
            Operation::Unhold { stream } => drop(self.sim.complete(self.streams[stream].id())),
            Operation::Sync => self.sim.synchronize(),
            Operation::Poll => _ = self.allocator.poll()?,
            Operation::Trim { bytes } => drop(self.allocator.trim(bytes)?),
            Operation::EmptyCache => self.allocator.empty_cache()?,
            Operation::ResetPeaks => self.allocator.reset_peak_stats(),
            Operation::ResetTotals => self.allocator.reset_accumulated_stats(),
            other => panic!("no program performs {other:?}"),
        }
        Ok(())
    }

    fn at(&self, block: u32) -> Option<usize> {
        self.live.iter().position(|(number, _)| *number == block)
    }

    /// Has a long kernel of a stream read a block, and notes that use. Waits first until the block is written.
    fn use_elsewhere(&self, at: usize, stream: usize, noted: Noted) -> Result<(), Error<SimError>> {
        self.submit();
        self.sim.synchronize();
        let (user, buffer) = (&self.streams[stream], &self.live[at].1);
        if noted == Noted::Before {
            buffer.record_stream(user)?;
        }
        self.sim.busy(user.id());
        self.touch(stream, buffer, Access::Read);
        match noted {
            Noted::Before => Ok(()),
            Noted::After => buffer.record_stream(user),
            Noted::Until => buffer.used_until(user.point()),
        }
    }

    fn touch(&self, stream: usize, buffer: &Buffer<Sim>, access: Access) {
        if let Some(segment) = buffer.segment() {
            self.sim.use_range(self.streams[stream].id(), segment, buffer.offset(), buffer.len(), access);
        }
    }

    /// Frees every block, one after the other, and waits for the device.
    pub fn free_all(&mut self) {
        while let Some((_, buffer)) = self.live.pop() {
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
