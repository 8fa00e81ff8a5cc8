//! Time: the ticks of the streams, closed by events, and what is known to be complete.
//!
//! `close` closes ticks by events, `ask` queries the events, `wait` waits for them, on the host and on the device,
//! `register` is for streams that come and go, `borrow` for those that go without a word, and `orphans` for what they
//! leave without an event.

use std::ops::{Deref, DerefMut};

use parking_lot::Mutex;

use crate::streams::Streams;
use crate::streams::handle::Event;

mod ask;
mod borrow;
mod close;
mod orphans;
mod register;
mod wait;

/// The time of the streams: the storey above them.
pub(crate) struct Time<G> {
    streams: Streams<G>,
    /// Events left by unregistered streams.
    pub(crate) spare: Mutex<Vec<Event>>,
    /// Whether a thread that waits for an event sleeps.
    blocking: bool,
}

impl<G> Deref for Time<G> {
    type Target = Streams<G>;

    #[inline]
    fn deref(&self) -> &Streams<G> {
        &self.streams
    }
}

impl<G> DerefMut for Time<G> {
    fn deref_mut(&mut self) -> &mut Streams<G> {
        &mut self.streams
    }
}

impl<G> Time<G> {
    pub(crate) fn new(streams: Streams<G>, blocking: bool) -> Time<G> {
        Time { streams, spare: Mutex::new(Vec::new()), blocking }
    }
}
