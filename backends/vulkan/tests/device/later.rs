//! Futures of points, on a device whose work is held back.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use millpond::Allocator;
use millpond_backend::Point;
use millpond_vulkan::Vulkan;

use crate::lab::{Lab, Latch, QUEUES, skip};

#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Without validation: the layer of version 1.3.239 loses track of a semaphore that the host signals while another
/// thread waits for one that depends on it, and says itself that this is most likely a defect of its own.
#[test]
fn a_stream_that_is_held_holds_up_no_future_of_another_and_wakes_its_own_once() {
    let lab = match Vulkan::builder().queues(QUEUES).build() {
        Ok(lab) => lab,
        Err(error) => return skip("vulkan", &error.to_string()),
    };
    let allocator = Allocator::new(lab.clone());
    let (held, free) = (allocator.create_stream().unwrap(), allocator.create_stream().unwrap());
    let latch = Latch::new(&lab);
    let point = Point { stream: held.id(), tick: latch.submit(held.id()) };
    let count = Arc::new(Count::default());
    let waker = Waker::from(Arc::clone(&count));
    let mut waits = pin!(allocator.when_reached(point));
    assert!(waits.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    if lab.queue_of(held.id()) != lab.queue_of(free.id()) {
        let buffer = free.allocate_from(&[1u32, 2, 3]).unwrap();
        assert_eq!(pollster::block_on(free.download_async(&buffer).unwrap()).unwrap(), [1, 2, 3]);
        pollster::block_on(free.when_done().unwrap()).unwrap();
    }
    {
        let mut dropped = pin!(allocator.when_reached(point));
        assert!(dropped.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(count.0.load(Ordering::SeqCst), 0, "nothing is asked again and again");
    latch.open();
    pollster::block_on(waits).unwrap();
    // The first waker is called only if the point was reached before the poll that replaced it.
    assert!(count.0.load(Ordering::SeqCst) <= 1, "a future is woken once");
    drop((held, free, allocator));
    drop(latch);
}

#[test]
fn bytes_of_any_length_are_awaited() {
    let Some(lab) = Lab::open() else { return };
    let allocator = Allocator::new(lab.clone());
    let stream = allocator.create_stream().unwrap();
    let elements: Vec<u16> = (0..100_001).map(|at| at as u16).collect();
    let view = stream.allocate_from(&elements).unwrap().share();
    let part = stream.download_async(&view.slice(7..10).unwrap()).unwrap();
    let whole = stream.download_async(&view).unwrap();
    drop(view);
    assert_eq!(pollster::block_on(part).unwrap(), [7, 8, 9]);
    assert!(pollster::block_on(whole).unwrap() == elements);
    drop((stream, allocator));
    let errors = lab.close();
    assert!(errors.is_empty(), "{errors:?}");
}
