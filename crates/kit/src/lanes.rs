//! The lane table: what a backend keeps per stream, found by the stream's number.

use millpond_backend::StreamId;

use crate::Misuse;

/// One lane per stream. Lanes are only added, so a number identifies the same stream forever; a lookup takes no lock.
pub struct Lanes<L> {
    lanes: boxcar::Vec<L>,
    /// What the device is called in errors.
    device: &'static str,
}

impl<L> Default for Lanes<L> {
    fn default() -> Lanes<L> {
        Lanes::of_a("device")
    }
}

impl<L> Lanes<L> {
    /// Returns an empty table. Errors call the device by that name: "stream 5 asked of a device that has 1 streams".
    pub fn of_a(device: &'static str) -> Lanes<L> {
        Lanes { lanes: boxcar::Vec::new(), device }
    }

    /// Adds a lane and returns its stream's number, the next dense one.
    ///
    /// # Panics
    ///
    /// Panics if there are 2^32 streams.
    pub fn push(&self, lane: L) -> StreamId {
        let index = self.lanes.push(lane);
        match u32::try_from(index) {
            Ok(index) => StreamId(index),
            Err(_) => panic!("stream {index}: a device has at most 2^32"),
        }
    }

    /// Returns the lane of a stream. Costs a few nanoseconds.
    ///
    /// # Errors
    ///
    /// [`Misuse::UnknownStream`] if the stream is not of this device.
    #[inline]
    pub fn find(&self, stream: StreamId) -> Result<&L, Misuse> {
        match self.lanes.get(stream.0 as usize) {
            Some(lane) => Ok(lane),
            None => Err(self.unknown(stream)),
        }
    }

    /// Works like [`find`](Lanes::find), for calls that cannot fail.
    ///
    /// # Panics
    ///
    /// Panics with the error if the stream is not of this device.
    #[inline]
    #[track_caller]
    pub fn lane(&self, stream: StreamId) -> &L {
        match self.lanes.get(stream.0 as usize) {
            Some(lane) => lane,
            None => panic!("{}", self.unknown(stream)),
        }
    }

    /// Returns whether the stream is of this device. Costs a few nanoseconds.
    #[inline]
    pub fn has(&self, stream: StreamId) -> bool {
        self.lanes.get(stream.0 as usize).is_some()
    }

    /// Returns the number of streams.
    pub fn count(&self) -> usize {
        self.lanes.count()
    }

    /// Returns the streams and their lanes, in the order in which they were added. A lane that another thread is adding
    /// at this moment may be left out.
    pub fn iter(&self) -> impl Iterator<Item = (StreamId, &L)> {
        self.lanes.iter().map(|(index, lane)| (id(index), lane))
    }

    /// Checks that every lane is found by its number. Called while no other thread adds lanes.
    ///
    /// # Panics
    ///
    /// Panics if one is not.
    pub fn check(&self) {
        for (stream, lane) in self.iter() {
            assert!(std::ptr::eq(self.lane(stream), lane), "{stream} names another lane than its own");
        }
        assert!(self.iter().count() == self.count(), "{} lanes are counted, and not all are there", self.count());
    }

    #[cold]
    fn unknown(&self, stream: StreamId) -> Misuse {
        Misuse::UnknownStream { stream, device: self.device, streams: self.count() }
    }
}

/// Returns the number of the lane at an index that [`Lanes::push`] has accepted.
fn id(index: usize) -> StreamId {
    StreamId(u32::try_from(index).expect("a device has at most 2^32 streams"))
}

impl<L> IntoIterator for Lanes<L> {
    type Item = L;
    type IntoIter = boxcar::IntoIter<L>;

    /// Returns the lanes, in the order in which they were added.
    fn into_iter(self) -> boxcar::IntoIter<L> {
        self.lanes.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_dense_and_name_their_lanes() {
        let lanes = Lanes::default();
        assert_eq!([lanes.push('a'), lanes.push('b')], [StreamId(0), StreamId(1)]);
        assert_eq!((lanes.lane(StreamId(1)), lanes.find(StreamId(0))), (&'b', Ok(&'a')));
        assert_eq!(lanes.iter().collect::<Vec<_>>(), [(StreamId(0), &'a'), (StreamId(1), &'b')]);
        assert!(lanes.has(StreamId(1)) && !lanes.has(StreamId(2)));
        lanes.check();
        assert_eq!(lanes.into_iter().collect::<String>(), "ab");
    }

    #[test]
    fn an_unknown_stream_is_named_with_the_device() {
        let lanes = Lanes::of_a("Vulkan device");
        lanes.push(());
        let unknown = Misuse::UnknownStream { stream: StreamId(5), device: "Vulkan device", streams: 1 };
        assert_eq!(lanes.find(StreamId(5)), Err(unknown));
        assert_eq!(unknown.to_string(), "stream 5 asked of a Vulkan device that has 1 streams");
    }

    #[test]
    #[should_panic(expected = "stream 3 asked of a device that has 0 streams")]
    fn a_call_that_cannot_fail_panics() {
        Lanes::<()>::default().lane(StreamId(3));
    }
}
