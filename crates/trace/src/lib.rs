#![doc = include_str!("../README.md")]

mod content;
mod details;
mod enough;
mod error;
mod event;
mod file;
mod header;
mod lifetimes;
mod limits;
mod output;
mod parse;
mod pattern;
mod random;
mod rules;
mod text;
mod together;
mod write;

#[cfg(test)]
mod tests;

pub use content::Content;
pub use details::{Call, Details, FrameId, LabelId, Place, StackId};
pub use error::{Problem, TraceError};
pub use event::Event;
pub use header::Header;
pub use limits::{FREE_TEXT_BYTES, Limit, Limits};
pub use output::{WholeFile, remove_unfinished_files};
pub use pattern::Pattern;
pub use random::Random;
pub use rules::BYTES_MAX;
pub use text::{printable, printable_with};
pub use write::TraceWriter;

/// A valid trace: its header and its events in program order.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Trace {
    /// The facts about the recorded program.
    pub header: Header,
    /// The events of the program.
    pub events: Vec<Event>,
    /// One more than the highest stream number; 0 where no event names a stream.
    pub streams: u32,
    /// The call stacks, labels and times of the events, as far as they are known.
    pub details: Details,
}

impl Trace {
    /// Returns the number of blocks that the trace allocates. Costs a pass over the events.
    pub fn allocations(&self) -> usize {
        self.events.iter().filter(|event| matches!(event, Event::Allocate { .. })).count()
    }

    /// Returns whether an event says [how far the device is](Event::is_timing). Costs a pass over the events.
    pub fn is_timed(&self) -> bool {
        self.events.iter().any(Event::is_timing)
    }

    /// Returns the largest sum in bytes of the blocks that were live at one time. A block lives from its allocation to
    /// its completion, or to its free where no completion follows, or to the end. No allocator can reserve less.
    ///
    /// Costs two passes over the events and about nine bytes for each block. A sum beyond 64 bits is returned as
    /// `u64::MAX`.
    pub fn live_peak(&self) -> u64 {
        let mut completes = vec![false; self.allocations()];
        for event in &self.events {
            if let Event::Complete { id } = event {
                completes[*id as usize] = true;
            }
        }
        let mut sizes = Vec::with_capacity(completes.len());
        let (mut live, mut peak) = (0_u128, 0_u128);
        for event in &self.events {
            match *event {
                Event::Allocate { bytes, .. } => {
                    sizes.push(bytes);
                    live += u128::from(bytes);
                    peak = peak.max(live);
                }
                Event::Free { id } if !completes[id as usize] => live -= u128::from(sizes[id as usize]),
                Event::Complete { id } => live -= u128::from(sizes[id as usize]),
                _ => {}
            }
        }
        u64::try_from(peak).unwrap_or(u64::MAX)
    }

    /// Returns the same program with every size divided by `divisor` and rounded up to 512 bytes, as allocators round
    /// anyway. This is for devices that are smaller than the one that it was recorded on. The result never ran on
    /// PyTorch's allocator, so it has no header. Its details are kept. Divided by 1 it is the same.
    ///
    /// # Panics
    ///
    /// If the divisor is 0.
    #[must_use]
    pub fn scaled_down(&self, divisor: u64) -> Trace {
        if divisor == 1 {
            return self.clone();
        }
        let part = |bytes: u64| bytes.div_ceil(divisor).next_multiple_of(512);
        let scaled = |event: &Event| match *event {
            Event::Allocate { id, bytes, stream } => Event::Allocate { id, bytes: part(bytes), stream },
            Event::Trim { bytes } => Event::Trim { bytes: part(bytes) },
            other => other,
        };
        let events = self.events.iter().map(scaled).collect();
        Trace { header: Header::default(), events, streams: self.streams, details: self.details.clone() }
    }
}
