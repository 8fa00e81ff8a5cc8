//! The device itself, and the part of the contract that does not concern time, pages or transfers.

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use millpond_backend::{
    Backend, Budget, BudgetInfo, Caps, ClassId, Fault, FaultPlan, HostMemory, Point, StreamId, StreamWait, Tick,
    Transfer, VirtualMemory,
};
use parking_lot::Mutex;

use crate::calls::Counters;
use crate::control::Overwriting;
use crate::lane::{Lane, Queue};
use crate::schedule::{Completion, State};
use crate::space::Memory;
use crate::{CallKind, CostModel, Page, Segment, SimBuilder, SimError, StreamOrder};

/// A simulated device, and the handle to it: clones are the same device.
///
/// All methods may be called from any thread. Those on the path of every allocation (`mark`, and `reached` while
/// nothing is outstanding) take no lock.
#[derive(Clone)]
pub struct Sim {
    pub(crate) device: Arc<Device>,
}

/// The state that all handles of a device share.
pub(crate) struct Device {
    pub(crate) caps: Caps,
    pub(crate) costs: CostModel,
    /// Whether a call takes on the host's clock what it costs on the virtual one.
    pub(crate) takes_time: bool,
    pub(crate) completion: Completion,
    pub(crate) order: StreamOrder,
    pub(crate) memory: Arc<Memory>,
    /// One lane per stream, read without a lock.
    pub(crate) lanes: boxcar::Vec<Lane>,
    pub(crate) state: Mutex<State>,
    /// The number of unfinished tasks of all lanes. Changed only under `state`.
    pub(crate) queued: AtomicU64,
    pub(crate) counters: Counters,
    pub(crate) faults: FaultPlan<CallKind>,
    /// How well memory is overwritten.
    pub(crate) overwriting: Mutex<Overwriting>,
    /// The calls that are to panic. Their faults do not matter.
    pub(crate) panics: FaultPlan<CallKind>,
    pub(crate) lost: AtomicBool,
    /// Nanoseconds that the driver calls so far would have taken.
    pub(crate) clock: AtomicU64,
}

impl Sim {
    /// Creates a device as large as an H200 whose driver calls cost nothing and whose work completes at once. It has no
    /// stream yet.
    pub fn new() -> Sim {
        Sim::builder().cost(CostModel::free()).build()
    }

    /// Returns a builder of a device. The defaults are an H200 with its measured costs.
    pub fn builder() -> SimBuilder {
        SimBuilder::new()
    }
}

impl Default for Sim {
    fn default() -> Sim {
        Sim::new()
    }
}

impl fmt::Debug for Sim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sim")
            .field("name", &self.device.caps.name)
            .field("streams", &self.device.lanes.count())
            .field("queued", &self.device.queued.load(Ordering::Relaxed))
            .finish_non_exhaustive()
    }
}

impl Device {
    /// Returns the lane of a stream.
    ///
    /// # Panics
    ///
    /// If the stream is not this device's.
    #[inline]
    pub(crate) fn lane(&self, stream: StreamId) -> &Lane {
        match self.lanes.get(stream.0 as usize) {
            Some(lane) => lane,
            None => panic!("{stream} asked of a device that has {} streams", self.lanes.count()),
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

    /// Does the same as [`enter`](Device::enter), for calls that are counted elsewhere.
    pub(crate) fn strike(&self, call: CallKind) -> Result<(), SimError> {
        self.break_off(call);
        self.alive()?;
        let Some(fault) = self.faults.strike(&call) else { return Ok(()) };
        if fault == Fault::Lost {
            self.lost.store(true, Ordering::Relaxed);
        }
        Err(SimError::Planned { call, fault })
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

impl Drop for Device {
    fn drop(&mut self) {
        // Other devices' memory may still list this device's unfinished work as its users.
        let queues = std::mem::take(&mut self.state.get_mut().queues);
        for task in queues.iter().flatten() {
            self.forget(task);
        }
    }
}

// SAFETY: `Space::place` panics rather than let live segments overlap, and gives each the bytes that were asked for. A
// lane's `reached` is always the tick before that of its first unfinished task, so it is never ahead of work that
// `mark` covered, and `Lane::leave` panics if it fell. Stream ids are indices of a vector that only grows.
unsafe impl Backend for Sim {
    type Segment = Segment;
    type Page = Page;
    type Error = SimError;

    fn caps(&self) -> &Caps {
        &self.device.caps
    }

    fn create_stream(&self) -> Result<StreamId, SimError> {
        self.device.enter(CallKind::CreateStream)?;
        let mut state = self.device.state();
        state.queues.push(Queue::new());
        let index = self.device.lanes.push(Lane::new());
        Ok(StreamId(u32::try_from(index).expect("fewer than 2^32 streams")))
    }

    fn has_stream(&self, stream: StreamId) -> bool {
        self.device.lanes.get(stream.0 as usize).is_some()
    }

    fn reserve(&self, class: ClassId, bytes: u64) -> Result<Segment, SimError> {
        let device = &*self.device;
        device.enter(CallKind::Reserve)?;
        let facts = device.caps.class(class);
        if bytes == 0 {
            return Err(SimError::Empty { call: CallKind::Reserve });
        }
        if bytes > facts.max_segment_bytes {
            return Err(SimError::TooLarge { asked: bytes, max: facts.max_segment_bytes });
        }
        let mut space = device.memory.space();
        let physical = space.create(class, bytes)?;
        let address = space.place(bytes, facts.alignment);
        let id = space.number();
        drop(space);
        device.charge(device.costs.reserve.at(bytes));
        Ok(Segment { memory: Arc::clone(&device.memory), id, address, bytes, class, physical: Some(physical) })
    }

    unsafe fn release(&self, segment: Segment) {
        let device = &*self.device;
        device.own(&segment.memory, CallKind::Release);
        let Some(physical) = segment.physical else {
            panic!("release of the range at {:#x}: use release_range", segment.address);
        };
        device.count(CallKind::Release, device.costs.release.at(segment.bytes));
        let mut state = device.state();
        if device.caps.release_waits {
            device.drain(&mut state, |_| true);
        }
        let mut space = device.memory.space();
        state.violations.extend(space.users(physical));
        space.destroy(physical);
        space.vacate(segment.address);
        device.break_off(CallKind::Release);
    }

    fn address(&self, segment: &Segment) -> Option<u64> {
        Some(segment.address)
    }

    #[inline]
    fn mark(&self, stream: StreamId) -> Tick {
        self.device.lane(stream).mark()
    }

    #[inline]
    fn reached(&self, stream: StreamId) -> Result<Tick, SimError> {
        self.device.reached(stream)
    }

    fn submit(&self, stream: StreamId) -> Result<Tick, SimError> {
        self.device.alive()?;
        Ok(self.device.submit(stream))
    }

    fn wait(&self, point: Point) -> Result<Tick, SimError> {
        self.device.wait(point)
    }

    fn virtual_memory(&self) -> Option<&dyn VirtualMemory<Segment = Segment, Page = Page, Error = SimError>> {
        match self.device.caps.pages {
            Some(_) => Some(self),
            None => None,
        }
    }

    fn stream_wait(&self) -> Option<&dyn StreamWait<Error = SimError>> {
        if self.device.caps.stream_wait { Some(self) } else { None }
    }

    fn host_memory(&self) -> Option<&dyn HostMemory<Segment = Segment>> {
        Some(self)
    }

    fn transfer(&self) -> Option<&dyn Transfer<Segment = Segment, Error = SimError>> {
        if self.device.caps.transfer { Some(self) } else { None }
    }

    fn budget(&self) -> Option<&dyn Budget<Error = SimError>> {
        if self.device.caps.budget { Some(self) } else { None }
    }

    fn driver_clock(&self) -> Option<u64> {
        Some(self.device.clock.load(Ordering::Relaxed))
    }
}

impl HostMemory for Sim {
    type Segment = Segment;

    fn host_address(&self, segment: &Segment) -> Option<NonNull<u8>> {
        let mut space = segment.memory.space();
        let physical = space.physical.get_mut(&segment.physical?)?;
        physical.store.host_bytes().map(|bytes| bytes.pointer())
    }
}

impl Budget for Sim {
    type Error = SimError;

    fn budget(&self, class: ClassId) -> Result<BudgetInfo, SimError> {
        if !self.device.caps.budget {
            return Err(SimError::Unsupported { call: CallKind::Budget });
        }
        self.device.enter(CallKind::Budget)?;
        self.device.caps.class(class);
        let space = self.device.memory.space();
        let others_bytes = (class == ClassId::DEVICE).then_some(space.others);
        let (free_bytes, total_bytes) = (space.free(class), space.total(class));
        // Where memory is oversubscribed, more may be held than there is.
        let process_bytes = others_bytes.map(|others| (total_bytes - free_bytes).saturating_sub(others));
        Ok(BudgetInfo { free_bytes, total_bytes, others_bytes, process_bytes })
    }
}
