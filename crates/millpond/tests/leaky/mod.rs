//! A simulated device that overwrites badly.

#![allow(unsafe_code)] // Implements the contract's unsafe trait.

use millpond::backend::{
    Backend, Budget, Caps, ClassId, HostMemory, Point, StreamId, StreamWait, Tick, Transfer, VirtualMemory,
};
use millpond_sim::{Page, Segment, Sim, SimError};

/// What is wrong with its overwriting.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Leak {
    /// There is none.
    LeftOut,
    /// It is queued on another stream, which nobody waits for.
    OnAnotherStream,
    /// The last 256 bytes stay: what an overwriting of the bytes that were asked for alone would leave.
    EndsEarly,
}

/// The device.
pub(crate) struct Leaky {
    sim: Sim,
    leak: Leak,
    other: StreamId,
}

impl Leaky {
    pub(crate) fn new(sim: Sim, leak: Leak) -> Leaky {
        let other = sim.create_stream().unwrap();
        Leaky { sim, leak, other }
    }
}

impl Transfer for Leaky {
    type Segment = Segment;
    type Error = SimError;

    fn fill(&self, stream: StreamId, segment: &Segment, offset: u64, bytes: u64, value: u8) -> Result<(), SimError> {
        self.sim.fill(stream, segment, offset, bytes, value)
    }

    fn overwrite(&self, stream: StreamId, segment: &Segment, offset: u64, bytes: u64) -> Result<(), SimError> {
        match self.leak {
            Leak::LeftOut => Ok(()),
            Leak::OnAnotherStream => self.sim.overwrite(self.other, segment, offset, bytes),
            Leak::EndsEarly => self.sim.overwrite(stream, segment, offset, bytes - 256),
        }
    }

    fn can_copy(&self, segment: &Segment) -> bool {
        self.sim.can_copy(segment)
    }

    fn copy(&self, stream: StreamId, from: (&Segment, u64), to: (&Segment, u64), bytes: u64) -> Result<(), SimError> {
        self.sim.copy(stream, from, to, bytes)
    }

    fn upload(&self, stream: StreamId, from: &[u8], segment: &Segment, offset: u64) -> Result<(), SimError> {
        self.sim.upload(stream, from, segment, offset)
    }

    fn download(&self, stream: StreamId, segment: &Segment, offset: u64, to: &mut [u8]) -> Result<(), SimError> {
        self.sim.download(stream, segment, offset, to)
    }
}

// SAFETY: everything that the contract's promises are about is the simulated device's.
unsafe impl Backend for Leaky {
    type Segment = Segment;
    type Page = Page;
    type Error = SimError;

    fn caps(&self) -> &Caps {
        self.sim.caps()
    }

    fn create_stream(&self) -> Result<StreamId, SimError> {
        self.sim.create_stream()
    }

    fn reserve(&self, class: ClassId, bytes: u64) -> Result<Segment, SimError> {
        self.sim.reserve(class, bytes)
    }

    unsafe fn release(&self, segment: Segment) {
        // SAFETY: the caller's promise.
        unsafe { self.sim.release(segment) }
    }

    fn address(&self, segment: &Segment) -> Option<u64> {
        self.sim.address(segment)
    }

    fn mark(&self, stream: StreamId) -> Tick {
        self.sim.mark(stream)
    }

    fn reached(&self, stream: StreamId) -> Result<Tick, SimError> {
        self.sim.reached(stream)
    }

    fn wait(&self, point: Point) -> Result<Tick, SimError> {
        self.sim.wait(point)
    }

    fn virtual_memory(&self) -> Option<&dyn VirtualMemory<Segment = Segment, Page = Page, Error = SimError>> {
        self.sim.virtual_memory()
    }

    fn stream_wait(&self) -> Option<&dyn StreamWait<Error = SimError>> {
        self.sim.stream_wait()
    }

    fn host_memory(&self) -> Option<&dyn HostMemory<Segment = Segment>> {
        self.sim.host_memory()
    }

    fn transfer(&self) -> Option<&dyn Transfer<Segment = Segment, Error = SimError>> {
        Some(self)
    }

    fn budget(&self) -> Option<&dyn Budget<Error = SimError>> {
        Backend::budget(&self.sim)
    }
}
