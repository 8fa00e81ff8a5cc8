//! The peaks of a part of a program.

use std::fmt;

use millpond_backend::Backend;
use millpond_core::ScopeId;
use millpond_core::stats::MemoryStats;

use crate::allocator::Allocator;
use crate::state::LockedShards;

/// A part of a program whose peaks are measured apart, from [`Allocator::peak_scope`] until it is dropped or
/// [ended](Self::end).
///
/// Scopes may be nested, may overlap, and may end in any order and on any thread. None changes what another one
/// measures, nor the peaks of [`Allocator::stats`]; and [`Allocator::reset_peak_stats`] changes no scope. All counters
/// of the statistics are measured, of all streams and pools of the allocator together, as PyTorch's are. What another
/// thread allocates meanwhile counts too. Peaks are as exact as those of the statistics: to the operation if one thread
/// makes all calls, while several threads that raise a peak at the same moment may be missed.
///
/// An open scope adds no cost to allocations and frees. Opening one locks every stream in turn. The next allocations of
/// each stream are then a little slower, as after a reset of peaks; so a program that opens a scope around each request
/// makes each of them slower. To read one costs what [`Allocator::stats`] does, and a little for each scope
/// that was opened later and is open. To end one takes one lock.
///
/// ```
/// use millpond::Allocator;
/// use millpond_sim::Sim;
///
/// let allocator = Allocator::new(Sim::new());
/// let stream = allocator.create_stream()?;
/// drop(stream.allocate(64 << 20)?);
///
/// let step = allocator.peak_scope();
/// drop(stream.allocate(5 << 20)?);
/// assert_eq!(step.allocated_bytes(), 5 << 20, "what came before does not count");
/// assert_eq!(allocator.max_memory_allocated(), 64 << 20);
/// let stats = step.end();
/// assert_eq!(stats.allocation.all.peak, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a scope that is dropped has ended"]
pub struct PeakScope<B: Backend> {
    allocator: Allocator<B>,
    id: ScopeId,
}

impl<B: Backend> Allocator<B> {
    /// Opens a scope that measures the peaks from now on: [`PeakScope`] says how, and what it costs. PyTorch measures
    /// one part at a time, by a reset of its peaks.
    pub fn peak_scope(&self) -> PeakScope<B> {
        let state = self.state();
        let id = state.coordinator.lock().open_scope(&mut LockedShards(state));
        PeakScope { allocator: self.clone(), id }
    }
}

impl<B: Backend> PeakScope<B> {
    /// Returns all statistics now, with the peaks since the scope was opened. Current values and totals are those of
    /// the allocator.
    pub fn stats(&self) -> MemoryStats {
        let state = self.allocator.state();
        state.coordinator.lock().stats_since(self.id, &mut LockedShards(state))
    }

    /// Returns the most bytes that were in buffers at one time, after rounding.
    pub fn allocated_bytes(&self) -> u64 {
        self.stats().allocated_bytes.all.peak
    }

    /// Returns the most bytes that were at one time in buffers, or freed and waiting for the device.
    pub fn active_bytes(&self) -> u64 {
        self.stats().active_bytes.all.peak
    }

    /// Returns the most bytes that the program had asked for at one time in such blocks, before rounding.
    pub fn requested_bytes(&self) -> u64 {
        self.stats().requested_bytes.all.peak
    }

    /// Returns the most bytes that were reserved from the driver at one time.
    pub fn reserved_bytes(&self) -> u64 {
        self.stats().reserved_bytes.all.peak
    }

    /// Ends the scope, and returns what [`stats`](Self::stats) is then.
    pub fn end(self) -> MemoryStats {
        self.stats()
    }
}

impl<B: Backend> Drop for PeakScope<B> {
    fn drop(&mut self) {
        self.allocator.state().coordinator.lock().close_scope(self.id);
    }
}

impl<B: Backend> fmt::Debug for PeakScope<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeakScope").field("allocator", &self.allocator).field("id", &self.id).finish()
    }
}
