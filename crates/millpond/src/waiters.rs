//! The threads that wait for points, one for each stream that is awaited, and what they wake.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use millpond_backend::{Backend, Point, StreamId, Tick};

use crate::error::Error;
use crate::sync::{Arc, Condvar, Mutex};

/// How long a thread stays that has nothing to wait for.
const IDLE: Duration = Duration::from_secs(10);

/// The queues of an allocator, one for each stream that was awaited. `O` is what owns them, and the backend.
pub(crate) struct Waiters<B: Backend, O>(Mutex<Vec<Arc<Queue<B, O>>>>);

/// What is awaited on one stream.
struct Queue<B: Backend, O> {
    stream: StreamId,
    inner: Mutex<Inner<B, O>>,
    /// Signalled when something is awaited, and when the allocator ends.
    changed: Condvar,
}

struct Inner<B: Backend, O> {
    waiting: Vec<Waiting<B, O>>,
    /// Whether there is a thread that will look at the queue again.
    has_thread: bool,
    /// Whether the allocator has ended.
    is_over: bool,
}

/// A future that waits.
struct Waiting<B: Backend, O> {
    tick: Tick,
    /// Keeps the backend's streams and the queue alive.
    owner: Arc<O>,
    place: Arc<Place<B>>,
}

/// Where the answer for one future is put.
pub(crate) struct Place<B: Backend>(Mutex<Answer<B>>);

enum Answer<B: Backend> {
    Awaited(Waker),
    Here(Result<(), Error<B::Error>>),
    /// The backend panicked. Whoever polls the future panics in turn.
    Panicked(Box<dyn Any + Send>),
    Taken,
}

impl<B: Backend> Place<B> {
    /// Takes the answer, or remembers whom to wake.
    pub(crate) fn poll(&self, context: &mut Context<'_>) -> Poll<Result<(), Error<B::Error>>> {
        let mut answer = self.0.lock();
        match std::mem::replace(&mut *answer, Answer::Taken) {
            Answer::Here(result) => Poll::Ready(result),
            Answer::Panicked(payload) => {
                drop(answer);
                resume_unwind(payload)
            }
            Answer::Awaited(mut waker) => {
                waker.clone_from(context.waker());
                *answer = Answer::Awaited(waker);
                Poll::Pending
            }
            Answer::Taken => unreachable!("a place is left with its answer"),
        }
    }

    fn put(&self, given: Answer<B>) {
        let before = std::mem::replace(&mut *self.0.lock(), given);
        // The waker runs code of the executor's, and the lock is open by now.
        if let Answer::Awaited(waker) = before {
            waker.wake();
        }
    }
}

impl<B: Backend, O: AsRef<B> + Send + Sync + 'static> Waiters<B, O> {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    fn queue(&self, stream: StreamId) -> Arc<Queue<B, O>> {
        let mut queues = self.0.lock();
        if let Some(queue) = queues.iter().find(|queue| queue.stream == stream) {
            return Arc::clone(queue);
        }
        let inner = Inner { waiting: Vec::new(), has_thread: false, is_over: false };
        queues.push(Arc::new(Queue { stream, inner: Mutex::new(inner), changed: Condvar::new() }));
        Arc::clone(&queues[queues.len() - 1])
    }

    /// Has a thread wait for a point, and wake this waker then. Where no thread can be started it waits here.
    pub(crate) fn wait_for(&self, owner: &Arc<O>, point: Point, waker: &Waker) -> Arc<Place<B>> {
        let place = Arc::new(Place(Mutex::new(Answer::Awaited(waker.clone()))));
        let queue = self.queue(point.stream);
        let starts = {
            let mut inner = queue.inner.lock();
            let waiting = Waiting { tick: point.tick, owner: Arc::clone(owner), place: Arc::clone(&place) };
            inner.waiting.push(waiting);
            !std::mem::replace(&mut inner.has_thread, true)
        };
        queue.changed.notify_all();
        if starts {
            let own = Arc::clone(&queue);
            let name = format!("millpond {}", point.stream.0);
            if std::thread::Builder::new().name(name).spawn(move || own.run(IDLE)).is_err() {
                queue.run(Duration::ZERO);
            }
        }
        place
    }

    /// Takes a future out that is dropped.
    pub(crate) fn forget(&self, stream: StreamId, place: &Arc<Place<B>>) {
        let queue = self.queue(stream);
        let mut inner = queue.inner.lock();
        let at = inner.waiting.iter().position(|waiting| Arc::ptr_eq(&waiting.place, place));
        let taken = at.map(|at| inner.waiting.swap_remove(at));
        drop(inner);
        drop(taken);
    }
}

impl<B: Backend, O> Drop for Waiters<B, O> {
    fn drop(&mut self) {
        // No future is left, as each keeps the owner alive. Threads that are idle end.
        for queue in self.0.lock().iter() {
            queue.inner.lock().is_over = true;
            queue.changed.notify_all();
        }
    }
}

impl<B: Backend, O: AsRef<B>> Queue<B, O> {
    /// Waits for one tick after another, until there is none for as long as `idle`.
    fn run(&self, idle: Duration) {
        while let Some((tick, owner)) = self.next(idle) {
            self.wait_for(owner.as_ref().as_ref(), tick);
            // This may be the last reference to the allocator, and no lock is held.
            drop(owner);
        }
    }

    /// Returns the lowest tick that is awaited. `None` if none is for as long as `idle`: the thread is no longer
    /// counted on then.
    fn next(&self, idle: Duration) -> Option<(Tick, Arc<O>)> {
        let mut inner = self.inner.lock();
        loop {
            if let Some(first) = inner.waiting.iter().min_by_key(|waiting| waiting.tick) {
                return Some((first.tick, Arc::clone(&first.owner)));
            }
            let waited = if inner.is_over { None } else { Some(self.changed.wait_for(&mut inner, idle)) };
            if waited.is_none_or(|waited| waited.timed_out()) && inner.waiting.is_empty() {
                inner.has_thread = false;
                return None;
            }
        }
    }

    /// Waits for a tick, and gives the futures their answers that it brings.
    fn wait_for(&self, backend: &B, tick: Tick) {
        let point = Point { stream: self.stream, tick };
        match catch_unwind(AssertUnwindSafe(|| backend.wait_asleep(point))) {
            Ok(Ok(reached)) => {
                self.answer(reached.max(tick), |waiting| {
                    let point = Point { tick: waiting.tick, ..point };
                    if point.tick <= reached { Ok(()) } else { Err(Error::NotReached { point, reached }) }
                });
            }
            Ok(Err(error)) => self.answer_one(tick, Answer::Here(Err(Error::of_driver("wait", error)))),
            Err(payload) => self.answer_one(tick, Answer::Panicked(payload)),
        }
    }

    /// Gives an answer to all futures up to a tick.
    fn answer(&self, tick: Tick, answer: impl Fn(&Waiting<B, O>) -> Result<(), Error<B::Error>>) {
        let over: Vec<_> = self.inner.lock().waiting.extract_if(.., |waiting| waiting.tick <= tick).collect();
        over.iter().for_each(|waiting| waiting.place.put(Answer::Here(answer(waiting))));
    }

    /// Gives an answer to one future that waits for a tick, as there is one error and no copy of it. The others wait
    /// for themselves, and get their own.
    fn answer_one(&self, tick: Tick, answer: Answer<B>) {
        let one = {
            let mut inner = self.inner.lock();
            let at = inner.waiting.iter().position(|waiting| waiting.tick == tick);
            at.map(|at| inner.waiting.swap_remove(at))
        };
        if let Some(one) = one {
            one.place.put(answer);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc as StdArc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use millpond_sim::Sim;

    use super::*;

    struct Owner(Sim);

    impl AsRef<Sim> for Owner {
        fn as_ref(&self) -> &Sim {
            &self.0
        }
    }

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: StdArc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn the_waker_of_the_last_poll_is_the_one_that_is_woken() {
        let counts = [(); 2].map(|()| StdArc::new(Count::default()));
        let [first, last] = [0, 1].map(|at| Waker::from(StdArc::clone(&counts[at])));
        let place = Place::<Sim>(Mutex::new(Answer::Awaited(first)));
        assert!(place.poll(&mut Context::from_waker(&last)).is_pending());
        place.put(Answer::Here(Ok(())));
        assert_eq!(counts.map(|count| count.0.load(Ordering::SeqCst)), [0, 1]);
        assert!(matches!(place.poll(&mut Context::from_waker(&last)), Poll::Ready(Ok(()))));
    }

    #[test]
    fn a_queue_has_a_thread_only_while_something_is_awaited_or_was_of_late() {
        let queue = Waiters::<Sim, Owner>::new().queue(StreamId(0));
        queue.inner.lock().has_thread = true;
        queue.run(Duration::from_millis(1));
        assert!(!queue.inner.lock().has_thread, "the thread has ended, so that the next future starts one");
    }
}
