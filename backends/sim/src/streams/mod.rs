//! Streams: the lanes, and the work that is queued on them.

use std::ops::Deref;

use millpond_backend::StreamId;
use millpond_kit::Lanes;

use crate::open::link::Link;

pub(crate) mod lane;

use lane::Lane;

/// The streams of a device: the storey above the link.
pub(crate) struct Streams {
    link: Link,
    /// One lane per stream, read without a lock.
    pub(crate) lanes: Lanes<Lane>,
}

impl Deref for Streams {
    type Target = Link;

    #[inline]
    fn deref(&self) -> &Link {
        &self.link
    }
}

impl Streams {
    pub(crate) fn new(link: Link) -> Streams {
        Streams { link, lanes: Lanes::default() }
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
