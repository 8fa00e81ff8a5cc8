//! Running a workload with a subject.

use std::rc::Rc;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use millpond_replay::Replay;

use super::evictor::Evictor;
use super::latency::Meter;
use crate::subject::{Millpond, Subject};
use crate::workload::{Op, Workload};

/// A subject and its workload, ready for one more pass.
pub trait Runner {
    /// Runs the timed list once and returns the time that it took.
    fn pass(&mut self) -> Duration;

    /// Runs the timed list once and records the time of each operation.
    fn latencies(&mut self, meter: &Meter, into: &mut Histogram<u64>);

    /// Runs the timed list once and records the time of each operation at a multiple of `stride`, in front of which the
    /// evictor writes its memory.
    fn evicted(&mut self, meter: &Meter, evictor: &mut Evictor, stride: usize, into: &mut Histogram<u64>);

    /// Returns the number of driver calls since the subject was made, or `None` if it does not count them.
    fn driver_calls(&self) -> Option<u64>;
}

/// A subject and the blocks that it has granted.
pub struct Player<S: Subject> {
    subject: S,
    slots: Vec<Option<S::Block>>,
    workload: Rc<Workload>,
}

impl<S: Subject> Player<S> {
    /// Runs the preparation of the workload on a new subject, so that the timed list can start.
    pub fn new(mut subject: S, workload: Rc<Workload>) -> Self {
        let mut slots = empty_slots(workload.slots);
        play(&mut subject, &mut slots, &workload.prepare);
        Self { subject, slots, workload }
    }

    /// Returns the subject.
    pub fn subject(&self) -> &S {
        &self.subject
    }

    /// Frees all blocks and returns the subject.
    pub fn into_subject(mut self) -> S {
        self.slots.into_iter().flatten().for_each(|block| self.subject.free(block));
        self.subject
    }
}

pub(super) fn empty_slots<T>(count: usize) -> Vec<Option<T>> {
    std::iter::repeat_with(|| None).take(count).collect()
}

/// Runs one list.
pub(super) fn play<S: Subject>(subject: &mut S, slots: &mut [Option<S::Block>], ops: &[Op]) {
    for op in ops {
        step(subject, slots, op);
    }
}

#[inline]
fn step<S: Subject>(subject: &mut S, slots: &mut [Option<S::Block>], op: &Op) {
    match *op {
        Op::Allocate { stream, slot, bytes } => slots[slot as usize] = Some(subject.allocate(bytes, stream)),
        Op::Free { slot } => match slots[slot as usize].take() {
            Some(block) => subject.free(block),
            None => panic!("the workload frees the empty slot {slot}"),
        },
    }
}

impl<S: Subject> Runner for Player<S> {
    fn pass(&mut self) -> Duration {
        let start = Instant::now();
        play(&mut self.subject, &mut self.slots, &self.workload.timed);
        let time = start.elapsed();
        play(&mut self.subject, &mut self.slots, &self.workload.finish);
        time
    }

    fn latencies(&mut self, meter: &Meter, into: &mut Histogram<u64>) {
        for op in &self.workload.timed {
            meter.time(into, || step(&mut self.subject, &mut self.slots, op));
        }
        play(&mut self.subject, &mut self.slots, &self.workload.finish);
    }

    fn evicted(&mut self, meter: &Meter, evictor: &mut Evictor, stride: usize, into: &mut Histogram<u64>) {
        for (at, op) in self.workload.timed.iter().enumerate() {
            if at % stride == 0 {
                evictor.evict();
                meter.time(into, || step(&mut self.subject, &mut self.slots, op));
            } else {
                step(&mut self.subject, &mut self.slots, op);
            }
        }
        play(&mut self.subject, &mut self.slots, &self.workload.finish);
    }

    fn driver_calls(&self) -> Option<u64> {
        self.subject.driver_calls()
    }
}

/// This allocator and a trace, run by the replay that its users have. Single operations are timed through the workload.
pub struct Replayer {
    replay: Rc<Replay>,
    player: Player<Millpond>,
}

impl Replayer {
    /// Creates the runner of a trace; `workload` holds the operations of the same trace.
    pub fn new(subject: Millpond, replay: Rc<Replay>, workload: Rc<Workload>) -> Self {
        Self { replay, player: Player::new(subject, workload) }
    }
}

impl Runner for Replayer {
    fn pass(&mut self) -> Duration {
        let subject = &self.player.subject;
        match self.replay.pass(subject.allocator(), subject.streams()) {
            Ok(pass) if pass.ooms == 0 => pass.time,
            Ok(pass) => panic!("{} allocations were refused on a device without limits", pass.ooms),
            Err(error) => panic!("the replay failed: {error}"),
        }
    }

    fn latencies(&mut self, meter: &Meter, into: &mut Histogram<u64>) {
        self.player.latencies(meter, into);
    }

    fn evicted(&mut self, meter: &Meter, evictor: &mut Evictor, stride: usize, into: &mut Histogram<u64>) {
        self.player.evicted(meter, evictor, stride, into);
    }

    fn driver_calls(&self) -> Option<u64> {
        self.player.driver_calls()
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::{Player, Replayer, Runner};
    use crate::measure::latency::histogram;
    use crate::measure::{Evictor, Meter};
    use crate::subject::{CLASSIC, Millpond};
    use crate::workload::{Pattern, read_trace};

    #[test]
    fn passes_repeat_and_each_operation_is_counted_once() {
        let workload = Rc::new(Pattern::Churn { live: 50, max_bytes: 1 << 20 }.workload(3).expect("no file is read"));
        let mut player = Player::new(Millpond::new(CLASSIC, 1), Rc::clone(&workload));
        assert!(!player.pass().is_zero());
        let mut ticks = histogram();
        player.latencies(&Meter::new(), &mut ticks);
        assert_eq!(ticks.len(), workload.timed.len() as u64);
        assert_eq!(player.slots.iter().flatten().count(), 50);
        let mut ticks = histogram();
        player.evicted(&Meter::new(), &mut Evictor::new(1), 7, &mut ticks);
        assert_eq!(ticks.len() as usize, workload.timed.len().div_ceil(7));
        assert_eq!(player.slots.iter().flatten().count(), 50);
        player.subject.allocator().check();
    }

    #[test]
    fn a_replay_and_its_operations_reserve_the_same() {
        let trace = read_trace("prefetch").expect("the corpus has the trace");
        let replay = Rc::new(millpond_replay::Replay::new(&trace));
        let workload = Rc::new(Pattern::Trace("prefetch").workload(0).expect("the corpus has the trace"));
        let mut replayer = Replayer::new(Millpond::new(CLASSIC, workload.streams), replay, workload.clone());
        assert!(!replayer.pass().is_zero());
        let mut player = Player::new(Millpond::new(CLASSIC, workload.streams), workload);
        assert!(!player.pass().is_zero());
        let peak = |subject: &Millpond| subject.allocator().max_memory_reserved();
        assert_eq!(peak(&replayer.player.subject), peak(&player.subject));
    }
}
