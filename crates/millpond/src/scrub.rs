//! Overwrites what a former owner left in memory, before the buffer is handed out.
//!
//! This is sound at the moment of the grant: the core has ordered the memory on the requesting stream behind all former
//! use (in order, behind a device-side wait, or known to be complete), and no other code has the block yet. A fill that
//! is queued there now runs before whatever the new owner queues later.

use millpond_backend::{Backend, Caps, ClassId, ClassKind, Closing, StreamId, Tick};
use millpond_core::Extent;

use crate::buffer::Buffer;
use crate::error::Error;
use crate::raw::host::overwrite_by_host;
use crate::state::State;

/// Returns what the device lacks to scrub memory of this class, or `None`.
pub(crate) fn missing(caps: &Caps, class: ClassId) -> Option<&'static str> {
    if caps.class(class).kind == ClassKind::Host {
        return (!caps.host_memory).then_some("host memory with an address");
    }
    (!caps.transfer).then_some("fills")
}

impl<B: Backend> State<B> {
    /// Overwrites the parts of a block that was just granted that need it.
    ///
    /// # Errors
    ///
    /// Returns the driver's error, after which the block must not be handed out. When it is dropped, it is freed
    /// unchanged, and what was queued is complete before the memory is granted again, like all other work of its
    /// stream.
    #[cold]
    pub(crate) fn scrub(&self, buffer: &mut Buffer<B>) -> Result<(), Error<B::Error>> {
        if self.backend.caps().class(self.class).kind == ClassKind::Host {
            return self.scrub_by_host(buffer);
        }
        self.scrub_part(buffer, buffer.extent())
    }

    /// Does that for a part of a block that was added to it, in the device's own memory.
    ///
    /// # Errors
    ///
    /// Returns the driver's error, after which the part must not be handed out.
    #[cold]
    pub(crate) fn scrub_part(&self, buffer: &mut Buffer<B>, block: Extent) -> Result<(), Error<B::Error>> {
        let parts = buffer.lane().lock().shard.to_scrub(block, buffer.stream());
        if parts.is_empty() {
            return Ok(());
        }
        let (stream, Some(device)) = (buffer.stream(), self.backend.transfer()) else {
            panic!("the device announced fills in its caps and has none");
        };
        let Some(segment) = buffer.segment() else { panic!("a block of {} bytes lies in no segment", block.bytes) };
        for Extent { offset, bytes, .. } in parts {
            let filled = self.activity.book(&self.backend, || device.overwrite(stream, segment, offset, bytes));
            filled.map_err(|error| Error::of_driver("overwrite", error))?;
        }
        let tick = self.send(stream)?;
        buffer.lane().lock().shard.scrubbed(block, stream);
        buffer.was_overwritten(tick);
        Ok(())
    }

    /// Submits what was queued, so that it comes before what the new owner submits without the backend. Returns the
    /// tick that covers it.
    fn send(&self, stream: StreamId) -> Result<Tick, Error<B::Error>> {
        if self.backend.caps().closing == Closing::Backend {
            return Ok(self.backend.mark(stream));
        }
        let submitted = self.activity.book(&self.backend, || self.backend.submit(stream));
        submitted.map_err(|error| Error::of_driver("submit", error))
    }

    /// Overwrites host memory on the host. Host memory is granted once the device is done with it, and the host may be
    /// the next to use it, which the order of a stream does not cover.
    fn scrub_by_host(&self, buffer: &mut Buffer<B>) -> Result<(), Error<B::Error>> {
        if overwrite_by_host(buffer) {
            return Ok(());
        }
        Err(Error::Unsupported {
            what: "address of this host memory, which is to be overwritten",
            device: self.backend.caps().name.clone(),
            advice: "leave the setting scrub off for this class",
        })
    }
}
