//! Taking segments from wgpu and giving them back.

use std::sync::Arc;

use millpond_backend::{Caps, ClassId};
use millpond_kit::Misuse;

use super::account::Account;
use super::segment::Segment;
use crate::error::WgpuError;
use crate::open::{Driver, Under};

/// The class for blocks that need their own buffer. It has the same memory and usages as class 0. Use it with the
/// policy `direct`, in a separate allocator that shares the device and its streams. [`Segment::binding`] describes its
/// purpose.
pub const EXCLUSIVE: ClassId = ClassId(1);

/// The memory of a device.
pub(crate) struct Memory {
    pub(crate) caps: Caps,
    pub(crate) account: Arc<Account>,
    /// The usages of segments.
    pub(crate) usage: wgpu::BufferUsages,
    /// The Vulkan backend, if segments come from it.
    pub(crate) under: Option<Arc<Under>>,
    driver: Arc<Driver>,
}

impl Memory {
    /// Creates the memory of a device of which nothing is taken yet.
    pub(crate) fn new(
        driver: Arc<Driver>,
        under: Option<Arc<Under>>,
        caps: Caps,
        usage: wgpu::BufferUsages,
        limits: &wgpu::Limits,
    ) -> Memory {
        Memory { caps, account: Account::new(limits), usage, under, driver }
    }

    /// Takes a segment.
    pub(crate) fn reserve(&self, class: ClassId, bytes: u64) -> Result<Segment, WgpuError> {
        const CALL: &str = "reserve";
        let driver = &*self.driver;
        driver.enter(CALL)?;
        let max = self.caps.class(class).max_segment_bytes;
        Misuse::if_empty(CALL, bytes)?;
        if bytes > max {
            return Err(WgpuError::TooLarge { asked: bytes, max });
        }
        // A poll frees memory that was released and whose work is done.
        let _ = driver.poll(wgpu::PollType::Poll)?;
        let (buffer, backing) = match &self.under {
            Some(under) => under.reserve(self.usage, bytes).map(|(buffer, backing)| (buffer, Some(backing)))?,
            None => (driver.create_buffer(CALL, bytes, self.usage, false)?, None),
        };
        let segment = Segment::new(&self.account, buffer, bytes, class, backing);
        match driver.probe(CALL) {
            Ok(()) => Ok(segment),
            Err(error) => {
                segment.destroy();
                Err(error)
            }
        }
    }

    /// Gives a segment back. No work touches it.
    pub(crate) fn release(&self, segment: Segment) {
        segment.destroy();
        self.free_unused();
    }

    /// Gives segments back that work may still touch which was recorded and not submitted.
    pub(crate) fn leave(&self, segments: Vec<Segment>) {
        segments.into_iter().for_each(Segment::let_go);
        self.free_unused();
    }

    /// Frees what wgpu no longer uses.
    fn free_unused(&self) {
        // wgpu frees a buffer when a poll finds that its last use is done.
        let _ = self.driver.poll(wgpu::PollType::Poll);
        if let Some(under) = &self.under {
            under.free_returned();
        }
    }
}
