//! Work that is complete when it was seen to be in the recorded run.

use millpond_backend::{Backend, Point, StreamId};
use millpond_trace::Event;

use crate::flight::{Flight, Hold};
use crate::replay::Replay;

/// Work that is complete once the trace says that its device had reached it, or the host waits for it.
///
/// A piece of work is queued with each allocation and each use on another stream, and one more before each free, as a
/// program drops a buffer behind its last use: on the other streams that use the block, or else on its own. Where a
/// trace does not tell how far a stream was, its work takes no time.
pub struct AsRecorded<'a> {
    device: Box<dyn Hold + 'a>,
    /// The streams of which the trace says how far they are.
    told: Vec<StreamId>,
    /// The newest piece of work of each stream.
    newest: Vec<Point>,
}

impl<'a> AsRecorded<'a> {
    /// Creates the work of a device, on the [streams of which the trace says it](Replay::streams_told). If the program
    /// [submits](Replay::has_submits), the device must be one where the application closes ticks.
    pub fn new(device: Box<dyn Hold + 'a>, told: Vec<StreamId>) -> Self {
        Self { device, told, newest: Vec::new() }
    }
}

impl<B: Backend> Flight<B> for AsRecorded<'_> {
    fn begin(&mut self, stream: StreamId) -> Result<(), B::Error> {
        if self.told.contains(&stream) {
            let point = Point { stream, tick: self.device.begin(stream) };
            match self.newest.iter_mut().find(|newest| newest.stream == stream) {
                Some(newest) => *newest = point,
                None => self.newest.push(point),
            }
        }
        Ok(())
    }

    fn has_last_uses(&self) -> bool {
        true
    }

    fn reached(&mut self, backend: &B, point: Point) -> Result<(), B::Error> {
        backend.wait(point).map(drop)
    }

    /// What the trace says nothing more of is complete when the program is.
    fn over(&mut self) {
        loop {
            let before = self.newest.len();
            self.newest.retain(|point| !self.device.finish(*point));
            if self.newest.is_empty() || self.newest.len() == before {
                break;
            }
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
