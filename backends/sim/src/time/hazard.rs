//! Which work must not touch the same bytes at the same time, because nothing orders the two.

use millpond_backend::{Point, StreamId, Tick};

use super::Time;
use super::order::comes_before;
use super::state::State;
use crate::space::users::User;
use crate::space::violation::{Access, Violation};
use crate::streams::lane::{Op, Task};

impl Time {
    /// Adds the newest task of a lane to the users of all memory that it touches, and records its races.
    pub(crate) fn check_task(&self, state: &mut State, stream: StreamId, task: &Task) {
        let reads = task.reads.iter().map(|piece| (piece, Access::Read));
        let writes = task.writes.iter().map(|piece| (piece, Access::Write));
        let covers = Point { stream, tick: task.tick };
        for (piece, access) in reads.chain(writes) {
            piece.memory.enlist(piece, self.memory.device, task.number, covers, access);
            // Earlier work of its own stream comes before it where the stream keeps order, and else counts like another
            // stream's.
            let is_other = |user: &User| {
                let is_own = (user.device, user.point.stream) == (self.memory.device, stream);
                let itself = is_own && user.task == task.number;
                let comes_first = is_own && comes_before(self.order, state, stream, task, piece, user);
                !(itself || comes_first)
            };
            for (user, span) in piece.memory.rivals(piece, is_other, access) {
                let other_device = user.device != self.memory.device;
                if !other_device && self.ordered(state, stream, task, &user) {
                    continue;
                }
                piece.memory.space().condemn(piece.physical, span);
                state.violations.push(Violation::Race {
                    by: covers,
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
        let new = Point { stream, tick: task.tick };
        waits_for(state, stream, task.number, other.point) || waits_for(state, other.point.stream, other.task, new)
    }
}

/// Returns whether a task of a lane begins only after `goal`, through the unfinished waits before it and the waits
/// before those. Finished waits need no look: the work that they waited for is finished too.
pub(crate) fn waits_for(state: &State, stream: StreamId, task: u64, goal: Point) -> bool {
    // The newest tick of each lane whose waits were looked at: each lane is walked again only for newer ones.
    let mut seen = vec![Tick::ZERO; state.queues.len()];
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
        seen[lane] = old.max(point.tick);
        let covered = state.queues[lane].iter().take_while(|task| task.tick <= point.tick);
        for task in covered.filter(|task| task.tick > old) {
            if let Op::Wait(point) = task.op {
                todo.push(point);
            }
        }
    }
    false
}
