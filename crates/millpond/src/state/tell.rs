//! Telling the sinks what happens to blocks.

use millpond_backend::{Backend, StreamId};
use millpond_core::{Grant, SegmentId, Slot};

use super::{Lane, State};
use crate::events::Event;
use crate::notes::note::Out;

impl<B: Backend> State<B> {
    /// Reports to the sinks, if there are any, a block that was handed out.
    #[cold]
    pub(crate) fn tell_grant(&self, lane: &Lane<B>, stream: StreamId, requested: u64, grant: &Grant) {
        let Grant { slot, offset, size, .. } = *grant;
        self.tell_of(lane, (slot, offset), |segment, offset| Event::Grant { stream, requested, segment, offset, size });
    }

    /// Reports a free before the block is freed, so that its place is not handed out again first.
    pub(crate) fn tell_free(&self, lane: &Lane<B>, out: &Out) {
        self.tell_of(lane, (out.slot, out.offset), |segment, offset| Event::Free { segment, offset });
    }

    /// Passes to the sinks, if there are any, an event of a block that is handed out.
    pub(crate) fn tell_of(
        &self,
        lane: &Lane<B>,
        (slot, offset): (Slot, u64),
        event: impl FnOnce(SegmentId, u64) -> Event,
    ) {
        if self.sinks.is_told() {
            let segment = lane.lock().shard.segment_id(slot);
            self.sinks.tell(&event(segment, offset));
        }
    }
}
