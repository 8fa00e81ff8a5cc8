//! What a lane notes of its own blocks, while its lock is held.

use millpond_backend::{Backend, Point, StreamId};
use millpond_core::{BlockId, Grant};

use super::LaneState;
use crate::notes::lane::Notes;
use crate::notes::note::{Asked, Out};
use crate::notes::switches::Switches;

impl<B: Backend, O> LaneState<B, O> {
    /// Takes in that a block was handed out.
    #[inline]
    pub(crate) fn granted(&mut self, asked: &Asked, requested: u64, grant: &Grant) {
        if let Some(notes) = &mut self.notes {
            notes.granted(&self.shard, asked, requested, grant);
        }
    }

    /// Takes in that a block became longer, and that the program asked for this number of bytes more.
    pub(crate) fn grown(&mut self, requested: u64, grant: &Grant) {
        if let Some(notes) = &mut self.notes {
            notes.grown(&self.shard, requested, grant);
        }
    }

    /// Takes in that a block was freed, and whether it is free at once.
    #[inline]
    pub(crate) fn freed(&mut self, block: BlockId, out: &Out, base: u64, is_done: bool) {
        if let Some(notes) = &mut self.notes {
            if is_done {
                // A block whose wait was over already is listed as well.
                drop(self.shard.take_retired());
            }
            notes.freed(&self.shard, block, out, base, is_done);
        }
    }

    /// Has a block be used on a stream until its free.
    pub(crate) fn use_on(&mut self, block: BlockId, stream: StreamId) {
        self.shard.record_stream(block, stream);
        if let Some(notes) = &mut self.notes {
            notes.used(&self.shard, block, stream, None);
        }
    }

    /// Has a block be used until a point.
    pub(crate) fn use_until(&mut self, block: BlockId, point: Point) {
        self.shard.used_until(block, point);
        if let Some(notes) = &mut self.notes {
            notes.used(&self.shard, block, point.stream, Some(point.tick.0));
        }
    }

    /// Takes in which blocks the core has made free.
    pub(crate) fn note_retired(&mut self) {
        if let Some(notes) = &mut self.notes {
            let retired = self.shard.take_retired();
            retired.iter().for_each(|retired| notes.retired(&self.shard, retired));
        }
    }

    /// Brings the notes in line with the switches. With `anew` the lane's part of the history begins anew.
    pub(crate) fn switch(&mut self, switches: &Switches, anew: bool) {
        if !switches.is_on() {
            self.notes = None;
            self.shard.list_retired(false);
            return;
        }
        let fresh = self.notes.is_none();
        let notes = self.notes.get_or_insert_with(|| Box::new(Notes::new()));
        notes.note_sites(switches.sites());
        if fresh {
            self.shard.list_retired(true);
        }
        if anew {
            notes.begin(switches.ring(), &self.shard.tidied().layout());
        }
    }
}
