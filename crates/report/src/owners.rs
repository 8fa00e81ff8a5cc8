//! The blocks of a program: how long they live, and which of them is where.

use std::collections::HashMap;

use millpond::{Buffer, SegmentId};
use millpond_backend::Backend;
use millpond_trace::{Event, LabelId, Place, StackId, Trace};

/// How long a block lives, by the events of its pass.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Lifetime {
    /// It is never freed by the pass.
    ToTheEnd,
    /// More than half of the pass.
    Long,
    /// More than a hundredth of it.
    Middle,
    /// Less.
    Short,
}

impl Lifetime {
    /// Returns its name, for readers.
    pub fn name(self) -> &'static str {
        match self {
            Self::ToTheEnd => "to the end",
            Self::Long => "over half of the pass",
            Self::Middle => "1 % to half of the pass",
            Self::Short => "under 1 % of the pass",
        }
    }
}

/// One block of a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Block {
    /// The bytes that it asks for.
    pub bytes: u64,
    /// The event of a pass that allocates it.
    pub born: usize,
    /// The event behind which it is gone; `None` if the pass does not free it.
    pub died: Option<usize>,
    /// How long it lives.
    pub lifetime: Lifetime,
    /// The stream that it is allocated on.
    pub stream: u32,
    /// The call stack that allocates it.
    pub stack: Option<StackId>,
    /// Its label.
    pub label: Option<LabelId>,
}

impl Block {
    /// Returns whether it is live after an event of the pass.
    pub fn is_live_after(&self, event: usize) -> bool {
        self.born <= event && self.died.is_none_or(|died| died > event)
    }
}

/// Returns the events that a replay counts, each with its number in the trace: a free that the device was not done with
/// is part of its completion.
pub(crate) fn replayed(trace: &Trace) -> impl Iterator<Item = (usize, &Event)> {
    let mut completes = vec![false; trace.allocations()];
    for event in &trace.events {
        if let Event::Complete { id } = *event {
            completes[id as usize] = true;
        }
    }
    let is_left_out = move |event: &Event| matches!(*event, Event::Free { id } if completes[id as usize]);
    trace.events.iter().enumerate().filter(move |(_, event)| !is_left_out(event))
}

/// Returns the blocks of a trace, by number. Events are counted as a replay counts them.
pub fn blocks(trace: &Trace) -> Vec<Block> {
    let mut blocks = Vec::with_capacity(trace.allocations());
    let mut events = 0;
    for (place, event) in replayed(trace) {
        match *event {
            Event::Allocate { bytes, stream, .. } => {
                let Place { stack, label, .. } = trace.details.place(place);
                let (born, died, lifetime) = (events, None, Lifetime::ToTheEnd);
                blocks.push(Block { bytes, born, died, lifetime, stream, stack, label });
            }
            Event::Free { id } | Event::Complete { id } => blocks[id as usize].died = Some(events),
            _ => {}
        }
        events += 1;
    }
    for block in &mut blocks {
        block.lifetime = match block.died.map(|died| died - block.born) {
            None => Lifetime::ToTheEnd,
            Some(lived) if lived * 2 > events => Lifetime::Long,
            Some(lived) if lived * 100 > events => Lifetime::Middle,
            Some(_) => Lifetime::Short,
        };
    }
    blocks
}

/// The places of blocks. A block that was freed stays known until another begins where it did, as freed memory may
/// still wait.
#[derive(Default)]
pub(crate) struct Owners(HashMap<(SegmentId, u64), u32>);

impl Owners {
    pub(crate) fn granted<B: Backend>(&mut self, id: u32, buffer: &Buffer<B>) {
        if let Some(segment) = buffer.segment_id() {
            self.0.insert((segment, buffer.offset()), id);
        }
    }

    /// Returns the number of the block that begins there.
    pub(crate) fn at(&self, segment: SegmentId, offset: u64) -> Option<u32> {
        self.0.get(&(segment, offset)).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lifetimes_are_of_the_last_event_that_frees() {
        let text: String = (0..100).map(|point| format!("m {point} 0\n")).collect();
        let text = format!("a 0 10 0\na 1 20 0\na 2 30 0\nf 0\na 3 5 0\nf 1\n{text}c 1\nf 2\n");
        let blocks = blocks(&Trace::parse(text.as_bytes()).expect("a trace"));
        let lifetimes: Vec<_> = blocks.iter().map(|block| block.lifetime).collect();
        assert_eq!(lifetimes, [Lifetime::Middle, Lifetime::Long, Lifetime::Long, Lifetime::ToTheEnd]);
        assert_eq!((blocks[1].born, blocks[1].died), (1, Some(105)));
    }
}
