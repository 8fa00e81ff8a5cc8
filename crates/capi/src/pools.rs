//! Private pools of an allocator, by their numbers.

use std::collections::BTreeMap;

use millpond::{Capture, Pool, Stream};
use millpond_backend::StreamId;
use parking_lot::Mutex;

use crate::code::Failure;
use crate::device::Device;
use crate::streams::{Streams, Tenure};

/// The pools that the program holds.
pub(crate) struct Pools<D: Device>(Mutex<BTreeMap<u64, Known<D>>>);

struct Known<D: Device> {
    held: Pool<D>,
    /// The streams that were used in the pool.
    streams: Streams<D>,
    /// The capture of streams in the pool, while there is one.
    capture: Option<Capture<D>>,
}

impl<D: Device> Pools<D> {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }

    /// Enters the reference to a pool, and returns the pool's number.
    pub(crate) fn enter(&self, held: Pool<D>) -> u64 {
        let number = held.id().0;
        self.0.lock().insert(number, Known { held, streams: Streams::new(), capture: None });
        number
    }

    /// Enters a reference to a pool that may be here already, and returns the pool's number.
    pub(crate) fn keep(&self, held: &Pool<D>) -> u64 {
        let number = held.id().0;
        let known = || Known { held: held.clone(), streams: Streams::new(), capture: None };
        self.0.lock().entry(number).or_insert_with(known);
        number
    }

    /// Gives the reference to a pool up.
    pub(crate) fn release(&self, number: u64) -> Result<(), Failure> {
        let known = self.0.lock().remove(&number).ok_or_else(|| unknown(number))?;
        drop(known);
        Ok(())
    }

    /// Returns a further reference to a pool.
    pub(crate) fn held(&self, number: u64) -> Result<Pool<D>, Failure> {
        let pools = self.0.lock();
        pools.get(&number).map(|known| known.held.clone()).ok_or_else(|| unknown(number))
    }

    /// Returns the stream of a handle in a pool. At its first use there, `id_of` says which stream it is.
    pub(crate) fn stream(
        &self,
        number: u64,
        native: u64,
        id_of: impl FnOnce() -> Result<StreamId, Failure>,
    ) -> Result<Stream<D>, Failure> {
        let pools = self.0.lock();
        let known = pools.get(&number).ok_or_else(|| unknown(number))?;
        if let Some(stream) = known.streams.get(native) {
            return Ok(stream.clone());
        }
        let id = id_of()?;
        Ok(known.streams.add(native, known.held.stream(id)?, Tenure::Lasting).clone())
    }

    /// Forgets the handle of a stream, which may come back for another one.
    pub(crate) fn release_stream(&self, native: u64) {
        for known in self.0.lock().values() {
            known.streams.release(native, |_| Ok(()));
        }
    }

    /// Begins a capture in a pool with one of its streams, or has the stream join the capture that there is.
    pub(crate) fn begin_capture(&self, number: u64, stream: &Stream<D>) -> Result<(), Failure> {
        let mut pools = self.0.lock();
        let known = pools.get_mut(&number).ok_or_else(|| unknown(number))?;
        match &known.capture {
            Some(capture) => capture.join(stream)?,
            None => known.capture = Some(stream.begin_capture()?),
        }
        Ok(())
    }

    /// Ends the capture in a pool.
    pub(crate) fn end_capture(&self, number: u64) -> Result<(), Failure> {
        let mut pools = self.0.lock();
        pools.get_mut(&number).ok_or_else(|| unknown(number))?.capture = None;
        Ok(())
    }

    /// Gives all references up, and ends captures.
    pub(crate) fn clear(&mut self) {
        self.0.get_mut().clear();
    }
}

#[cold]
fn unknown(number: u64) -> Failure {
    Failure::bad_argument(format!(
        "there is no private pool {number}: it was released before, or is another allocator's"
    ))
}
