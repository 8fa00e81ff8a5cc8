//! What is noted, and what is noted of no lane.

use super::groups::LiveGroup;
use super::ring::{Marks, Ring};
use crate::raw::clock::Clock;
use crate::sync::{AtomicBool, Mutex, Ordering};

/// How much is noted of a block.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) enum Detail {
    /// Nothing.
    #[default]
    Nothing,
    /// Its label and its size.
    Labels,
    /// The place in the program as well.
    Sites,
}

/// What is turned on.
#[derive(Default)]
pub(crate) struct Switches {
    /// What is noted for those that ask what is alive.
    pub(crate) tracked: Detail,
    /// What is noted for the history and for snapshots.
    pub(crate) recorded: Detail,
    /// How many entries the history keeps, if there is one.
    pub(crate) entries: Option<usize>,
    /// The clock of the history.
    pub(crate) clock: Option<Clock>,
    pub(crate) marks: Option<Marks>,
}

impl Switches {
    fn detail(&self) -> Detail {
        self.tracked.max(self.recorded)
    }

    pub(crate) fn is_on(&self) -> bool {
        self.detail() != Detail::Nothing
    }

    pub(crate) fn sites(&self) -> bool {
        self.detail() == Detail::Sites
    }

    /// Returns an empty part of the history for a lane, if there is a history.
    pub(crate) fn ring(&self) -> Option<Ring> {
        Some(Ring::new(self.clock?, self.entries?))
    }
}

/// A function that is told what is left when the last handle is dropped.
pub(crate) type Hook = Box<dyn Fn(Vec<LiveGroup>) + Send + Sync>;

/// What an allocator notes, and the parts that belong to no lane.
pub(crate) struct Noting {
    /// Whether lanes have notes.
    on: AtomicBool,
    /// Whether there is a history. It changes together with `on`.
    rings: AtomicBool,
    /// Taken under the coordinator's lock, except to add a mark.
    pub(crate) inner: Mutex<Switches>,
    pub(crate) hook: Mutex<Option<Hook>>,
}

impl Noting {
    pub(crate) fn new() -> Self {
        Self {
            on: AtomicBool::new(false),
            rings: AtomicBool::new(false),
            inner: Mutex::new(Switches::default()),
            hook: Mutex::new(None),
        }
    }

    /// Returns whether lanes have notes.
    pub(crate) fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    /// Returns whether there is a history.
    pub(crate) fn records(&self) -> bool {
        self.rings.load(Ordering::Relaxed)
    }

    /// Publishes what is turned on. The caller has changed the switches, and holds their lock.
    pub(crate) fn publish(&self, switches: &Switches) {
        self.on.store(switches.is_on(), Ordering::Relaxed);
        self.rings.store(switches.marks.is_some(), Ordering::Relaxed);
    }
}
