//! The controls by which a test changes the simulator and reads its state.

use std::sync::PoisonError;
use std::sync::{Mutex, MutexGuard};

use crate::DEVICES;
use crate::table::{Table, Text};

/// The simulator's controls. All controls of a process apply to the same two devices.
#[derive(Clone, Copy)]
pub struct Control {
    table: &'static Table,
}

/// A stream that is held by [`Control::hold`]. Dropping it opens the gate.
#[must_use = "a gate opens when it is dropped"]
pub struct Gate {
    control: Control,
    id: u64,
}

/// A call that is stopped by [`Control::stop_nth`]. Dropping it lets the call go on.
#[must_use = "a call goes on when its stop is dropped"]
pub struct Stop {
    control: Control,
    id: u64,
    /// The function and the number of the call, for messages.
    call: String,
}

/// A mistake of the caller's that a real driver would not report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Violation {
    /// Memory was freed, unmapped or unregistered while queued work was going to touch it.
    FreedInUse {
        /// The device of the memory, or of the work where the memory is the host's.
        device: usize,
        /// The start of the range.
        address: u64,
        /// The length of the range in bytes.
        bytes: u64,
    },
    /// Queued work touched memory that is not mapped, or that its device has no access to. The device is lost since.
    BadAccess {
        /// The device that the work ran on.
        device: usize,
        /// The start of the range.
        address: u64,
        /// The length of the range in bytes.
        bytes: u64,
    },
}

/// The kinds of objects that a program creates and has to give back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Kind {
    /// Made by `cuMemAlloc` or `cuMemAllocAsync`.
    Allocation = 0,
    /// Made by `cuMemHostAlloc`, or registered.
    HostMemory = 1,
    /// Made by `cuMemAddressReserve`.
    Range = 2,
    /// Made by `cuMemMap`.
    Mapping = 3,
    /// Made by `cuMemCreate`: alive until it is released and mapped nowhere.
    Page = 4,
    /// Made by `cuStreamCreate`.
    Stream = 5,
    /// Made by `cuEventCreate`.
    Event = 6,
}

/// For which ranges a device makes DMA buffers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum DmaBuf {
    /// For none: the device has no DMA buffers.
    None = 0,
    /// For ranges in one allocation or one page, as older drivers do.
    One = 1,
    /// For ranges of several pages, too. It is so unless a test says otherwise.
    Any = 2,
}

impl Control {
    #[cfg(target_os = "linux")]
    pub(crate) fn new(table: &'static Table) -> Control {
        Control { table }
    }

    /// Makes both devices work again, opens all gates, lets stopped calls go on, and forgets planned failures, counts,
    /// violations and caps. What the program has created stays.
    pub fn reset(self) {
        (self.table.reset)();
    }

    /// Returns a guard with which the tests of one process, which share the simulator, run one at a time, each from a
    /// [`reset`](Control::reset). Blocks until the guard of the previous test is dropped.
    pub fn alone(self) -> MutexGuard<'static, ()> {
        static TURN: Mutex<()> = Mutex::new(());
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        self.reset();
        turn
    }

    /// Makes the `nth` coming call of one function fail with `code`, a `CUresult`, before it has any effect.
    ///
    /// # Panics
    ///
    /// If the simulator has no function of that name, or `nth` is 0.
    pub fn fail_nth(self, function: &str, nth: u64, code: u32) {
        assert!(nth > 0, "calls are counted from 1: call 0 cannot fail");
        let known = (self.table.fail_nth)(Text::new(function), nth, code);
        assert!(known != 0, "the simulator has no function {function}: use the exported name, such as cuMemAlloc_v2");
    }

    /// Makes the `nth` coming call of any function that works with a context or with pages fail with `code`, a
    /// `CUresult`.
    ///
    /// # Panics
    ///
    /// If `nth` is 0.
    pub fn fail_any(self, nth: u64, code: u32) {
        assert!(nth > 0, "calls are counted from 1: call 0 cannot fail");
        (self.table.fail_nth)(Text::new(""), nth, code);
    }

    /// Stops the `nth` coming call of one function before it has any effect, until the returned value is dropped. What
    /// another thread does meanwhile happens between this call and what its caller has read before.
    ///
    /// # Panics
    ///
    /// If the simulator has no function of that name, or `nth` is 0.
    pub fn stop_nth(self, function: &str, nth: u64) -> Stop {
        assert!(nth > 0, "calls are counted from 1: call 0 cannot stand still");
        let id = (self.table.stop_nth)(Text::new(function), nth);
        assert!(id != 0, "the simulator has no function {function}: use the exported name, such as cuMemAlloc_v2");
        Stop { control: self, id, call: format!("call {nth} of {function}") }
    }

    /// Returns how often a function was called since the last reset, failed calls included.
    ///
    /// # Panics
    ///
    /// If the simulator has no function of that name.
    pub fn calls(self, function: &str) -> u64 {
        let calls = (self.table.calls)(Text::new(function));
        assert!(calls != u64::MAX, "the simulator has no function {function}: use the exported name");
        calls
    }

    /// Sets the memory size of a device, in bytes. What is held already stays, even above the cap.
    ///
    /// # Panics
    ///
    /// If there is no such device.
    pub fn set_bytes(self, device: usize, bytes: u64) {
        (self.table.set_bytes)(ordinal(device), bytes);
    }

    /// Sets the number of bytes of a device that other processes hold: they are missing from what is free.
    ///
    /// # Panics
    ///
    /// If there is no such device.
    pub fn others(self, device: usize, bytes: u64) {
        (self.table.set_others)(ordinal(device), bytes);
    }

    /// Sets whether a device can make pages that network cards reach (`gpuDirectRDMACapable`), which it can unless a
    /// test says otherwise. Where it cannot, a request for one fails.
    ///
    /// # Panics
    ///
    /// If there is no such device.
    pub fn set_rdma(self, device: usize, supported: bool) {
        (self.table.set_rdma)(ordinal(device), u32::from(supported));
    }

    /// Sets for which ranges of a device the driver makes DMA buffers (`cuMemGetHandleForAddressRange`).
    ///
    /// # Panics
    ///
    /// If there is no such device.
    pub fn set_dma_buf(self, device: usize, level: DmaBuf) {
        (self.table.set_dma_buf)(ordinal(device), level as u32);
    }

    /// Returns bytes of a DMA buffer, as another driver of the host would see them.
    ///
    /// # Panics
    ///
    /// If the descriptor is none of a DMA buffer, or the buffer does not have these bytes.
    pub fn read_dma_buf(self, descriptor: i32, offset: u64, bytes: usize) -> Vec<u8> {
        let mut read = vec![0; bytes];
        let done = (self.table.read_dma_buf)(descriptor, offset, read.as_mut_ptr(), bytes as u64);
        assert!(done != 0, "descriptor {descriptor} shows no {bytes} bytes of memory at {offset}");
        read
    }

    /// Returns the number of bytes of a device that this process holds: allocations, and pages whether mapped or not.
    ///
    /// # Panics
    ///
    /// If there is no such device.
    pub fn held_bytes(self, device: usize) -> u64 {
        (self.table.held_bytes)(ordinal(device))
    }

    /// Breaks a device: queued work is dropped, and every call on its context returns `code`, a `CUresult`, until the
    /// next [`reset`](Control::reset).
    ///
    /// # Panics
    ///
    /// If there is no such device, or `code` is success.
    pub fn lose(self, device: usize, code: u32) {
        assert!(code != 0, "a device is not lost with success");
        (self.table.lose)(ordinal(device), code);
    }

    /// Queues a gate: what is queued on the stream afterwards runs only when the gate is open. `stream` is a `CUstream`
    /// as a number; 0 is the legacy default stream of the device.
    ///
    /// A call that waits for the stream waits for the gate, too; after a minute the simulator calls the device hung, as
    /// a driver's watchdog does.
    ///
    /// # Panics
    ///
    /// If there is no such device or stream.
    pub fn hold(self, device: usize, stream: usize) -> Gate {
        let id = (self.table.hold)(ordinal(device), stream);
        assert!(id != 0, "device {device} has no stream {stream:#x}, or it is being captured");
        Gate { control: self, id }
    }

    /// Returns the mistakes since the last reset, in the order in which they were detected.
    pub fn violations(self) -> Vec<Violation> {
        let raw = (0..).map(|index| (self.table.violation)(index)).take_while(|raw| raw.kind != 0);
        raw.map(|raw| {
            let (device, address, bytes) = (raw.device as usize, raw.address, raw.bytes);
            match raw.kind {
                1 => Violation::FreedInUse { device, address, bytes },
                2 => Violation::BadAccess { device, address, bytes },
                kind => panic!("the library knows a violation {kind} that this test does not: build both anew"),
            }
        })
        .collect()
    }

    /// Returns the number of objects of a kind that exist.
    pub fn live(self, kind: Kind) -> u64 {
        (self.table.live)(kind as u32)
    }
}

impl Gate {
    /// Lets the held work run. Returns at once.
    pub fn open(self) {
        drop(self);
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        (self.control.table.open)(self.id);
    }
}

impl Stop {
    /// Blocks until the call has arrived.
    ///
    /// # Panics
    ///
    /// If it does not arrive within a minute.
    pub fn wait(&self) {
        let arrived = (self.control.table.arrived)(self.id, 60_000);
        assert!(arrived != 0, "{} has not come for a minute", self.call);
    }

    /// Lets the call go on. Returns at once.
    pub fn go_on(self) {
        drop(self);
    }
}

impl Drop for Stop {
    fn drop(&mut self) {
        (self.control.table.go_on)(self.id);
    }
}

fn ordinal(device: usize) -> u32 {
    assert!(device < DEVICES, "there is no device {device}: the simulator has {DEVICES}");
    device as u32
}
