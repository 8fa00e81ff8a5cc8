//! What an allocator knows of its buffers beside what it needs: who has them, and what happened lately.
//!
//! Each lane has its own [`Watch`], behind the lane's lock, and none unless something is turned on: what
//! [`crate::live`] tells, the [history](crate::history), or both. The switch is under the coordinator's lock, and is
//! thrown with all lanes held. So are copies made, so that they show one moment.

use std::panic::Location;

use millpond_backend::StreamId;
use millpond_core::{BlockId, Grant, Retired, SegmentId, Shard, Slot};

use crate::observe::history::{Kind, Marks, Raw, Recording, Ring};
use crate::observe::live::{Hook, Tracking};
use crate::raw::clock::Clock;
use crate::sync::{AtomicBool, Mutex, Ordering};
use crate::tag::{self, TagId};

mod steps;
mod switch;

pub(crate) use steps::Pages;

/// A place in a program.
pub(crate) type Site = &'static Location<'static>;

/// What is known of a request beside its size: the stream, and the place in the program.
#[derive(Clone, Copy)]
pub(crate) struct Asked {
    pub(crate) stream: StreamId,
    pub(crate) site: Site,
}

/// What a buffer, or its number, knows of its block.
#[derive(Clone, Copy)]
pub(crate) struct Out {
    pub(crate) slot: Slot,
    pub(crate) offset: u64,
    pub(crate) size: u64,
    /// The bytes that were asked for, 0 where that is not known.
    pub(crate) requested: u64,
    pub(crate) stream: StreamId,
}

/// The state of a note.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NoteState {
    /// There is no block, or nothing is known of it.
    Vacant,
    /// The block is handed out.
    Live,
    /// The block was freed and waits for points.
    Waiting,
}

/// What is noted of a block from its grant until it is free again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Note {
    pub(crate) state: NoteState,
    pub(crate) stream: StreamId,
    pub(crate) label: TagId,
    pub(crate) segment: SegmentId,
    pub(crate) offset: u64,
    /// The address of the segment, 0 where there is none.
    pub(crate) base: u64,
    pub(crate) size: u64,
    pub(crate) requested: u64,
    pub(crate) site: Option<Site>,
}

impl Note {
    const VACANT: Note = Note {
        state: NoteState::Vacant,
        stream: StreamId(0),
        label: TagId::NONE,
        segment: SegmentId(0),
        offset: 0,
        base: 0,
        size: 0,
        requested: 0,
        site: None,
    };

    /// Returns an entry about the block.
    fn entry(&self, kind: Kind, ticks: u64, shard: &Shard) -> Raw {
        Raw {
            kind,
            ticks,
            stream: self.stream,
            pool: shard.pool(),
            segment: Some(self.segment),
            offset: self.offset,
            base: self.base,
            size: self.size,
            requested: self.requested,
            tag: self.label,
            site: None,
        }
    }
}

/// What is noted of the blocks of one lane, and its part of the history.
pub(crate) struct Watch {
    /// Whether the places of allocations are noted.
    sites: bool,
    /// The notes by block.
    notes: Vec<Note>,
    ring: Option<Ring>,
    /// The ids of the segments by slot, as far as they are known, and their bytes: the core has forgotten a segment
    /// when it is released.
    segments: Vec<Option<(SegmentId, u64)>>,
}

impl Watch {
    /// Returns the notes of blocks that are handed out or wait for points.
    pub(crate) fn notes(&self) -> impl Iterator<Item = &Note> {
        self.notes.iter().filter(|note| note.state != NoteState::Vacant)
    }

    /// Returns the notes of blocks that are handed out.
    pub(crate) fn live(&self) -> impl Iterator<Item = &Note> {
        self.notes.iter().filter(|note| note.state == NoteState::Live)
    }

    pub(crate) fn ring(&self) -> Option<&Ring> {
        self.ring.as_ref()
    }

    /// Returns the note of a block that is handed out, if there is one.
    pub(crate) fn note(&self, block: BlockId) -> Option<&Note> {
        self.notes.get(block.0 as usize).filter(|note| note.state == NoteState::Live)
    }

    fn note_mut(&mut self, block: BlockId) -> &mut Note {
        let at = block.0 as usize;
        if self.notes.len() <= at {
            self.notes.resize(at + 1, Note::VACANT);
        }
        &mut self.notes[at]
    }

    /// Takes in that a block was handed out.
    pub(crate) fn granted(&mut self, shard: &Shard, asked: &Asked, requested: u64, grant: &Grant) {
        let note = Note {
            state: NoteState::Live,
            stream: asked.stream,
            label: tag::current(),
            segment: shard.segment_id(grant.slot),
            offset: grant.offset,
            base: grant.base,
            size: grant.size,
            requested,
            site: self.sites.then_some(asked.site),
        };
        *self.note_mut(grant.block) = note;
        if let Some(ring) = &mut self.ring {
            let now = ring.now();
            ring.push(Raw { site: note.site, ..note.entry(Kind::Alloc, now, shard) });
        }
    }

    /// Takes in that a block was freed, and whether it is free at once. `base` is the address of its segment.
    pub(crate) fn freed(&mut self, shard: &Shard, block: BlockId, out: &Out, base: u64, is_done: bool) {
        let note = self.note_mut(block);
        if note.state == NoteState::Vacant {
            // It was handed out before anything was noted. Its segment may be released already if it is free now.
            let Some(segment) = shard.segment_at(out.slot) else { return };
            let Out { offset, size, requested, stream, .. } = *out;
            *note = Note { segment, stream, offset, base, size, requested, ..Note::VACANT };
        }
        note.state = if is_done { NoteState::Vacant } else { NoteState::Waiting };
        let note = *note;
        if let Some(ring) = &mut self.ring {
            let now = ring.now();
            ring.push(note.entry(Kind::FreeRequested, now, shard));
            if is_done {
                ring.push(note.entry(Kind::FreeCompleted, now, shard));
            }
        }
    }

    /// Takes in that a freed block is free after a wait.
    pub(crate) fn retired(&mut self, shard: &Shard, retired: &Retired) {
        let note = self.note_mut(retired.block);
        let known = std::mem::replace(note, Note::VACANT);
        if known.state == NoteState::Waiting
            && let Some(ring) = &mut self.ring
        {
            let now = ring.now();
            ring.push(known.entry(Kind::FreeCompleted, now, shard));
        }
    }

    /// Takes in that a block is used on a stream: until its free, or until a tick.
    pub(crate) fn used(&mut self, shard: &Shard, block: BlockId, stream: StreamId, until: Option<u64>) {
        let Some(note) = self.note(block).copied() else { return };
        if let Some(ring) = &mut self.ring {
            let now = ring.now();
            let (kind, size) = until.map_or((Kind::Use, note.size), |tick| (Kind::Until, tick));
            ring.push(Raw { stream, size, ..note.entry(kind, now, shard) });
        }
    }

    /// Gives a block another label.
    pub(crate) fn label(&mut self, block: BlockId, label: TagId, site: Site) {
        let sites = self.sites;
        if let Some(note) = self.notes.get_mut(block.0 as usize).filter(|note| note.state == NoteState::Live) {
            (note.label, note.site) = (label, sites.then_some(site));
        }
    }

    /// Takes in something that concerns no block.
    fn happened(&mut self, shard: &Shard, entry: Raw) {
        if let Some(ring) = &mut self.ring {
            let now = ring.now();
            ring.push(Raw { ticks: now, pool: shard.pool(), tag: tag::current(), ..entry });
        }
    }
}

/// What an allocator watches, and the parts that belong to no lane.
pub(crate) struct Watching {
    /// Whether lanes have watches.
    on: AtomicBool,
    /// Whether there is a history. It changes together with `on`.
    rings: AtomicBool,
    /// Taken under the coordinator's lock, except to add a mark.
    inner: Mutex<Switches>,
    pub(crate) hook: Mutex<Option<Hook>>,
}

#[derive(Default)]
struct Switches {
    tracking: Tracking,
    recording: Recording,
    clock: Option<Clock>,
    marks: Option<Marks>,
}

impl Watching {
    pub(crate) fn new() -> Self {
        Self {
            on: AtomicBool::new(false),
            rings: AtomicBool::new(false),
            inner: Mutex::new(Switches::default()),
            hook: Mutex::new(None),
        }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }
}
