//! Everything but memory: contexts, streams, events, captures, gates.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::DEVICES;
use crate::driver::capture::Capture;
use crate::driver::code::{Answer, Code};
use crate::driver::event::Event;
use crate::driver::lane::{Lane, LaneId, Position};
use crate::driver::memory::memory;
use crate::driver::slots::Slots;
use crate::driver::work::Op;
use crate::table::RawViolation;

/// The time that a call waits for queued work before the device counts as hung.
const PATIENCE: Duration = Duration::from_secs(60);

/// The handles of streams that a program may name without creating them.
pub(crate) const LEGACY: u64 = 1;
pub(crate) const PER_THREAD: u64 = 2;

pub(crate) struct World {
    pub(crate) contexts: [Context; DEVICES],
    /// Streams by number: never used again.
    pub(crate) lanes: Vec<Lane>,
    /// Streams by handle.
    pub(crate) streams: Slots<LaneId>,
    pub(crate) events: Slots<Event>,
    pub(crate) captures: BTreeMap<u64, Capture>,
    pub(crate) graphs: Slots<Vec<Op>>,
    pub(crate) executables: Slots<Vec<Op>>,
    /// The gates that are closed.
    pub(crate) gates: BTreeSet<u64>,
    pub(crate) violations: Vec<RawViolation>,
    /// Numbers for captures, gates and records of events.
    numbers: u64,
}

/// The primary context of a device.
pub(crate) struct Context {
    pub(crate) references: u64,
    pub(crate) flags: u32,
    /// The error that has broken it, which every call returns.
    pub(crate) broken: Option<Code>,
    /// The devices whose memory it may use.
    pub(crate) peers: [bool; DEVICES],
    /// Its legacy default stream.
    pub(crate) legacy: Option<LaneId>,
    /// The release threshold of its pool, which is stored and returned without any effect.
    pub(crate) threshold: u64,
    /// Whether its last reference was released, and the operations that were running are still waited for.
    pub(crate) ending: bool,
}

impl Context {
    const NEW: Context = Context {
        references: 0,
        flags: 0,
        broken: None,
        peers: [false; DEVICES],
        legacy: None,
        threshold: 0,
        ending: false,
    };

    /// Fails if it is destroyed or broken.
    pub(crate) fn usable(&self) -> Answer {
        if self.references == 0 {
            return Err(Code::CONTEXT_IS_DESTROYED);
        }
        self.broken.map_or(Ok(()), Err)
    }
}

static WORLD: Mutex<World> = Mutex::new(World {
    contexts: [Context::NEW; DEVICES],
    lanes: Vec::new(),
    streams: Slots::new(0x5000_0000),
    events: Slots::new(0xE000_0000),
    captures: BTreeMap::new(),
    graphs: Slots::new(0x6000_0000),
    executables: Slots::new(0x7000_0000),
    gates: BTreeSet::new(),
    violations: Vec::new(),
    numbers: 0,
});

/// Wakes the threads that wait for the progress of streams.
pub(crate) static PROGRESS: Condvar = Condvar::new();

/// Locks the world. The table of memory may be locked while this is held, never the other way round.
pub(crate) fn lock() -> MutexGuard<'static, World> {
    WORLD.lock()
}

/// Waits until `done` holds. Fails if the device breaks, and breaks it if the wait takes too long.
pub(crate) fn wait(world: &mut MutexGuard<'_, World>, device: usize, done: impl Fn(&World) -> bool) -> Answer {
    let deadline = Instant::now() + PATIENCE;
    while !done(world) {
        if let Some(code) = world.contexts[device].broken {
            return Err(code);
        }
        if PROGRESS.wait_until(world, deadline).timed_out() && !done(world) {
            eprintln!("CUDA simulator: work on device {device} took longer than {PATIENCE:?}: it is called hung");
            world.break_device(device, Code::LAUNCH_TIMEOUT);
        }
    }
    world.contexts[device].broken.map_or(Ok(()), Err)
}

/// Locks the world once no thread is ending the primary context of a device: who retains it then has a context that
/// lasts, and not one whose streams and memory are about to be destroyed.
pub(crate) fn lock_settled(device: usize) -> MutexGuard<'static, World> {
    let mut world = lock();
    PROGRESS.wait_while(&mut world, |world| world.contexts[device].ending);
    world
}

impl World {
    pub(crate) fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// Breaks a device. The streams' threads drop its work.
    pub(crate) fn break_device(&mut self, device: usize, code: Code) {
        self.contexts[device].broken.get_or_insert(code);
        self.wake_all();
    }

    /// Makes broken devices work again, opens the gates, and forgets violations.
    pub(crate) fn reset(&mut self) {
        self.drop_broken_work();
        for context in &mut self.contexts {
            context.broken = None;
        }
        self.gates.clear();
        self.violations.clear();
        self.wake_all();
    }

    fn wake_all(&self) {
        for lane in &self.lanes {
            lane.wake.notify_all();
        }
        PROGRESS.notify_all();
    }

    /// Returns the stream of a handle, for a call with the context of `device` current.
    pub(crate) fn stream(&mut self, handle: u64, device: usize) -> Result<LaneId, Code> {
        match handle {
            0 | LEGACY => Ok(self.legacy(device)),
            PER_THREAD => Ok(self.per_thread(device)),
            // What a driver of version 580 was seen to return, if it does not crash.
            _ if self.streams.is_stale(handle) => Err(Code::CONTEXT_IS_DESTROYED),
            _ => self.streams.get(handle).copied().ok_or(Code::INVALID_HANDLE),
        }
    }

    /// Returns whether all work up to a position is done.
    pub(crate) fn reached(&self, position: Position) -> bool {
        self.lanes[position.lane].done >= position.count
    }

    /// Returns the current ends of the work of all streams of a device.
    pub(crate) fn ends(&self, device: usize) -> Vec<Position> {
        let lanes = self.lanes.iter().enumerate().filter(|(_, lane)| lane.device == device);
        lanes.map(|(id, lane)| Position { lane: id, count: lane.queued }).collect()
    }

    /// Notes a violation if queued work is going to touch the range.
    pub(crate) fn note_use(&mut self, device: usize, address: u64, bytes: u64) {
        let used = self.lanes.iter().flat_map(|lane| &lane.queue).any(|op| op.touches(address, bytes));
        if used {
            self.violations.push(RawViolation { kind: 1, device: device as u32, address, bytes });
        }
    }

    /// Ends a primary context, whose work was dropped, together with its streams, events and memory.
    pub(crate) fn end_context(&mut self, device: usize) {
        let lanes = &self.lanes;
        for lane in self.streams.drain(|lane| lanes[*lane].device == device) {
            self.close(lane);
        }
        drop(self.events.drain(|event| event.device == device));
        let legacy = self.contexts[device].legacy;
        self.contexts[device] = Context { legacy, ..Context::NEW };
        memory().write().end_context(device);
        PROGRESS.notify_all();
    }
}
