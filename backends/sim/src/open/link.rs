//! The link to the simulated driver: its calls, what they cost, and which of them fail.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use millpond_backend::{Caps, Fault};
use millpond_kit::testing::{FaultPlan, Planned};

use super::cost::CostModel;
use crate::error::SimError;
use crate::error::calls::{CallKind, Counters};
use crate::space::Memory;

/// What every call to a device needs: the lowest storey of its state.
pub(crate) struct Link {
    pub(crate) caps: Caps,
    pub(crate) costs: CostModel,
    /// Whether a call takes on the host's clock what it costs on the virtual one.
    takes_time: bool,
    pub(crate) memory: Arc<Memory>,
    pub(crate) counters: Counters,
    pub(crate) faults: FaultPlan<CallKind>,
    /// The calls that are to panic. Their faults do not matter.
    pub(crate) panics: FaultPlan<CallKind>,
    pub(crate) lost: AtomicBool,
    /// Nanoseconds that the driver calls so far would have taken.
    pub(crate) clock: AtomicU64,
    /// The time by which work proceeds, in nanoseconds, which a test lets pass.
    pub(crate) work_clock: AtomicU64,
}

impl Link {
    pub(crate) fn new(caps: Caps, costs: CostModel, takes_time: bool, memory: Memory) -> Link {
        Link {
            caps,
            costs,
            takes_time,
            memory: Arc::new(memory),
            counters: Counters::new(),
            faults: FaultPlan::default(),
            panics: FaultPlan::default(),
            lost: AtomicBool::new(false),
            clock: AtomicU64::new(0),
            work_clock: AtomicU64::new(0),
        }
    }

    pub(crate) fn alive(&self) -> Result<(), SimError> {
        if self.lost.load(Ordering::Relaxed) { Err(SimError::Lost) } else { Ok(()) }
    }

    /// Counts a fallible driver call, and returns the error that is planned for it, if any.
    pub(crate) fn enter(&self, call: CallKind) -> Result<(), SimError> {
        self.counters.add(call);
        self.strike(call)
    }

    /// Works like [`enter`](Link::enter), for calls that are counted elsewhere.
    pub(crate) fn strike(&self, call: CallKind) -> Result<(), SimError> {
        self.break_off(call);
        self.alive()?;
        let Some(fault) = self.faults.strike(&call) else { return Ok(()) };
        if fault == Fault::Lost {
            self.lost.store(true, Ordering::Relaxed);
        }
        Err(Planned { call: call.name(), fault }.into())
    }

    /// Counts a call that cannot fail, and adds its cost to the clock.
    pub(crate) fn count(&self, call: CallKind, nanoseconds: u64) {
        self.counters.add(call);
        self.charge(nanoseconds);
    }

    pub(crate) fn charge(&self, nanoseconds: u64) {
        if nanoseconds > 0 {
            self.clock.fetch_add(nanoseconds, Ordering::Relaxed);
            if self.takes_time {
                std::thread::sleep(Duration::from_nanos(nanoseconds));
            }
        }
    }

    /// Panics if a test has planned it for this call.
    pub(crate) fn break_off(&self, call: CallKind) {
        assert!(self.panics.strike(&call).is_none(), "{call} panics, as planned");
    }

    /// Panics if a segment or page belongs to another device.
    pub(crate) fn own(&self, memory: &Memory, call: CallKind) {
        let (own, other) = (self.memory.device, memory.device);
        assert!(own == other, "{call}: the handle belongs to simulated device {other}, not to {own}");
    }
}
