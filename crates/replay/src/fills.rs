//! Work that takes a time, on devices whose work takes any: fills of memory that belongs to no block.

use std::time::{Duration, Instant};

use millpond::{Allocator, Stream};
use millpond_backend::{Backend, Point, StreamId};

use crate::check::{CheckError, Mover};
use crate::flight::Flight;
use crate::own;

/// The most bytes that one fill covers, and the bytes that are reserved for each stream.
const BYTES: u64 = 64 << 20;

/// Pieces of work that each take about a given time on the device.
///
/// Each is a fill, or several. How long a fill takes is measured once, on the first stream, while the device does
/// nothing else: fills of several streams at once share its bandwidth and take longer. A time below that of the
/// shortest fill is that of the shortest fill. Takes 64 MiB for each stream past the allocator.
pub struct Fills<'a, B: Backend> {
    backend: &'a B,
    mover: &'a Mover<'a, B>,
    lanes: Vec<(StreamId, B::Segment)>,
    /// The bytes of each fill of a piece.
    bytes: u64,
    /// The fills of a piece.
    fills: u32,
}

impl<'a, B: Backend> Fills<'a, B> {
    /// Reserves the memory and measures the device, which takes some hundred fills of it.
    ///
    /// # Errors
    ///
    /// Returns an error for a device that cannot fill memory, and the driver's errors.
    ///
    /// # Panics
    ///
    /// If there is no stream.
    pub fn new(
        allocator: &'a Allocator<B>,
        streams: &[Stream<B>],
        time: Duration,
    ) -> Result<Self, CheckError<B::Error>> {
        let backend = allocator.backend();
        let mover = backend.transfer();
        let mover = mover.ok_or_else(|| CheckError::NoTransfer { device: backend.caps().name.clone() })?;
        let mut fills = Self { backend, mover, lanes: Vec::new(), bytes: BYTES, fills: 1 };
        for stream in streams {
            let segment = backend.reserve(allocator.class(), BYTES);
            fills.lanes.push((stream.id(), segment.map_err(|source| CheckError::Driver { call: "reserve", source })?));
        }
        let one = fills.time_of_one(streams[0].id())?;
        (fills.bytes, fills.fills) = shape(time, one);
        Ok(fills)
    }

    /// Returns how long the device takes for one whole fill: what further fills add to the time of some.
    fn time_of_one(&self, stream: StreamId) -> Result<Duration, CheckError<B::Error>> {
        let (few, many) = (4, 20);
        self.time(stream, few)?;
        let least = |fills| -> Result<Duration, CheckError<B::Error>> {
            let times: Vec<_> = (0..5).map(|_| self.time(stream, fills)).collect::<Result<_, _>>()?;
            Ok(times.into_iter().min().unwrap_or_default())
        };
        Ok(least(many)?.saturating_sub(least(few)?) / (many - few))
    }

    fn time(&self, stream: StreamId, fills: u32) -> Result<Duration, CheckError<B::Error>> {
        let start = Instant::now();
        self.queue(stream, BYTES, fills).map_err(|source| CheckError::Driver { call: "fill", source })?;
        let tick = self.backend.submit(stream).map_err(|source| CheckError::Driver { call: "submit", source })?;
        let reached = self.backend.wait(Point { stream, tick });
        let reached = reached.map_err(|source| CheckError::Driver { call: "wait", source })?;
        assert!(reached >= tick, "a wait for tick {} of {stream} ended at tick {}", tick.0, reached.0);
        Ok(start.elapsed())
    }

    fn queue(&self, stream: StreamId, bytes: u64, fills: u32) -> Result<(), B::Error> {
        let Some((_, segment)) = self.lanes.iter().find(|(lane, _)| *lane == stream) else {
            panic!("{stream} is no stream of the replay")
        };
        (0..fills).try_for_each(|_| self.mover.fill(stream, segment, 0, bytes, 0))
    }
}

/// Returns the bytes of a fill, and the number of fills, that take a time where a whole one takes `one`.
fn shape(time: Duration, one: Duration) -> (u64, u32) {
    let (time, one) = (time.as_nanos(), one.as_nanos().max(1));
    if time >= one {
        let fills = (time + one / 2) / one;
        return (BYTES, u32::try_from(fills).unwrap_or(u32::MAX));
    }
    // Some devices fill whole words only.
    let bytes = u128::from(BYTES) * time / one / 4 * 4;
    (u64::try_from(bytes).unwrap_or(BYTES).max(4), 1)
}

impl<B: Backend> Flight<B> for Fills<'_, B> {
    fn begin(&mut self, stream: StreamId) -> Result<(), B::Error> {
        self.queue(stream, self.bytes, self.fills)
    }
}

impl<B: Backend> Drop for Fills<'_, B> {
    fn drop(&mut self) {
        for (stream, segment) in self.lanes.drain(..) {
            own::release(self.backend, segment, &[stream]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_is_a_part_of_a_fill_or_several() {
        let micros = Duration::from_micros;
        assert_eq!(shape(micros(50), micros(25)), (BYTES, 2));
        assert_eq!(shape(micros(60), micros(25)), (BYTES, 2));
        assert_eq!(shape(micros(5), micros(20)), (BYTES / 4, 1));
        assert_eq!(shape(Duration::ZERO, micros(20)), (4, 1));
        assert_eq!(shape(micros(1), Duration::ZERO), (BYTES, 1000));
    }
}
