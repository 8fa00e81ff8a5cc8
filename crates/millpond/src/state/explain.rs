//! Explaining a refusal with what is noted of the blocks.

use millpond_backend::Backend;
use millpond_core::{Coordinator, Report, SegmentId};

use super::State;
use crate::error::explain::{Explanation, Facts};
use crate::notes::groups::groups_of;
use crate::notes::note::Note;
use crate::tag::Names;

/// The most groups of live buffers that are named.
const HOLDERS_MAX: usize = 5;

impl<B: Backend> State<B> {
    /// Explains a refusal with what is known of the blocks. The caller holds the coordinator's lock, and no lane's.
    pub(crate) fn explain(&self, coordinator: &Coordinator, report: &Report) -> Explanation {
        let mut explanation = Explanation::of(report, Facts::of(self.backend.caps()));
        if !self.sinks.noting.is_on() {
            return explanation;
        }
        let lanes = self.hold_lanes(coordinator);
        let noted = || lanes.iter().filter_map(|lane| lane.notes.as_ref());
        let names = Names::now();
        if let Some(hole) = &mut explanation.hole {
            let segment: SegmentId = hole.range.segment;
            for block in &mut hole.pinned_by {
                let is_it = |note: &&Note| (note.segment, note.offset) == (segment, block.pin.offset);
                if let Some(note) = noted().flat_map(|notes| notes.all()).find(is_it) {
                    (block.label, block.site) = (names.of(note.label), note.site);
                }
            }
        }
        explanation.holders = groups_of(noted().flat_map(|notes| notes.live()));
        explanation.holders.truncate(HOLDERS_MAX);
        explanation.is_recorded = noted().any(|notes| notes.ring().is_some());
        explanation
    }
}
