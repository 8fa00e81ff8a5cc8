//! A part of a recording: what is live at its beginning is allocated there, and what happens in it follows.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;

use millpond_trace::Event;

use crate::error::TextProblem;
use crate::places::Spot;

/// A block that was allocated before the part and is live at its beginning.
struct Held {
    bytes: u64,
    stream: u32,
    spot: Spot,
    /// Whether it was freed, and completes later.
    is_freed: bool,
}

/// A part of a recording in progress.
pub(crate) struct Part {
    /// The numbers of the recording's events that are in it.
    range: Range<u64>,
    /// The blocks that are live before it, by their numbers in the recording.
    before: BTreeMap<u32, Held>,
    /// The numbers in the part of the blocks that are live, by their numbers in the recording.
    ids: HashMap<u32, u32>,
    /// The number of the next block in the part.
    next: u32,
    has_begun: bool,
    /// The blocks that are freed and not complete, by their numbers in the part.
    pending: BTreeSet<u32>,
    /// How many blocks were live at the beginning.
    pub(crate) live: u64,
}

/// What takes the events of a part, with where they happened.
pub(crate) trait Keep: FnMut(Event, &Spot) -> Result<(), TextProblem> {}

impl<F: FnMut(Event, &Spot) -> Result<(), TextProblem>> Keep for F {}

/// An event of a recording.
#[derive(Clone)]
pub(crate) struct Happened {
    pub(crate) event: Event,
    pub(crate) spot: Spot,
    /// The number of the recording's event that it is of.
    pub(crate) number: u64,
    /// Whether it is the free of a block that completes later.
    pub(crate) completes_later: bool,
}

impl Part {
    pub(crate) fn new(range: Range<u64>) -> Self {
        let (before, ids, pending) = (BTreeMap::new(), HashMap::new(), BTreeSet::new());
        Self { range, before, ids, next: 0, has_begun: false, pending, live: 0 }
    }

    /// Returns the numbers of the recording's events that are in the part.
    pub(crate) fn range(&self) -> Range<u64> {
        self.range.clone()
    }

    /// Returns whether an event of the recording is in the part.
    pub(crate) fn has(&self, number: u64) -> bool {
        self.range.contains(&number)
    }

    /// Takes the next event of the recording, and passes on what the part has of it.
    ///
    /// # Errors
    ///
    /// Returns the errors of `keep`.
    pub(crate) fn push(&mut self, happened: Happened, keep: &mut impl Keep) -> Result<(), TextProblem> {
        if happened.number < self.range.start {
            self.happened_before(happened);
            return Ok(());
        }
        self.begin(keep)?;
        if !self.has(happened.number) {
            return Ok(());
        }
        let event = match happened.event {
            Event::Allocate { id, bytes, stream } => Event::Allocate { id: self.new_id(id), bytes, stream },
            Event::Free { id } => {
                let Some(id) = self.id(id, happened.completes_later) else { return Ok(()) };
                if happened.completes_later {
                    self.pending.insert(id);
                }
                Event::Free { id }
            }
            Event::Complete { id } => {
                let Some(id) = self.id(id, false) else { return Ok(()) };
                self.pending.remove(&id);
                Event::Complete { id }
            }
            Event::Use { id, stream } => {
                let Some(id) = self.id(id, true) else { return Ok(()) };
                Event::Use { id, stream }
            }
            event => event,
        };
        keep(event, &happened.spot)
    }

    /// Ends the part: what is freed and not complete completes.
    ///
    /// # Errors
    ///
    /// Returns the errors of `keep`.
    pub(crate) fn finish(&mut self, keep: &mut impl Keep) -> Result<(), TextProblem> {
        self.begin(keep)?;
        std::mem::take(&mut self.pending).into_iter().try_for_each(|id| keep(Event::Complete { id }, &Spot::default()))
    }

    fn happened_before(&mut self, happened: Happened) {
        match happened.event {
            Event::Allocate { id, bytes, stream } => {
                let spot = Spot { micros: None, ..happened.spot };
                self.before.insert(id, Held { bytes, stream, spot, is_freed: false });
            }
            Event::Free { id } if happened.completes_later => {
                if let Some(held) = self.before.get_mut(&id) {
                    held.is_freed = true;
                }
            }
            Event::Free { id } | Event::Complete { id } => drop(self.before.remove(&id)),
            // Recordings say of a use only with the free that ends it.
            _ => {}
        }
    }

    /// Allocates what is live at the beginning, in the order in which it was allocated.
    fn begin(&mut self, keep: &mut impl Keep) -> Result<(), TextProblem> {
        if std::mem::replace(&mut self.has_begun, true) {
            return Ok(());
        }
        self.live = self.before.len() as u64;
        for (old, Held { bytes, stream, spot, is_freed }) in std::mem::take(&mut self.before) {
            let id = self.new_id(old);
            keep(Event::Allocate { id, bytes, stream }, &spot)?;
            if is_freed {
                self.pending.insert(id);
            }
        }
        self.pending.clone().into_iter().try_for_each(|id| keep(Event::Free { id }, &Spot::default()))
    }

    fn new_id(&mut self, old: u32) -> u32 {
        let id = self.next;
        self.next += 1;
        self.ids.insert(old, id);
        id
    }

    /// Returns the number in the part of a block, which other events name later or not. None for a block that the part
    /// does not have.
    fn id(&mut self, old: u32, is_named_later: bool) -> Option<u32> {
        if is_named_later { self.ids.get(&old).copied() } else { self.ids.remove(&old) }
    }
}
