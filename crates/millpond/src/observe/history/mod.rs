//! The history: what happened lately, as PyTorch's `_record_memory_history` has it.
//!
//! Each stream keeps its own entries, in a ring that the lock of the stream guards, which an allocation and a free take
//! anyway: threads on different streams meet in nothing. The rings are put together by the time of their entries when
//! they are read. As each ring keeps as many entries as the whole history may have, the history is always the newest
//! entries of all streams, without a gap.

use std::sync::Arc;

use millpond_backend::Backend;

use crate::allocator::Allocator;
use crate::notes::ring::{Mark, Marks};
use crate::notes::switches::Detail;
use crate::raw::clock::Clock;

mod entry;
pub(crate) mod rings;

pub use entry::{Action, Entry, History};

use rings::Rings;

/// What an allocator records.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Recording {
    what: What,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum What {
    #[default]
    Off,
    State,
    All {
        entries: usize,
    },
}

impl Recording {
    /// Records nothing.
    pub fn off() -> Self {
        Self::default()
    }

    /// Notes the tag and the place in the program of each live buffer, for [snapshots](crate::snapshot) and
    /// [`Allocator::live`], and keeps no entries. This is `enabled="state"` of PyTorch.
    pub fn state() -> Self {
        Self { what: What::State }
    }

    /// Records the newest `entries` entries, and everything that [`state`](Self::state) records. This is
    /// `enabled="all"` of PyTorch with `max_entries`. Each stream uses 88 bytes of host memory for each entry that it
    /// has, up to this number of entries.
    pub fn all(entries: usize) -> Self {
        Self { what: What::All { entries } }
    }

    fn is_on(self) -> bool {
        self.what != What::Off
    }

    /// Returns how many entries are kept, where any are.
    fn entries(self) -> Option<usize> {
        match self.what {
            What::All { entries } => Some(entries),
            What::Off | What::State => None,
        }
    }
}

impl<B: Backend> Allocator<B> {
    /// Begins, ends or changes what is recorded. Each call starts a new history. What is known about live buffers is
    /// kept, unless nothing is recorded any more and [`track_live`](Self::track_live) is off.
    ///
    /// Recording takes no additional lock, and about ten nanoseconds for each entry (`docs/how-to/history.md`). It
    /// costs nothing while it is off.
    ///
    /// ```
    /// use millpond::history::Recording;
    /// use millpond::{Allocator, with_tag};
    /// use millpond_sim::Sim;
    ///
    /// let allocator = Allocator::new(Sim::new());
    /// allocator.record_history(Recording::all(100_000));
    /// let stream = allocator.create_stream()?;
    /// drop(with_tag("layer3", || stream.allocate(1000))?);
    ///
    /// let history = allocator.history();
    /// let last: Vec<_> = history.entries.iter().rev().take(3).map(|entry| entry.action.name()).collect();
    /// assert_eq!(last, ["free_completed", "free_requested", "alloc"]);
    /// assert_eq!(history.entries.last().unwrap().tag.as_deref(), Some("layer3"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn record_history(&self, recording: Recording) {
        self.state().throw(true, |switches| {
            switches.recorded = if recording.is_on() { Detail::Sites } else { Detail::Nothing };
            switches.entries = recording.entries();
            switches.clock = switches.entries.map(|_| Clock::start());
            switches.marks = switches.clock.map(|clock| Marks::new(clock, switches.entries.unwrap_or(0)));
        });
    }

    /// Returns the newest entries, oldest first; none unless [`record_history`](Self::record_history) was called.
    /// Copies the entries while it holds all streams, and sorts them afterwards.
    pub fn history(&self) -> History {
        self.state().copy_rings().map_or_else(History::default, Rings::into_history)
    }

    /// Adds a note to the history, such as the number of a step. Has no effect while nothing is recorded.
    pub fn annotate(&self, text: &str) {
        self.state().mark_event(|| Mark::Annotate(Arc::from(text)));
    }
}
