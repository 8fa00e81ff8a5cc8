//! Futures of points and of downloads, on executors and polled by hand.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use millpond::backend::{Closing, Fault, Point, StreamId, Tick};
use millpond::{Allocator, Error, Stream};
use millpond_sim::{CallKind, Completion, Sim};

fn on(sim: &Sim) -> (Allocator<Sim>, Stream<Sim>) {
    let allocator = Allocator::new(sim.clone());
    let stream = allocator.create_stream().unwrap();
    (allocator, stream)
}

/// A device whose work is complete only once it is waited for.
fn slow() -> Sim {
    Sim::builder().completion(Completion::Manual).build()
}

/// Counts how often it is woken.
#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn poll_once<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// Waits until a condition holds that another thread brings about.
fn eventually(what: &str, holds: impl Fn() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn what_is_reached_is_over_at_the_first_poll() {
    let (allocator, stream) = on(&Sim::new());
    let point = stream.point();
    let mut reached = pin!(allocator.when_reached(point));
    assert_eq!(reached.point(), point);
    assert!(matches!(poll_once(reached.as_mut()), Poll::Ready(Ok(()))));
}

#[test]
fn a_future_is_woken_once_and_over_at_the_second_poll() {
    let sim = slow();
    let (allocator, stream) = on(&sim);
    sim.busy(stream.id());
    let count = Arc::new(Count::default());
    let waker = Waker::from(Arc::clone(&count));
    let mut reached = pin!(allocator.when_reached(stream.point()));
    assert!(reached.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    eventually("it is woken", || count.0.load(Ordering::SeqCst) == 1);
    assert!(matches!(poll_once(reached.as_mut()), Poll::Ready(Ok(()))));
    assert_eq!((count.0.load(Ordering::SeqCst), sim.queued()), (1, 0));
}

#[test]
fn an_executor_of_one_thread_and_one_of_several_await_points_and_bytes() {
    let sim = slow();
    let (allocator, stream) = on(&sim);
    let buffer = stream.allocate_from(&[1.5f32, 2.5, 3.5]).unwrap();
    pollster::block_on(async {
        stream.when_done().unwrap().await.unwrap();
        let tail = stream.download_async(&buffer.slice(1..).unwrap()).unwrap();
        assert_eq!(tail.await.unwrap(), [2.5, 3.5]);
    });
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap();
    let tasks: Vec<_> = (0..20u32)
        .map(|number| {
            let allocator = allocator.clone();
            runtime.spawn(async move {
                let stream = allocator.create_stream()?;
                let view = stream.allocate_from(&[number; 100])?.share();
                for round in 0..10 {
                    stream.upload_elements(&view.slice(..1)?, &[round])?;
                    allocator.when_reached(stream.submit()?).await?;
                    let seen = stream.download_async(&view)?.await?;
                    assert_eq!((seen[0], seen[99], seen.len()), (round, number, 100));
                }
                Ok::<(), Error<_>>(())
            })
        })
        .collect();
    runtime.block_on(async {
        for task in tasks {
            tokio::time::timeout(Duration::from_secs(30), task).await.expect("all are woken").unwrap().unwrap();
        }
    });
    allocator.check();
    assert!(sim.violations().is_empty(), "{:?}", sim.violations());
}

#[test]
fn a_future_is_dropped_at_any_time() {
    let sim = slow();
    let (allocator, stream) = on(&sim);
    let buffer = stream.allocate(4096).unwrap();
    stream.fill(&buffer, 0, 4096, 7).unwrap();
    for polls in 0..3 {
        sim.busy(stream.id());
        let mut reached = Box::pin(allocator.when_reached(stream.point()));
        let mut bytes = Box::pin(stream.download_async(&buffer).unwrap());
        for _ in 0..polls {
            let _ = (poll_once(reached.as_mut()), poll_once(bytes.as_mut()));
        }
        drop((reached, bytes));
    }
    drop(buffer);
    // What was downloaded and not awaited is no longer in use.
    assert_eq!(pollster::block_on(stream.download_async(&stream.allocate(8).unwrap()).unwrap()).unwrap().len(), 8);
    assert_eq!(allocator.memory_allocated(), 0);
    assert!(sim.violations().is_empty(), "{:?}", sim.violations());
}

#[test]
fn a_future_outlives_every_handle_and_gives_the_memory_back() {
    let sim = slow();
    let (allocator, stream) = on(&sim);
    let buffer = stream.allocate_from(&[9u8; 16]).unwrap();
    let download = stream.download_async(&buffer).unwrap();
    sim.busy(stream.id());
    let reached = stream.when_done().unwrap();
    drop((allocator, stream, buffer));
    assert_ne!(sim.live().0, 0);
    assert_eq!(pollster::block_on(download).unwrap(), [9; 16]);
    pollster::block_on(reached).unwrap();
    // The thread that waited may hold the last reference for a moment.
    eventually("all memory is back", || sim.live() == (0, 0, 0));
}

#[test]
fn errors_of_points_and_of_the_driver_reach_the_future() {
    let sim = slow();
    let (allocator, stream) = on(&sim);
    let await_it = |point| pollster::block_on(allocator.when_reached(point)).unwrap_err();
    let nowhere = Point { stream: StreamId(9), tick: Tick(1) };
    assert!(matches!(await_it(nowhere), Error::UnknownStream { .. }));
    let future = Point { stream: stream.id(), tick: Tick(99) };
    assert!(matches!(await_it(future), Error::NotMarked { .. }));
    // Two futures of one tick: the first wait fails, and the other goes on.
    sim.busy(stream.id());
    let point = stream.point();
    sim.fail(CallKind::Wait, 1, Fault::Other);
    let answers = [(); 2].map(|()| allocator.when_reached(point));
    let failed = answers.map(pollster::block_on).iter().filter(|answer| answer.is_err()).count();
    assert_eq!(failed, 1);
    sim.busy(stream.id());
    let point = stream.point();
    sim.panic_in(CallKind::Wait, 1);
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        pollster::block_on(allocator.when_reached(point)).unwrap();
    }));
    assert!(panicked.is_err(), "a panic of the backend goes on in the thread that polls");
    pollster::block_on(allocator.when_reached(point)).expect("the next future finds a thread");
    sim.kill();
    assert!(matches!(await_it(point), Error::Driver { lost: true, .. }));
}

#[test]
fn work_that_was_not_submitted_is_not_waited_for() {
    let sim = Sim::builder().closing(Closing::Submit).completion(Completion::Manual).build();
    let (allocator, stream) = on(&sim);
    let buffer = stream.allocate(64).unwrap();
    stream.fill(&buffer, 0, 64, 1).unwrap();
    let point = stream.point();
    let error = pollster::block_on(allocator.when_reached(point)).unwrap_err();
    assert!(matches!(error, Error::NotReached { point: of, .. } if of == point), "{error}");
    pollster::block_on(stream.when_done().unwrap()).unwrap();
    pollster::block_on(allocator.when_reached(point)).unwrap();
}

#[test]
fn a_download_takes_what_was_there_when_it_was_queued() {
    let sim = slow();
    let (_, stream) = on(&sim);
    let buffer = stream.allocate_from(b"before").unwrap();
    let before = stream.download_async(&buffer).unwrap();
    stream.upload_elements(&buffer, b"after!").unwrap();
    let after = stream.download_async(&buffer).unwrap();
    assert_eq!(pollster::block_on(after).unwrap(), b"after!");
    assert_eq!(pollster::block_on(before).unwrap(), b"before");
    let none = stream.allocate_from::<u32>(&[]).unwrap();
    assert_eq!(pollster::block_on(stream.download_async(&none).unwrap()).unwrap(), [0_u32; 0]);
}
