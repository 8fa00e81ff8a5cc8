//! What is alive, by label.

use std::sync::Arc;

use millpond::live::{Live, Tracking};

use crate::allocator::AnyAllocator;
use crate::buffer::AnyBuffer;
use crate::error::AnyError;
use crate::macros::{erase, on};
use crate::stream::AnyStream;

impl AnyAllocator {
    /// Turns on, or off, that each buffer is noted that is handed out, with its label and size.
    /// [`Allocator::track_live`](millpond::Allocator::track_live) says what that costs.
    pub fn track_live(&self, tracking: Tracking) {
        on!(self, AnyAllocator(allocator) => allocator.track_live(tracking));
    }

    /// Returns what is alive of the buffers that were noted, by label. Empty unless [`track_live`](Self::track_live)
    /// has turned it on.
    pub fn live(&self) -> Live {
        on!(self, AnyAllocator(allocator) => allocator.live())
    }

    /// Sets the function that is told what is still alive when the last handle of the allocator ends, if anything is.
    /// [`Allocator::on_left_alive`](millpond::Allocator::on_left_alive) says when it runs.
    pub fn on_left_alive(&self, hook: impl Fn(&Live) + Send + Sync + 'static) {
        on!(self, AnyAllocator(allocator) => allocator.on_left_alive(hook));
    }
}

impl AnyStream {
    /// Does the same as [`allocate`](Self::allocate), and gives the buffer a label.
    ///
    /// # Errors
    ///
    /// The errors of [`allocate`](Self::allocate).
    #[track_caller]
    pub fn allocate_labelled(&self, label: &str, bytes: u64) -> Result<AnyBuffer, AnyError> {
        Ok(erase!(self, AnyStream(stream) => AnyBuffer(stream.allocate_labelled(label, bytes)?)))
    }
}

impl AnyBuffer {
    /// Gives the buffer a label, under which [`AnyAllocator::live`] counts it. It has no effect unless
    /// [`AnyAllocator::track_live`] was on when the buffer was handed out.
    #[track_caller]
    pub fn set_label(&self, label: &str) {
        on!(self, AnyBuffer(buffer) => buffer.set_label(label));
    }

    /// Returns the label, if the buffer was noted and has one.
    pub fn label(&self) -> Option<Arc<str>> {
        on!(self, AnyBuffer(buffer) => buffer.label())
    }
}
