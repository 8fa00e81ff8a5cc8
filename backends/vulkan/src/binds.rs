//! Sparse binds. Mapping and unmapping are noted on the host; all that was noted goes to the driver at once, before the
//! next submit of any stream.
//!
//! Binds are chained by a timeline semaphore, and every submit waits for the newest bind that its stream has not waited
//! for yet. So memory that was mapped for one stream is safe to use on another. Binds wait for nothing but each other:
//! the contract says that no work touches addresses while they change.
//!
//! The books' lock is innermost: under it the driver is called and nothing else is locked, no queue above all. So a bind
//! has the queue first and then the books, and whoever has the queue can ask the books. A submit waits for the queue; an
//! allocation or a free only tries it, as its thread may be the one that has it.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ash::vk;
use millpond_backend::{BackendError, Fault};
use parking_lot::{Mutex, MutexGuard};

use crate::device::Device;
use crate::notes::{Note, Notes};
use crate::queue::Queue;
use crate::{Vulkan, VulkanError};

/// Pages of so many bytes at most are given back and still with the driver for want of a submit: then they are bound
/// away without one.
const LEAVING_BYTES: u64 = 64 << 20;

/// How long a request that was refused memory waits for binds that free some. They take microseconds, unless they share
/// a queue with work and stand behind it.
const PATIENCE_NS: u64 = 1_000_000_000;
/// How long it waits between two tries for the queue.
const TRY_AGAIN: Duration = Duration::from_micros(100);

/// What is kept about sparse memory.
pub(crate) struct Binds {
    /// Where binds are queued: an index into the device's queues.
    queue: usize,
    /// Its counter is the newest bind that the device has made.
    timeline: vk::Semaphore,
    /// Something is noted. Lets a submit with nothing to bind pass without the lock.
    noted: AtomicBool,
    /// The newest bind that the driver has been given.
    newest: AtomicU64,
    /// The newest bind known to be made.
    reached: AtomicU64,
    state: Mutex<BindState>,
}

#[derive(Default)]
struct BindState {
    notes: Notes,
    /// Given back and still to be destroyed, with the bind that comes first, oldest first.
    leaving: VecDeque<(u64, Leaving)>,
    /// Pages in the hands of others, with their bytes.
    pages: HashMap<vk::DeviceMemory, u64>,
    /// Ranges in the hands of others, with their bytes.
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

/// Where binds are queued best: on a queue that streams are not opened on, so that they do not stand behind kernels;
/// else on the last, whose turn to get a stream comes last.
pub(crate) fn queue_for_binds(queues: &[Queue]) -> Option<usize> {
    let able = |&at: &usize| queues[at].binds();
    (0..queues.len()).filter(able).max_by_key(|&at| (!queues[at].computes(), at))
}

impl Binds {
    pub(crate) fn new(queue: usize, timeline: vk::Semaphore) -> Binds {
        Binds {
            queue,
            timeline,
            noted: AtomicBool::new(false),
            newest: AtomicU64::new(0),
            reached: AtomicU64::new(0),
            state: Mutex::default(),
        }
    }

    /// Enters a new page.
    pub(crate) fn add_page(&self, memory: vk::DeviceMemory, bytes: u64) {
        self.state.lock().pages.insert(memory, bytes);
    }

    /// Enters a new range, whose addresses were [taken](Binds::take_addresses).
    pub(crate) fn add_range(&self, range: vk::Buffer, bytes: u64) {
        self.state.lock().ranges.insert(range, bytes);
    }

    /// Takes addresses out of `total`, or says how many are left.
    pub(crate) fn take_addresses(&self, bytes: u64, total: u64) -> Result<(), u64> {
        let mut state = self.state.lock();
        let free = total.saturating_sub(state.addresses);
        if bytes > free {
            return Err(free);
        }
        state.addresses += bytes;
        Ok(())
    }

    /// Puts addresses back that became no range.
    pub(crate) fn give_addresses(&self, bytes: u64) {
        self.state.lock().addresses -= bytes;
    }

    /// Notes what shall stand at `offset` of a range. Answers whether the range is one.
    pub(crate) fn note(&self, range: vk::Buffer, offset: u64, note: Note) -> bool {
        let mut state = self.state.lock();
        let known = state.ranges.contains_key(&range);
        if known {
            state.notes.put(range, offset, note);
            self.noted.store(true, Ordering::Release);
        }
        known
    }

    /// The bind after which whatever is given back now may be destroyed.
    fn due(&self, state: &BindState) -> u64 {
        // Changed under the lock alone.
        self.newest.load(Ordering::Relaxed) + u64::from(!state.notes.is_empty())
    }
}

impl Vulkan {
    /// Hands the driver what was mapped and unmapped since the last submit, without submitting anything else. Every
    /// submit does this; call it to have memory that was given back reach the driver when nothing will be submitted.
    /// Does not block, and costs a driver call if anything was mapped or unmapped.
    ///
    /// # Errors
    ///
    /// The driver's. What was noted is kept, and goes with the next submit.
    pub fn flush_binds(&self) -> Result<(), VulkanError> {
        self.device.flush_binds()?;
        if let Some(binds) = &self.device.binds {
            self.device.destroy_left(binds, &mut binds.state.lock());
        }
        Ok(())
    }

    /// Bytes in pages that were not given back. Makes no driver call.
    pub fn page_bytes(&self) -> u64 {
        self.device.binds.as_ref().map_or(0, |binds| binds.state.lock().pages.values().sum())
    }

    /// How many segments, pages and ranges were handed out and not given back, in this order. Makes no driver call.
    pub fn live(&self) -> (u64, u64, u64) {
        let (pages, ranges) = self.device.binds.as_ref().map_or((0, 0), |binds| {
            let state = binds.state.lock();
            (state.pages.len() as u64, state.ranges.len() as u64)
        });
        (self.device.live.lock().len() as u64, pages, ranges)
    }

    /// Bytes in pages that were given back and are still with the driver, until the binds that take them out of their
    /// ranges are made. Makes no driver call.
    pub fn leaving_bytes(&self) -> u64 {
        let bytes = |(_, left): &(u64, Leaving)| match *left {
            Leaving::Page(_, bytes) => bytes,
            Leaving::Range(..) => 0,
        };
        self.device.binds.as_ref().map_or(0, |binds| binds.state.lock().leaving.iter().map(bytes).sum())
    }

    /// Bytes of addresses in ranges that were not destroyed: those given back as well, until their last bind is made.
    /// Makes no driver call.
    pub fn range_bytes(&self) -> u64 {
        self.device.binds.as_ref().map_or(0, |binds| binds.state.lock().addresses)
    }
}

impl Device {
    /// Hands the driver what is noted, and answers the newest bind; 0 where there never was one.
    pub(crate) fn flush_binds(&self) -> Result<u64, VulkanError> {
        let Some(binds) = &self.binds else { return Ok(0) };
        if binds.noted.load(Ordering::Acquire) {
            self.queues[binds.queue].locked(|queue| self.bind(binds, queue))?;
        }
        Ok(binds.newest.load(Ordering::Acquire))
    }

    /// Hands the driver what is noted if nobody else uses the queue at this moment. Answers whether that was done.
    fn try_flush_binds(&self, binds: &Binds) -> bool {
        self.queues[binds.queue].try_locked(|queue| self.bind(binds, queue)).is_some_and(|bound| bound.is_ok())
    }

    /// What a submit waits for that comes after a bind, on a lane whose submits have waited for bind `waited`.
    pub(crate) fn bind_wait(&self, bind: u64, waited: u64) -> Option<(vk::Semaphore, u64)> {
        self.binds.as_ref().filter(|_| bind > waited).map(|binds| (binds.timeline, bind))
    }

    /// All that is noted, as one bind. To be called while nobody else uses the queue, and without the books' lock.
    fn bind(&self, binds: &Binds, queue: vk::Queue) -> Result<(), VulkanError> {
        let state = &mut *binds.state.lock();
        if state.notes.is_empty() {
            return Ok(());
        }
        self.enter("vkQueueBindSparse")?;
        let noted = state.notes.binds();
        let buffers: Vec<_> = noted
            .iter()
            .map(|(range, binds)| vk::SparseBufferMemoryBindInfo::default().buffer(*range).binds(binds))
            .collect();
        let before = binds.newest.load(Ordering::Relaxed);
        let (timeline, befores, afters) = ([binds.timeline], [before], [before + 1]);
        // Binds of different calls have no order of their own.
        let mut values =
            vk::TimelineSemaphoreSubmitInfo::default().wait_semaphore_values(&befores).signal_semaphore_values(&afters);
        let info = vk::BindSparseInfo::default()
            .wait_semaphores(&timeline)
            .signal_semaphores(&timeline)
            .buffer_binds(&buffers)
            .push_next(&mut values);
        // SAFETY: nobody else uses the queue meanwhile, and it can bind. Ranges and pages live until the bind after
        // their release is made; pages are of a type and at offsets that the ranges allow, checked when they were made
        // and mapped. The books' lock makes the signalled values rise.
        let bound = unsafe { self.raw.queue_bind_sparse(queue, &[info], vk::Fence::null()) };
        bound.map_err(self.failed("vkQueueBindSparse"))?;
        state.notes.clear();
        state.unbound = 0;
        binds.newest.store(before + 1, Ordering::Release);
        // After `newest`: whoever sees nothing noted sees the bind.
        binds.noted.store(false, Ordering::Release);
        self.destroy_left(binds, state);
        Ok(())
    }

    /// Destroys what was given back, as far as its binds are made.
    fn destroy_left(&self, binds: &Binds, state: &mut BindState) {
        let Some(&(oldest, _)) = state.leaving.front() else { return };
        if oldest > binds.reached.load(Ordering::Acquire) {
            // SAFETY: the semaphore is a timeline of this device and lives as long.
            let value = unsafe { self.raw.get_semaphore_counter_value(binds.timeline) };
            // A device that is lost, which some drivers tell by a value that cannot be, frees nothing any more.
            let newest = binds.newest.load(Ordering::Relaxed);
            let Some(value) = value.ok().filter(|value| *value <= newest) else { return };
            binds.reached.fetch_max(value, Ordering::AcqRel);
        }
        let reached = binds.reached.load(Ordering::Acquire);
        while state.leaving.front().is_some_and(|(due, _)| *due <= reached) {
            if let Some((_, left)) = state.leaving.pop_front() {
                self.destroy(state, left);
            }
        }
    }

    fn destroy(&self, state: &mut BindState, left: Leaving) {
        match left {
            Leaving::Page(memory, _) => {
                // SAFETY: the page was given back, and the bind that took it out of its last range is made or cannot be
                // any more.
                unsafe { self.raw.free_memory(memory, None) };
                self.allocations.fetch_sub(1, Ordering::Relaxed);
            }
            Leaving::Range(range, bytes) => {
                // SAFETY: the range was given back, no work touches it, and its last bind is made, or cannot be any
                // more.
                unsafe { self.raw.destroy_buffer(range, None) };
                state.addresses -= bytes;
            }
        }
    }

    /// Takes a page back. It is freed once no range shows it.
    pub(crate) fn leave_page(&self, binds: &Binds, memory: vk::DeviceMemory) {
        let mut state = binds.state.lock();
        let Some(bytes) = state.pages.remove(&memory) else {
            panic!("release_page: page {memory:?} is not in the books of Vulkan device {}", self.id)
        };
        self.leave(binds, &mut state, Leaving::Page(memory, bytes));
        state.unbound += bytes;
        let much = state.unbound >= LEAVING_BYTES;
        drop(state);
        if much {
            // What fails here is noted still, and goes with the next release or the next submit, which says so.
            self.try_flush_binds(binds);
        }
    }

    /// Takes a range back. It is destroyed once its last bind is made.
    pub(crate) fn leave_range(&self, binds: &Binds, range: vk::Buffer) {
        let mut state = binds.state.lock();
        let Some(bytes) = state.ranges.remove(&range) else {
            panic!("release_range: {range:?} is no range of Vulkan device {}: segments go by release", self.id)
        };
        self.leave(binds, &mut state, Leaving::Range(range, bytes));
    }

    fn leave(&self, binds: &Binds, state: &mut MutexGuard<'_, BindState>, left: Leaving) {
        let due = binds.due(state);
        state.leaving.push_back((due, left));
        self.destroy_left(binds, state);
    }

    /// Has all that was given back reach the driver, for a request that was refused. Blocks until the queue is free and
    /// the binds are made, a second at most for each. Answers whether anything was destroyed.
    pub(crate) fn reclaim(&self) -> bool {
        let Some(binds) = &self.binds else { return false };
        let before = binds.state.lock().leaving.len();
        if before == 0 || !self.flush_binds_in_time(binds) {
            return false;
        }
        let newest = binds.newest.load(Ordering::Acquire);
        // A bind that is late or lost frees nothing; the answer says so.
        let _ = self.wait_for_bind(binds, newest);
        let state = &mut *binds.state.lock();
        self.destroy_left(binds, state);
        state.leaving.len() < before
    }

    /// Hands the driver what is noted, for a thread that may itself have the queue: tries for a second, and answers
    /// whether it was done.
    fn flush_binds_in_time(&self, binds: &Binds) -> bool {
        let begin = Instant::now();
        while binds.noted.load(Ordering::Acquire) {
            match self.queues[binds.queue].try_locked(|queue| self.bind(binds, queue)) {
                Some(bound) => return bound.is_ok(),
                None if begin.elapsed().as_nanos() > u128::from(PATIENCE_NS) => return false,
                None => std::thread::sleep(TRY_AGAIN),
            }
        }
        true
    }

    /// Asks for memory, and where there is none, once more with all that was given back.
    pub(crate) fn reclaiming<T>(&self, ask: impl Fn() -> Result<T, VulkanError>) -> Result<T, VulkanError> {
        match ask() {
            Err(error) if error.fault() == Fault::OutOfMemory && self.reclaim() => ask(),
            answer => answer,
        }
    }

    /// Blocks until a bind is made, or for a second.
    fn wait_for_bind(&self, binds: &Binds, bind: u64) -> Result<(), vk::Result> {
        let (semaphores, values) = ([binds.timeline], [bind]);
        let info = vk::SemaphoreWaitInfo::default().semaphores(&semaphores).values(&values);
        // SAFETY: the semaphore is a timeline of this device and lives as long.
        unsafe { self.raw.wait_semaphores(&info, PATIENCE_NS) }?;
        binds.reached.fetch_max(bind, Ordering::AcqRel);
        Ok(())
    }

    /// Destroys all that was made for virtual memory, leaked or given back. No handle of the device is left.
    pub(crate) fn destroy_binds(&self, binds: Binds) {
        let newest = binds.newest.load(Ordering::Acquire);
        // Any other error means that the device is gone, and its binds with it.
        while self.wait_for_bind(&binds, newest) == Err(vk::Result::TIMEOUT) {}
        let mut state = binds.state.into_inner();
        // Ranges first: what is bound in them may then go.
        let ranges: Vec<_> = state.ranges.drain().map(|(range, bytes)| Leaving::Range(range, bytes)).collect();
        let leaving = std::mem::take(&mut state.leaving).into_iter().map(|(_, left)| left);
        let (left_ranges, left_pages): (Vec<_>, Vec<_>) = leaving.partition(|left| matches!(left, Leaving::Range(..)));
        let pages: Vec<_> = state.pages.drain().map(|(memory, bytes)| Leaving::Page(memory, bytes)).collect();
        let all = ranges.into_iter().chain(left_ranges).chain(left_pages).chain(pages);
        all.for_each(|left| self.destroy(&mut state, left));
        // SAFETY: the newest bind is made or cannot be any more, and nobody has a handle of the device.
        unsafe { self.raw.destroy_semaphore(binds.timeline, None) };
    }
}

#[cfg(test)]
mod tests {
    use millpond_backend::{Backend, ClassId, VirtualMemory};

    use super::*;

    /// What `reclaiming` answers to a driver that refuses once, and how often it asked.
    fn refused_once(device: &Vulkan) -> (Result<(), VulkanError>, u32) {
        let asked = std::cell::Cell::new(0);
        let answer = device.device.reclaiming(|| {
            asked.set(asked.get() + 1);
            if asked.get() > 1 { Ok(()) } else { Err(VulkanError::OutOfMemory { asked: 1, class: ClassId::DEVICE }) }
        });
        (answer, asked.get())
    }

    #[test]
    fn a_refused_request_is_made_again_if_anything_was_freed() {
        let required = |power: &str| std::env::var("MILLPOND_REQUIRE").is_ok_and(|list| list.contains(power));
        let device = match Vulkan::open(0) {
            Ok(device) if device.caps().pages.is_some() => device,
            other => {
                assert!(!required("sparse"), "MILLPOND_REQUIRE names sparse: {other:?}");
                return eprintln!("SKIPPED (sparse): {other:?} has no virtual memory");
            }
        };
        let stream = device.create_stream().unwrap();
        let bytes = device.caps().pages.map_or(0, |pages| pages.granularity);
        assert!(matches!(refused_once(&device), (Err(VulkanError::OutOfMemory { .. }), 1)));
        let range = device.reserve_range(ClassId::DEVICE, bytes).unwrap();
        let page = device.create_page(ClassId::DEVICE, bytes).unwrap();
        // SAFETY: nothing is mapped there, and no work touches it before it is unmapped and given back.
        unsafe {
            device.map(&range, 0, &page, stream).unwrap();
            device.unmap(&range, 0, &page, stream);
            device.release_page(page);
        }
        assert_eq!(device.device.allocations.load(Ordering::Relaxed), 1, "the bind is not made yet");
        assert!(matches!(refused_once(&device), (Ok(()), 2)));
        assert_eq!(device.device.allocations.load(Ordering::Relaxed), 0);
        // SAFETY: nothing is mapped there.
        unsafe { device.release_range(range) };
    }
}
