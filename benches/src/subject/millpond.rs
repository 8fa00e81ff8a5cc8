//! This allocator, as its users call it: buffers from streams, freed by dropping them.

use std::error::Error;

use millpond::settings::{Growth, Policy, Segments, Settings};
use millpond::{Allocator, Buffer, Stream};
use millpond_backend::Backend;
use millpond_sim::{CostModel, Sim};

use super::{DEVICE_BYTES, Subject};

/// Free memory of all streams, mapped together where it is needed: the default on a device with virtual memory. Each
/// subject names its policy, so that a change of the default changes no measurement.
pub const PAGED: Policy = Policy::paged(Growth::Balanced);

/// PyTorch's allocator.
pub const CLASSIC: Policy = Policy::Classic(Segments::Plain);

/// PyTorch's allocator with expandable segments.
pub const EXPANDABLE: Policy = Policy::Classic(Segments::Expandable);

/// An allocator with some of its streams, over a simulated device whose driver calls cost nothing, unless another
/// device is given.
#[derive(Debug)]
pub struct Millpond<B: Backend = Sim> {
    allocator: Allocator<B>,
    streams: Vec<Stream<B>>,
}

impl Millpond {
    /// Creates an allocator over a simulated device, with new streams.
    ///
    /// # Panics
    ///
    /// If the simulated device refuses, which is a defect of this program.
    pub fn new(variant: Policy, streams: u16) -> Self {
        let device = Sim::builder().cost(CostModel::free()).total_bytes(DEVICE_BYTES).build();
        match Self::over(device, variant, streams) {
            Ok(subject) => subject,
            Err(error) => panic!("the simulated device has all that is needed, and yet: {error}"),
        }
    }
}

impl<B: Backend> Millpond<B> {
    /// Creates an allocator over that device, with new streams.
    ///
    /// # Errors
    ///
    /// Returns what the device lacks for the variant, or the error of the driver.
    pub fn over(device: B, variant: Policy, streams: u16) -> Result<Self, Box<dyn Error>> {
        let allocator =
            Allocator::builder(device).settings(Settings { policy: variant, ..Settings::default() }).build()?;
        let streams = (0..streams).map(|_| allocator.create_stream()).collect::<Result<_, _>>()?;
        Ok(Self { allocator, streams })
    }

    /// Returns a handle to the same allocator with one new stream, for another thread.
    ///
    /// # Panics
    ///
    /// If the device has no further stream.
    pub fn sibling(&self) -> Self {
        let stream = match self.allocator.create_stream() {
            Ok(stream) => stream,
            Err(error) => panic!("a thread needs a stream of its own: {error}"),
        };
        Self { allocator: self.allocator.clone(), streams: vec![stream] }
    }

    /// Returns the allocator.
    pub fn allocator(&self) -> &Allocator<B> {
        &self.allocator
    }

    /// Returns its streams, by the workload's numbers.
    pub fn streams(&self) -> &[Stream<B>] {
        &self.streams
    }
}

impl<B: Backend> Subject for Millpond<B> {
    type Block = Buffer<B>;

    #[inline]
    fn allocate(&mut self, bytes: u64, stream: u16) -> Buffer<B> {
        match self.streams[usize::from(stream)].allocate(bytes) {
            Ok(buffer) => buffer,
            Err(error) => panic!("{bytes} bytes on stream {stream}: {error}"),
        }
    }

    #[inline]
    fn free(&mut self, block: Buffer<B>) {
        drop(block);
    }

    fn driver_calls(&self) -> Option<u64> {
        Some(self.allocator.driver_activity().calls)
    }
}
