//! What is noted, of all lanes together: turned on and off, read for the hook, and marked with what concerns no lane.

use millpond_backend::Backend;
use millpond_core::Coordinator;

use super::{Lane, LaneState, State};
use crate::notes::groups::{LiveGroup, groups_of};
use crate::notes::ring::Mark;
use crate::notes::switches::Switches;
use crate::raw::latched::Guard;

impl<B: Backend> State<B> {
    /// Changes the switches, for all lanes at one moment.
    pub(crate) fn throw(&self, anew: bool, change: impl FnOnce(&mut Switches)) {
        let coordinator = self.coordinator.lock();
        let noting = &self.sinks.noting;
        let mut switches = noting.inner.lock();
        change(&mut switches);
        let mut lanes = self.hold_lanes(&coordinator);
        lanes.iter_mut().for_each(|lane| lane.switch(&switches, anew));
        noting.publish(&switches);
        drop((lanes, switches));
        self.sinks.look();
        drop(coordinator);
    }

    /// Locks all lanes, in order. The caller holds the coordinator's lock: so no lane is opened meanwhile, and no other
    /// thread holds several.
    pub(crate) fn hold_lanes(&self, _coordinator: &Coordinator) -> Vec<Guard<'_, LaneState<B>>> {
        self.lanes().map(Lane::lock).collect()
    }

    /// Brings a lane that was just opened in line with the switches. The caller holds the coordinator's lock.
    pub(crate) fn note_new(&self, lane: &Lane<B>) {
        if self.sinks.noting.is_on() {
            let switches = self.sinks.noting.inner.lock();
            lane.lock().switch(&switches, true);
        }
    }

    /// Adds what concerns no stream to the history, if there is one.
    pub(crate) fn mark_event(&self, mark: impl FnOnce() -> Mark) {
        let noting = &self.sinks.noting;
        if noting.records()
            && let Some(marks) = &mut noting.inner.lock().marks
        {
            marks.push(mark());
        }
    }

    /// Returns the groups of the buffers that are alive and noted, at one moment.
    pub(crate) fn live_groups(&self) -> Vec<LiveGroup> {
        let coordinator = self.coordinator.lock();
        let lanes = self.hold_lanes(&coordinator);
        groups_of(lanes.iter().filter_map(|lane| lane.notes.as_ref()).flat_map(|notes| notes.live()))
    }

    /// Reports to the hook what is left, as the last handle ends.
    pub(crate) fn tell_of_what_is_left(&self) {
        let noting = &self.sinks.noting;
        if noting.is_on()
            && let Some(hook) = noting.hook.lock().take()
        {
            let left = self.live_groups();
            if !left.is_empty() {
                hook(left);
            }
        }
    }
}
