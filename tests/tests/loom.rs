//! The lock protocol of the shell under every interleaving that loom can make, within a bound on preemptions.
//!
//! Only with `RUSTFLAGS="--cfg loom" cargo test -p millpond-tests --release --test loom`. The library's locks and
//! atomics are loom's then; the device below uses plain ones, which loom does not see and so does not multiply.
#![cfg(loom)]
#![allow(unsafe_code)] // The contract's unsafe trait and methods.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use loom::thread;
use millpond::backend::{
    Backend, BackendError, Caps, Class, ClassId, ClassKind, Closing, Fault, PageCaps, Point, Reuse, StreamId, Tick,
    VirtualMemory,
};
use millpond::settings::{Policy, Settings};
use millpond::{Allocator, Buffer, Stream};

const MIB: u64 = 1 << 20;
/// The memory that the device has: two segments of the small pool or two pages, or one large segment.
const TOTAL: u64 = 4 * MIB;

/// What the test sees of a device, also when it is gone.
#[derive(Default)]
struct Witness {
    gone: AtomicBool,
    reserved: AtomicU64,
    segments: AtomicU64,
    mapped: AtomicU64,
}

/// A device whose work is done as soon as it is recorded.
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
        let class = Class {
            name: "device".into(),
            kind: ClassKind::Device,
            alignment: 512,
            max_segment_bytes: u64::MAX,
            total_bytes: TOTAL,
        };
        let caps = Caps {
            name: "loom".into(),
            classes: vec![class],
            reuse: Reuse::InOrder,
            needs_barrier: false,
            closing: Closing::Backend,
            release_waits: false,
            oversubscribes: false,
            pages: Some(PageCaps::new(2 * MIB)),
            stream_wait: false,
            host_memory: false,
            transfer: false,
            budget: false,
        };
        let witness = Arc::new(Witness::default());
        (Device { caps, witness: Arc::clone(&witness), streams: AtomicU64::new(0) }, witness)
    }

    /// Nothing may be asked of a device that its allocator has dropped.
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

    fn give_back(&self, bytes: u64) {
        let witness = self.seen();
        // The driver's call takes time, in which others run.
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

// SAFETY: segments are counted and have no addresses, so none overlap; all work is done when it is recorded, so tick 1
// covers everything and is always reached; stream ids are counted up.
unsafe impl Backend for Device {
    type Segment = u64;
    type Page = u64;
    type Error = Full;

    fn caps(&self) -> &Caps {
        self.seen();
        &self.caps
    }

    fn create_stream(&self) -> Result<StreamId, Full> {
        Ok(StreamId(self.streams.fetch_add(1, Ordering::Relaxed) as u32))
    }

    fn has_stream(&self, stream: StreamId) -> bool {
        (stream.0 as usize) < self.streams.load(Ordering::Relaxed) as usize
    }

    fn reserve(&self, _class: ClassId, bytes: u64) -> Result<u64, Full> {
        self.take(bytes)
    }

    unsafe fn release(&self, segment: u64) {
        self.give_back(segment);
    }

    fn address(&self, _segment: &u64) -> Option<u64> {
        None
    }

    fn mark(&self, _stream: StreamId) -> Tick {
        self.seen();
        Tick(1)
    }

    fn reached(&self, _stream: StreamId) -> Result<Tick, Full> {
        self.seen();
        Ok(Tick(1))
    }

    fn wait(&self, _point: Point) -> Result<Tick, Full> {
        self.seen();
        Ok(Tick(1))
    }

    fn virtual_memory(&self) -> Option<&dyn VirtualMemory<Segment = u64, Page = u64, Error = Full>> {
        Some(self)
    }
}

impl VirtualMemory for Device {
    type Segment = u64;
    type Page = u64;
    type Error = Full;

    fn reserve_range(&self, _class: ClassId, bytes: u64) -> Result<u64, Full> {
        self.seen();
        Ok(bytes)
    }

    unsafe fn release_range(&self, _range: u64) {
        self.seen();
    }

    fn create_page(&self, _class: ClassId, bytes: u64) -> Result<u64, Full> {
        self.take(bytes)
    }

    unsafe fn release_page(&self, page: u64) {
        self.give_back(page);
    }

    unsafe fn map(&self, _range: &u64, _offset: u64, _page: &u64, _stream: StreamId) -> Result<(), Full> {
        self.seen().mapped.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    unsafe fn unmap(&self, _range: &u64, _offset: u64, _page: &u64, _stream: StreamId) {
        self.seen().mapped.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Explores a scenario; at the end of each execution the allocator is gone and the device has everything back.
fn explore(preemptions: usize, settings: Settings, scenario: fn(Allocator<Device>)) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.max_branches = 50_000;
    model.check(move || {
        let (device, witness) = Device::new();
        let allocator = match Allocator::builder(device).settings(settings.clone()).build() {
            Ok(allocator) => allocator,
            Err(error) => panic!("{error}"),
        };
        scenario(allocator);
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

/// Nothing is live, the invariants hold, and as much was freed as was allocated.
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
        // Both small segments are cached on the first stream: whoever misses gives them back, and others wait for it.
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

#[test]
fn the_allocator_goes_while_a_buffer_goes_elsewhere() {
    explore(3, Settings::default(), |allocator| {
        let one = stream(&allocator);
        let buffer = allocate(&one, 100);
        drop(one);
        let other = thread::spawn(move || drop(buffer));
        drop(allocator);
        other.join().unwrap();
    });
}

#[test]
fn two_last_buffers_go_at_once() {
    explore(3, Settings::default(), |allocator| {
        let one = stream(&allocator);
        let (a, b) = (allocate(&one, 100), allocate(&one, 100));
        drop((one, allocator));
        let other = thread::spawn(move || drop(a));
        drop(b);
        other.join().unwrap();
    });
}

#[test]
fn two_last_buffers_go_at_once_without_caching() {
    explore(3, Settings { policy: Policy::Direct, ..Settings::default() }, |allocator| {
        let one = stream(&allocator);
        let (a, b) = (allocate(&one, 100), allocate(&one, 100));
        drop((one, allocator));
        let other = thread::spawn(move || drop(a));
        drop(b);
        other.join().unwrap();
    });
}

#[test]
fn two_last_buffers_used_elsewhere_go_at_once() {
    explore(3, Settings::default(), |allocator| {
        let (one, two) = (stream(&allocator), stream(&allocator));
        let (a, b) = (allocate(&one, 100), allocate(&one, 100));
        a.record_stream(&two).unwrap();
        b.record_stream(&two).unwrap();
        drop((one, two, allocator));
        let other = thread::spawn(move || drop(a));
        drop(b);
        other.join().unwrap();
    });
}

fn paged() -> Settings {
    Settings { policy: Policy::Paged, ..Settings::default() }
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
