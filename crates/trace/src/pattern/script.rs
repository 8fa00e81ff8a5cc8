//! The tools with which every pattern is written: a trace under construction, and numbers drawn from the seed.

use serde_json::{Map, Value};

use crate::{Event, Header, Random, Trace};

/// A trace under construction. It numbers blocks, tracks which are live, and draws numbers.
pub(super) struct Script {
    events: Vec<Event>,
    /// By block: its size in bytes, or 0 once it is freed.
    sizes: Vec<u64>,
    live_bytes: u64,
    streams: u32,
    pub(super) random: Random,
}

impl Script {
    pub(super) fn new(seed: u64) -> Self {
        Self { events: Vec::new(), sizes: Vec::new(), live_bytes: 0, streams: 0, random: Random::new(seed) }
    }

    /// Returns the bytes of the blocks that are not freed.
    pub(super) fn live_bytes(&self) -> u64 {
        self.live_bytes
    }

    /// Returns the number of events so far.
    pub(super) fn events(&self) -> usize {
        self.events.len()
    }

    /// Allocates a block and returns its number.
    pub(super) fn allocate(&mut self, bytes: u64, stream: u32) -> u32 {
        let id = self.sizes.len() as u32;
        self.sizes.push(bytes);
        self.live_bytes += bytes;
        self.streams = self.streams.max(stream + 1);
        self.events.push(Event::Allocate { id, bytes, stream });
        id
    }

    /// Frees a block.
    ///
    /// # Panics
    ///
    /// If the block is freed already.
    pub(super) fn free(&mut self, id: u32) {
        let bytes = std::mem::take(&mut self.sizes[id as usize]);
        assert!(bytes > 0, "a pattern frees block {id} twice");
        self.live_bytes -= bytes;
        self.events.push(Event::Free { id });
    }

    /// Adds a use of the block on another stream until its free.
    pub(super) fn use_on(&mut self, id: u32, stream: u32) {
        self.streams = self.streams.max(stream + 1);
        self.events.push(Event::Use { id, stream });
    }

    /// Allocates blocks of sizes that `size` draws until `bytes` are live, and returns their numbers.
    pub(super) fn fill_to(&mut self, bytes: u64, stream: u32, mut size: impl FnMut(&mut Self) -> u64) -> Vec<u32> {
        let mut blocks = Vec::new();
        while self.live_bytes < bytes {
            let size = size(self);
            blocks.push(self.allocate(size, stream));
        }
        blocks
    }

    /// Frees blocks drawn from the list until at most `bytes` are live or none is left.
    pub(super) fn drain_to(&mut self, bytes: u64, blocks: &mut Vec<u32>) {
        while self.live_bytes > bytes && !blocks.is_empty() {
            let id = self.take(blocks);
            self.free(id);
        }
    }

    /// Removes a drawn block from the list, which is not empty, and returns its number.
    pub(super) fn take(&mut self, blocks: &mut Vec<u32>) -> u32 {
        let at = self.random.index(blocks.len());
        blocks.swap_remove(at)
    }

    /// Frees the blocks that are live, oldest first, and returns the trace.
    pub(super) fn finish(mut self, workload: &str) -> Trace {
        for id in 0..self.sizes.len() {
            if self.sizes[id] > 0 {
                self.free(id as u32);
            }
        }
        let values = Map::from_iter([("workload".to_string(), Value::from(workload))]);
        let header = match Header::new(values) {
            Ok(header) => header,
            Err(problem) => panic!("the header of a pattern is refused: {problem}"),
        };
        Trace { header, events: self.events, streams: self.streams, ..Trace::default() }
    }
}

/// Draws that patterns alone need.
impl Script {
    /// Returns a size from 2^`low` to 2^`high` bytes. Each octave is equally likely.
    pub(super) fn octaves(&mut self, low: u32, high: u32) -> u64 {
        let octave = 1 << self.random.between(low.into(), u64::from(high) - 1);
        octave + self.random.below(octave + 1)
    }

    /// Puts the list into a drawn order.
    pub(super) fn shuffle<T>(&mut self, list: &mut [T]) {
        for last in (1..list.len()).rev() {
            list.swap(last, self.random.index(last + 1));
        }
    }
}
