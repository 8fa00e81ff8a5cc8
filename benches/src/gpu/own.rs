//! This allocator over a backend.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Instant;

use millpond::settings::Policy;
use millpond_backend::Backend;

use super::contest::{Closer, Contestant, Effort, Share, Trouble, Turn, median};
use super::task::Task;
use crate::measure::{Evictor, Meter, Player, Race, Runner, Timing, histogram, team};
use crate::subject::{Kind, Millpond, Subject};
use crate::workload::{Op, Workload};

/// A function that opens the device once more.
pub type Open<B> = Rc<dyn Fn() -> Result<B, Trouble>>;

/// This allocator: a new one in every turn, over a device opened anew.
pub struct Own<B: Backend> {
    name: Cow<'static, str>,
    variant: Policy,
    open: Open<B>,
    meter: Rc<Meter>,
}

impl<B: Backend> Own<B> {
    /// Creates a subject of one variant over what `open` opens.
    pub fn new(variant: Policy, open: Open<B>, meter: Rc<Meter>) -> Self {
        Self { name: Kind::Millpond(variant).name(), variant, open, meter }
    }

    fn subject(&self, streams: u16) -> Result<Millpond<B>, Trouble> {
        Millpond::over((self.open)()?, self.variant, streams)
    }

    fn closer(&self, mut player: Player<Millpond<B>>, list: &Workload, share: Share) -> Result<Closer, Trouble> {
        let mut ticks = histogram();
        let start = Instant::now();
        while ticks.is_empty() || ((ticks.len() as usize) < share.passes && start.elapsed() < share.budget) {
            player.latencies(&self.meter, &mut ticks);
        }
        let mut evicted = histogram();
        let stride = Evictor::stride(list.timed.len());
        player.evicted(&self.meter, &mut Evictor::new(Evictor::USUAL), stride, &mut evicted);
        let blocks = verify(&mut player.into_subject(), list)?;
        Ok(Closer { latency: self.meter.latency(&ticks), evicted: self.meter.latency(&evicted), blocks })
    }
}

fn passes(player: &mut impl Runner, share: Share) -> Vec<f64> {
    let mut times = Vec::new();
    let start = Instant::now();
    while times.is_empty() || (times.len() < share.passes && start.elapsed() < share.budget) {
        times.push(player.pass().as_nanos() as f64);
    }
    times
}

impl<B: Backend> Contestant for Own<B> {
    fn name(&self) -> &str {
        &self.name
    }

    fn turn(&mut self, task: &Task, effort: &Effort, closer: bool) -> Result<Turn, Trouble> {
        let list = task.list();
        let subject = self.subject(list.streams)?;
        let start = Instant::now();
        let mut player = Player::new(subject, Rc::clone(list));
        let prepared = if list.prepare.is_empty() { 0.0 } else { start.elapsed().as_nanos() as f64 };
        let cold_ns = prepared + player.pass().as_nanos() as f64;
        let reserved = Some(player.subject().allocator().max_memory_reserved());
        passes(&mut player, effort.warm);
        let times = passes(&mut player, effort.timed);
        let count = times.len();
        let closer = if closer { Some(self.closer(player, list, effort.singles)?) } else { None };
        Ok(Turn { cold_ns, pass_ns: median(times), passes: count, reserved, closer })
    }

    fn race(&mut self, task: &Task, threads: &[usize], timing: Timing) -> Result<Vec<Race>, Trouble> {
        let lists: Vec<Workload> = task.lists.iter().map(|list| Workload::clone(list)).collect();
        let first = self.subject(0)?;
        let mut team = team(lists.iter().map(|_| first.sibling()).collect(), &lists);
        // The first race does not count: after it the memory of every thread is cached.
        team.race(lists.len(), timing);
        Ok(threads.iter().map(|count| team.race(*count, timing)).collect())
    }
}

/// Runs one pass from an empty state and checks that every block has an address and that none overlaps another live
/// block. Returns the number of blocks.
///
/// # Errors
///
/// Returns the first block that is wrong as an error.
pub fn verify<B: Backend>(subject: &mut Millpond<B>, list: &Workload) -> Result<u64, Trouble> {
    let mut slots: Vec<_> = std::iter::repeat_with(|| None).take(list.slots).collect();
    let (mut live, mut blocks) = (BTreeMap::<u64, u64>::new(), 0);
    for op in [&list.prepare, &list.timed, &list.finish].into_iter().flatten() {
        match *op {
            Op::Allocate { stream, slot, bytes } => {
                let block = subject.allocate(bytes, stream);
                let start = block.address().ok_or_else(|| format!("a block of {bytes} bytes has no address"))?;
                let end = start + bytes;
                if let Some((at, until)) = live.range(..end).next_back().filter(|(_, until)| **until > start) {
                    return Err(format!("a block from {start} to {end} overlaps one from {at} to {until}").into());
                }
                live.insert(start, end);
                slots[slot as usize] = Some((start, block));
                blocks += 1;
            }
            Op::Free { slot } => {
                let (start, block) = slots[slot as usize].take().ok_or_else(|| format!("slot {slot} is empty"))?;
                live.remove(&start);
                subject.free(block);
            }
        }
    }
    Ok(blocks)
}
