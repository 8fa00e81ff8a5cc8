//! The order in which queued work completes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use millpond_backend::{Closing, Point, StreamId};
use parking_lot::{Mutex, MutexGuard};

use crate::Violation;
use crate::device::Device;
use crate::lane::{Op, Queue, Task};
use crate::space::Piece;

/// When queued work completes without an explicit call. Whatever is chosen, work of one stream completes in order,
/// device-side waits are honoured, a host wait completes what it waits for, and [`Work::Busy`](crate::Work::Busy) ends
/// only by a wait or an explicit completion.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Completion {
    /// Work completes as soon as it is submitted and no unfinished work is before it.
    #[default]
    Immediate,
    /// Work completes only through [`Sim::complete`](crate::Sim::complete) and the methods like it, and through host
    /// waits.
    Manual,
    /// A few tasks on a few lanes, drawn from the seed, complete at each `reached`, `wait` and
    /// [`Sim::step`](crate::Sim::step).
    Seeded(u64),
}

/// The most tasks that one seeded step completes. It is small, so that lanes stay apart for many polls.
const STEP_MAX: usize = 3;

/// The state that the device's lock guards: the queues, and the violations found while working through them.
pub(crate) struct State {
    /// Unfinished work per lane.
    pub(crate) queues: Vec<Queue>,
    pub(crate) violations: Vec<Violation>,
    next_task: u64,
    /// For each stream, the newest task before its last barrier.
    pub(crate) barriers: BTreeMap<StreamId, u64>,
    random: SplitMix,
}

impl State {
    pub(crate) fn new(completion: Completion) -> State {
        let seed = if let Completion::Seeded(seed) = completion { seed } else { 0 };
        State {
            queues: Vec::new(),
            violations: Vec::new(),
            next_task: 0,
            barriers: BTreeMap::new(),
            random: SplitMix(seed),
        }
    }

    /// Returns the number of the task that was queued last.
    pub(crate) fn newest_task(&self) -> u64 {
        self.next_task
    }
}

/// The splitmix64 generator: small, seeded, and the same on every machine.
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `bound`, which is small, so that the bias of the remainder does not matter.
    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}

impl Device {
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Queues work on a lane, and returns the tick that covers the work. First closes the lane's open tick if that was
    /// marked and the backend closes ticks, because an event recorded before the work does not wait for it.
    ///
    /// A call of [`settle`](Device::settle) must follow.
    pub(crate) fn queue(
        &self,
        state: &mut State,
        stream: StreamId,
        op: Op,
        reads: Vec<Piece>,
        writes: Vec<Piece>,
    ) -> u64 {
        let lane = self.lane(stream);
        if self.caps.closing == Closing::Backend {
            self.record(lane);
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

    fn submitted(&self, lane: usize, tick: u64) -> bool {
        self.caps.closing == Closing::Backend || tick < self.lanes[lane].open()
    }

    pub(crate) fn is_reached(&self, point: Point) -> bool {
        self.lane(point.stream).reached() >= point.tick.0
    }

    /// Completes the first task of a lane.
    fn run_first(&self, state: &mut State, lane: usize) {
        let task = state.queues[lane].pop_front().expect("a lane with a runnable task has a task");
        perform(&task);
        self.forget(&task);
        self.queued.fetch_sub(1, Ordering::Release);
        self.lanes[lane].leave(state.queues[lane].front().map(|next| next.tick));
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

    /// Does the same for one lane. `visiting` holds the lanes that are being finished further up: to need one of them
    /// again is a circle, which no wait can resolve.
    fn finish_lane(&self, state: &mut State, point: Point, submit: bool, visiting: &mut [bool]) {
        let lane = point.stream.0 as usize;
        if std::mem::replace(&mut visiting[lane], true) {
            return;
        }
        if submit && self.lanes[lane].open() <= point.tick.0 {
            self.lanes[lane].close();
        }
        while let Some(task) = state.queues[lane].front() {
            if task.tick > point.tick.0 || !self.submitted(lane, task.tick) {
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

/// Carries out the task on the bytes.
fn perform(task: &Task) {
    match &task.op {
        Op::Kernel | Op::Busy | Op::Wait(_) => {}
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
    let mut bytes = vec![crate::POISON; total as usize];
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
