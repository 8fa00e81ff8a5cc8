//! A lane: what the backend keeps per stream. Its clock is read without a lock; its open encoder stands behind one.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// One stream.
pub(crate) struct Lane {
    pub(crate) clock: Arc<Clock>,
    /// Locked while something is recorded and while it is submitted, so that ticks are submitted in their order.
    pub(crate) work: Mutex<Work>,
}

/// What was recorded on a stream and not submitted yet.
#[derive(Default)]
pub(crate) struct Work {
    /// Made when something is recorded first.
    pub(crate) encoder: Option<wgpu::CommandEncoder>,
    /// Bytes of staging buffers that the encoder copies from.
    pub(crate) staged_bytes: u64,
}

/// The time of one stream. wgpu's callbacks share it.
#[repr(align(128))]
pub(crate) struct Clock {
    /// The tick that the next mark returns. Rises just before a submit.
    open: AtomicU64,
    /// The newest tick that wgpu has taken.
    submitted: AtomicU64,
    /// The newest complete tick. Rises only when wgpu says that a submission is done.
    reached: AtomicU64,
    /// Bytes of staging buffers that submitted work may still copy from.
    staged_bytes: AtomicU64,
    /// What was submitted and is not known to be done, oldest first.
    flights: Mutex<VecDeque<Flight>>,
}

/// One submission under way.
#[derive(Clone)]
pub(crate) struct Flight {
    pub(crate) tick: u64,
    pub(crate) index: wgpu::SubmissionIndex,
    /// What the device's semaphore counts to when the submission is done, where there is one.
    pub(crate) value: Option<u64>,
    pub(crate) staged_bytes: u64,
}

impl Lane {
    pub(crate) fn new() -> Lane {
        Lane { clock: Arc::new(Clock::new()), work: Mutex::new(Work::default()) }
    }
}

impl Clock {
    fn new() -> Clock {
        Clock {
            open: AtomicU64::new(1),
            submitted: AtomicU64::new(0),
            reached: AtomicU64::new(0),
            staged_bytes: AtomicU64::new(0),
            flights: Mutex::new(VecDeque::new()),
        }
    }

    #[inline]
    pub(crate) fn open(&self) -> u64 {
        self.open.load(Ordering::Acquire)
    }

    pub(crate) fn submitted(&self) -> u64 {
        self.submitted.load(Ordering::Acquire)
    }

    #[inline]
    pub(crate) fn reached(&self) -> u64 {
        self.reached.load(Ordering::Acquire)
    }

    pub(crate) fn staged_bytes(&self) -> u64 {
        self.staged_bytes.load(Ordering::Relaxed)
    }

    /// Closes the open tick and answers it. Called with the lane's work locked, before that work goes to wgpu: who
    /// submits to the queue himself and marks then gets a tick that covers it, whichever comes first.
    pub(crate) fn close(&self) -> u64 {
        self.open.fetch_add(1, Ordering::AcqRel)
    }

    /// Notes a submission.
    pub(crate) fn depart(&self, flight: Flight) {
        self.staged_bytes.fetch_add(flight.staged_bytes, Ordering::Relaxed);
        let mut flights = self.flights.lock();
        let tick = flight.tick;
        let newest = self.submitted();
        assert!(tick > newest, "tick {tick} was submitted after tick {newest}");
        flights.push_back(flight);
        self.submitted.store(tick, Ordering::Release);
    }

    /// Notes that all work up to a tick is done.
    pub(crate) fn arrive(&self, tick: u64) {
        let mut flights = self.flights.lock();
        while let Some(flight) = flights.front().filter(|flight| flight.tick <= tick) {
            self.staged_bytes.fetch_sub(flight.staged_bytes, Ordering::Relaxed);
            flights.pop_front();
        }
        self.reached.fetch_max(tick, Ordering::Release);
    }

    /// The submission to wait for when a tick is wanted: the first that covers it, or the newest there is. `None` if
    /// nothing is under way.
    pub(crate) fn flight_to(&self, tick: u64) -> Option<Flight> {
        let flights = self.flights.lock();
        flights.iter().find(|flight| flight.tick >= tick).or(flights.back()).cloned()
    }
}
