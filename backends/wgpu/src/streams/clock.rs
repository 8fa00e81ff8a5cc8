//! A clock: the time of one stream, and its submissions that are not known to be done.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use millpond_backend::Tick;
use millpond_kit::SubmitClock;
use parking_lot::Mutex;

/// The time of one stream. wgpu's callbacks share it.
#[repr(align(128))]
pub(crate) struct Clock {
    /// Its ticks. The open tick is closed with the lane's work locked, before that work goes to wgpu: code that submits
    /// to the queue itself and marks afterwards then gets a tick that covers its work, in either order.
    pub(crate) ticks: SubmitClock,
    /// Bytes of staging buffers that submitted work may still copy from.
    staged_bytes: AtomicU64,
    /// The submissions that are not known to be done, oldest first.
    flights: Mutex<VecDeque<Flight>>,
}

/// One submission in progress.
#[derive(Clone)]
pub(crate) struct Flight {
    pub(crate) tick: Tick,
    pub(crate) index: wgpu::SubmissionIndex,
    /// The value that the device's semaphore has when the submission is done, if there is a semaphore.
    pub(crate) value: Option<u64>,
    pub(crate) staged_bytes: u64,
}

impl Clock {
    pub(crate) fn new() -> Clock {
        Clock { ticks: SubmitClock::default(), staged_bytes: AtomicU64::new(0), flights: Mutex::new(VecDeque::new()) }
    }

    pub(crate) fn staged_bytes(&self) -> u64 {
        self.staged_bytes.load(Ordering::Relaxed)
    }

    /// Adds a submission.
    pub(crate) fn depart(&self, flight: Flight) {
        self.staged_bytes.fetch_add(flight.staged_bytes, Ordering::Relaxed);
        let mut flights = self.flights.lock();
        let tick = flight.tick;
        flights.push_back(flight);
        self.ticks.submit(tick);
    }

    /// Notes that all work up to a tick is done.
    pub(crate) fn arrive(&self, tick: Tick) {
        let mut flights = self.flights.lock();
        while let Some(flight) = flights.front().filter(|flight| flight.tick <= tick) {
            self.staged_bytes.fetch_sub(flight.staged_bytes, Ordering::Relaxed);
            flights.pop_front();
        }
        self.ticks.complete(tick);
    }

    /// Returns the value that the semaphore has when the oldest submission in progress is done.
    pub(crate) fn oldest_value(&self) -> Option<u64> {
        self.flights.lock().front().and_then(|flight| flight.value)
    }

    /// Returns the submission to wait for when a tick is wanted: the first that covers it, or the newest. Returns
    /// `None` if no submission is in progress.
    pub(crate) fn flight_to(&self, tick: Tick) -> Option<Flight> {
        let flights = self.flights.lock();
        flights.iter().find(|flight| flight.tick >= tick).or(flights.back()).cloned()
    }
}
