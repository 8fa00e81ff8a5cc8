//! A bound on reserved memory, as a share beyond what was ever live, where segments cannot be taken apart: the
//! `slack` of [`Policy`](crate::settings::Policy).
//!
//! Free memory in a segment goes back only once nothing in the segment is live, so free memory beside live blocks is
//! what must be bounded. A segment that is large compared with the peak has one block at a time: it is never cut, and
//! what a request leaves unused of it is *loose*. A request takes such a segment only while all loose memory stays
//! within the slack. So at every miss the segments that are wholly free can be given back, and what remains is within
//! the slack. Small requests share segments that are small compared with the peak, and cut them as PyTorch does.

use super::Shard;
use crate::block::Block;
use crate::ids::{BlockId, Slot};
use crate::size::{NewSegment, Want};
use crate::units::{QUANTUM, align_up};

/// The divisor of the peak: a request of at most this part of it shares a segment.
const SHARES_BELOW: u64 = 128;
/// A request of at most this number of bytes, half a page, shares a segment too.
const SHARES_BYTES: u64 = 2048;
/// The divisor of the peak: a shared segment has this part of it.
const SHARED_PART: u64 = 32;
/// The smallest length of a shared segment, in bytes.
const SHARED_BYTES: u64 = 16384;
/// The unit of segment lengths, in bytes: a page of the host.
const ROUNDING: u64 = 4096;

/// The sums of a shard with a slack. A block counts until it is free, which includes the time in which it waits for
/// points.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Snug {
    /// The share of the peak by which more may be reserved.
    slack: f64,
    /// The bytes in blocks, rounded to the quantum only.
    live: u64,
    /// The highest value of `live` so far.
    peak: u64,
    /// The bytes in blocks beyond `live`.
    loose: u64,
}

impl Snug {
    pub(crate) fn new(slack: f64) -> Self {
        Self { slack, live: 0, peak: 0, loose: 0 }
    }

    /// Returns the peak as it will be once the request is served.
    fn peak_with(&self, want: &Want) -> u64 {
        self.peak.max(self.live + exact(want.requested))
    }

    fn share(&self, peak: u64) -> u64 {
        (peak as f64 * self.slack) as u64
    }
}

/// Returns a request rounded up to whole quanta, in bytes.
fn exact(requested: u64) -> u64 {
    align_up(requested, QUANTUM)
}

impl Shard {
    /// Counts a block that is handed out.
    #[inline(always)]
    pub(super) fn snug_takes(&mut self, size: u64, requested: u64) {
        if let Some(snug) = &mut self.snug {
            let exact = exact(requested);
            snug.live += exact;
            snug.peak = snug.peak.max(snug.live);
            snug.loose += size - exact;
        }
    }

    /// Counts a block that is free again.
    #[inline(always)]
    pub(super) fn snug_gives(&mut self, size: u64, requested: u64) {
        if let Some(snug) = &mut self.snug {
            let exact = exact(requested);
            snug.live -= exact;
            snug.loose -= size - exact;
        }
    }

    /// Returns whether a free block may serve a request: it can be cut, is not larger than a new segment would be, or
    /// its unused part stays within the slack.
    #[inline(always)]
    pub(super) fn is_snug(&self, found: BlockId, want: &Want) -> bool {
        let Some(snug) = &self.snug else { return true };
        let Block { size, slot, .. } = self.memory.blocks[found];
        self.memory.segments[slot].shared
            || size <= align_up(want.rounded, ROUNDING)
            || snug.loose + (size - exact(want.requested)) <= snug.share(snug.peak_with(want))
    }

    /// Returns whether a block of that segment may be cut.
    #[inline(always)]
    pub(super) fn cuts(&self, slot: Slot) -> bool {
        self.snug.is_none() || self.memory.segments[slot].shared
    }

    /// Returns the segment for a request that missed. `None` means that there is no slack.
    pub(crate) fn snug_segment(&self, want: &Want) -> Option<NewSegment> {
        let snug = self.snug?;
        let shared = want.rounded <= (snug.peak_with(want) / SHARES_BELOW).max(SHARES_BYTES);
        let bytes = if shared { (snug.peak_with(want) / SHARED_PART).max(SHARED_BYTES) } else { want.rounded };
        Some(NewSegment { bytes: align_up(bytes, ROUNDING), shared })
    }

    /// Returns how many bytes may be reserved for this shard before cached memory is given back, as of when `want` is
    /// served if that is a request of this shard. Without a slack this is 0.
    pub(crate) fn snug_bound(&self, want: Option<&Want>) -> u64 {
        let Some(snug) = self.snug else { return 0 };
        let peak = want.map_or(snug.peak, |want| snug.peak_with(want));
        // A thousand times a request near 2^60 needs more than 64 bits: there is then no bound.
        peak.saturating_add(snug.share(peak))
    }

    /// Sets the peak to what is live now.
    pub(crate) fn snug_reset(&mut self) {
        if let Some(snug) = &mut self.snug {
            snug.peak = snug.live;
        }
    }

    /// Verifies S1: the counted bytes are the sums over the blocks.
    pub(super) fn check_snug(&self) {
        let Some(snug) = self.snug else { return };
        let held = self.memory.blocks.iter().filter(|(_, block)| block.is_held());
        let (live, size) = held.fold((0, 0), |(live, size), (_, b)| (live + exact(b.requested), size + b.size));
        assert_eq!((snug.live, snug.loose), (live, size - live), "live and loose bytes: counted against summed");
        assert!(snug.peak >= snug.live, "a peak of {} with {} live", snug.peak, snug.live);
    }
}
