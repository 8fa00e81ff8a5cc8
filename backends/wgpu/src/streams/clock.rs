//! A clock: the time of one stream, and its submissions that are not known to be done.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// The time of one stream. wgpu's callbacks share it.
#[repr(align(128))]
pub(crate) struct Clock {
    /// The tick that the next mark returns. Rises just before a submit.
    open: AtomicU64,
    /// The newest tick that wgpu has taken.
    submitted: AtomicU64,
    /// The newest complete tick. Rises only when wgpu reports that a submission is done.
    reached: AtomicU64,
    /// Bytes of staging buffers that submitted work may still copy from.
    staged_bytes: AtomicU64,
    /// The submissions that are not known to be done, oldest first.
    flights: Mutex<VecDeque<Flight>>,
}

/// One submission in progress.
#[derive(Clone)]
pub(crate) struct Flight {
    pub(crate) tick: u64,
    pub(crate) index: wgpu::SubmissionIndex,
    /// The value that the device's semaphore has when the submission is done, if there is a semaphore.
    pub(crate) value: Option<u64>,
    pub(crate) staged_bytes: u64,
}

impl Clock {
    pub(crate) fn new() -> Clock {
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

    /// Closes the open tick and returns it. Called with the lane's work locked, before that work goes to wgpu: code
    /// that submits to the queue itself and marks afterwards then gets a tick that covers its work, in either order.
    pub(crate) fn close(&self) -> u64 {
        self.open.fetch_add(1, Ordering::AcqRel)
    }

    /// Adds a submission.
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

    /// Returns the value that the semaphore has when the oldest submission in progress is done.
    pub(crate) fn oldest_value(&self) -> Option<u64> {
        self.flights.lock().front().and_then(|flight| flight.value)
    }

    /// Returns the submission to wait for when a tick is wanted: the first that covers it, or the newest. Returns
    /// `None` if no submission is in progress.
    pub(crate) fn flight_to(&self, tick: u64) -> Option<Flight> {
        let flights = self.flights.lock();
        flights.iter().find(|flight| flight.tick >= tick).or(flights.back()).cloned()
    }
}
