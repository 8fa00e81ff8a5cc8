//! What is noted of one block.

use std::panic::Location;

use millpond_backend::StreamId;
use millpond_core::{SegmentId, Shard, Slot};

use super::ring::{Kind, Raw};
use crate::tag::TagId;

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
    pub(super) const VACANT: Note = Note {
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
    pub(super) fn entry(&self, kind: Kind, ticks: u64, shard: &Shard) -> Raw {
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
