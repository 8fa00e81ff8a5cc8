//! This allocator, as its users call it: buffers from streams, given back by dropping them.

use millpond::{Allocator, Buffer, Stream};
use millpond_sim::{CostModel, Sim};

use super::{DEVICE_BYTES, Subject};

/// Which settings it runs with. Each names its policy, so that a change of the default changes no measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Variant {
    /// Pages that move between streams and places: the default on a device with virtual memory, as this one is.
    Paged,
    /// PyTorch's allocator.
    Classic,
    /// PyTorch's allocator with expandable segments.
    Expandable,
}

impl Variant {
    const fn conf(self) -> &'static str {
        match self {
            Variant::Paged => "policy:paged",
            Variant::Classic => "policy:classic",
            Variant::Expandable => "policy:classic,expandable_segments:True",
        }
    }
}

/// An allocator over a simulated device whose driver calls cost nothing, with some of its streams.
#[derive(Debug)]
pub struct Millpond {
    allocator: Allocator<Sim>,
    streams: Vec<Stream<Sim>>,
}

impl Millpond {
    /// An allocator of its own.
    ///
    /// # Panics
    ///
    /// If the simulated device refuses: a defect of this program.
    pub fn new(variant: Variant, streams: u16) -> Self {
        let device = Sim::builder().cost(CostModel::free()).total_bytes(DEVICE_BYTES).build();
        let conf = variant.conf();
        let allocator = match Allocator::builder(device).conf(conf).build() {
            Ok(allocator) => allocator,
            Err(error) => panic!("the simulated device has all that '{conf}' needs, and yet: {error}"),
        };
        let mut subject = Self { allocator, streams: Vec::new() };
        subject.open(streams);
        subject
    }

    /// A handle to the same allocator with one new stream, for another thread.
    pub fn sibling(&self) -> Self {
        let mut subject = Self { allocator: self.allocator.clone(), streams: Vec::new() };
        subject.open(1);
        subject
    }

    fn open(&mut self, streams: u16) {
        let new = || self.allocator.create_stream().expect("a simulated device has streams to give");
        self.streams = (0..streams).map(|_| new()).collect();
    }

    /// The allocator.
    pub fn allocator(&self) -> &Allocator<Sim> {
        &self.allocator
    }

    /// Its streams, by the workload's numbers.
    pub fn streams(&self) -> &[Stream<Sim>] {
        &self.streams
    }
}

impl Subject for Millpond {
    type Block = Buffer<Sim>;

    #[inline]
    fn allocate(&mut self, bytes: u64, stream: u16) -> Buffer<Sim> {
        match self.streams[usize::from(stream)].allocate(bytes) {
            Ok(buffer) => buffer,
            Err(error) => panic!("{bytes} bytes on stream {stream}: {error}"),
        }
    }

    #[inline]
    fn free(&mut self, block: Buffer<Sim>) {
        drop(block);
    }

    fn driver_calls(&self) -> Option<u64> {
        Some(self.allocator.driver_activity().calls)
    }
}
