//! Keeping what is reserved within a share beyond what was ever live, where segments cannot be taken apart: the setting
//! [`slack`](crate::settings::Settings::slack).
//!
//! Free memory in a segment goes back only once nothing in the segment is live, so what must be bounded is free memory
//! beside live blocks. A segment that is large beside the peak has one block at a time: it is never cut, and what a
//! request leaves unused of it is *loose*. A request takes such a segment only while all that is loose stays within the
//! slack. So at every miss the segments that are wholly free can be given back, and what is left is within the slack by
//! itself. Small requests share segments that are small beside the peak, and cut them as PyTorch does.

use super::Shard;
use crate::block::Block;
use crate::ids::{BlockId, Slot};
use crate::size::Want;
use crate::units::{QUANTUM, align_up};

/// A request of at most one such part of the peak shares a segment.
const SHARES_BELOW: u64 = 128;
/// So does one of at most so many bytes: half a page.
const SHARES_BYTES: u64 = 2048;
/// A shared segment is such a part of the peak.
const SHARED_PART: u64 = 32;
/// A shared segment has at least so many bytes.
const SHARED_BYTES: u64 = 16384;
/// Segments are multiples of this many bytes: a page of the host.
const ROUNDING: u64 = 4096;

/// What a shard with a slack counts. A block counts until it is free, so also while it waits for points.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Snug {
    /// The share of the peak by which more may be reserved.
    slack: f64,
    /// Bytes in blocks, rounded to the quantum only.
    live: u64,
    /// The most that `live` ever was.
    peak: u64,
    /// Bytes in blocks beyond that.
    loose: u64,
}

impl Snug {
    pub(crate) fn new(slack: f64) -> Self {
        Self { slack, live: 0, peak: 0, loose: 0 }
    }

    /// The peak, once the request is served.
    fn peak_with(&self, want: &Want) -> u64 {
        self.peak.max(self.live + exact(want.requested))
    }

    fn share(&self, peak: u64) -> u64 {
        (peak as f64 * self.slack) as u64
    }

    fn shares(&self, want: &Want) -> bool {
        want.rounded <= (self.peak_with(want) / SHARES_BELOW).max(SHARES_BYTES)
    }

    fn takes(&mut self, size: u64, requested: u64) {
        let exact = exact(requested);
        self.live += exact;
        self.peak = self.peak.max(self.live);
        self.loose += size - exact;
    }

    fn gives(&mut self, size: u64, requested: u64) {
        let exact = exact(requested);
        self.live -= exact;
        self.loose -= size - exact;
    }
}

/// A request in whole quanta.
fn exact(requested: u64) -> u64 {
    align_up(requested, QUANTUM)
}

impl Shard {
    /// A block goes out.
    #[inline(always)]
    pub(super) fn snug_takes(&mut self, size: u64, requested: u64) {
        if let Some(snug) = &mut self.snug {
            snug.takes(size, requested);
        }
    }

    /// A block is free again.
    #[inline(always)]
    pub(super) fn snug_gives(&mut self, size: u64, requested: u64) {
        if let Some(snug) = &mut self.snug {
            snug.gives(size, requested);
        }
    }

    /// Whether a free block may serve a request: it can be cut, is what a fresh segment would be, or what is left over
    /// stays within the slack.
    #[inline(always)]
    pub(super) fn is_snug(&self, found: BlockId, want: &Want) -> bool {
        let Some(snug) = &self.snug else { return true };
        let Block { size, slot, .. } = self.blocks[found];
        self.segments[slot].shared
            || size <= align_up(want.rounded, ROUNDING)
            || snug.loose + (size - exact(want.requested)) <= snug.share(snug.peak_with(want))
    }

    /// Whether a block of that segment may be cut.
    #[inline(always)]
    pub(super) fn cuts(&self, slot: Slot) -> bool {
        self.snug.is_none() || self.segments[slot].shared
    }

    /// The segment for a request that found nothing, in bytes, and whether small requests share it. `None` without a
    /// slack.
    pub(crate) fn snug_segment(&self, want: &Want) -> Option<(u64, bool)> {
        let snug = self.snug?;
        let shared = snug.shares(want);
        let bytes = if shared { (snug.peak_with(want) / SHARED_PART).max(SHARED_BYTES) } else { want.rounded };
        Some((align_up(bytes, ROUNDING), shared))
    }

    /// How much may be reserved for this shard before cached memory is given back, in bytes; once `want` is served, if
    /// it is this shard's. 0 without a slack.
    pub(crate) fn snug_bound(&self, want: Option<&Want>) -> u64 {
        let Some(snug) = self.snug else { return 0 };
        let peak = want.map_or(snug.peak, |want| snug.peak_with(want));
        // A thousandfold of a request near 2^60 is beyond 64 bits: no bound.
        peak.saturating_add(snug.share(peak))
    }

    /// The peak is what is live now.
    pub(crate) fn snug_reset(&mut self) {
        if let Some(snug) = &mut self.snug {
            snug.peak = snug.live;
        }
    }

    /// S1: what is counted is what the blocks add up to.
    pub(super) fn check_snug(&self) {
        let Some(snug) = self.snug else { return };
        let held = self.blocks.iter().filter(|(_, block)| block.is_held());
        let (live, size) = held.fold((0, 0), |(live, size), (_, b)| (live + exact(b.requested), size + b.size));
        assert_eq!((snug.live, snug.loose), (live, size - live), "live and loose bytes: counted against summed");
        assert!(snug.peak >= snug.live, "a peak of {} with {} live", snug.peak, snug.live);
    }
}
