//! What an allocator knows: its history, snapshots, and metrics.

use millpond::history::{History, Recording};
use millpond::snapshot::Snapshot;

use crate::allocator::AnyAllocator;
use crate::macros::on;

impl AnyAllocator {
    /// Begins, ends or changes what is recorded.
    /// [`Allocator::record_history`](millpond::Allocator::record_history) says what that costs.
    pub fn record_history(&self, recording: Recording) {
        on!(self, AnyAllocator(allocator) => allocator.record_history(recording));
    }

    /// Returns the newest entries, oldest first; none unless [`record_history`](Self::record_history) was called.
    pub fn history(&self) -> History {
        on!(self, AnyAllocator(allocator) => allocator.history())
    }

    /// Adds a note to the history, such as the number of a step. Has no effect unless it is recorded.
    pub fn annotate(&self, text: &str) {
        on!(self, AnyAllocator(allocator) => allocator.annotate(text));
    }

    /// Returns where every byte is, at one moment, with what is known of the blocks.
    /// [`Allocator::snapshot`](millpond::Allocator::snapshot) says what that is.
    pub fn snapshot(&self) -> Snapshot {
        on!(self, AnyAllocator(allocator) => allocator.snapshot())
    }

    /// Returns the keys of the configuration that were accepted and have no effect here.
    pub fn ignored_settings(&self) -> &[&'static str] {
        on!(self, AnyAllocator(allocator) => allocator.ignored_settings())
    }

    /// Sets the gauges and counters of this allocator with the recorder of the crate `metrics` that is installed.
    /// [`Allocator::publish_metrics`](millpond::Allocator::publish_metrics) names them.
    #[cfg(feature = "metrics")]
    pub fn publish_metrics(&self, device: &str) {
        on!(self, AnyAllocator(allocator) => allocator.publish_metrics(device));
    }
}
