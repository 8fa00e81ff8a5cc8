//! Streams: each has a queue, and a thread that does its work in order.

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use parking_lot::{Condvar, MutexGuard};

use crate::driver::code::{Answer, Code};
use crate::driver::work::Op;
use crate::driver::world::{self, PROGRESS, World};
use crate::table::RawViolation;

/// The number of a stream, which is never used again, unlike its handle.
pub(crate) type LaneId = usize;

/// A place in a stream's work: after the first `count` operations that were queued there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Position {
    pub(crate) lane: LaneId,
    pub(crate) count: u64,
}

pub(crate) struct Lane {
    pub(crate) device: usize,
    pub(crate) flags: u32,
    pub(crate) priority: i32,
    /// The work that is not done yet; the front may be running.
    pub(crate) queue: VecDeque<Op>,
    pub(crate) queued: u64,
    pub(crate) done: u64,
    /// The capture that it takes part in.
    pub(crate) capture: Option<u64>,
    pub(crate) wake: Arc<Condvar>,
    /// Whether the front of the queue is being done.
    pub(crate) running: bool,
    /// Whether its thread was started.
    serving: bool,
    /// Whether it was destroyed: its thread ends with its work.
    closing: bool,
}

/// The next step of a stream's thread.
enum Next {
    /// There is no work.
    Idle,
    /// The work waits for another stream, or a gate.
    Blocked,
    Run(Op),
    /// The stream was destroyed, and its work is done.
    End,
}

/// `CU_STREAM_NON_BLOCKING`.
pub(crate) const NON_BLOCKING: u32 = 1;

impl World {
    pub(crate) fn add_lane(&mut self, device: usize, flags: u32, priority: i32) -> LaneId {
        self.lanes.push(Lane {
            device,
            flags,
            priority,
            queue: VecDeque::new(),
            queued: 0,
            done: 0,
            capture: None,
            wake: Arc::new(Condvar::new()),
            running: false,
            serving: false,
            closing: false,
        });
        self.lanes.len() - 1
    }

    /// Returns the legacy default stream of a device.
    pub(crate) fn legacy(&mut self, device: usize) -> LaneId {
        if let Some(lane) = self.contexts[device].legacy {
            return lane;
        }
        let lane = self.add_lane(device, NON_BLOCKING, 0);
        self.contexts[device].legacy = Some(lane);
        lane
    }

    /// Returns this thread's default stream of a device.
    pub(crate) fn per_thread(&mut self, device: usize) -> LaneId {
        crate::driver::thread::default_lane(device, || self.add_lane(device, 0, 0))
    }

    pub(crate) fn is_legacy(&self, lane: LaneId) -> bool {
        self.contexts[self.lanes[lane].device].legacy == Some(lane)
    }

    /// Returns the streams that the legacy stream of the device is ordered against.
    fn blocking(&self, device: usize) -> impl Iterator<Item = (LaneId, &Lane)> {
        let lanes = self.lanes.iter().enumerate();
        lanes.filter(move |(_, lane)| lane.device == device && lane.flags & NON_BLOCKING == 0)
    }

    /// Returns the captures that a stream would depend on if work were queued there now: none unless it is a legacy
    /// stream.
    pub(crate) fn implicit(&self, lane: LaneId) -> Vec<u64> {
        if !self.is_legacy(lane) {
            return Vec::new();
        }
        self.blocking(self.lanes[lane].device).filter_map(|(_, lane)| lane.capture).collect()
    }

    /// Fails, and spoils the captures, if the legacy stream would now depend on work that is only captured.
    pub(crate) fn refuse_implicit(&mut self, lane: LaneId) -> Answer {
        let captures = self.implicit(lane);
        for capture in &captures {
            self.spoil(*capture);
        }
        if captures.is_empty() { Ok(()) } else { Err(Code::STREAM_CAPTURE_IMPLICIT) }
    }

    /// Queues work, or records it if the stream is captured.
    pub(crate) fn push(&mut self, lane: LaneId, op: Op) -> Answer {
        if let Some(capture) = self.lanes[lane].capture {
            return self.record(capture, lane, op);
        }
        self.refuse_implicit(lane)?;
        let device = self.lanes[lane].device;
        let pending = |id: LaneId, other: &Lane| {
            (other.done < other.queued).then_some(Position { lane: id, count: other.queued })
        };
        let before: Vec<Position> = if self.is_legacy(lane) {
            self.blocking(device).filter_map(|(id, other)| pending(id, other)).collect()
        } else if self.lanes[lane].flags & NON_BLOCKING == 0 {
            let legacy = self.contexts[device].legacy;
            legacy.and_then(|id| pending(id, &self.lanes[id])).into_iter().collect()
        } else {
            Vec::new()
        };
        if !before.is_empty() {
            self.append(lane, Op::After(before));
        }
        self.append(lane, op);
        Ok(())
    }

    fn append(&mut self, lane: LaneId, op: Op) {
        let this = &mut self.lanes[lane];
        this.queue.push_back(op);
        this.queued += 1;
        if this.serving {
            this.wake.notify_one();
            return;
        }
        this.serving = true;
        let started = thread::Builder::new().name(format!("cuda-stream-{lane}")).spawn(move || serve(lane));
        started.expect("the host has no thread for another stream");
    }

    /// Returns all places that must be reached for a stream to be idle: the legacy stream includes the streams that it
    /// is ordered against.
    pub(crate) fn ends_of(&self, lane: LaneId) -> Vec<Position> {
        let mut ends = vec![self.end(lane)];
        if self.is_legacy(lane) {
            let others = self.blocking(self.lanes[lane].device);
            ends.extend(others.map(|(id, other)| Position { lane: id, count: other.queued }));
        }
        ends
    }

    /// Returns the current end of a stream's work.
    pub(crate) fn end(&self, lane: LaneId) -> Position {
        Position { lane, count: self.lanes[lane].queued }
    }

    /// Destroys a stream. What is queued still runs.
    pub(crate) fn close(&mut self, lane: LaneId) {
        if let Some(capture) = self.lanes[lane].capture.take() {
            self.spoil(capture);
        }
        self.lanes[lane].closing = true;
        self.lanes[lane].wake.notify_all();
    }

    /// Drops what streams of broken devices have queued.
    pub(crate) fn drop_broken_work(&mut self) {
        for device in 0..self.contexts.len() {
            if self.contexts[device].broken.is_some() {
                self.drop_work(device);
            }
        }
    }

    /// Drops what the streams of a device have queued. Operations that are running still complete.
    pub(crate) fn drop_work(&mut self, device: usize) {
        for lane in self.lanes.iter_mut().filter(|lane| lane.device == device) {
            let kept = usize::from(lane.running);
            lane.done += (lane.queue.len() - kept) as u64;
            lane.queue.truncate(kept);
        }
        PROGRESS.notify_all();
    }

    fn next(&mut self, lane: LaneId) -> Next {
        loop {
            let device = self.lanes[lane].device;
            if self.contexts[device].broken.is_some() && !self.lanes[lane].queue.is_empty() {
                self.drop_work(device);
            }
            let Some(op) = self.lanes[lane].queue.front() else {
                return if self.lanes[lane].closing { Next::End } else { Next::Idle };
            };
            match op {
                Op::After(positions) if positions.iter().all(|position| self.reached(*position)) => {}
                Op::Gate(gate) if !self.gates.contains(gate) => {}
                Op::After(_) | Op::Gate(_) => return Next::Blocked,
                Op::Stamp { event, record } => {
                    let (event, record) = (*event, *record);
                    if let Some(event) = self.events.get_mut(event) {
                        event.stamp(record, Instant::now());
                    }
                }
                _ => {
                    let op = op.clone();
                    self.lanes[lane].running = true;
                    return Next::Run(op);
                }
            }
            self.complete(lane, Ok(()));
        }
    }

    /// Removes the front of a queue, which is done. A failure breaks the device.
    fn complete(&mut self, lane: LaneId, outcome: Answer) {
        let this = &mut self.lanes[lane];
        this.running = false;
        this.done += 1;
        let device = this.device;
        let Some(op) = this.queue.pop_front() else { panic!("stream {lane} has completed work that it does not have") };
        if let Err(code) = outcome {
            let (address, bytes) = op.target();
            self.violations.push(RawViolation { kind: 2, device: device as u32, address, bytes });
            self.break_device(device, code);
        }
        PROGRESS.notify_all();
    }
}

/// Does the work of a stream, on its own thread.
fn serve(lane: LaneId) {
    let mut world = world::lock();
    loop {
        match world.next(lane) {
            Next::End => return,
            Next::Blocked => PROGRESS.wait(&mut world),
            Next::Idle => {
                let wake = Arc::clone(&world.lanes[lane].wake);
                wake.wait(&mut world);
            }
            Next::Run(op) => {
                let outcome = MutexGuard::unlocked(&mut world, || op.run());
                world.complete(lane, outcome);
            }
        }
    }
}
