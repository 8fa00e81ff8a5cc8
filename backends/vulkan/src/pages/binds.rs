//! Sparse binds. Mapping and unmapping are noted on the host; all notes go to the driver in one call, before the next
//! submit of any stream.
//!
//! Binds are chained by a timeline semaphore, and every submit waits for the newest bind that its stream has not waited
//! for yet. So memory that was mapped for one stream is safe to use on another. Binds wait only for each other: the
//! contract says that no work touches addresses while their mapping changes.
//!
//! The lock of the records in [`Binds`] is innermost: under it the driver is called and no other lock is taken, in
//! particular no queue's. So a bind locks the queue first and then the records, and a thread that has the queue can
//! read the records. A submit waits for the queue; an allocation or a free only tries to lock it, because its thread
//! may be the one that holds it.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ash::vk;
use parking_lot::{Mutex, MutexGuard};

use super::notes::{Note, Notes};
use crate::error::VulkanError;
use crate::memory::Memory;
use crate::open::{Driver, Queue};

/// The bytes of pages that may be given back and still be with the driver because there was no submit. Beyond this they
/// are unbound without one.
const LEAVING_BYTES: u64 = 64 << 20;

/// How long a refused request for memory waits for binds that free some. They take microseconds, unless they share a
/// queue with work and are queued behind it.
const PATIENCE_NS: u64 = 1_000_000_000;
/// How long it waits between two tries to lock the queue.
const TRY_AGAIN: Duration = Duration::from_micros(100);

/// The records of sparse memory.
pub(crate) struct Binds {
    /// The queue that binds are queued on: an index into the device's queues.
    queue: usize,
    /// The timeline whose counter is the newest bind that the device has made.
    timeline: vk::Semaphore,
    /// Whether anything is noted. Allows a submit with nothing to bind to skip the lock.
    noted: AtomicBool,
    /// The newest bind that the driver has been given.
    newest: AtomicU64,
    /// The newest bind known to be made.
    reached: AtomicU64,
    state: Mutex<BindState>,
    memory: Arc<Memory>,
    driver: Arc<Driver>,
}

#[derive(Default)]
struct BindState {
    notes: Notes,
    /// Pages and ranges that were given back and are still to be destroyed, each with the bind that has to be made
    /// before, oldest first.
    leaving: VecDeque<(u64, Leaving)>,
    /// Pages that were handed out and not given back, with their bytes.
    pages: HashMap<vk::DeviceMemory, u64>,
    /// Ranges that were handed out and not given back, with their bytes.
    ranges: HashMap<vk::Buffer, u64>,
    /// Bytes of all ranges that are not destroyed.
    addresses: u64,
    /// Bytes of pages given back since the last bind.
    unbound: u64,
}

/// A page or a range that its owner gave back.
enum Leaving {
    Page(vk::DeviceMemory, u64),
    Range(vk::Buffer, u64),
}

/// Returns the best queue for binds: one that streams are not opened on, so that binds are not queued behind kernels;
/// else the last, which is the last to get a stream.
pub(crate) fn queue_for_binds(queues: &[Queue]) -> Option<usize> {
    let able = |&at: &usize| queues[at].binds();
    (0..queues.len()).filter(able).max_by_key(|&at| (!queues[at].computes(), at))
}

impl Binds {
    pub(crate) fn new(driver: Arc<Driver>, memory: Arc<Memory>, queue: usize) -> Result<Binds, VulkanError> {
        Ok(Binds {
            queue,
            timeline: driver.create_timeline()?,
            noted: AtomicBool::new(false),
            newest: AtomicU64::new(0),
            reached: AtomicU64::new(0),
            state: Mutex::default(),
            memory,
            driver,
        })
    }

    /// Returns the queue that binds are queued on.
    pub(crate) fn queue(&self) -> usize {
        self.queue
    }

    /// Adds a new page.
    pub(crate) fn add_page(&self, memory: vk::DeviceMemory, bytes: u64) {
        self.state.lock().pages.insert(memory, bytes);
    }

    /// Adds a new range, whose addresses were [taken](Binds::take_addresses).
    pub(crate) fn add_range(&self, range: vk::Buffer, bytes: u64) {
        self.state.lock().ranges.insert(range, bytes);
    }

    /// Takes addresses out of `total`. On failure returns the number that is left.
    pub(crate) fn take_addresses(&self, bytes: u64, total: u64) -> Result<(), u64> {
        let mut state = self.state.lock();
        let free = total.saturating_sub(state.addresses);
        if bytes > free {
            return Err(free);
        }
        state.addresses += bytes;
        Ok(())
    }

    /// Puts addresses back for which no range was created. Returns the number that is left of `total`.
    pub(crate) fn give_addresses(&self, bytes: u64, total: u64) -> u64 {
        let mut state = self.state.lock();
        state.addresses -= bytes;
        total.saturating_sub(state.addresses)
    }

    /// Notes the mapping at `offset` of a range. Returns whether the buffer is a range.
    pub(crate) fn note(&self, range: vk::Buffer, offset: u64, note: Note) -> bool {
        let mut state = self.state.lock();
        let known = state.ranges.contains_key(&range);
        if known {
            state.notes.put(range, offset, note);
            self.noted.store(true, Ordering::Release);
        }
        known
    }

    /// Returns the bind after which memory that is given back now may be destroyed.
    fn due(&self, state: &BindState) -> u64 {
        // This is changed only under the lock.
        self.newest.load(Ordering::Relaxed) + u64::from(!state.notes.is_empty())
    }
}

impl Binds {
    /// Returns the number of pages and of ranges that were not given back.
    pub(crate) fn live(&self) -> (u64, u64) {
        let state = self.state.lock();
        (state.pages.len() as u64, state.ranges.len() as u64)
    }

    /// Returns the bytes in pages that were not given back.
    pub(crate) fn page_bytes(&self) -> u64 {
        self.state.lock().pages.values().sum()
    }

    /// Returns the bytes in pages that were given back and are still with the driver.
    pub(crate) fn leaving_bytes(&self) -> u64 {
        let bytes = |(_, left): &(u64, Leaving)| match *left {
            Leaving::Page(_, bytes) => bytes,
            Leaving::Range(..) => 0,
        };
        self.state.lock().leaving.iter().map(bytes).sum()
    }

    /// Returns the bytes of addresses in ranges that were not destroyed.
    pub(crate) fn range_bytes(&self) -> u64 {
        self.state.lock().addresses
    }

    /// Passes all notes to the driver, and returns the newest bind.
    pub(crate) fn flush(&self) -> Result<u64, VulkanError> {
        if self.noted.load(Ordering::Acquire) {
            self.driver.queues[self.queue].locked(|queue| self.bind(queue))?;
        }
        Ok(self.newest.load(Ordering::Acquire))
    }

    /// Destroys the memory that was given back, as far as its binds are made.
    pub(crate) fn settle(&self) {
        self.destroy_left(&mut self.state.lock());
    }

    /// Passes all notes to the driver if no other thread uses the queue at this moment. Returns whether that was done.
    fn try_flush(&self) -> bool {
        self.driver.queues[self.queue].try_locked(|queue| self.bind(queue)).is_some_and(|bound| bound.is_ok())
    }

    /// Passes all notes to the driver as one bind. Called while no other thread uses the queue, and without the
    /// records' lock.
    fn bind(&self, queue: vk::Queue) -> Result<(), VulkanError> {
        let state = &mut *self.state.lock();
        if state.notes.is_empty() {
            return Ok(());
        }
        self.driver.enter("vkQueueBindSparse")?;
        let noted = state.notes.binds();
        let buffers: Vec<_> = noted
            .iter()
            .map(|(range, binds)| vk::SparseBufferMemoryBindInfo::default().buffer(*range).binds(binds))
            .collect();
        let before = self.newest.load(Ordering::Relaxed);
        let (timeline, befores, afters) = ([self.timeline], [before], [before + 1]);
        // Binds of different calls are not ordered without a semaphore.
        let mut values =
            vk::TimelineSemaphoreSubmitInfo::default().wait_semaphore_values(&befores).signal_semaphore_values(&afters);
        let info = vk::BindSparseInfo::default()
            .wait_semaphores(&timeline)
            .signal_semaphores(&timeline)
            .buffer_binds(&buffers)
            .push_next(&mut values);
        // SAFETY: the caller's lock keeps other threads from the queue, and the queue can bind. Ranges and pages live
        // until the bind after their release is made; pages are of a type and at offsets that the ranges allow, checked
        // when they were made and mapped. The records' lock makes the signalled values rise.
        let bound = unsafe { self.driver.raw.queue_bind_sparse(queue, &[info], vk::Fence::null()) };
        bound.map_err(self.driver.failed("vkQueueBindSparse"))?;
        state.notes.clear();
        state.unbound = 0;
        self.newest.store(before + 1, Ordering::Release);
        // This comes after `newest`: a thread that sees nothing noted also sees the bind.
        self.noted.store(false, Ordering::Release);
        self.destroy_left(state);
        Ok(())
    }

    /// Destroys the memory that was given back, as far as its binds are made.
    fn destroy_left(&self, state: &mut BindState) {
        let Some(&(oldest, _)) = state.leaving.front() else { return };
        if oldest > self.reached.load(Ordering::Acquire) {
            // SAFETY: the semaphore is a timeline of this device and lives as long as the device.
            let value = unsafe { self.driver.raw.get_semaphore_counter_value(self.timeline) };
            // A lost device, which some drivers report by an impossible value, frees nothing any more.
            let newest = self.newest.load(Ordering::Relaxed);
            let Some(value) = value.ok().filter(|value| *value <= newest) else { return };
            self.reached.fetch_max(value, Ordering::AcqRel);
        }
        let reached = self.reached.load(Ordering::Acquire);
        while state.leaving.front().is_some_and(|(due, _)| *due <= reached) {
            if let Some((_, left)) = state.leaving.pop_front() {
                self.destroy(state, left);
            }
        }
    }

    fn destroy(&self, state: &mut BindState, left: Leaving) {
        match left {
            Leaving::Page(memory, _) => {
                // SAFETY: the page was given back, and the bind that took it out of its last range is made or can no
                // longer be made.
                unsafe { self.memory.allocations.free(memory) };
            }
            Leaving::Range(range, bytes) => {
                // SAFETY: the range was given back, no work touches it, and its last bind is made or can no longer be
                // made.
                unsafe { self.driver.raw.destroy_buffer(range, None) };
                state.addresses -= bytes;
            }
        }
    }

    /// Takes a page back. It is freed once it is bound in no range.
    pub(crate) fn leave_page(&self, memory: vk::DeviceMemory) {
        let mut state = self.state.lock();
        let Some(bytes) = state.pages.remove(&memory) else {
            panic!("release_page: page {memory:?} is not in the books of Vulkan device {}", self.driver.id)
        };
        self.leave(&mut state, Leaving::Page(memory, bytes));
        state.unbound += bytes;
        let much = state.unbound >= LEAVING_BYTES;
        drop(state);
        if much {
            // If this fails, the notes stay and go with the next release or the next submit, which reports the error.
            self.try_flush();
        }
    }

    /// Takes a range back. It is destroyed once its last bind is made.
    pub(crate) fn leave_range(&self, range: vk::Buffer) {
        let mut state = self.state.lock();
        let Some(bytes) = state.ranges.remove(&range) else {
            panic!("release_range: {range:?} is no range of Vulkan device {}: segments go by release", self.driver.id)
        };
        self.leave(&mut state, Leaving::Range(range, bytes));
        drop(state);
        // Ranges are rarely given back: at the end of an allocator, behind its pages, and where addresses are short.
        // If this fails, the notes stay, as in `leave_page`.
        self.try_flush();
    }

    fn leave(&self, state: &mut MutexGuard<'_, BindState>, left: Leaving) {
        let due = self.due(state);
        state.leaving.push_back((due, left));
        self.destroy_left(state);
    }

    /// Makes all memory that was given back reach the driver, for a request that was refused. Blocks until the queue is
    /// free and the binds are made, for at most a second each. Returns whether anything was destroyed.
    pub(crate) fn reclaim(&self) -> bool {
        let before = self.state.lock().leaving.len();
        if before == 0 || !self.flush_in_time() {
            return false;
        }
        let newest = self.newest.load(Ordering::Acquire);
        // A bind that is late or lost frees nothing, which the return value shows.
        let _ = self.wait_for_bind(newest);
        let state = &mut *self.state.lock();
        self.destroy_left(state);
        state.leaving.len() < before
    }

    /// Passes all notes to the driver, for a thread that may itself hold the queue: tries for a second, and returns
    /// whether it was done.
    fn flush_in_time(&self) -> bool {
        let begin = Instant::now();
        while self.noted.load(Ordering::Acquire) {
            match self.driver.queues[self.queue].try_locked(|queue| self.bind(queue)) {
                Some(bound) => return bound.is_ok(),
                None if begin.elapsed().as_nanos() > u128::from(PATIENCE_NS) => return false,
                None => std::thread::sleep(TRY_AGAIN),
            }
        }
        true
    }

    /// Blocks until a bind is made, for at most a second.
    fn wait_for_bind(&self, bind: u64) -> Result<(), vk::Result> {
        let (semaphores, values) = ([self.timeline], [bind]);
        let info = vk::SemaphoreWaitInfo::default().semaphores(&semaphores).values(&values);
        // SAFETY: the semaphore is a timeline of this device and lives as long as the device.
        unsafe { self.driver.raw.wait_semaphores(&info, PATIENCE_NS) }?;
        self.reached.fetch_max(bind, Ordering::AcqRel);
        Ok(())
    }

    /// Destroys everything that was made for virtual memory, leaked or given back. Called when no handle of the device
    /// is left.
    pub(crate) fn destroy_all(&self) {
        let newest = self.newest.load(Ordering::Acquire);
        // Any other error means that the device is lost, and its binds with it.
        while self.wait_for_bind(newest) == Err(vk::Result::TIMEOUT) {}
        let state = &mut *self.state.lock();
        // Ranges are destroyed first. Then the pages bound in them can be destroyed.
        let ranges: Vec<_> = state.ranges.drain().map(|(range, bytes)| Leaving::Range(range, bytes)).collect();
        let leaving = std::mem::take(&mut state.leaving).into_iter().map(|(_, left)| left);
        let (left_ranges, left_pages): (Vec<_>, Vec<_>) = leaving.partition(|left| matches!(left, Leaving::Range(..)));
        let pages: Vec<_> = state.pages.drain().map(|(memory, bytes)| Leaving::Page(memory, bytes)).collect();
        let all = ranges.into_iter().chain(left_ranges).chain(left_pages).chain(pages);
        all.for_each(|left| self.destroy(state, left));
        // SAFETY: the newest bind is made or can no longer be made, and no handle of the device is left.
        unsafe { self.driver.raw.destroy_semaphore(self.timeline, None) };
    }

    /// Returns the wait that a submit needs to come after a bind, on a lane whose submits have waited for bind
    /// `waited`.
    pub(crate) fn wait(&self, bind: u64, waited: u64) -> Option<(vk::Semaphore, u64)> {
        (bind > waited).then_some((self.timeline, bind))
    }
}
