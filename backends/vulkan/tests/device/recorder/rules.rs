//! Rules that hold for all calls of a device, whatever it was told.
//!
//! - A queue is used under its lock.
//! - Each of the device's own command buffers begins with a full barrier, is submitted once, and is begun again only
//!   once a submit of it is known to be complete. Where it writes what the host sees, a barrier to the host follows.
//! - Command buffers of other code have a full barrier in front of them.
//! - Waits for its semaphores and their signals are for all commands, and the values that a semaphore gets rise.
//! - A bind waits for the one before it. Work comes after all binds that the driver was given before.
//! - What work or a bind uses is destroyed once that is known to be complete.

use std::collections::{BTreeMap, BTreeSet};

use millpond_vulkan::ash::vk;

use super::Setup;
use super::calls::{At, Barrier, Bind, Call, Command, Mapping, Submit};

/// A value of a semaphore, which is signalled when something is complete.
type Done = (vk::Semaphore, u64);

/// A command buffer since it was begun.
struct Recorded {
    flags: vk::CommandBufferUsageFlags,
    commands: Vec<Command>,
    is_ended: bool,
}

impl Recorded {
    /// Returns whether it is recorded anew for each submit.
    fn is_own(&self) -> bool {
        self.flags == vk::CommandBufferUsageFlags::ONE_TIME_SUBMIT
    }

    /// Returns whether it is the barrier in front of other code's command buffers, which is submitted again and again.
    fn is_barrier(&self) -> bool {
        self.flags == vk::CommandBufferUsageFlags::SIMULTANEOUS_USE
            && self.commands == [Command::Barrier(Barrier::full())]
    }
}

#[derive(Default)]
struct Rules {
    /// Whether queues have locks that are watched.
    is_watched: bool,
    /// Whether threads use the device at the same time.
    has_threads: bool,
    /// The newest value that each semaphore is known to have, and the newest that it will get.
    known: BTreeMap<vk::Semaphore, u64>,
    promised: BTreeMap<vk::Semaphore, u64>,
    /// The device's own semaphores.
    own: BTreeSet<vk::Semaphore>,
    recorded: BTreeMap<vk::CommandBuffer, Recorded>,
    /// What has to be complete before each command buffer is begun again, and before a buffer or memory goes.
    busy: BTreeMap<vk::CommandBuffer, Done>,
    used: BTreeMap<vk::Buffer, BTreeMap<vk::Semaphore, u64>>,
    touched: BTreeMap<vk::DeviceMemory, Done>,
    mappings: Vec<Mapping>,
    /// The newest bind, and the newest that each queue has waited for.
    bind: Option<Done>,
    waited: BTreeMap<vk::Queue, u64>,
    /// The buffer that is bound to each memory, and buffers that the host sees.
    bound: BTreeMap<vk::DeviceMemory, vk::Buffer>,
    seen_by_host: BTreeSet<vk::Buffer>,
}

/// Asserts that all calls keep the rules.
pub(super) fn check(calls: &[Call], setup: &Setup) {
    let (is_watched, has_threads) = (!setup.own_queues, setup.has_threads);
    let mut rules = Rules { is_watched, has_threads, ..Rules::default() };
    calls.iter().for_each(|call| rules.next(call));
}

impl Rules {
    fn next(&mut self, call: &Call) {
        match call {
            Call::CreateBuffer { buffer, .. } => {
                self.used.remove(buffer);
                self.seen_by_host.remove(buffer);
            }
            Call::DestroyBuffer(buffer) => self.destroy(*buffer),
            Call::Allocate { memory, .. } => _ = self.touched.remove(memory),
            Call::BindBuffer(buffer, memory) => _ = self.bound.insert(*memory, *buffer),
            Call::Map(memory) => self.seen_by_host.extend(self.bound.get(memory)),
            Call::Free(memory) => self.free(*memory),
            Call::CreateSemaphore(semaphore) => {
                self.own.insert(*semaphore);
                self.known.insert(*semaphore, 0);
                self.promised.insert(*semaphore, 0);
            }
            Call::DestroySemaphore(semaphore) => {
                let promised = self.promised.get(semaphore).map_or(0, |&value| value);
                self.complete(&(*semaphore, promised), "a semaphore is destroyed that is still to be signalled");
            }
            Call::Known(semaphore, value) => self.learn(*semaphore, *value),
            Call::Begin(commands, flags) => {
                if let Some(done) = self.busy.remove(commands) {
                    self.complete(&done, "a command buffer is begun again while the device runs it");
                }
                let new = Recorded { flags: *flags, commands: Vec::new(), is_ended: false };
                self.recorded.insert(*commands, new);
            }
            Call::Record(commands, command) => self.of(*commands).commands.push(*command),
            Call::End(commands, result) => self.end(*commands, *result == vk::Result::SUCCESS),
            Call::Submit(submit) => self.submit(submit),
            Call::Bind(bind) => self.bind(bind),
            Call::WaitIdle(_, locked) => {
                assert!(*locked || !self.is_watched, "a queue is waited for without its lock");
                self.known.extend(&self.promised);
            }
        }
    }

    fn of(&mut self, commands: vk::CommandBuffer) -> &mut Recorded {
        self.recorded.get_mut(&commands).expect("a command buffer is begun before it is recorded or ended")
    }

    fn learn(&mut self, semaphore: vk::Semaphore, value: u64) {
        let known = self.known.entry(semaphore).or_default();
        *known = value.max(*known);
    }

    fn complete(&self, (semaphore, value): &Done, what: &str) {
        let known = self.known.get(semaphore).map_or(0, |&known| known);
        assert!(known >= *value, "{what}: {semaphore:?} is known to have {known}, and {value} is needed");
    }

    fn end(&mut self, commands: vk::CommandBuffer, is_ended: bool) {
        let seen_by_host = self.seen_by_host.clone();
        let recorded = self.of(commands);
        recorded.is_ended = is_ended;
        let for_host = |command: &Command| match command {
            Command::Fill { to, .. } | Command::Copy { to, .. } => seen_by_host.contains(&to.0),
            Command::Barrier(_) => false,
        };
        if let Some(last) = recorded.commands.iter().rposition(for_host) {
            let rest = &recorded.commands[last..];
            let has = rest.contains(&Command::Barrier(Barrier::to_host()));
            assert!(has, "no barrier to the host comes after a write for it: {rest:?}");
        }
    }

    fn submit(&mut self, submit: &Submit) {
        assert!(submit.locked || !self.is_watched, "a submit without the queue's lock: {submit:?}");
        let own = |at: &&At| self.own.contains(&at.semaphore);
        for at in submit.waits.iter().chain(&submit.signals).filter(own) {
            assert_eq!(at.stages, vk::PipelineStageFlags2::ALL_COMMANDS, "{submit:?}");
        }
        self.commands(submit);
        if submit.result != vk::Result::SUCCESS {
            return;
        }
        for at in &submit.signals {
            let before = self.promised.insert(at.semaphore, at.value);
            assert!(before.is_none_or(|before| before < at.value), "values must rise: {before:?}, {at:?}");
        }
        let done = submit.signals.last().map(|at| (at.semaphore, at.value)).expect("each submit signals its timeline");
        let Rules { recorded, busy, used, .. } = self;
        for commands in &submit.commands {
            let Some(own) = recorded.get(commands).filter(|each| each.is_own()) else { continue };
            assert!(busy.insert(*commands, done).is_none(), "a command buffer is submitted twice");
            for command in &own.commands {
                let buffers = match command {
                    Command::Barrier(_) => [None, None],
                    Command::Fill { to, .. } => [Some(to.0), None],
                    Command::Copy { from, to, .. } => [Some(from.0), Some(to.0)],
                };
                for buffer in buffers.into_iter().flatten() {
                    used.entry(buffer).or_default().insert(done.0, done.1);
                }
            }
        }
        if let Some((timeline, newest)) = self.bind {
            let waited = self.waited.entry(submit.queue).or_default();
            let now = submit.waits.iter().filter(|at| at.semaphore == timeline).map(|at| at.value).max();
            *waited = now.unwrap_or(0).max(*waited);
            let is_late = *waited < newest && !self.has_threads;
            assert!(!is_late, "work comes after bind {waited} alone, and {newest} was made: {submit:?}");
        }
    }

    /// Checks the command buffers of a submit, whether the driver has taken it or not.
    fn commands(&self, submit: &Submit) {
        let mut is_ordered = false;
        for commands in &submit.commands {
            match self.recorded.get(commands) {
                Some(own) if own.is_own() => {
                    assert!(own.is_ended, "a command buffer is submitted that was not ended");
                    let first = own.commands.first();
                    assert_eq!(first, Some(&Command::Barrier(Barrier::full())), "a barrier comes first");
                    is_ordered = false;
                }
                Some(barrier) => {
                    assert!(barrier.is_barrier(), "{:?} {:?}", barrier.flags, barrier.commands);
                    is_ordered = true;
                }
                None => assert!(is_ordered, "other code's commands come without a barrier in front: {submit:?}"),
            }
        }
    }

    fn bind(&mut self, bind: &Bind) {
        assert!(bind.locked || !self.is_watched, "a bind without the queue's lock: {bind:?}");
        let [(timeline, before)] = bind.waits[..] else { panic!("a bind waits for the one before: {bind:?}") };
        assert_eq!(bind.signals, [(timeline, before + 1)], "binds are chained");
        let newest = self.bind.map_or((timeline, 0), |newest| newest);
        assert_eq!((timeline, before), newest, "a bind waits for the newest one: {bind:?}");
        if bind.result != vk::Result::SUCCESS {
            return;
        }
        let done = (timeline, before + 1);
        self.bind = Some(done);
        self.promised.insert(done.0, done.1);
        for new in &bind.mappings {
            self.used.entry(new.range).or_default().insert(done.0, done.1);
            for old in std::mem::take(&mut self.mappings) {
                let parts = self.cut(old, new, done);
                self.mappings.extend(parts);
            }
            if new.memory != vk::DeviceMemory::default() {
                self.touched.insert(new.memory, done);
                self.mappings.push(*new);
            }
        }
    }

    /// Returns what is left of a mapping where another comes over it.
    fn cut(&mut self, old: Mapping, new: &Mapping, done: Done) -> Vec<Mapping> {
        let (begin, end) = (old.offset.max(new.offset), (old.offset + old.bytes).min(new.offset + new.bytes));
        if old.range != new.range || begin >= end {
            return vec![old];
        }
        self.touched.insert(old.memory, done);
        let part = |from: u64, to: u64| Mapping {
            offset: from,
            bytes: to - from,
            memory_offset: old.memory_offset + from - old.offset,
            ..old
        };
        let parts = [part(old.offset, begin), part(end, old.offset + old.bytes)];
        parts.into_iter().filter(|part| part.bytes > 0).collect()
    }

    fn destroy(&mut self, buffer: vk::Buffer) {
        for done in self.used.remove(&buffer).into_iter().flatten() {
            self.complete(&done, "a buffer is destroyed that work or a bind uses");
        }
        self.mappings.retain(|mapping| mapping.range != buffer);
    }

    fn free(&mut self, memory: vk::DeviceMemory) {
        if let Some(done) = self.touched.remove(&memory) {
            self.complete(&done, "memory is freed before its last bind is made");
        }
        let mapped = self.mappings.iter().find(|mapping| mapping.memory == memory);
        assert_eq!(mapped, None, "memory is freed that is mapped");
    }
}
