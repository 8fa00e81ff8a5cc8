//! Turning the notes and the history on and off, and copying them.

use millpond_backend::Backend;
use millpond_core::Coordinator;

use super::{Switches, Watch};
use crate::observe::history::{Mark, Marks, Recording, Ring, Rings};
use crate::observe::live::Tracking;
use crate::raw::clock::Clock;
use crate::raw::latched::Guard;
use crate::state::{Lane, LaneState, State};
use crate::sync::Ordering;

impl Switches {
    fn is_on(&self) -> bool {
        self.tracking != Tracking::Off || self.recording.is_on()
    }

    fn sites(&self) -> bool {
        self.tracking == Tracking::Sites || self.recording.is_on()
    }

    fn ring(&self) -> Option<Ring> {
        Some(Ring::new(self.clock?, self.recording.entries()?))
    }
}

impl<B: Backend> LaneState<B> {
    /// Brings the watch in line with the switches. With `anew` the lane's part of the history begins anew.
    fn switch(&mut self, switches: &Switches, anew: bool) {
        if !switches.is_on() {
            self.watch = None;
            self.shard.list_retired(false);
            return;
        }
        let fresh = self.watch.is_none();
        let new = || Box::new(Watch { sites: false, notes: Vec::new(), ring: None, segments: Vec::new() });
        let watch = self.watch.get_or_insert_with(new);
        watch.sites = switches.sites();
        if fresh {
            self.shard.list_retired(true);
        }
        if anew {
            watch.ring = switches.ring();
            watch.segments.clear();
            for view in self.shard.tidied().layout() {
                watch.segment_came(view.slot, view.id, view.bytes);
            }
        }
    }
}

impl<B: Backend> State<B> {
    pub(crate) fn track(&self, tracking: Tracking) {
        self.throw(false, |switches| switches.tracking = tracking);
    }

    pub(crate) fn record(&self, recording: Recording) {
        self.throw(true, |switches| {
            let clock = recording.entries().map(|_| Clock::start());
            let bound = recording.entries().unwrap_or(0);
            switches.recording = recording;
            switches.clock = clock;
            switches.marks = clock.map(|clock| Marks::new(clock, bound));
        });
    }

    /// Changes the switches, for all lanes at one moment.
    fn throw(&self, anew: bool, change: impl FnOnce(&mut Switches)) {
        let coordinator = self.coordinator.lock();
        let watching = &self.sinks.watching;
        let mut switches = watching.inner.lock();
        change(&mut switches);
        let mut lanes = self.hold_lanes(&coordinator);
        lanes.iter_mut().for_each(|lane| lane.switch(&switches, anew));
        watching.on.store(switches.is_on(), Ordering::Relaxed);
        watching.rings.store(switches.marks.is_some(), Ordering::Relaxed);
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
    pub(crate) fn watch_new(&self, lane: &Lane<B>) {
        if self.sinks.watching.is_on() {
            let switches = self.sinks.watching.inner.lock();
            lane.lock().switch(&switches, true);
        }
    }

    /// Adds what concerns no stream to the history, if there is one.
    pub(crate) fn mark_event(&self, mark: impl FnOnce() -> Mark) {
        let watching = &self.sinks.watching;
        if watching.rings.load(Ordering::Relaxed)
            && let Some(marks) = &mut watching.inner.lock().marks
        {
            marks.push(mark());
        }
    }

    /// Returns a copy of the history, if there is one.
    pub(crate) fn copy_rings(&self) -> Option<Rings> {
        let coordinator = self.coordinator.lock();
        let lanes = self.hold_lanes(&coordinator);
        self.copy_rings_of(&lanes)
    }

    /// Returns a copy of the history, for a caller that holds all lanes.
    pub(crate) fn copy_rings_of(&self, lanes: &[Guard<'_, LaneState<B>>]) -> Option<Rings> {
        let switches = self.sinks.watching.inner.lock();
        let rings = lanes.iter().filter_map(|lane| lane.watch.as_ref()?.ring());
        switches.marks.as_ref().map(|marks| Rings::copy(marks, rings))
    }
}
