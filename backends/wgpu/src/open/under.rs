//! Segments that are not wgpu's: buffers of `millpond-vulkan` on the device that wgpu runs on, virtual memory included.
//!
//! For Vulkan, wgpu is an engine that submits without the Vulkan backend. So each submit is announced to that backend,
//! waits for earlier binds, and is then made. All submits belong to one stream there, because wgpu has one queue.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use ash::vk;
use millpond_backend::{Backend, Caps, ClassId, LeftPage, PageCaps, Reuse, StreamId, VirtualMemory};
use millpond_vulkan::{Adopted, AdoptedQueue, PendingSubmit, QueueLock, Vulkan};
use parking_lot::{Mutex, ReentrantMutex};
use wgpu::hal::api::Vulkan as Hal;
use wgpu::hal::vulkan::Buffer as HalBuffer;

use super::driver::Driver;
use super::shared::Shared;
use crate::error::WgpuError;
use crate::probe::WORD;

/// Where addresses are scarce, the allocator takes at most one part in this number of them for a range.
const RANGES_LEAST: u64 = 64;

pub use millpond_vulkan::Page;

/// The Vulkan backend under a wgpu device.
pub(crate) struct Under {
    pub(crate) vulkan: Vulkan,
    /// The stream of the Vulkan backend that stands for wgpu's queue.
    pub(crate) stream: StreamId,
    /// Held while the queue is used, by submits of this backend and by binds that share the queue.
    turn: Arc<Turn>,
    returned: Arc<Returned>,
    /// wgpu's device, which outlives the Vulkan backend.
    driver: Arc<Driver>,
}

/// The lock of the queue. wgpu runs callbacks inside of submits, while the lock is held: what these allocate and free
/// may bind, on the thread that holds the lock, while other threads only try to lock it.
struct Turn(ReentrantMutex<()>);

impl QueueLock for Turn {
    fn locked(&self, work: &mut dyn FnMut()) {
        let _guard = self.0.lock();
        work();
    }

    fn try_locked(&self, work: &mut dyn FnMut()) -> bool {
        let guard = self.0.try_lock();
        if guard.is_some() {
            work();
        }
        guard.is_some()
    }
}

/// Segments that wgpu no longer uses. wgpu drops its buffers anywhere, also inside of submits, where no memory may be
/// freed that locks the queue; so the segments are freed at the next occasion.
///
/// Every buffer that wgpu has holds this value, and through it the Vulkan backend, which so outlives all of them.
struct Returned {
    vulkan: Vulkan,
    segments: Mutex<Vec<Loan>>,
    /// Pages of dropped allocators, where wgpu no longer uses any of the ranges that they are mapped in.
    left: Mutex<Vec<Arc<Group>>>,
}

/// The pages that a dropped allocator has left, and the ranges that they are mapped in.
struct Group {
    pages: Mutex<Vec<LeftPage<Page>>>,
    /// The ranges that wgpu no longer uses, each at its place.
    ranges: Mutex<Vec<Option<millpond_vulkan::Segment>>>,
}

impl Group {
    /// Puts a range back that wgpu no longer uses. Returns whether it was the last.
    fn put(&self, at: usize, range: millpond_vulkan::Segment) -> bool {
        let mut ranges = self.ranges.lock();
        ranges[at] = Some(range);
        ranges.iter().all(Option::is_some)
    }
}

/// A Vulkan segment, and whether it is a range of addresses.
struct Loan {
    segment: millpond_vulkan::Segment,
    is_range: bool,
}

/// The Vulkan segment behind a wgpu segment, while wgpu has its buffer.
pub(crate) struct Backing {
    loan: Mutex<Option<Loan>>,
    /// Whether the allocator has released it. A segment that is only dropped stays with the device.
    released: AtomicBool,
    /// For a range in which pages were left: them, and its place among their ranges.
    group: OnceLock<(Arc<Group>, usize)>,
}

impl Returned {
    /// Takes the segment behind a buffer that wgpu has dropped.
    fn take(&self, backing: &Backing) {
        let Some(loan) = backing.loan.lock().take() else { return };
        match backing.group.get() {
            None => self.segments.lock().push(loan),
            Some((group, at)) => {
                if group.put(*at, loan.segment) {
                    self.left.lock().push(Arc::clone(group));
                }
            }
        }
    }
}

impl Backing {
    pub(crate) fn release(&self) {
        self.released.store(true, Ordering::Release);
    }

    /// Calls `act` with the Vulkan segment, which exists as long as the wgpu segment does.
    pub(crate) fn with<T>(&self, act: impl FnOnce(&millpond_vulkan::Segment) -> T) -> T {
        match &*self.loan.lock() {
            Some(loan) => act(&loan.segment),
            None => panic!("wgpu let go of a buffer that was not released"),
        }
    }
}

pub(crate) fn failed(call: &'static str) -> impl Fn(millpond_vulkan::VulkanError) -> WgpuError {
    move |source| WgpuError::Vulkan { call, source: Box::new(source) }
}

impl Under {
    /// Adopts a device that was opened for this.
    pub(crate) fn adopt(driver: &Arc<Driver>, opened: Shared) -> Result<Under, WgpuError> {
        // SAFETY: the handles are copied, and no object of wgpu's is destroyed.
        let Some(hal) = (unsafe { driver.device.as_hal::<Hal>() }) else {
            panic!("a device that was opened on Vulkan runs on something else")
        };
        let (instance, raw) = (hal.shared_instance(), hal.raw_device().clone());
        let turn = Arc::new(Turn(ReentrantMutex::new(())));
        let lock: Arc<dyn QueueLock> = turn.clone();
        let family = hal.queue_family_index();
        let mut queues = vec![AdoptedQueue { family, queue: hal.raw_queue(), lock: Some(lock) }];
        if let Some((family, index)) = opened.binder {
            // SAFETY: the device was opened with that queue, and wgpu does not know of it.
            let queue = unsafe { raw.get_device_queue(family, index) };
            queues.push(AdoptedQueue { family, queue, lock: None });
        }
        let adopted = Adopted {
            entry: instance.entry().clone(),
            instance: instance.raw_instance().clone(),
            physical_device: hal.raw_physical_device(),
            device: raw,
            queues,
            enabled: opened.enabled,
            engine_submits: true,
            // Whoever has a handle of the result keeps wgpu's device, and not its queue: that holds buffers of work in
            // flight, which hold the result.
            keep: Some(Arc::new(driver.device.clone())),
            exports: None,
            validation: None,
        };
        // SAFETY: the handles are wgpu's own, and `keep` keeps them alive. The device was opened with the features in
        // `opened`. The queue that wgpu uses has a lock, which all submits of this backend take; for the users' own
        // submits, the documentation of `vulkan_segments` makes the users responsible.
        let vulkan = unsafe { Vulkan::adopt(adopted) }.map_err(failed("adopt"))?;
        let stream = vulkan.stream_on(family, 0).map_err(failed("stream_on"))?;
        let returned =
            Arc::new(Returned { vulkan: vulkan.clone(), segments: Mutex::default(), left: Mutex::default() });
        Ok(Under { vulkan, stream, turn, returned, driver: Arc::clone(driver) })
    }

    /// Returns whether this thread has the queue locked.
    #[cfg(test)]
    pub(crate) fn has_turn(&self) -> bool {
        self.turn.0.is_owned_by_current_thread()
    }

    /// Replaces those of the device's facts that the Vulkan backend determines.
    pub(crate) fn amend(&self, caps: &mut Caps) {
        let own = self.vulkan.caps();
        for class in &mut caps.classes {
            class.max_segment_bytes = class.max_segment_bytes.min(own.classes[0].max_segment_bytes / WORD * WORD);
            class.total_bytes = own.classes[0].total_bytes;
        }
        let max = caps.classes[0].max_segment_bytes;
        // A range is a part of all addresses, and a buffer of wgpu's: with this limit no part is larger than a buffer
        // may be.
        let address_bytes = |pages: PageCaps| pages.address_bytes.min(max.saturating_mul(RANGES_LEAST));
        // wgpu tracks buffers, and places no barrier between work on two of them. But each of its submits waits on the
        // device for the previous one, and sees its writes.
        let alias_reuse = Reuse::AfterSubmit;
        caps.pages =
            own.pages.map(|pages| pages.with_alias_reuse(alias_reuse).with_address_bytes(address_bytes(pages)));
        caps.budget = own.budget;
        caps.oversubscribes = own.oversubscribes;
    }

    /// Reserves a segment with memory, as wgpu's buffer. It ends with a whole word, because wgpu copies and binds whole
    /// words.
    pub(crate) fn reserve(
        &self,
        usage: wgpu::BufferUsages,
        bytes: u64,
    ) -> Result<(wgpu::Buffer, Arc<Backing>), WgpuError> {
        self.free_returned();
        let bytes = bytes.next_multiple_of(WORD);
        let segment = self.vulkan.reserve(ClassId::DEVICE, bytes).map_err(failed("reserve"))?;
        self.lend(usage, Loan { segment, is_range: false })
    }

    /// Reserves a range of addresses, as wgpu's buffer.
    pub(crate) fn reserve_range(
        &self,
        usage: wgpu::BufferUsages,
        bytes: u64,
    ) -> Result<(wgpu::Buffer, Arc<Backing>), WgpuError> {
        self.free_returned();
        let segment = VirtualMemory::reserve_range(&self.vulkan, ClassId::DEVICE, bytes);
        self.lend(usage, Loan { segment: segment.map_err(failed("reserve_range"))?, is_range: true })
    }

    /// Passes a segment's buffer to wgpu.
    fn lend(&self, usage: wgpu::BufferUsages, loan: Loan) -> Result<(wgpu::Buffer, Arc<Backing>), WgpuError> {
        let (raw, size) = (loan.segment.buffer(), loan.segment.bytes());
        let (loan, released) = (Mutex::new(Some(loan)), AtomicBool::new(false));
        let backing = Arc::new(Backing { loan, released, group: OnceLock::new() });
        let (lent, returned) = (Arc::clone(&backing), Arc::clone(&self.returned));
        let let_go = move || {
            if lent.released.load(Ordering::Acquire) {
                returned.take(&lent);
            }
        };
        // SAFETY: the buffer lives until `let_go` was called: it is freed only after that, or at the end of the Vulkan
        // backend, which `let_go` keeps alive.
        let hal = unsafe { HalBuffer::from_raw_externally_owned(raw, Box::new(let_go)) };
        let descriptor = wgpu::BufferDescriptor { label: Some("millpond"), size, usage, mapped_at_creation: false };
        // SAFETY: the buffer is of this device, of that size and not empty, and its usages include those of the
        // descriptor, which `shared::open` checked. Its bytes are arbitrary: reading them gives any value.
        let make = || unsafe { self.driver.device.create_buffer_from_hal::<Hal>(hal, &descriptor) };
        match self.driver.caught("reserve", size, make) {
            Ok(buffer) => Ok((buffer, backing)),
            Err(error) => {
                // wgpu has dropped the buffer already, or drops it with the next poll.
                backing.release();
                self.returned.take(&backing);
                Err(error)
            }
        }
    }

    /// Takes pages that a dropped allocator has left in these ranges, which wgpu gets to itself next.
    pub(crate) fn leave<'r>(&self, ranges: impl Iterator<Item = &'r Arc<Backing>>, pages: Vec<LeftPage<Page>>) {
        let ranges: Vec<_> = ranges.collect();
        let places = ranges.iter().map(|_| None).collect();
        let group = Arc::new(Group { pages: Mutex::new(pages), ranges: Mutex::new(places) });
        for (at, range) in ranges.into_iter().enumerate() {
            assert!(range.group.set((Arc::clone(&group), at)).is_ok(), "a range is left twice");
        }
    }

    /// Frees pages that were left, and their ranges.
    fn free_left(&self) {
        let vulkan = &self.returned.vulkan;
        let left = std::mem::take(&mut *self.returned.left.lock());
        for group in left {
            let ranges: Vec<_> = std::mem::take(&mut *group.ranges.lock()).into_iter().flatten().collect();
            for page in std::mem::take(&mut *group.pages.lock()) {
                for at in page.mapped {
                    // SAFETY: it was left mapped there, and wgpu no longer uses the range.
                    unsafe { vulkan.unmap(&ranges[at.range], at.offset, &page.page, self.stream) };
                }
                // SAFETY: it is mapped nowhere now.
                unsafe { vulkan.release_page(page.page) };
            }
            for range in ranges {
                // SAFETY: nothing is mapped in it now, and wgpu no longer uses it.
                unsafe { VirtualMemory::release_range(vulkan, range) };
            }
        }
    }

    /// Frees the segments that wgpu no longer uses.
    pub(crate) fn free_returned(&self) {
        self.free_left();
        let returned = std::mem::take(&mut *self.returned.segments.lock());
        for Loan { segment, is_range } in returned {
            if is_range {
                // SAFETY: it was released, so nothing is mapped in it and no work touches it.
                unsafe { VirtualMemory::release_range(&self.returned.vulkan, segment) };
            } else {
                // SAFETY: it was released, so no work touches it.
                unsafe { self.returned.vulkan.release(segment) };
            }
        }
    }

    /// Binds what was mapped and unmapped, and announces a submit. Other submits wait until this one is made or
    /// abandoned.
    pub(crate) fn announce(&self) -> Result<Announced<'_>, WgpuError> {
        self.free_returned();
        let pending = self.vulkan.begin_submit(self.stream).map_err(failed("begin_submit"))?;
        Ok(Announced { pending, turn: &self.turn })
    }
}

/// A submit that is about to be made.
pub(crate) struct Announced<'a> {
    pending: PendingSubmit<'a>,
    turn: &'a Turn,
}

impl Announced<'_> {
    /// Makes the submit. A submission of other code may come in between and take the waits and the signal: then it runs
    /// between the binds and this submission, which comes after both, because the queue keeps its order.
    pub(crate) fn submit<T>(self, queue: &wgpu::Queue, submit: impl FnOnce() -> T) -> T {
        let _turn = self.turn.0.lock();
        // SAFETY: the queue's handle is not changed; the semaphores live as long as the Vulkan backend, which waits for
        // the device when it is dropped.
        let hal = unsafe { queue.as_hal::<Hal>() };
        let Some(hal) = hal else { panic!("a device on Vulkan has a queue on something else") };
        let signal = self.pending.signal();
        for wait in self.pending.waits() {
            hal.add_wait_semaphore(wait.semaphore, Some(wait.value), vk::PipelineStageFlags::ALL_COMMANDS);
        }
        hal.add_signal_semaphore(signal.semaphore, Some(signal.value));
        let answer = submit();
        if hal.remove_signal_semaphore(signal.semaphore) {
            for wait in self.pending.waits() {
                hal.remove_wait_semaphore(wait.semaphore);
            }
            self.pending.abandon();
        } else {
            self.pending.finish();
        }
        answer
    }
}
