//! The lock protocol of the shell under every interleaving that loom can make, within a bound on preemptions.
//!
//! Built only with `RUSTFLAGS="--cfg loom" cargo test -p millpond-loom --release`. The library's locks and atomics are
//! then those of loom. The device below uses those of the standard library, which loom does not track, so they add no
//! interleavings. Threads change only at those of loom, so what the device does happens between two such points.
#![cfg(loom)]
#![allow(unsafe_code)] // The contract's unsafe trait and methods.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use loom::thread;
use millpond::backend::{
    Backend, BackendError, Caps, Class, ClassId, ClassKind, Closing, Fault, PageCaps, Point, Reuse, StreamId, Tick,
    VirtualMemory,
};
use millpond::settings::{Growth, Policy, Settings};
use millpond::{Allocator, Buffer, Stream};

mod behind;
mod ends;
mod pools;

const MIB: u64 = 1 << 20;
/// The memory that the device has: two segments of the small pool or two pages, or one large segment.
const TOTAL: u64 = 4 * MIB;

/// The state of a device that the test reads, also after the device was dropped.
struct Witness {
    gone: AtomicBool,
    reserved: AtomicU64,
    segments: AtomicU64,
    numbers: AtomicU64,
    mapped: AtomicU64,
    /// The progress of each stream.
    progress: Mutex<Vec<Progress>>,
    /// Work that was queued, finished or not.
    work: Mutex<Vec<Work>>,
    /// Signalled when a stream has reached a further tick.
    moved: (loom::sync::Mutex<()>, loom::sync::Condvar),
}

/// A stream's newest tick, and the one that it has reached. A stream without work has reached its first.
#[derive(Clone, Copy)]
struct Progress {
    marked: u64,
    reached: u64,
}

/// A kernel that uses some bytes of a segment.
struct Work {
    segment: u64,
    start: u64,
    end: u64,
    point: Point,
}

/// A driver's segment, or a range of addresses.
struct Segment {
    number: u64,
    bytes: u64,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Witness {
    fn new() -> Self {
        Self {
            gone: AtomicBool::new(false),
            reserved: AtomicU64::new(0),
            segments: AtomicU64::new(0),
            numbers: AtomicU64::new(0),
            mapped: AtomicU64::new(0),
            progress: Mutex::new(Vec::new()),
            work: Mutex::new(Vec::new()),
            moved: (loom::sync::Mutex::new(()), loom::sync::Condvar::new()),
        }
    }

    fn progress(&self, stream: StreamId) -> Progress {
        locked(&self.progress)[stream.0 as usize]
    }

    /// Queues a kernel that uses the buffer and runs until [`finish`](Witness::finish).
    fn queue(&self, stream: &Stream<Device>, buffer: &Buffer<Device>) -> Point {
        // Read before the lock is taken, as no thread may hold that where loom could change to another.
        let segment = buffer.segment().map_or(u64::MAX, |segment| segment.number);
        let (start, end) = (buffer.offset(), buffer.offset() + buffer.capacity());
        let mut progress = locked(&self.progress);
        let own = &mut progress[stream.id().0 as usize];
        own.marked += 1;
        let point = Point { stream: stream.id(), tick: Tick(own.marked) };
        locked(&self.work).push(Work { segment, start, end, point });
        point
    }

    /// Completes everything that is queued on a stream.
    fn finish(&self, stream: StreamId) {
        let (lock, moved) = &self.moved;
        let _guard = lock.lock().unwrap_or_else(PoisonError::into_inner);
        let mut progress = locked(&self.progress);
        let own = &mut progress[stream.0 as usize];
        own.reached = own.marked;
        drop(progress);
        moved.notify_all();
    }

    /// Blocks until the device has reached the point.
    fn wait(&self, point: Point) -> Tick {
        let (lock, moved) = &self.moved;
        let mut guard = lock.lock().unwrap_or_else(PoisonError::into_inner);
        while self.progress(point.stream).reached < point.tick.0 {
            guard = moved.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
        Tick(self.progress(point.stream).reached)
    }

    /// Returns whether kernels that use these bytes are unfinished.
    fn is_busy(&self, segment: u64, start: u64, end: u64) -> bool {
        let unfinished = |work: &&Work| self.progress(work.point.stream).reached < work.point.tick.0;
        let overlaps = |work: &Work| work.segment == segment && work.start < end && start < work.end;
        locked(&self.work).iter().filter(unfinished).any(overlaps)
    }
}

/// A device whose streams complete all work at once, except the kernels of [`Witness::queue`].
struct Device {
    caps: Caps,
    witness: Arc<Witness>,
    streams: AtomicU64,
}

#[derive(Debug)]
struct Full;

impl std::fmt::Display for Full {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the device is full")
    }
}

impl std::error::Error for Full {}

impl BackendError for Full {
    fn fault(&self) -> Fault {
        Fault::OutOfMemory
    }
}

impl Device {
    fn new() -> (Device, Arc<Witness>) {
        let class = Class::new(ClassKind::Device, "device", TOTAL).with_alignment(512);
        let caps =
            Caps::new("loom", vec![class], Reuse::InOrder, Closing::Backend).with_pages(Some(PageCaps::new(2 * MIB)));
        let witness = Arc::new(Witness::new());
        (Device { caps, witness: Arc::clone(&witness), streams: AtomicU64::new(0) }, witness)
    }

    /// Returns the state of the device. No call may reach a device that its allocator has dropped.
    fn seen(&self) -> &Witness {
        assert!(!self.witness.gone.load(Ordering::Relaxed), "the device is used after the allocator dropped it");
        &self.witness
    }

    fn take(&self, bytes: u64) -> Result<u64, Full> {
        let witness = self.seen();
        if witness.reserved.load(Ordering::Relaxed) + bytes > TOTAL {
            return Err(Full);
        }
        witness.reserved.fetch_add(bytes, Ordering::Relaxed);
        witness.segments.fetch_add(1, Ordering::Relaxed);
        Ok(bytes)
    }

    fn segment(&self, bytes: u64) -> Segment {
        Segment { number: self.seen().numbers.fetch_add(1, Ordering::Relaxed), bytes }
    }

    /// Checks the contract's condition for giving memory back.
    fn expect_idle(&self, segment: &Segment, start: u64, end: u64) {
        assert!(!self.seen().is_busy(segment.number, start, end), "memory goes back while a kernel uses it");
    }

    fn give_back(&self, bytes: u64) {
        let witness = self.seen();
        // The driver's call takes time, in which other threads run.
        thread::yield_now();
        witness.reserved.fetch_sub(bytes, Ordering::Relaxed);
        witness.segments.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        self.seen().gone.store(true, Ordering::Relaxed);
    }
}

// SAFETY: segments are counted and have no addresses, so none overlap; `reached` and `wait` return what `finish` has
// stored, which never falls and never exceeds what was marked; stream ids are counted up.
unsafe impl Backend for Device {
    type Segment = Segment;
    type Page = u64;
    type Error = Full;

    fn caps(&self) -> &Caps {
        self.seen();
        &self.caps
    }

    fn create_stream(&self) -> Result<StreamId, Full> {
        locked(&self.seen().progress).push(Progress { marked: 1, reached: 1 });
        Ok(StreamId(self.streams.fetch_add(1, Ordering::Relaxed) as u32))
    }

    fn has_stream(&self, stream: StreamId) -> bool {
        (stream.0 as usize) < self.streams.load(Ordering::Relaxed) as usize
    }

    fn reserve(&self, _class: ClassId, bytes: u64) -> Result<Segment, Full> {
        self.take(bytes).map(|bytes| self.segment(bytes))
    }

    unsafe fn release(&self, segment: Segment) {
        self.expect_idle(&segment, 0, segment.bytes);
        self.give_back(segment.bytes);
    }

    fn address(&self, _segment: &Segment) -> Option<u64> {
        None
    }

    fn mark(&self, stream: StreamId) -> Tick {
        Tick(self.seen().progress(stream).marked)
    }

    fn reached(&self, stream: StreamId) -> Result<Tick, Full> {
        Ok(Tick(self.seen().progress(stream).reached))
    }

    fn wait(&self, point: Point) -> Result<Tick, Full> {
        Ok(self.seen().wait(point))
    }

    fn virtual_memory(&self) -> Option<&dyn VirtualMemory<Segment = Segment, Page = u64, Error = Full>> {
        Some(self)
    }
}

impl VirtualMemory for Device {
    type Segment = Segment;
    type Page = u64;
    type Error = Full;

    fn reserve_range(&self, _class: ClassId, bytes: u64) -> Result<Segment, Full> {
        Ok(self.segment(bytes))
    }

    unsafe fn release_range(&self, range: Segment) {
        self.expect_idle(&range, 0, range.bytes);
    }

    fn create_page(&self, _class: ClassId, bytes: u64) -> Result<u64, Full> {
        self.take(bytes)
    }

    unsafe fn release_page(&self, page: u64) {
        self.give_back(page);
    }

    unsafe fn map(&self, _range: &Segment, _offset: u64, _page: &u64, _stream: StreamId) -> Result<(), Full> {
        self.seen().mapped.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    unsafe fn unmap(&self, range: &Segment, offset: u64, page: &u64, _stream: StreamId) {
        self.expect_idle(range, offset, offset + page);
        self.seen().mapped.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Explores a scenario. At the end of each execution the allocator has to be gone and the device to have everything
/// back.
fn explore(preemptions: usize, settings: Settings, scenario: fn(Allocator<Device>)) {
    explore_device(preemptions, settings, move |allocator, _| scenario(allocator));
}

/// Explores a scenario in which the device does something.
fn explore_device(
    preemptions: usize,
    settings: Settings,
    scenario: impl Fn(Allocator<Device>, Arc<Witness>) + Send + Sync + 'static,
) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.max_branches = 50_000;
    model.check(move || {
        let (device, witness) = Device::new();
        let allocator = match Allocator::builder(device).settings(settings.clone()).build() {
            Ok(allocator) => allocator,
            Err(error) => panic!("{error}"),
        };
        scenario(allocator, Arc::clone(&witness));
        assert!(witness.gone.load(Ordering::Relaxed), "the allocator outlives its handles and buffers");
        assert_eq!(witness.segments.load(Ordering::Relaxed), 0, "segments or pages leaked");
        assert_eq!(witness.mapped.load(Ordering::Relaxed), 0, "mappings leaked");
    });
}

fn stream(allocator: &Allocator<Device>) -> Stream<Device> {
    allocator.create_stream().unwrap_or_else(|error| panic!("{error}"))
}

fn allocate(stream: &Stream<Device>, bytes: u64) -> Buffer<Device> {
    stream.allocate(bytes).unwrap_or_else(|error| panic!("{error}"))
}

/// Checks that nothing is live, that the invariants hold, and that as much was freed as was allocated.
fn settles(allocator: &Allocator<Device>, allocations: u64) {
    let stats = allocator.stats().allocation.all;
    assert_eq!((stats.current, stats.allocated, stats.freed), (0, allocations, allocations));
    allocator.check();
}

#[test]
fn two_threads_on_two_streams() {
    explore(2, Settings::default(), |allocator| {
        let (one, two) = (stream(&allocator), stream(&allocator));
        let other = thread::spawn(move || drop((allocate(&two, 100), allocate(&two, 5000))));
        drop((allocate(&one, 100), allocate(&one, 700)));
        other.join().unwrap();
        drop(one);
        settles(&allocator, 4);
    });
}

#[test]
fn two_threads_on_one_stream() {
    explore(2, Settings::default(), |allocator| {
        let one = stream(&allocator);
        let two = one.clone();
        let other = thread::spawn(move || drop(allocate(&two, 100)));
        let (a, b) = (allocate(&one, 100), allocate(&one, 100));
        assert_ne!((a.segment_id(), a.offset()), (b.segment_id(), b.offset()), "two buffers in one place");
        drop((a, b));
        other.join().unwrap();
        drop(one);
        settles(&allocator, 3);
    });
}

#[test]
fn a_block_used_elsewhere_is_freed_while_the_other_stream_allocates() {
    explore(2, Settings::default(), |allocator| {
        let (one, two) = (stream(&allocator), stream(&allocator));
        let shared = allocate(&one, 1000);
        shared.record_stream(&two).unwrap();
        let other = thread::spawn(move || drop(allocate(&two, 100)));
        drop(shared);
        let again = allocate(&one, 1000);
        other.join().unwrap();
        drop((again, one));
        allocator.poll().unwrap();
        settles(&allocator, 3);
    });
}

#[test]
fn two_misses_when_only_one_can_have_the_memory() {
    explore(2, Settings::default(), |allocator| {
        let (one, two) = (stream(&allocator), stream(&allocator));
        // Both small segments are cached on the first stream: the thread that misses first gives them back, and the
        // other waits.
        drop((allocate(&one, MIB), allocate(&one, MIB), allocate(&one, MIB)));
        let misses = two.clone();
        let other = thread::spawn(move || misses.allocate(MIB).is_ok());
        let own = two.allocate(MIB).is_ok();
        let others = other.join().unwrap();
        assert!(own && others, "memory that was being released was reported missing");
        drop((one, two));
        allocator.check();
    });
}

#[test]
fn the_cache_is_emptied_while_a_block_is_taken_from_it() {
    explore(2, Settings::default(), |allocator| {
        let one = stream(&allocator);
        drop(allocate(&one, 100));
        let emptying = allocator.clone();
        let other = thread::spawn(move || emptying.empty_cache().is_ok());
        drop(allocate(&one, 100));
        assert!(other.join().unwrap());
        drop(one);
        settles(&allocator, 2);
    });
}

fn paged() -> Settings {
    Settings { policy: Policy::paged(Growth::Balanced), ..Settings::default() }
}

#[test]
fn two_misses_for_the_pages_of_a_third_stream() {
    explore(2, paged(), |allocator| {
        let (one, two, three) = (stream(&allocator), stream(&allocator), stream(&allocator));
        // Both pages that the device has are idle on the first stream: each of the others can have one.
        drop((allocate(&one, MIB), allocate(&one, MIB), allocate(&one, MIB)));
        let other = thread::spawn(move || three.allocate(MIB).is_ok());
        let own = two.allocate(MIB).is_ok();
        let others = other.join().unwrap();
        assert!(own && others, "idle pages were there for both");
        drop((one, two));
        settles(&allocator, 5);
    });
}

#[test]
fn a_page_moves_while_its_stream_allocates() {
    explore(2, paged(), |allocator| {
        let (one, two) = (stream(&allocator), stream(&allocator));
        drop(allocate(&one, MIB));
        let other = thread::spawn(move || drop(allocate(&two, MIB)));
        drop(allocate(&one, MIB));
        other.join().unwrap();
        drop(one);
        settles(&allocator, 3);
    });
}
