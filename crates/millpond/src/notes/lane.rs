//! What one lane notes of its blocks. The lane's lock guards it.

use std::collections::HashMap;

use millpond_backend::StreamId;
use millpond_core::{BlockId, Grant, Retired, SegmentId, SegmentView, Shard, Slot};

use super::note::{Asked, Note, NoteState, Out, Site};
use super::ring::{Kind, Raw, Ring};
use crate::tag::{self, TagId};

/// What is noted of the blocks of one lane, and its part of the history.
pub(crate) struct Notes {
    /// Whether the places of allocations are noted.
    sites: bool,
    /// The notes by block.
    notes: Vec<Note>,
    ring: Option<Ring>,
    /// The ids of the segments by slot, as far as they are known, and their bytes: the core has forgotten a segment
    /// when it is released.
    segments: Vec<Option<(SegmentId, u64)>>,
    /// The blocks that became longer, each with its parts: the history has an allocation for each, so that it says
    /// when memory was used, and whoever reads it needs to know of no growth.
    grown: HashMap<BlockId, Vec<Part>>,
}

/// A part of a block that became longer.
#[derive(Clone, Copy)]
struct Part {
    size: u64,
    requested: u64,
}

impl Notes {
    pub(crate) fn new() -> Self {
        Self { sites: false, notes: Vec::new(), ring: None, segments: Vec::new(), grown: HashMap::new() }
    }

    /// Has the places of allocations be noted from now on, or not.
    pub(crate) fn note_sites(&mut self, sites: bool) {
        self.sites = sites;
    }

    /// Begins another part of the history, or none, in a lane that has these segments.
    pub(crate) fn begin(&mut self, ring: Option<Ring>, segments: &[SegmentView]) {
        self.ring = ring;
        self.segments.clear();
        for view in segments {
            self.segment_came(view.slot, view.id, view.bytes);
        }
    }

    /// Returns the notes of blocks that are handed out or wait for points.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Note> {
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
        self.grown.remove(&grant.block);
        if let Some(ring) = &mut self.ring {
            let now = ring.now();
            ring.push(Raw { site: note.site, ..note.entry(Kind::Alloc, now, shard) });
        }
    }

    /// Takes in that a block became longer, of which the program asked for this number of bytes more. The history has
    /// what was added as another allocation, and frees it with the block. All of that counts as requested there, as the
    /// growth that its last page has room for is not in the history.
    pub(crate) fn grown(&mut self, shard: &Shard, requested: u64, grant: &Grant) {
        let note = self.note_mut(grant.block);
        if note.state != NoteState::Live {
            return;
        }
        let before = *note;
        (note.size, note.requested) = (grant.size, before.requested + requested);
        let size = grant.size - before.size;
        if size == 0 {
            return;
        }
        let first = Part { size: before.size, requested: before.requested };
        let part = Part { size, requested: size };
        self.grown.entry(grant.block).or_insert_with(|| vec![first]).push(part);
        if let Some(ring) = &mut self.ring {
            let now = ring.now();
            let added = Note { offset: before.offset + before.size, size, requested: size, ..before };
            ring.push(Raw { site: added.site, ..added.entry(Kind::Alloc, now, shard) });
        }
    }

    /// Returns the note of a block as the notes of its parts.
    fn parts_of(&self, block: BlockId, note: Note) -> Vec<Note> {
        let Some(parts) = self.grown.get(&block) else { return vec![note] };
        let mut offset = note.offset;
        let part = |&Part { size, requested }: &Part| {
            let part = Note { offset, size, requested, ..note };
            offset += size;
            part
        };
        parts.iter().map(part).collect()
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
        let kinds = [Kind::FreeRequested, Kind::FreeCompleted];
        self.push_parts(block, note, &kinds[..1 + usize::from(is_done)], shard, |entry| entry);
        if is_done {
            self.grown.remove(&block);
        }
    }

    /// Takes in that a freed block is free after a wait.
    pub(crate) fn retired(&mut self, shard: &Shard, retired: &Retired) {
        let note = self.note_mut(retired.block);
        let known = std::mem::replace(note, Note::VACANT);
        if known.state == NoteState::Waiting {
            self.push_parts(retired.block, known, &[Kind::FreeCompleted], shard, |entry| entry);
        }
        self.grown.remove(&retired.block);
    }

    /// Takes in that a block is used on a stream: until its free, or until a tick.
    pub(crate) fn used(&mut self, shard: &Shard, block: BlockId, stream: StreamId, until: Option<u64>) {
        let Some(note) = self.note(block).copied() else { return };
        let kind = if until.is_some() { Kind::Until } else { Kind::Use };
        self.push_parts(block, note, &[kind], shard, |entry| {
            let size = until.unwrap_or(entry.size);
            Raw { stream, size, ..entry }
        });
    }

    /// Adds entries of these kinds to the history, if there is one, for each part of a block.
    fn push_parts(&mut self, block: BlockId, note: Note, kinds: &[Kind], shard: &Shard, with: impl Fn(Raw) -> Raw) {
        let Some(now) = self.ring.as_mut().map(Ring::now) else { return };
        for part in self.parts_of(block, note) {
            for &kind in kinds {
                let entry = with(part.entry(kind, now, shard));
                self.ring.iter_mut().for_each(|ring| ring.push(entry));
            }
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
    pub(crate) fn happened(&mut self, shard: &Shard, entry: Raw) {
        if let Some(ring) = &mut self.ring {
            let now = ring.now();
            ring.push(Raw { ticks: now, pool: shard.pool(), tag: tag::current(), ..entry });
        }
    }

    /// Notes that a segment is at a slot.
    pub(crate) fn segment_came(&mut self, slot: Slot, id: SegmentId, bytes: u64) {
        let at = slot.0 as usize;
        if self.segments.len() <= at {
            self.segments.resize(at + 1, None);
        }
        self.segments[at] = Some((id, bytes));
    }

    /// Forgets the segment of a slot. Returns its id and its bytes, if they are known.
    pub(crate) fn segment_went(&mut self, slot: Slot) -> Option<(SegmentId, u64)> {
        self.segments.get_mut(slot.0 as usize).and_then(Option::take)
    }
}
