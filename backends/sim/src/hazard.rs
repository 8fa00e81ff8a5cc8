//! Which work touches which physical bytes right now, and which work must not touch them at the same time.
//!
//! Each piece of physical memory lists the unfinished work that touches it. New work is compared with that list when it
//! is queued; a release or an unmap is compared with it when it is made. Bytes in conflict are poisoned at once, and
//! again when each task involved completes, so that the damage survives whatever those tasks write.

use millpond_backend::{Point, StreamId, Tick};

use crate::device::Device;
use crate::lane::{Op, Task};
use crate::memory::POISON;
use crate::schedule::State;
use crate::space::{Memory, Piece, Space};
use crate::{Access, Violation};

/// One unfinished task's use of some physical bytes.
#[derive(Clone)]
pub(crate) struct User {
    /// The device whose stream the task runs on, the task's number there, and the point that covers it.
    device: u64,
    pub(crate) task: u64,
    pub(crate) point: Point,
    access: Access,
    /// The offset in the physical memory.
    start: u64,
    bytes: u64,
    /// The segment or range through which the task touches the bytes, the offset in it, and the address.
    pub(crate) segment: u64,
    at: u64,
    address: u64,
    /// Bytes to poison when the task completes: (start in the physical memory, length).
    poison: Vec<(u64, u64)>,
}

/// Returns the common part of two spans of (start, length), if there is one.
fn common(a: (u64, u64), b: (u64, u64)) -> Option<(u64, u64)> {
    let start = a.0.max(b.0);
    let end = (a.0 + a.1).min(b.0 + b.1);
    (start < end).then(|| (start, end - start))
}

impl Space {
    /// Poisons bytes now, and again when each of their users completes.
    fn condemn(&mut self, physical: u64, span: (u64, u64)) {
        let Some(physical) = self.physical.get_mut(&physical) else { return };
        physical.store.fill(span.0, span.1, POISON);
        for user in &mut physical.users {
            if let Some(both) = common((user.start, user.bytes), span) {
                user.poison.push(both);
            }
        }
    }

    /// Returns a violation for each unfinished task that touches the physical memory.
    pub(crate) fn users(&self, physical: u64) -> Vec<Violation> {
        let users = self.physical.get(&physical).map_or(&[][..], |physical| &physical.users);
        users
            .iter()
            .map(|user| Violation::ReleasedInUse { other: user.point, address: user.address, bytes: user.bytes })
            .collect()
    }

    /// Returns a violation for each unfinished task that touches the physical memory through these addresses of a
    /// range, and poisons the bytes.
    pub(crate) fn users_through(&mut self, physical: u64, range: u64, offset: u64, bytes: u64) -> Vec<Violation> {
        let users = self.physical.get(&physical).map_or(&[][..], |physical| &physical.users);
        let mut found = Vec::new();
        let mut spans = Vec::new();
        for user in users.iter().filter(|user| user.segment == range) {
            if let Some((at, bytes)) = common((user.at, user.bytes), (offset, bytes)) {
                let address = user.address + (at - user.at);
                found.push(Violation::UnmappedInUse { other: user.point, address, bytes });
                spans.push((user.start + (at - user.at), bytes));
            }
        }
        for span in spans {
            self.condemn(physical, span);
        }
        found
    }
}

impl Memory {
    /// Adds an unfinished task to the users of the memory that the piece covers.
    fn enlist(&self, piece: &Piece, device: u64, task: &Task, stream: StreamId, access: Access) {
        if let Some(physical) = self.space().physical.get_mut(&piece.physical) {
            physical.users.push(User {
                device,
                task: task.number,
                point: Point { stream, tick: Tick(task.tick) },
                access,
                start: piece.start,
                bytes: piece.bytes,
                segment: piece.segment,
                at: piece.at,
                address: piece.address,
                poison: Vec::new(),
            });
        }
    }

    /// Removes a task that has completed, and poisons those of its bytes that were in conflict.
    pub(crate) fn retire(&self, physical: u64, device: u64, task: u64) {
        let mut space = self.space();
        let Some(physical) = space.physical.get_mut(&physical) else { return };
        let store = &mut physical.store;
        physical.users.retain(|user| {
            let over = user.device == device && user.task == task;
            if over {
                for (start, bytes) in &user.poison {
                    store.fill(*start, *bytes, POISON);
                }
            }
            !over
        });
    }

    /// Returns the users that are other tasks and share bytes with the piece, where at least one side writes, each with
    /// the span that both touch.
    fn rivals(&self, piece: &Piece, is_other: impl Fn(&User) -> bool, access: Access) -> Vec<(User, (u64, u64))> {
        let space = self.space();
        let Some(physical) = space.physical.get(&piece.physical) else { return Vec::new() };
        let clashes = |user: &&User| access == Access::Write || user.access == Access::Write;
        let both = |user: &User| common((user.start, user.bytes), (piece.start, piece.bytes));
        physical
            .users
            .iter()
            .filter(|user| is_other(user))
            .filter(clashes)
            .filter_map(|user| both(user).map(|span| (user.clone(), span)))
            .collect()
    }
}

impl Device {
    /// Adds the newest task of a lane to the users of all memory that it touches, and records its races.
    pub(crate) fn check_task(&self, state: &mut State, stream: StreamId, task: &Task) {
        let reads = task.reads.iter().map(|piece| (piece, Access::Read));
        let writes = task.writes.iter().map(|piece| (piece, Access::Write));
        for (piece, access) in reads.chain(writes) {
            piece.memory.enlist(piece, self.memory.device, task, stream, access);
            // Earlier work of its own stream comes before it where the stream keeps order, and else counts like another
            // stream's.
            let is_other = |user: &User| {
                let is_own = (user.device, user.point.stream) == (self.memory.device, stream);
                let itself = is_own && user.task == task.number;
                let comes_before = is_own && self.order.holds(state, stream, task, piece, user);
                !(itself || comes_before)
            };
            for (user, span) in piece.memory.rivals(piece, is_other, access) {
                let other_device = user.device != self.memory.device;
                if !other_device && self.ordered(state, stream, task, &user) {
                    continue;
                }
                piece.memory.space().condemn(piece.physical, span);
                state.violations.push(Violation::Race {
                    by: Point { stream, tick: Tick(task.tick) },
                    access,
                    other: user.point,
                    other_access: user.access,
                    other_device,
                    address: piece.address + (span.0 - piece.start),
                    bytes: span.1,
                });
            }
        }
    }

    /// Returns whether device-side waits order the new task of a lane and an unfinished one, in either direction. The
    /// unfinished one is of another lane, or of the same lane by way of another. The new one may come first where a
    /// stream may wait for a tick that is not submitted yet.
    fn ordered(&self, state: &State, stream: StreamId, task: &Task, other: &User) -> bool {
        let new = Point { stream, tick: Tick(task.tick) };
        waits_for(state, stream, task.number, other.point) || waits_for(state, other.point.stream, other.task, new)
    }
}

/// Returns whether a task of a lane begins only after `goal`, through the unfinished waits before it and the waits
/// before those. Finished waits need no look: the work that they waited for is finished too.
pub(crate) fn waits_for(state: &State, stream: StreamId, task: u64, goal: Point) -> bool {
    // The newest tick of each lane whose waits were looked at: each lane is walked again only for newer ones.
    let mut seen = vec![0; state.queues.len()];
    let mut todo: Vec<Point> = Vec::new();
    let before = |point: &Point| point.stream == goal.stream && point.tick >= goal.tick;
    for earlier in state.queues[stream.0 as usize].iter().filter(|earlier| earlier.number < task) {
        if let Op::Wait(point) = earlier.op {
            todo.push(point);
        }
    }
    while let Some(point) = todo.pop() {
        if before(&point) {
            return true;
        }
        let lane = point.stream.0 as usize;
        let old = seen[lane];
        seen[lane] = old.max(point.tick.0);
        let covered = state.queues[lane].iter().take_while(|task| task.tick <= point.tick.0);
        for task in covered.filter(|task| task.tick > old) {
            if let Op::Wait(point) = task.op {
                todo.push(point);
            }
        }
    }
    false
}
