//! Private pools of an allocator, by their numbers.

use std::collections::BTreeMap;

use millpond::{BlockState, Capture, Checkpoint, Pool, PoolId, Stream};
use parking_lot::Mutex;

use crate::code::Failure;
use crate::device::Device;
use crate::served::{Of, misplaced};
use crate::streams::Streams;

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

    /// Gives all references up, and ends captures.
    pub(crate) fn clear(&mut self) {
        self.0.get_mut().clear();
    }

    /// Forgets the handle of a stream, which may come back for another one.
    pub(crate) fn release_stream(&self, native: u64) {
        for known in self.0.lock().values() {
            known.streams.release(native, |_| Ok(()));
        }
    }
}

#[cold]
fn unknown(number: u64) -> Failure {
    Failure::bad_argument(format!(
        "there is no private pool {number}: it was released before, or is another allocator's"
    ))
}

impl<D: Device> Of<D> {
    /// Creates a pool and returns its number.
    pub(crate) fn create_pool(&self) -> Result<u64, Failure> {
        let held = self.allocator.create_pool()?;
        let number = held.id().0;
        self.pools.0.lock().insert(number, Known { held, streams: Streams::new(), capture: None });
        Ok(number)
    }

    /// Gives the reference to a pool up.
    pub(crate) fn release_pool(&self, number: u64) -> Result<(), Failure> {
        let known = self.pools.0.lock().remove(&number).ok_or_else(|| unknown(number))?;
        drop(known);
        Ok(())
    }

    /// Gives the cached memory of a pool that was released back to the driver.
    pub(crate) fn empty_pool(&self, number: u64) -> Result<(), Failure> {
        Ok(self.allocator.empty_cache_of(PoolId(number))?)
    }

    /// Allocates in a pool. Returns the address, which is 0 for 0 bytes.
    pub(crate) fn allocate_in(&self, number: u64, bytes: u64, native: u64) -> Result<u64, Failure> {
        let stream = self.stream_in(number, native)?;
        if bytes == 0 {
            return Ok(0);
        }
        self.enter(stream.allocate(bytes)?)
    }

    pub(crate) fn begin_capture(&self, number: u64, native: u64) -> Result<(), Failure> {
        let stream = self.stream_in(number, native)?;
        let mut pools = self.pools.0.lock();
        let known = pools.get_mut(&number).ok_or_else(|| unknown(number))?;
        match &known.capture {
            Some(capture) => capture.join(&stream)?,
            None => known.capture = Some(stream.begin_capture()?),
        }
        Ok(())
    }

    pub(crate) fn end_capture(&self, number: u64) -> Result<(), Failure> {
        let mut pools = self.pools.0.lock();
        pools.get_mut(&number).ok_or_else(|| unknown(number))?.capture = None;
        Ok(())
    }

    pub(crate) fn checkpoint(&self, number: u64) -> Result<Checkpoint, Failure> {
        Ok(self.held(number)?.checkpoint())
    }

    /// Frees every block of the pool of a checkpoint, and hands out what was live then. Returns the number of blocks.
    ///
    /// The blocks leave the tree of addresses before they are freed, and enter it after they were granted.
    pub(crate) fn restore(&self, to: &Checkpoint) -> Result<u64, Failure> {
        let pool = self.held(to.pool().0)?;
        let views = self.allocator.layout().into_iter().filter(|view| view.pool == pool.id());
        let live = views.flat_map(|view| {
            let blocks = view.blocks.into_iter().filter(|block| block.state == BlockState::ActiveAllocated);
            blocks.map(move |block| view.address + block.offset)
        });
        let known: Vec<_> = live.filter_map(|address| Some((address, self.blocks.get(address)?))).collect();
        let numbers: Vec<_> = known.iter().map(|&(_, raw)| raw).collect();
        pool.may_restore_raw(to, &numbers)?;
        for (address, _) in known {
            self.free(address)?;
        }
        let mut buffers = Vec::new();
        pool.restore(to, &mut buffers)?;
        let count = buffers.len() as u64;
        buffers.into_iter().try_for_each(|buffer| self.enter(buffer).map(drop))?;
        Ok(count)
    }

    fn held(&self, number: u64) -> Result<Pool<D>, Failure> {
        let pools = self.pools.0.lock();
        pools.get(&number).map(|known| known.held.clone()).ok_or_else(|| unknown(number))
    }

    fn stream_in(&self, number: u64, native: u64) -> Result<Stream<D>, Failure> {
        let pools = self.pools.0.lock();
        let known = pools.get(&number).ok_or_else(|| unknown(number))?;
        if let Some(stream) = known.streams.get(native) {
            return Ok(stream.clone());
        }
        let id = self.stream(native)?.id();
        Ok(known.streams.add(native, known.held.stream(id)?).clone())
    }

    /// Puts a buffer into the tree of addresses. Returns its address.
    fn enter(&self, buffer: millpond::Buffer<D>) -> Result<u64, Failure> {
        let address = buffer.address().unwrap_or(0);
        let Some(entry) = self.blocks.entry(address).filter(|_| address != 0) else { return Err(misplaced(address)) };
        entry.put(buffer.into_raw());
        Ok(address)
    }
}
