//! Private pools of an allocator, by their numbers.

use std::collections::BTreeMap;

use millpond::{Capture, Checkpoint, Pool, PoolId, Stream};
use parking_lot::Mutex;

use crate::code::Failure;
use crate::device::Device;
use crate::places::{live_in, misplaced};
use crate::served::Of;
use crate::source::Supplier;
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
        self.enter_pool(self.allocator.create_pool()?)
    }

    /// Creates a pool whose segments come from a source, and returns its number.
    pub(crate) fn create_pool_from(&self, source: Supplier) -> Result<u64, Failure> {
        self.enter_pool(self.allocator.create_pool_from(source)?)
    }

    fn enter_pool(&self, held: Pool<D>) -> Result<u64, Failure> {
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
        let live = live_in(&self.allocator, pool.id());
        let known: Vec<_> = live.filter_map(|(address, _)| Some((address, self.blocks.get(address)?))).collect();
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

#[cfg(test)]
mod tests {
    use millpond_sim::Sim;

    use super::*;
    use crate::served::Served;

    const MIB: u64 = 1 << 20;

    fn opened() -> Of<Sim> {
        match Served::open("sim", Some("policy:classic")) {
            Ok(Served::Sim(of)) => of,
            Ok(Served::Cuda(_)) => panic!("it is the simulated device"),
            Err(failure) => panic!("{}", failure.text),
        }
    }

    #[test]
    fn a_released_stream_is_in_no_pool() {
        let of = opened();
        let pools = [(); 2].map(|()| of.create_pool().unwrap());
        let streams = [(); 2].map(|()| of.create_stream().unwrap());
        for pool in pools {
            streams.iter().for_each(|&stream| assert_ne!(of.allocate_in(pool, MIB, stream), Ok(0)));
        }
        of.release_stream(streams[0]).unwrap();
        for pool in pools {
            let failure = of.allocate_in(pool, MIB, streams[0]).unwrap_err();
            assert!(failure.text.contains("was released"), "{}", failure.text);
            assert!(of.allocate_in(pool, MIB, streams[1]).is_ok(), "the other one is there still");
        }
        assert!(of.release_stream(streams[0]).is_err(), "it was released before");
        assert!(of.allocate_in(pools[0], MIB, 0).is_ok() && of.release_stream(0).is_err(), "the default stream stays");
    }

    #[test]
    fn blocks_of_a_pool_lie_in_it() {
        let of = opened();
        let pool = of.create_pool().unwrap();
        assert_eq!(of.allocate_in(pool, 0, 0), Ok(0));
        let (inside, outside) = (of.allocate_in(pool, MIB, 0).unwrap(), of.allocate(MIB, 0).unwrap());
        let live: Vec<_> = live_in(&of.allocator, PoolId(pool)).map(|(address, _)| address).collect();
        assert_eq!(live, [inside]);
        assert!(of.has(inside) && of.has(outside));
        of.release_pool(pool).unwrap();
        assert!(of.allocate_in(pool, MIB, 0).is_err() && of.release_pool(pool).is_err());
    }

    /// Streams of one pool are captured together, up to the end of the capture.
    #[test]
    fn a_capture_has_all_streams_that_begin_it() {
        let of = opened();
        let pools = [(); 2].map(|()| of.create_pool().unwrap());
        let streams = [(); 2].map(|()| of.create_stream().unwrap());
        streams.iter().for_each(|&stream| of.begin_capture(pools[0], stream).unwrap());
        for stream in streams {
            assert!(of.begin_capture(pools[1], stream).is_err(), "it is captured in the first pool");
        }
        of.end_capture(pools[0]).unwrap();
        streams.iter().for_each(|&stream| of.begin_capture(pools[1], stream).unwrap());
    }

    #[test]
    fn a_restored_pool_has_just_the_blocks_of_the_checkpoint() {
        let of = opened();
        let pool = of.create_pool().unwrap();
        let noted = [3, 5].map(|mib| of.allocate_in(pool, mib * MIB, 0).unwrap());
        let checkpoint = of.checkpoint(pool).unwrap();
        noted.into_iter().for_each(|address| of.free(address).unwrap());
        let others = [2, 4, 12].map(|mib| of.allocate_in(pool, mib * MIB, 0).unwrap());
        of.begin_capture(pool, 0).unwrap();
        assert!(of.restore(&checkpoint).is_err(), "a stream is being captured");
        assert!(others.iter().all(|&address| of.has(address)), "nothing was freed for it");
        of.end_capture(pool).unwrap();
        assert_eq!(of.restore(&checkpoint), Ok(2));
        assert!(noted.iter().all(|&address| of.has(address)));
        let live = live_in(&of.allocator, PoolId(pool)).count();
        assert_eq!((live, of.has(others[2])), (2, false), "the others were freed");
        noted.into_iter().for_each(|address| of.free(address).unwrap());
    }
}
