//! This allocator on a device of `millpond-any`.

use millpond::settings::{Policy, Settings};
use millpond_any::{AnyAllocator, AnyBuffer, AnyError, AnyStream};
use millpond_sim::{CostModel, Sim};

use super::{DEVICE_BYTES, Subject};

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
