//! What is recorded, and what the driver is to refuse. There is one record, as recorders take turns.

use std::cell::RefCell;
use std::sync::Arc;

use millpond_vulkan::QueueLock;
use millpond_vulkan::ash::vk;
use millpond_vulkan::ash::vk::Handle as _;
use parking_lot::{Mutex, MutexGuard};

use super::calls::Call;
use super::facts::Facts;

pub(super) static STATE: Mutex<State> = Mutex::new(State::new());

/// Waits for the turn to record.
pub(crate) fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock()
}

pub(super) struct State {
    pub(super) calls: Vec<Call>,
    /// The calls that fail from now on, by name: how often, and with what.
    pub(super) failing: Vec<(&'static str, u32, vk::Result)>,
    pub(super) facts: Facts,
    /// The queue that all queues lead to, and its family.
    pub(super) queue: vk::Queue,
    pub(super) family: u32,
}

impl State {
    pub(super) const fn new() -> State {
        State {
            calls: Vec::new(),
            failing: Vec::new(),
            facts: Facts {
                families: Vec::new(),
                heap_bytes: None,
                limits: None,
                hidden: Vec::new(),
                hides_timelines: false,
            },
            queue: vk::Queue::null(),
            family: 0,
        }
    }
}

pub(super) fn note(call: Call) {
    STATE.lock().calls.push(call);
}

/// Returns what the call is to fail with, if it is to.
pub(super) fn refusal(name: &str) -> Option<vk::Result> {
    let mut state = STATE.lock();
    let at = state.failing.iter().position(|(failing, times, _)| *failing == name && *times > 0)?;
    state.failing[at].1 -= 1;
    Some(state.failing[at].2)
}

/// The queue of a family that there is not. It leads to the device's first queue.
pub(super) fn made_up(family: u32) -> vk::Queue {
    vk::Queue::from_raw(0x1000 + u64::from(family))
}

thread_local! {
    /// The queues whose locks this thread holds.
    static HELD: RefCell<Vec<vk::Queue>> = const { RefCell::new(Vec::new()) };
}

/// Returns whether this thread holds the queue's lock.
pub(super) fn is_held(queue: vk::Queue) -> bool {
    HELD.with_borrow(|held| held.contains(&queue))
}

/// An engine's lock of a queue, which knows the thread that holds it.
pub(super) struct Watched {
    inner: Mutex<()>,
    queue: vk::Queue,
}

impl Watched {
    pub(super) fn of(queue: vk::Queue) -> Arc<dyn QueueLock> {
        Arc::new(Watched { inner: Mutex::new(()), queue })
    }

    fn hold(&self, work: &mut dyn FnMut()) {
        HELD.with_borrow_mut(|held| held.push(self.queue));
        work();
        HELD.with_borrow_mut(|held| held.retain(|queue| *queue != self.queue));
    }
}

impl QueueLock for Watched {
    fn locked(&self, work: &mut dyn FnMut()) {
        self.inner.locked(&mut || self.hold(work));
    }

    fn try_locked(&self, work: &mut dyn FnMut()) -> bool {
        self.inner.try_locked(&mut || self.hold(work))
    }
}
