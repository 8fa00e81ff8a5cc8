//! What dropped allocators leave, until no work may touch it.

use std::collections::BTreeSet;

use millpond_backend::{Backend, Left, Point, StreamId, Tick};

use super::Vulkan;
use crate::error::VulkanError;
use crate::memory::Segment;
use crate::pages::Page;

impl Vulkan {
    /// Implements `leave`.
    ///
    /// Work that this backend has recorded is known: it is passed to the driver and waited for, and then all of the
    /// memory goes back at once. Where an engine submits, its commands are not known. They may use what was shown to
    /// it, and are covered by the open tick of their stream: memory that was shown waits for the submit that closes it.
    pub(super) fn take_left(&self, mut left: Left<Segment, Page>) {
        let is_shown = || left.is_addressed || left.segments.iter().chain(&left.ranges).any(Segment::is_shown);
        let submits_around = self.device.memory.caps.needs_barrier;
        if !(submits_around && is_shown()) {
            left.points.iter_mut().for_each(|point| point.tick = self.finish_recorded(*point));
        }
        for &point in &left.points {
            // If this fails, the device is lost, and the memory stays with it.
            let _ = self.device.time.wait(point);
        }
        if let Some(due) = self.device.leavings.keep(left, |stream| self.known(stream)) {
            self.give_back(due);
        }
    }

    /// Has the memory of dropped allocators go back: submits what is open on the streams that used it, and waits for
    /// that. An engine that submits by itself ([`engine_submits`](crate::VulkanBuilder::engine_submits)) calls this
    /// where it submits no more on those streams; elsewhere, nothing waits for it. Costs nothing if nothing was left.
    ///
    /// Call it once all command buffers that use memory of dropped allocators were submitted: their memory is gone
    /// afterwards. It may be called while other allocators are in use.
    ///
    /// # Errors
    ///
    /// The driver's errors. What was not released stays with the device, and may be released by a later call.
    pub fn release_left(&self) -> Result<(), VulkanError> {
        let mut submitted = BTreeSet::new();
        loop {
            // What has waited for one stream may wait for another next.
            let mut streams = self.device.leavings.streams();
            streams.retain(|stream| submitted.insert(*stream));
            if streams.is_empty() {
                break;
            }
            for stream in streams {
                let tick = Backend::submit(self, stream)?;
                self.device.time.wait(Point { stream, tick })?;
                self.give_back_of(stream);
            }
        }
        self.give_back_due();
        self.flush_binds()
    }

    /// Waits for what was recorded on a stream through this backend. Returns the newest tick at which anything may
    /// still be in flight there that this backend knows of: that of the point itself while its stream is busy.
    fn finish_recorded(&self, point: Point) -> Tick {
        let (time, lane) = (&self.device.time, self.device.streams.lane(point.stream));
        // This thread, or another one, may be recording or submitting there.
        let Some(state) = lane.state.try_lock() else { return point.tick };
        if state.has_commands() && time.finish_recorded(lane, state).is_err() {
            return point.tick;
        }
        point.tick.min(lane.clock.submitted())
    }

    /// Gives back what a stream's progress has made due.
    pub(super) fn give_back_of(&self, stream: StreamId) {
        self.give_back_all(self.device.leavings.due(stream, |stream| self.known(stream)));
    }

    /// Gives back everything that is due. Returns whether there was anything.
    pub(super) fn give_back_due(&self) -> bool {
        let reached = |stream| {
            let lane = self.device.streams.lane(stream);
            let known = lane.clock.reached();
            let is_behind = known < lane.clock.submitted();
            // An error means that the device is lost, which frees nothing.
            if is_behind { self.device.time.query(lane).unwrap_or(known) } else { known }
        };
        let due = self.device.leavings.all_due(reached);
        let any = !due.is_empty();
        self.give_back_all(due);
        any
    }

    /// Makes a request once more if it is refused and what was left could be given back.
    pub(super) fn with_what_was_left<T>(&self, ask: impl Fn() -> Result<T, VulkanError>) -> Result<T, VulkanError> {
        ask().or_else(|error| if error.is_short() && self.give_back_due() { ask() } else { Err(error) })
    }

    /// Returns the newest tick that is known to be complete, without a driver call.
    fn known(&self, stream: StreamId) -> Tick {
        self.device.streams.lane(stream).clock.reached()
    }

    fn give_back_all(&self, due: Vec<Left<Segment, Page>>) {
        due.into_iter().for_each(|left| self.give_back(left));
    }

    /// Gives memory back that no work touches any more.
    fn give_back(&self, left: Left<Segment, Page>) {
        let Left { segments, ranges, pages, .. } = left;
        for page in pages {
            for at in page.mapped {
                self.device.pages.unmap(&ranges[at.range], at.offset, &page.page);
            }
            self.device.pages.release_page(page.page);
        }
        ranges.into_iter().for_each(|range| self.device.pages.release_range(range));
        segments.into_iter().for_each(|segment| self.device.memory.release(segment));
    }
}
