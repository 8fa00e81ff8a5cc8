//! The driver's state for each thread of the program.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::DEVICES;
use crate::driver::code::Code;
use crate::driver::lane::LaneId;

thread_local! {
    /// The stack of contexts, each named by its device. The last is current. Programs call the driver while they end,
    /// when a thread has none any more.
    static CONTEXTS: RefCell<Vec<Option<usize>>> = const { RefCell::new(Vec::new()) };
    static MODE: Cell<u32> = const { Cell::new(0) };
    static ID: u64 = {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        NEXT.fetch_add(1, Ordering::Relaxed)
    };
    /// The default streams of this thread.
    static LANES: Cell<[Option<LaneId>; DEVICES]> = const { Cell::new([None; DEVICES]) };
}

/// Returns the device whose context is current.
pub(crate) fn current() -> Option<usize> {
    CONTEXTS.try_with(|contexts| contexts.borrow().last().copied().flatten()).unwrap_or(None)
}

pub(crate) fn set_current(device: Option<usize>) {
    let _ = CONTEXTS.try_with(|contexts| {
        let mut contexts = contexts.borrow_mut();
        contexts.pop();
        contexts.push(device);
    });
}

pub(crate) fn push(device: usize) {
    let _ = CONTEXTS.try_with(|contexts| contexts.borrow_mut().push(Some(device)));
}

pub(crate) fn pop() -> Option<usize> {
    CONTEXTS.try_with(|contexts| contexts.borrow_mut().pop()).ok().flatten().flatten()
}

/// Sets the thread's mode towards captures: 0 global, 1 thread-local, 2 relaxed. Returns the previous mode.
pub(crate) fn exchange_mode(mode: u32) -> Result<u32, Code> {
    if mode > 2 {
        return Err(Code::INVALID_VALUE);
    }
    Ok(MODE.replace(mode))
}

pub(crate) fn mode() -> u32 {
    MODE.get()
}

/// Returns the number of this thread.
pub(crate) fn id() -> u64 {
    ID.with(|id| *id)
}

/// Returns the thread's default stream of a device, which `make` creates the first time.
pub(crate) fn default_lane(device: usize, make: impl FnOnce() -> LaneId) -> LaneId {
    let mut lanes = LANES.get();
    let lane = *lanes[device].get_or_insert_with(make);
    LANES.set(lanes);
    lane
}
