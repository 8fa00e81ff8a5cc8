//! What became of the recorded program itself, as far as its trace says.

use millpond_trace::Trace;

use crate::owners::Block;
use crate::places;
use crate::text::{bytes, count};

/// A request that the recorded program was refused: the last one, which most often ended it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Recorded {
    /// The event.
    at: usize,
    /// The requested bytes.
    requested: u64,
    /// The line of the program, or the label of the request.
    place: Option<String>,
    /// How many blocks were allocated before the history began.
    older: u64,
}

impl Recorded {
    /// Returns the last request of a recorded program that was refused, if its trace names one. Costs the depth of a
    /// call stack.
    pub fn of(trace: &Trace, blocks: &[Block]) -> Option<Self> {
        let number = usize::try_from(*trace.header.refused_blocks().last()?).ok()?;
        let block = blocks.get(number)?;
        let place = places::place(block, &trace.details).map(str::to_owned);
        let older = trace.header.blocks_before();
        Some(Self { at: block.born, requested: block.bytes, place, older })
    }

    /// Returns the event.
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    /// Returns the request in a sentence.
    pub(crate) fn sentence(&self) -> String {
        let place = self.place.as_ref().map_or(String::new(), |place| format!(" in `{}`", place.replace('`', "'")));
        let (event, requested) = (count(self.at as u64 + 1), bytes(self.requested));
        format!("The recorded program ran out of memory at event {event}, when it asked for {requested}{place}.")
    }

    /// Returns why a replay may fail elsewhere, if that is known.
    pub(crate) fn why_elsewhere(&self) -> String {
        match self.older {
            0 => String::new(),
            older => format!(
                " The history begins after {} blocks were allocated, so a replay does not place memory exactly as the \
                 program did.",
                count(older)
            ),
        }
    }
}
