//! Work that is complete when it was seen to be in the recorded run.

use millpond_backend::{Backend, Point, StreamId, Tick};
use millpond_trace::Event;

use crate::flight::{Flight, Hold};
use crate::replay::Replay;

/// Work that is complete once the trace says that its device had reached it, or the host waits for it.
///
/// A piece of work is queued with each allocation and each use on another stream, and one more before each free, as a
/// program drops a buffer behind its last use: on the other streams that use the block, or else on its own. Where a
/// trace does not tell how far a stream was, its work takes no time. Ticks are closed at the points of the trace, and
/// where the allocator asks, so that a look shows what it showed then.
pub struct AsRecorded<'a> {
    device: Box<dyn Hold + 'a>,
    /// The streams of which the trace says how far they are.
    told: Vec<StreamId>,
    /// The newest point of each stream, unless something was queued after it.
    newest: Vec<Point>,
    /// What must be over because work is that has waited for it. The allocator has not seen that yet: it asks one
    /// stream after the other, and may have asked these before. The next time that it asks, they are.
    before: Vec<Point>,
    /// The time of the device's clock when the pass began, and when it was asked last in the pass.
    began: u64,
    now: u64,
    /// The time of the trace's first look.
    first: Option<u64>,
}

impl<'a> AsRecorded<'a> {
    /// Creates the work of a device, on the [streams of which the trace says it](Replay::streams_told). If the program
    /// [submits](Replay::has_submits), the device must be one where the application closes ticks.
    pub fn new(device: Box<dyn Hold + 'a>, told: Vec<StreamId>) -> Self {
        device.close_late();
        Self { device, told, newest: Vec::new(), before: Vec::new(), began: 0, now: 0, first: None }
    }

    /// Closes the tick of a stream's newest point, as something is about to be queued that the recorded one did not
    /// cover. If the device was asked meanwhile, it is closed.
    fn close_newest(&mut self, stream: StreamId) {
        if let Some(at) = self.newest.iter().position(|point| point.stream == stream) {
            self.device.close(self.newest.swap_remove(at));
        }
    }

    /// Completes what must be over, and what that has waited for.
    fn finish_before(&mut self) {
        while let Some(point) = self.before.pop() {
            let mut before = self.device.force(point);
            self.before.append(&mut before);
        }
    }
}

impl<B: Backend> Flight<B> for AsRecorded<'_> {
    fn begin(&mut self, stream: StreamId) -> Result<(), B::Error> {
        self.finish_before();
        self.close_newest(stream);
        if self.told.contains(&stream) {
            self.device.queue(stream);
        }
        Ok(())
    }

    fn has_last_uses(&self) -> bool {
        true
    }

    fn looked(&mut self, nanos: u64) {
        let since = nanos.saturating_sub(*self.first.get_or_insert(nanos));
        self.now = self.now.max(self.began.saturating_add(since));
        self.device.set_time(self.now);
    }

    fn waits(&mut self, stream: StreamId) {
        self.close_newest(stream);
    }

    fn marked(&mut self, point: Point) {
        self.newest.retain(|newest| newest.stream != point.stream);
        self.newest.push(point);
    }

    fn reached(&mut self, point: Point) {
        self.before.append(&mut self.device.force(point));
    }

    /// What the trace says nothing more of is complete when the program is.
    fn over(&mut self) {
        self.before.clear();
        self.began = self.now;
        for &stream in &self.told {
            self.device.force(Point { stream, tick: Tick(u64::MAX) });
        }
    }

    fn land(&mut self) {
        Flight::<B>::over(self);
    }
}

impl Replay {
    /// Returns whether the program submits its work. Work that is not submitted cannot be waited for, so a device on
    /// which the application closes ticks decides as the recorded one did.
    pub fn has_submits(&self) -> bool {
        self.has_submits
    }

    /// Returns how many bytes of addresses the recorded device had for its ranges, if they were limited. A device with
    /// as many has as long ranges, which decide where blocks lie.
    pub fn address_bytes(&self) -> Option<u64> {
        self.address_bytes
    }

    /// Returns the streams of which the trace says how far the device was: their indices among those of the replay. If
    /// there are any, a replay with [`AsRecorded`] has the work of the recorded run in flight.
    pub fn streams_told(&self) -> Vec<u32> {
        let (mut of_point, mut told) = (Vec::new(), Vec::new());
        for event in &self.events {
            match *event {
                Event::Mark { stream, .. } => of_point.push(stream),
                Event::HostWait { point } | Event::Reached { point } => {
                    let stream = of_point[point as usize];
                    if !told.contains(&stream) {
                        told.push(stream);
                    }
                }
                _ => {}
            }
        }
        told
    }
}
