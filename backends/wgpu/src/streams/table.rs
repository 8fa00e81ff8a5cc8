//! The lanes of all streams.

use std::sync::Arc;

use millpond_backend::StreamId;
use millpond_kit::Lanes;

use super::lane::{Lane, Work};
use crate::error::WgpuError;
use crate::open::Driver;

/// The streams of a device: their lanes, by number, which are read without a lock.
pub(crate) struct Streams {
    lanes: Lanes<Lane>,
    driver: Arc<Driver>,
}

impl Streams {
    /// Creates the table of a device that has no stream yet.
    pub(crate) fn new(driver: Arc<Driver>) -> Streams {
        Streams { lanes: Lanes::default(), driver }
    }

    /// Opens a stream.
    pub(crate) fn create(&self) -> Result<StreamId, WgpuError> {
        self.driver.enter("create_stream")?;
        Ok(self.lanes.push(Lane::new()))
    }

    /// Returns whether the stream is one of this device.
    pub(crate) fn has(&self, stream: StreamId) -> bool {
        self.lanes.has(stream)
    }

    /// Returns the number of streams.
    pub(crate) fn count(&self) -> usize {
        self.lanes.count()
    }

    /// Returns the lane of a stream.
    ///
    /// # Panics
    ///
    /// If the stream is not this device's.
    #[inline]
    pub(crate) fn lane(&self, stream: StreamId) -> &Lane {
        self.lanes.lane(stream)
    }

    /// Returns the open encoder of a stream, or a new one.
    pub(crate) fn encoder<'w>(&self, work: &'w mut Work) -> Result<&'w mut wgpu::CommandEncoder, WgpuError> {
        let encoder = match work.encoder.take() {
            Some(encoder) => encoder,
            None => {
                let descriptor = wgpu::CommandEncoderDescriptor { label: Some("millpond stream") };
                self.driver
                    .caught("create_command_encoder", 0, || self.driver.device.create_command_encoder(&descriptor))?
            }
        };
        Ok(work.encoder.insert(encoder))
    }
}
