//! Statistics: counters, peaks, and where every byte is.

use millpond_backend::{Backend, Point};
use millpond_core::stats::{MemoryStats, PageStats, SlackStats};
use millpond_core::{SegmentView, WasteLedger};

use crate::allocator::Allocator;
use crate::state::LockedShards;

/// Statistics.
impl<B: Backend> Allocator<B> {
    /// Returns all of PyTorch's statistics. Takes the lock of every stream in turn.
    pub fn stats(&self) -> MemoryStats {
        let state = self.state();
        state.coordinator.lock().stats(&mut LockedShards(state))
    }

    /// Returns what the `paged` policy has done with pages. The number and the time of all driver calls are in
    /// [`driver_activity`](Self::driver_activity). Walks over all pages.
    pub fn page_stats(&self) -> PageStats {
        self.state().coordinator.lock().page_stats()
    }

    /// Returns how many bytes are reserved beyond the setting `slack` of `paged`, and how many freed bytes work in
    /// flight keeps from other streams, for each stream with such work. Polls every stream that is not being captured,
    /// and walks over every block. If the driver fails to poll a stream, its last known progress counts.
    pub fn slack_stats(&self) -> SlackStats {
        let state = self.state();
        let ask = |stream| Some(Point { stream, tick: state.backend.reached(stream).ok()? });
        let streams = state.coordinator.lock().streams();
        let reached: Vec<_> = streams.into_iter().filter_map(ask).collect();
        let mut coordinator = state.coordinator.lock();
        reached.into_iter().for_each(|point| coordinator.note_reached(point.stream, point.tick));
        coordinator.slack_stats(&mut LockedShards(state))
    }

    /// Returns the same as [`slack_stats`](Self::slack_stats) without polling any stream: the last known progress
    /// counts. So the call does not change later decisions of the allocator. Walks over every block.
    pub fn slack_stats_as_seen(&self) -> SlackStats {
        let state = self.state();
        state.coordinator.lock().slack_stats(&mut LockedShards(state))
    }

    /// Returns the most bytes that were in buffers at one time since peaks were last reset.
    pub fn max_memory_allocated(&self) -> u64 {
        self.stats().allocated_bytes.all.peak
    }

    /// Returns the peak of [`memory_reserved`](Self::memory_reserved) since peaks were last reset.
    pub fn max_memory_reserved(&self) -> u64 {
        self.stats().reserved_bytes.all.peak
    }

    /// Sets every peak to its current value (`torch.cuda.reset_peak_memory_stats`).
    pub fn reset_peak_stats(&self) {
        let state = self.state();
        state.coordinator.lock().reset_peaks(&mut LockedShards(state));
    }

    /// Resets the totals of what was allocated and freed, and the counts of events
    /// (`torch.cuda.reset_accumulated_memory_stats`).
    pub fn reset_accumulated_stats(&self) {
        let state = self.state();
        state.coordinator.lock().reset_totals(&mut LockedShards(state));
    }

    /// Returns how every reserved byte is used or wasted. Walks over every block.
    pub fn ledger(&self) -> WasteLedger {
        let state = self.state();
        state.coordinator.lock().ledger(&mut LockedShards(state))
    }

    /// Returns every segment with its blocks, in order of birth. Walks over every block.
    pub fn layout(&self) -> Vec<SegmentView> {
        let state = self.state();
        state.coordinator.lock().layout(&mut LockedShards(state))
    }
}
