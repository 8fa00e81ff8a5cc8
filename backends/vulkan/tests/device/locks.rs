//! An engine allocates while it holds the lock of its queue, or between announcing a submit and making it, while other
//! threads submit and give memory back: there is no deadlock.
//!
//! A scenario that hangs ends the process: its threads could not be joined.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use millpond_backend::{Backend, ClassId, Point, StreamId, StreamWait, VirtualMemory};
use millpond_vulkan::{Page, QueueLock, Segment, Vulkan};
use parking_lot::Mutex;

use crate::adopted::{adopt, handles};
use crate::lab::{Lab, skip};

/// The time after which a scenario counts as hanging. It takes milliseconds otherwise.
const PATIENCE: Duration = Duration::from_secs(20);
/// The limit of bytes given back beyond which they are unbound without a submit.
const LEAVING_BYTES: u64 = 64 << 20;

/// An engine's lock, which sends a message when a thread requests it.
struct Telling {
    inner: Mutex<()>,
    came: Sender<()>,
}

impl Telling {
    fn new() -> (Arc<Telling>, Receiver<()>) {
        let (came, comers) = channel();
        (Arc::new(Telling { inner: Mutex::new(()), came }), comers)
    }
}

impl QueueLock for Telling {
    fn locked(&self, work: &mut dyn FnMut()) {
        let _ = self.came.send(());
        let _guard = self.inner.lock();
        work();
    }

    fn try_locked(&self, work: &mut dyn FnMut()) -> bool {
        let _ = self.came.send(());
        self.inner.try_locked(work)
    }
}

/// Runs a scenario on a thread of its own. One that hangs ends the process with a failure.
fn ends(what: &str, scenario: impl FnOnce() + Send + 'static) {
    let (tell, told) = channel();
    let running = thread::spawn(move || {
        scenario();
        let _ = tell.send(());
    });
    if told.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
        let text = format!("FAILED: {what} hangs: it has not ended after {PATIENCE:?}\n");
        let _ = std::io::stderr().write_all(text.as_bytes());
        std::process::exit(1);
    }
    running.join().expect("the scenario passes");
}

/// Adopts the lab's device, with that lock on its queue, if it has virtual memory.
fn with_pages(lab: &Lab, lock: Arc<Telling>) -> Option<Vulkan> {
    let device = adopt(handles(lab, Some(lock))).unwrap();
    if device.caps().pages.is_none() {
        skip("sparse", "the device has no virtual memory");
        return None;
    }
    Some(device)
}

/// Returns more bytes of pages than may wait for their release, each mapped once and unmapped again, with their range.
fn unmapped_pages(device: &Vulkan, stream: StreamId) -> (Segment, Vec<Page>) {
    let size = device.caps().pages.unwrap().granularity;
    let count = LEAVING_BYTES / size + 1;
    let range = device.reserve_range(ClassId::DEVICE, count * size).unwrap();
    let pages: Vec<Page> = (0..count).map(|_| device.create_page(ClassId::DEVICE, size).unwrap()).collect();
    for (at, page) in (0..).zip(&pages) {
        // SAFETY: nothing is mapped there.
        unsafe { device.map(&range, at * size, page, stream) }.unwrap();
    }
    let tick = device.submit(stream).unwrap();
    assert_eq!(device.wait(Point { stream, tick }).unwrap(), tick);
    for (at, page) in (0..).zip(&pages) {
        // SAFETY: the page is mapped there, and no work touches it.
        unsafe { device.unmap(&range, at * size, page, stream) };
    }
    (range, pages)
}

fn release(device: &Vulkan, pages: Vec<Page>) {
    for page in pages {
        // SAFETY: the page is unmapped, and no work touches it.
        unsafe { device.release_page(page) };
    }
}

/// Makes all calls that an allocator makes to a device when a request misses.
fn allocate(device: &Vulkan, stream: StreamId) {
    let size = device.caps().pages.unwrap().granularity;
    let range = device.reserve_range(ClassId::DEVICE, size).unwrap();
    let page = device.create_page(ClassId::DEVICE, size).unwrap();
    let segment = device.reserve(ClassId::DEVICE, 4096).unwrap();
    device.reached(stream).unwrap();
    // SAFETY: nothing is mapped there, no work touches any of it, and the page is unmapped when it is released.
    unsafe {
        device.map(&range, 0, &page, stream).unwrap();
        device.unmap(&range, 0, &page, stream);
        device.release_page(page);
        device.release_range(range);
        device.release(segment);
    }
}

#[test]
fn an_engine_allocates_under_its_lock_while_another_thread_gives_pages_back() {
    let Some(lab) = Lab::open() else { return };
    let (lock, comers) = Telling::new();
    let Some(device) = with_pages(&lab, Arc::clone(&lock)) else { return };
    ends("an engine that allocates while it holds its queue", move || {
        let stream = device.create_stream().unwrap();
        let (range, pages) = unmapped_pages(&device, stream);
        comers.try_iter().for_each(drop);
        let held = lock.inner.lock();
        let other = thread::spawn({
            let device = device.clone();
            move || release(&device, pages)
        });
        comers.recv().unwrap();
        allocate(&device, stream);
        drop(held);
        other.join().unwrap();
        assert!(device.leaving_bytes() > 0 || device.range_bytes() > 0);
        device.submit(stream).unwrap();
        // SAFETY: nothing is mapped there.
        unsafe { device.release_range(range) };
    });
}

#[test]
fn an_engine_gives_pages_back_under_its_lock() {
    let Some(lab) = Lab::open() else { return };
    let (lock, _comers) = Telling::new();
    let Some(device) = with_pages(&lab, Arc::clone(&lock)) else { return };
    ends("an engine that gives pages back while it holds its queue", move || {
        let stream = device.create_stream().unwrap();
        let (range, pages) = unmapped_pages(&device, stream);
        let held = lock.inner.lock();
        release(&device, pages);
        assert!(device.leaving_bytes() > LEAVING_BYTES, "the queue is taken: they go with the next submit");
        drop(held);
        // SAFETY: nothing is mapped there.
        unsafe { device.release_range(range) };
        let tick = device.submit(stream).unwrap();
        assert_eq!(device.wait(Point { stream, tick }).unwrap(), tick);
        device.flush_binds().unwrap();
        assert_eq!((device.leaving_bytes(), device.range_bytes()), (0, 0));
    });
}

#[test]
fn a_stream_is_told_to_wait_while_its_submit_stands_before_the_queue() {
    let Some(lab) = Lab::open() else { return };
    let (lock, comers) = Telling::new();
    let device = adopt(handles(&lab, Some(lock.clone()))).unwrap();
    ends("an engine that has a stream wait while it holds its queue", move || {
        let [stream, other] = [(); 2].map(|()| device.create_stream().unwrap());
        let tick = device.submit(other).unwrap();
        comers.try_iter().for_each(drop);
        let held = lock.inner.lock();
        let submitting = thread::spawn({
            let device = device.clone();
            move || device.submit(stream).unwrap()
        });
        comers.recv().unwrap();
        StreamWait::wait_for(&device, stream, Point { stream: other, tick }).unwrap();
        drop(held);
        submitting.join().unwrap();
    });
}

#[test]
fn a_stream_is_told_to_wait_between_announcing_a_submit_and_making_it() {
    let Some(lab) = Lab::open() else { return };
    let device = adopt(handles(&lab, None)).unwrap();
    ends("an engine that has a stream wait while a submit is announced", move || {
        let [stream, other] = [(); 2].map(|()| device.create_stream().unwrap());
        device.hold(other).unwrap();
        let tick = device.submit(other).unwrap();
        let pending = device.begin_submit(stream).unwrap();
        StreamWait::wait_for(&device, stream, Point { stream: other, tick }).unwrap();
        assert_eq!(pending.waits().len(), 0, "what was announced does not wait");
        pending.abandon();
        let pending = device.begin_submit(stream).unwrap();
        assert_eq!(pending.waits().len(), 1, "the next submit does");
        pending.abandon();
        device.unhold(other);
    });
}
