//! The order in which queued work completes.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use millpond_backend::{Closing, Point, StreamId, Tick};
use parking_lot::Mutex;

use super::Time;
use super::state::State;
use crate::open::Completion;
use crate::space::Piece;
use crate::space::store::POISON;
use crate::streams::lane::{Op, Task};

/// The most tasks that one seeded step completes. It is small, so that lanes stay apart for many polls.
const STEP_MAX: usize = 3;

impl Time {
    /// Queues work on a lane, and returns the tick that covers the work. First closes the lane's open tick if that was
    /// marked and the backend closes ticks, because an event recorded before the work does not wait for it. A device
    /// that closes ticks late records the event later.
    ///
    /// A call of [`settle`](Device::settle) must follow.
    pub(crate) fn queue(
        &self,
        state: &mut State,
        stream: StreamId,
        op: Op,
        reads: Vec<Piece>,
        writes: Vec<Piece>,
    ) -> Tick {
        let lane = self.lane(stream);
        if self.caps.closing == Closing::Backend && !self.closes_late.load(Ordering::Relaxed) {
            self.record(lane, Tick(u64::MAX));
        }
        state.next_task += 1;
        let task = Task { number: state.next_task, tick: lane.enter(), op, reads, writes };
        self.check_task(state, stream, &task);
        let tick = task.tick;
        state.queues[stream.0 as usize].push_back(task);
        self.queued.fetch_add(1, Ordering::Release);
        tick
    }

    /// Completes the work that the device completes without an explicit call, after a change.
    pub(crate) fn settle(&self, state: &mut State) {
        match self.completion {
            Completion::Immediate => self.drain(state, |op| !matches!(op, Op::Busy)),
            Completion::Manual | Completion::Seeded(_) => self.drain(state, |op| matches!(op, Op::Wait(_))),
        }
    }

    /// Completes, on all lanes, all work of the chosen kinds that can complete.
    pub(crate) fn drain(&self, state: &mut State, kinds: fn(&Op) -> bool) {
        let mut progress = self.queued.load(Ordering::Acquire) > 0;
        while progress {
            progress = false;
            for lane in 0..state.queues.len() {
                while self.runnable(state, lane) && kinds(&state.queues[lane][0].op) {
                    self.run_first(state, lane);
                    progress = true;
                }
            }
        }
    }

    /// Returns whether the first task of a lane is submitted and its wait, if it is one, is over.
    fn runnable(&self, state: &State, lane: usize) -> bool {
        let Some(task) = state.queues[lane].front() else { return false };
        self.submitted(lane, task.tick)
            && match task.op {
                Op::Wait(point) => self.is_reached(point),
                _ => true,
            }
    }

    fn submitted(&self, lane: usize, tick: Tick) -> bool {
        self.caps.closing == Closing::Backend || tick < self.lane(id(lane)).clock.open()
    }

    pub(crate) fn is_reached(&self, point: Point) -> bool {
        self.lane(point.stream).clock.reached() >= point.tick
    }

    /// Completes the first task of a lane.
    fn run_first(&self, state: &mut State, lane: usize) {
        let task = state.queues[lane].pop_front().expect("a lane with a runnable task has a task");
        perform(&task);
        self.forget(&task);
        self.queued.fetch_sub(1, Ordering::Release);
        self.lane(id(lane)).leave(state.queues[lane].front().map(|next| next.tick));
    }

    /// Removes a task from the users of the memory that it touches.
    pub(crate) fn forget(&self, task: &Task) {
        for piece in task.reads.iter().chain(&task.writes) {
            piece.memory.retire(piece.physical, self.memory.device, task.number);
        }
    }

    /// Completes only what a host wait for the point needs. With `submit`, closes the ticks that stand in the way;
    /// without it, stops at work that was never submitted.
    pub(crate) fn finish(&self, state: &mut State, point: Point, submit: bool) {
        let mut visiting = vec![false; state.queues.len()];
        self.finish_lane(state, point, submit, &mut visiting);
    }

    /// Does this for one lane. `visiting` holds the lanes that are being finished further up: to need one of them
    /// again is a circle, which no wait can resolve.
    fn finish_lane(&self, state: &mut State, point: Point, submit: bool, visiting: &mut [bool]) {
        let lane = point.stream.0 as usize;
        if std::mem::replace(&mut visiting[lane], true) {
            return;
        }
        if submit && self.lane(id(lane)).clock.open() <= point.tick {
            self.lane(id(lane)).close();
        }
        while let Some(task) = state.queues[lane].front() {
            if task.tick > point.tick || !self.submitted(lane, task.tick) {
                break;
            }
            if let Op::Wait(other) = task.op
                && !self.is_reached(other)
            {
                self.finish_lane(state, other, submit, visiting);
                if !self.is_reached(other) {
                    break;
                }
            }
            self.run_first(state, lane);
        }
        visiting[lane] = false;
    }

    /// Completes at most `most` tasks of one lane, not counting waits, and returns the number of tasks.
    pub(crate) fn complete(&self, state: &mut State, stream: StreamId, most: u64) -> u64 {
        let lane = stream.0 as usize;
        let mut done = 0;
        while done < most && self.runnable(state, lane) {
            done += u64::from(!matches!(state.queues[lane][0].op, Op::Wait(_)));
            self.run_first(state, lane);
        }
        self.settle(state);
        done
    }

    /// Completes what a point covers of one lane, as far as it was submitted, and returns the waits that were not over.
    pub(crate) fn force(&self, state: &mut State, point: Point) -> Vec<Point> {
        let lane = point.stream.0 as usize;
        let mut passed = Vec::new();
        while let Some(task) = state.queues.get(lane).and_then(|queue| queue.front())
            && task.tick <= point.tick
            && self.submitted(lane, task.tick)
        {
            if let Op::Wait(other) = task.op
                && !self.is_reached(other)
            {
                passed.push(other);
            }
            self.run_first(state, lane);
        }
        self.settle(state);
        passed
    }

    /// Makes one adversarial step: completes some tasks, each on a lane drawn among those that can proceed. The lanes
    /// that are not drawn fall behind.
    pub(crate) fn step(&self, state: &mut State) {
        let Completion::Seeded(_) = self.completion else { return };
        let queued = self.queued.load(Ordering::Acquire) as usize;
        if queued == 0 {
            return;
        }
        for _ in 0..state.random.below(queued.min(STEP_MAX) + 1) {
            let movable: Vec<usize> = (0..state.queues.len())
                .filter(|lane| self.runnable(state, *lane) && !matches!(state.queues[*lane][0].op, Op::Busy))
                .collect();
            if movable.is_empty() {
                break;
            }
            let lane = movable[state.random.below(movable.len())];
            self.run_first(state, lane);
        }
        self.settle(state);
    }
}

/// Returns the stream whose queue has that place.
fn id(lane: usize) -> StreamId {
    StreamId(lane as u32)
}

/// Carries out the task on the bytes.
fn perform(task: &Task) {
    match &task.op {
        Op::Kernel | Op::Busy | Op::Wait(_) | Op::Unkept => {}
        Op::Fill(value) => {
            for piece in &task.writes {
                if let Some(physical) = piece.memory.space().physical.get_mut(&piece.physical) {
                    physical.store.fill(piece.start, piece.bytes, *value);
                }
            }
        }
        Op::Copy => put(&task.writes, &fetch(&task.reads)),
        Op::Upload(bytes) => put(&task.writes, bytes),
        Op::Download(to) => deliver(to, fetch(&task.reads)),
    }
}

fn deliver(to: &Arc<Mutex<Vec<u8>>>, bytes: Vec<u8>) {
    *to.lock() = bytes;
}

/// Reads all pieces, one behind the other. Memory that was released in the meantime reads as poison.
fn fetch(pieces: &[Piece]) -> Vec<u8> {
    let total: u64 = pieces.iter().map(|piece| piece.bytes).sum();
    let mut bytes = vec![POISON; total as usize];
    let mut at = 0;
    for piece in pieces {
        let end = at + piece.bytes as usize;
        if let Some(physical) = piece.memory.space().physical.get_mut(&piece.physical) {
            physical.store.read(piece.start, &mut bytes[at..end]);
        }
        at = end;
    }
    bytes
}

/// Writes bytes over all pieces, one behind the other.
fn put(pieces: &[Piece], bytes: &[u8]) {
    let mut at = 0;
    for piece in pieces {
        let end = (at + piece.bytes as usize).min(bytes.len());
        if let Some(physical) = piece.memory.space().physical.get_mut(&piece.physical) {
            physical.store.write(piece.start, &bytes[at..end]);
        }
        at = end;
    }
}
