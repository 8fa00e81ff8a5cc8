//! This allocator without generics: on a device of `millpond-any`, and as trait objects, which is the other way.

use millpond::settings::{Policy, Settings};
use millpond::{Buffer, Stream};
use millpond_any::{AnyAllocator, AnyBuffer, AnyError, AnyStream};
use millpond_backend::Backend;
use millpond_sim::{CostModel, Sim};

use super::{DEVICE_BYTES, Millpond, Subject};

/// Streams of `millpond-any`, over the same simulated device as [`Millpond`]'s.
#[derive(Debug)]
pub struct Erased {
    streams: Vec<AnyStream>,
}

impl Erased {
    /// Creates an allocator over a simulated device, with new streams.
    ///
    /// # Panics
    ///
    /// If the simulated device refuses, which is a defect of this program.
    pub fn new(variant: Policy, streams: u16) -> Self {
        let device = Sim::builder().cost(CostModel::free()).total_bytes(DEVICE_BYTES).build();
        let settings = Settings { policy: variant, ..Settings::default() };
        Self::made(device, settings, streams)
            .unwrap_or_else(|error| panic!("the simulated device has all that is needed, and yet: {error}"))
    }

    fn made(device: Sim, settings: Settings, streams: u16) -> Result<Self, AnyError> {
        let allocator = AnyAllocator::builder(device.into()).settings(settings).build()?;
        let streams = (0..streams).map(|_| allocator.create_stream()).collect::<Result<_, _>>()?;
        Ok(Self { streams })
    }
}

impl Subject for Erased {
    type Block = AnyBuffer;

    #[inline]
    fn allocate(&mut self, bytes: u64, stream: u16) -> AnyBuffer {
        match self.streams[usize::from(stream)].allocate(bytes) {
            Ok(buffer) => buffer,
            Err(error) => panic!("{bytes} bytes on stream {stream}: {error}"),
        }
    }

    #[inline]
    fn free(&mut self, block: AnyBuffer) {
        drop(block);
    }
}

/// A stream behind a trait object.
trait AllocateBoxed {
    fn allocate(&self, bytes: u64) -> Result<Box<dyn Block>, String>;
}

/// A buffer behind a trait object: what a caller needs of it at least.
pub trait Block {
    /// Returns the requested size, in bytes.
    fn len(&self) -> u64;

    /// Returns whether it has no bytes at all.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<B: Backend> Block for Buffer<B> {
    fn len(&self) -> u64 {
        Buffer::len(self)
    }
}

impl<B: Backend> AllocateBoxed for Stream<B> {
    fn allocate(&self, bytes: u64) -> Result<Box<dyn Block>, String> {
        match Stream::allocate(self, bytes) {
            Ok(buffer) => Ok(Box::new(buffer)),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// Streams and buffers behind trait objects, over the same simulated device.
pub struct Boxed {
    streams: Vec<Box<dyn AllocateBoxed>>,
}

impl Boxed {
    /// Creates an allocator over a simulated device, with new streams.
    pub fn new(variant: Policy, streams: u16) -> Self {
        let typed = Millpond::new(variant, streams);
        let boxed = |stream: &Stream<Sim>| -> Box<dyn AllocateBoxed> { Box::new(stream.clone()) };
        Self { streams: typed.streams().iter().map(boxed).collect() }
    }
}

impl Subject for Boxed {
    type Block = Box<dyn Block>;

    #[inline]
    fn allocate(&mut self, bytes: u64, stream: u16) -> Box<dyn Block> {
        match self.streams[usize::from(stream)].allocate(bytes) {
            Ok(buffer) => buffer,
            Err(error) => panic!("{bytes} bytes on stream {stream}: {error}"),
        }
    }

    #[inline]
    fn free(&mut self, block: Box<dyn Block>) {
        drop(block);
    }
}
