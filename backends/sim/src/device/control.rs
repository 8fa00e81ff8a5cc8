//! The methods with which a test acts on the device and reads from it.

use std::sync::atomic::Ordering;

use millpond_backend::{Backend, ClassId, Fault, Point, StreamId, Tick};
use millpond_kit::Misuse;

use super::Sim;
use crate::error::SimError;
use crate::error::calls::{CallKind, Calls};
use crate::memory;
use crate::space::segment::Segment;
use crate::space::violation::{Access, Violation};
use crate::streams::lane::Op;
use crate::time::hazard::waits_for;
use crate::transfer::Overwriting;

/// Work that a test queues.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Work {
    /// A kernel that completes at the time that the device's [`Completion`](crate::Completion) gives.
    Kernel,
    /// A long kernel. It and the work queued behind it run until the host waits for it or for the device, or until a
    /// test completes it by hand.
    Busy,
}

/// Streams and the work on them.
impl Sim {
    /// Opens `count` streams and returns their ids.
    ///
    /// # Panics
    ///
    /// If opening one fails, by a planned fault or because the device is lost.
    pub fn open_streams(&self, count: usize) -> Vec<StreamId> {
        let open = |index| match self.create_stream() {
            Ok(stream) => stream,
            Err(error) => panic!("stream {index} of {count} could not be opened: {error}"),
        };
        (0..count).map(open).collect()
    }

    /// Queues work on a stream, and returns the tick that covers it. Does not mark the tick.
    ///
    /// Where the backend closes ticks and the open tick was marked, that tick is closed first: an event recorded before
    /// a kernel does not wait for it. So a mark before a busy kernel is reached at once, a mark after it is not.
    ///
    /// # Panics
    ///
    /// If the stream is not this device's.
    pub fn launch(&self, stream: StreamId, work: Work) -> Tick {
        let op = match work {
            Work::Kernel => Op::Kernel,
            Work::Busy => Op::Busy,
        };
        let mut state = self.device.state();
        let tick = self.device.queue(&mut state, stream, op, Vec::new(), Vec::new());
        self.device.settle(&mut state);
        tick
    }

    /// Queues a long kernel ([`Work::Busy`]), and returns the tick that covers it.
    ///
    /// # Panics
    ///
    /// If the stream is not this device's.
    pub fn busy(&self, stream: StreamId) -> Tick {
        self.launch(stream, Work::Busy)
    }

    /// Queues a kernel that reads or writes `bytes` bytes of the segment, and returns the tick that covers it. The
    /// device checks the access for conflicts; the bytes themselves stay as they are. An access to addresses where
    /// nothing is mapped is a [`Violation`]. The segment may belong to another device.
    ///
    /// # Panics
    ///
    /// If the bytes leave the segment, or the stream is not this device's.
    pub fn use_range(&self, stream: StreamId, segment: &Segment, offset: u64, bytes: u64, access: Access) -> Tick {
        let (pieces, unmapped) = match segment.pieces(offset, bytes) {
            Ok(pieces) => (pieces, false),
            Err(SimError::Misuse(Misuse::Unmapped { .. })) => (Vec::new(), true),
            Err(error) => panic!("use_range: {error}"),
        };
        let (reads, writes) = match access {
            Access::Read => (pieces, Vec::new()),
            Access::Write => (Vec::new(), pieces),
        };
        let mut state = self.device.state();
        let tick = self.device.queue(&mut state, stream, Op::Kernel, reads, writes);
        if unmapped {
            let address = segment.address() + offset;
            state.violations.push(Violation::TouchesUnmapped { stream, tick, address, bytes });
        }
        self.device.settle(&mut state);
        tick
    }

    /// Waits for the device: completes all submitted work of all streams. Work that waits for work that was never
    /// submitted stays queued.
    pub fn synchronize(&self) {
        self.device.drain(&mut self.device.state(), |_| true);
    }

    /// Same as [`synchronize`](Sim::synchronize), under a name that matches [`complete`](Sim::complete).
    pub fn complete_all(&self) {
        self.synchronize();
    }

    /// Completes the submitted work of one stream, up to the first device-side wait that is not over. Returns the
    /// number of pieces of work that completed.
    ///
    /// # Panics
    ///
    /// If the stream is not this device's.
    pub fn complete(&self, stream: StreamId) -> u64 {
        self.device.lane(stream);
        self.device.complete(&mut self.device.state(), stream, u64::MAX)
    }

    /// Completes the oldest work of one stream, and returns whether there was any that could complete.
    ///
    /// # Panics
    ///
    /// If the stream is not this device's.
    pub fn complete_one(&self, stream: StreamId) -> bool {
        self.device.lane(stream);
        self.device.complete(&mut self.device.state(), stream, 1) == 1
    }

    /// Completes the work of one stream that a point covers, as far as it was submitted, past device-side waits that
    /// are not over. Returns what these wait for.
    ///
    /// A host that asks several streams how far they are asks one after the other. So it may see that a stream is done
    /// that waits for another, and not that this one is: the answers are of different moments.
    ///
    /// # Panics
    ///
    /// If the stream is not this device's.
    pub fn force(&self, point: Point) -> Vec<Point> {
        self.device.lane(point.stream);
        self.device.force(&mut self.device.state(), point)
    }

    /// From now on closes a tick only where the stream is asked or waited for, and not where work follows a mark: then
    /// it covers that work, too. CUDA's events are recorded so.
    pub fn close_late(&self) {
        self.device.closes_late.store(true, Ordering::Relaxed);
    }

    /// Closes the tick of a point if it is open, where the backend closes ticks.
    ///
    /// # Panics
    ///
    /// If the stream is not this device's.
    pub fn close(&self, point: Point) {
        self.device.close(point);
    }

    /// Makes one step of seeded completion. Does nothing under the other kinds of completion.
    pub fn step(&self) {
        self.device.step(&mut self.device.state());
    }

    /// Returns whether all work that is queued on the stream from now on begins only after the point: the point is
    /// reached, or unfinished device-side waits lead from the stream to it.
    ///
    /// # Panics
    ///
    /// If a stream is not this device's.
    pub fn comes_after(&self, stream: StreamId, point: Point) -> bool {
        self.device.lane(stream);
        let state = self.device.state();
        self.device.is_reached(point) || waits_for(&state, stream, u64::MAX, point)
    }

    /// Places a barrier over all memory on a stream: work that is queued there from now on comes after all work that
    /// was queued there before. Has an effect only under
    /// [`StreamOrder::Barriers`](crate::StreamOrder::Barriers). Costs nothing.
    ///
    /// # Panics
    ///
    /// If the stream is not this device's.
    pub fn place_barrier(&self, stream: StreamId) {
        self.device.lane(stream);
        let mut state = self.device.state();
        let newest = state.newest_task();
        state.barriers.insert(stream, newest);
    }

    /// Sets the clock of the device's work, in nanoseconds, which [`Backend::work_clock`] returns. It starts at 0.
    /// Earlier times have no effect. Setting it completes no work.
    pub fn set_time(&self, nanos: u64) {
        self.device.work_clock.fetch_max(nanos, Ordering::Relaxed);
    }

    /// Returns the number of unfinished pieces of work on all streams, device-side waits included.
    pub fn queued(&self) -> u64 {
        self.device.queued.load(Ordering::Acquire)
    }
}

/// Addresses, planned failures, and what the device recorded.
impl Sim {
    /// Makes the next segment or range start exactly at `address`, if that is aligned for its class, ends below 2^56,
    /// and the bytes there overlap no live segment; else it starts wherever the device chooses. If the reservation
    /// fails for lack of memory, the address stays set.
    pub fn place_next(&self, address: u64) {
        self.device.memory.space().place_next = Some(address);
    }

    /// Returns memory that other code has allocated as a segment of class 0, for an allocator that takes its segments
    /// from that code. Its bytes count as taken from the device until it is released; the contents are the device's
    /// own, and the memory at the address is not touched. Counts as no call of the driver.
    ///
    /// # Errors
    ///
    /// [`SimError::Occupied`], [`SimError::OutOfMemory`], and [`SimError::Misuse`] for no bytes or an address that is
    /// not aligned.
    pub fn adopt_memory(&self, address: u64, bytes: u64) -> Result<Segment, SimError> {
        memory::adopt(&self.device, address, bytes)
    }

    /// Makes segments of class 0 start where those of a recorded program did: `segments` has the bytes and the address
    /// of each, in the order in which the driver gave them. A segment takes the first unused address of its size, under
    /// the conditions of [`place_next`](Sim::place_next), which takes precedence; an address that does not meet them is
    /// skipped. All other segments and ranges start above all of these. The call replaces earlier expectations.
    ///
    /// Among free blocks of the same size an allocator may take the one with the lowest address, as PyTorch's does. So
    /// a replay decides as the recorded program did only if segments lie in the same order.
    pub fn expect_segments(&self, segments: &[(u64, u64)]) {
        self.device.memory.space().expect(segments);
    }

    /// Sets the number of bytes of class 0 that other processes hold from now on. Memory already handed out is not
    /// taken back.
    pub fn set_others(&self, bytes: u64) {
        self.device.memory.space().others = bytes;
    }

    /// Returns the bytes of class 0 in segments and pages that were not given back. This is no driver call, so no
    /// planned fault applies to it.
    pub fn held_bytes(&self) -> u64 {
        self.give_back_due();
        self.device.memory.space().used(ClassId::DEVICE)
    }

    /// Returns the number of segments, of pages and of ranges, in this order, that were handed out and not given back.
    /// This is no driver call, so no planned fault applies to it.
    pub fn live(&self) -> (u64, u64, u64) {
        self.give_back_due();
        self.device.memory.space().live()
    }

    /// Plans that the `nth` call of the kind, counted from 1 and from now, fails with that fault. [`Fault::Lost`] also
    /// loses the device.
    ///
    /// # Panics
    ///
    /// If `nth` is 0 or such calls cannot fail.
    pub fn fail(&self, call: CallKind, nth: u64, fault: Fault) {
        assert!(call.fallible(), "{call} cannot fail: the contract gives it no error");
        self.device.faults.add(Some(call), nth, fault);
    }

    /// Works like [`fail`](Sim::fail), counting fallible driver calls of every kind.
    ///
    /// # Panics
    ///
    /// If `nth` is 0.
    pub fn fail_any(&self, nth: u64, fault: Fault) {
        self.device.faults.add(None, nth, fault);
    }

    /// Sets how well memory is overwritten.
    pub fn set_overwriting(&self, overwriting: Overwriting) {
        *self.device.overwriting.lock() = overwriting;
    }

    /// Plans that the `nth` call of the kind, counted from 1 and from now, panics: before it has done anything, or, if
    /// it gives something back, after it has given it back.
    ///
    /// # Panics
    ///
    /// If `nth` is 0.
    pub fn panic_in(&self, call: CallKind, nth: u64) {
        self.device.panics.add(Some(call), nth, Fault::Other);
    }

    /// Cancels the panics that [`panic_in`](Sim::panic_in) planned and that have not happened yet.
    pub fn forget_panics(&self) {
        self.device.panics.forget();
    }

    /// Loses the device: every later fallible call returns [`SimError::Lost`].
    pub fn kill(&self) {
        self.device.lost.store(true, Ordering::Relaxed);
    }

    /// Returns the number of driver calls of each kind so far, failed calls included.
    pub fn calls(&self) -> Calls {
        let mut calls = self.device.counters.read();
        for (_, lane) in self.device.lanes.iter() {
            calls.reached += lane.queries.load(Ordering::Relaxed);
            calls.record += lane.records.load(Ordering::Relaxed);
        }
        calls
    }

    /// Returns every breach of the contract seen so far, in the order of discovery. Copies the list.
    pub fn violations(&self) -> Vec<Violation> {
        self.device.state().violations.clone()
    }
}
