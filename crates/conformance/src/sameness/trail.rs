//! The results of a program.

use std::fmt::{self, Write};

use millpond::events::Event;
use millpond::{Allocator, MemoryStats, SegmentId, Side};
use millpond_backend::{Backend, Caps};
use millpond_core::stats::PageStats;
use millpond_replay::DecisionLog;

/// The results of a program on a device, without anything that a driver chose.
pub struct Trail {
    caps: Caps,
    decisions: Vec<Event>,
    layouts: Vec<Vec<Tiles>>,
    stats: MemoryStats,
    pages: PageStats,
}

/// A segment: its number, its side, its length, and its blocks as offset and length.
#[derive(PartialEq, Debug)]
struct Tiles(SegmentId, Side, u64, Vec<(u64, u64)>);

/// A trail that is being recorded.
pub(super) struct Recording<'a, B: Backend> {
    allocator: &'a Allocator<B>,
    layouts: Vec<Vec<Tiles>>,
}

impl<'a, B: Backend> Recording<'a, B> {
    pub(super) fn start(allocator: &'a Allocator<B>) -> Self {
        DecisionLog::start(allocator);
        Self { allocator, layouts: Vec::new() }
    }

    /// Adds the present layout.
    pub(super) fn look(&mut self) {
        let layout = self.allocator.layout().into_iter().map(|view| {
            let blocks = view.blocks.iter().map(|block| (block.offset, block.size)).collect();
            Tiles(view.id, view.side, view.bytes, blocks)
        });
        self.layouts.push(layout.collect());
    }

    pub(super) fn finish(mut self) -> Trail {
        self.look();
        self.allocator.check();
        Trail {
            caps: self.allocator.backend().caps().clone(),
            decisions: DecisionLog::finish(self.allocator),
            layouts: self.layouts,
            stats: self.allocator.stats(),
            pages: self.allocator.page_stats(),
        }
    }
}

impl Trail {
    /// Returns the device's facts.
    pub fn caps(&self) -> &Caps {
        &self.caps
    }

    /// Returns the number of decisions that were made.
    pub fn decisions(&self) -> usize {
        self.decisions.len()
    }

    /// Returns the most bytes that were reserved at once.
    pub fn peak_reserved_bytes(&self) -> u64 {
        self.stats.reserved_bytes.all.peak
    }

    /// Returns a digest of the trail: equal trails have equal digests, in every run and on every machine.
    pub fn digest(&self) -> u64 {
        let mut digest = Digest::new();
        let Self { decisions, layouts, stats, pages, .. } = self;
        write!(digest, "{decisions:?}{layouts:?}{stats:?}{pages:?}").expect("a digest takes everything");
        digest.0
    }

    /// Returns a digest of decisions, layouts and counters alone, without the statistics of pages.
    pub fn digest_of_blocks(&self) -> u64 {
        let mut digest = Digest::new();
        let Self { decisions, layouts, stats, .. } = self;
        write!(digest, "{decisions:?}{layouts:?}{stats:?}").expect("a digest takes everything");
        digest.0
    }

    /// Returns the first difference between two trails; `None` if they are equal, byte for byte.
    pub fn difference(&self, other: &Trail) -> Option<String> {
        let count = self.decisions.len().max(other.decisions.len());
        if let Some(at) = (0..count).find(|&at| self.decisions.get(at) != other.decisions.get(at)) {
            let (ours, theirs) = (self.decisions.get(at), other.decisions.get(at));
            return Some(format!("decision {at} is {ours:?}, and on the other {theirs:?}"));
        }
        if let Some(at) = (0..self.layouts.len()).find(|&at| self.layouts.get(at) != other.layouts.get(at)) {
            let (ours, theirs) = (self.layouts.get(at), other.layouts.get(at));
            return Some(format!("layout {at} is {ours:?}, and on the other {theirs:?}"));
        }
        let pairs = self.stats.flat().into_iter().zip(other.stats.flat());
        if let Some((ours, theirs)) = pairs.into_iter().find(|(ours, theirs)| ours != theirs) {
            return Some(format!("{} is {}, and on the other {}", ours.0, ours.1, theirs.1));
        }
        (self.pages != other.pages)
            .then(|| format!("the statistics of pages are {:?}, and on the other {:?}", self.pages, other.pages))
    }
}

/// The FNV-1a hash of text.
struct Digest(u64);

impl Digest {
    fn new() -> Digest {
        Digest(0xCBF2_9CE4_8422_2325)
    }
}

impl Write for Digest {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3);
        }
        Ok(())
    }
}
