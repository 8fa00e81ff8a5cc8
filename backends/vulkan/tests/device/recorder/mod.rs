//! A recording device: it makes every call on the lab's device and keeps what it was called with.
//!
//! The drivers at hand run everything in order, so that a barrier, a wait or a lock that is missing changes nothing
//! there. What was recorded is checked by [`rules`], which hold for all calls, and by the tests, which compare what
//! each verb records.

mod calls;
mod facts;
mod hooks;
mod rules;
mod state;

use std::cell::Cell;
use std::ops::Deref;

use millpond_vulkan::ash::vk;
use millpond_vulkan::{Adopted, AdoptedQueue, ExportKind, Vulkan, VulkanError};
use parking_lot::MutexGuard;

pub(crate) use self::calls::{At, Barrier, Bind, Call, Command, Mapping, Submit};
pub(crate) use self::facts::Facts;
pub(crate) use self::state::turn;
use self::state::{STATE, State, Watched, made_up};
use crate::adopted::adopt;
use crate::lab::Lab;

/// How a device is recorded.
#[derive(Clone, Default)]
pub(crate) struct Setup {
    pub(crate) facts: Facts,
    /// Whether the device has its queues to itself, so that no lock is watched.
    pub(crate) own_queues: bool,
    /// Whether threads use the device at the same time, so that a bind of one may come between the binds and the submit
    /// of another.
    pub(crate) has_threads: bool,
    pub(crate) engine_submits: bool,
    /// How memory is exported, of a lab that was opened for it.
    pub(crate) exports: Option<ExportKind>,
}

/// A device that records. Its drop checks all that was recorded, from its creation to its end.
pub(crate) struct Recorder {
    device: Option<Vulkan>,
    /// The number of calls that a test has seen.
    seen: Cell<usize>,
    setup: Setup,
    /// Recorders take turns.
    _turn: MutexGuard<'static, ()>,
}

impl Recorder {
    /// Records on the lab's device, as it is.
    pub(crate) fn open(lab: &Lab) -> Recorder {
        Recorder::with(lab, Setup::default()).unwrap()
    }

    /// Records on the lab's device.
    pub(crate) fn with(lab: &Lab, setup: Setup) -> Result<Recorder, VulkanError> {
        let turn = turn();
        let adopted = Recorder::adopted(lab, &setup);
        Ok(Recorder { device: Some(adopt(adopted)?), seen: Cell::new(0), setup, _turn: turn })
    }

    /// Begins a record, in the [`turn`] of the caller, and returns what an engine would pass of the lab's device.
    pub(crate) fn adopted(lab: &Lab, setup: &Setup) -> Adopted {
        hooks::find_real(lab);
        let ((family, index), _) = lab.queues()[0];
        // SAFETY: the lab's device was opened with that queue.
        let queue = unsafe { lab.raw_device().get_device_queue(family, index) };
        *STATE.lock() = State { queue, family, facts: setup.facts.clone(), ..State::new() };
        let count = setup.facts.families.len() as u32;
        let queues = if count == 0 { vec![(family, queue)] } else { (0..count).map(|at| (at, made_up(at))).collect() };
        let lock = |queue| (!setup.own_queues).then(|| Watched::of(queue));
        let queues = queues.into_iter().map(|(family, queue)| AdoptedQueue { family, queue, lock: lock(queue) });
        let instance = facts::instance(lab);
        // SAFETY: the device is alive and of that instance, whose functions record or are the driver's own.
        let device = unsafe { millpond_vulkan::ash::Device::load(instance.fp_v1_0(), lab.raw_device().handle()) };
        Adopted {
            entry: facts::entry(),
            instance,
            physical_device: lab.physical_device(),
            device,
            queues: queues.collect(),
            enabled: lab.enabled(),
            engine_submits: setup.engine_submits,
            exports: setup.exports,
            validation: lab.validation().cloned(),
            keep: None,
        }
    }

    /// Has the next calls of that name fail, as many as `times`.
    pub(crate) fn fail(&self, name: &'static str, times: u32, with: vk::Result) {
        let mut state = STATE.lock();
        state.failing.retain(|(failing, ..)| *failing != name);
        state.failing.push((name, times, with));
    }

    /// Returns the calls since this was asked last.
    pub(crate) fn calls(&self) -> Vec<Call> {
        let state = STATE.lock();
        state.calls[self.seen.replace(state.calls.len())..].to_vec()
    }

    /// Returns the submits among the calls since this was asked last.
    pub(crate) fn submits(&self) -> Vec<Submit> {
        let submit = |call| if let Call::Submit(submit) = call { Some(submit) } else { None };
        self.calls().into_iter().filter_map(submit).collect()
    }

    /// Returns the binds among the calls since this was asked last.
    pub(crate) fn binds(&self) -> Vec<Bind> {
        let bind = |call| if let Call::Bind(bind) = call { Some(bind) } else { None };
        self.calls().into_iter().filter_map(bind).collect()
    }

    /// Returns the commands that were recorded since this was asked last.
    pub(crate) fn commands(&self) -> Vec<Command> {
        let command = |call| if let Call::Record(_, command) = call { Some(command) } else { None };
        self.calls().into_iter().filter_map(command).collect()
    }

    /// Destroys the device, unless another handle of it is left, and returns all calls since they were asked for last.
    pub(crate) fn close(mut self) -> Vec<Call> {
        drop(self.device.take());
        self.calls()
    }
}

impl Deref for Recorder {
    type Target = Vulkan;

    fn deref(&self) -> &Vulkan {
        self.device.as_ref().expect("the device is there until close takes it")
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        drop(self.device.take());
        let calls = std::mem::take(&mut STATE.lock().calls);
        if !std::thread::panicking() {
            rules::check(&calls, &self.setup);
        }
    }
}
