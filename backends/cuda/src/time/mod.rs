//! Time: the clocks of the streams, closed by events, and what is known to be complete.
//!
//! `lane` is the state per stream and `stay` the use of its handle; `close` closes ticks by events, `ask` queries the
//! events, and `wait` waits for them, on the host and on the device.

use std::ops::Deref;

use millpond_backend::StreamId;
use millpond_kit::Lanes;
use parking_lot::Mutex;

use crate::gear::Gear;
use crate::handle::Event;
use crate::link::Link;

mod ask;
pub(crate) mod close;
pub(crate) mod lane;
pub(crate) mod stay;
mod wait;

use lane::Lane;

/// The streams' time: the storey above the link.
pub(crate) struct Time<G> {
    link: Link<G>,
    /// One lane per stream, read without a lock.
    pub(crate) lanes: Lanes<Lane>,
    /// Events left by unregistered streams.
    pub(crate) spare: Mutex<Vec<Event>>,
    /// Whether a thread that waits for an event sleeps.
    blocking: bool,
}

impl<G> Deref for Time<G> {
    type Target = Link<G>;

    #[inline]
    fn deref(&self) -> &Link<G> {
        &self.link
    }
}

impl<G: Gear> Time<G> {
    pub(crate) fn new(link: Link<G>, blocking: bool) -> Time<G> {
        Time { link, lanes: Lanes::default(), spare: Mutex::new(Vec::new()), blocking }
    }

    /// Returns the lane of a stream.
    ///
    /// # Panics
    ///
    /// If the stream is not this device's.
    #[inline]
    pub(crate) fn lane(&self, stream: StreamId) -> &Lane {
        self.lanes.lane(stream)
    }
}
