//! An allocator with what C needs in addition: its live blocks by address, its streams by handle, its pools by number.

use millpond::{Allocator, Buffer, Checkpoint, PoolId, RawBuffer, Stream};
use millpond_backend::{Backend, StreamId};

use crate::addresses::Addresses;
use crate::code::Failure;
use crate::device::Device;
use crate::places::{live_in, misplaced, place_within};
use crate::pools::Pools;
use crate::scopes::Scopes;
use crate::shortage::Hooks;
use crate::source::Supplier;
use crate::streams::{Streams, Tenure};

/// Where the live blocks of an allocator are found by their addresses.
pub(crate) trait Blocks {
    /// Enters a buffer, and returns its address.
    fn enter<B: Backend>(&self, buffer: Buffer<B>) -> Result<u64, Failure>;

    /// Returns the block at an address.
    fn get(&self, address: u64) -> Option<RawBuffer>;

    /// Takes the block at an address out. Of several threads that do this at once, one gets the block.
    fn take(&self, address: u64) -> Option<RawBuffer>;

    /// Returns the last block that begins at an address or before it, with its start, if it is of this allocator.
    fn at_or_before(&self, address: u64) -> Option<(u64, RawBuffer)>;
}

/// The tree that an allocator has for itself.
impl Blocks for Addresses {
    #[inline]
    fn enter<B: Backend>(&self, buffer: Buffer<B>) -> Result<u64, Failure> {
        let address = buffer.address().unwrap_or(0);
        let Some(entry) = self.entry(address).filter(|_| address != 0) else { return Err(misplaced(address)) };
        entry.put(buffer.into_raw());
        Ok(address)
    }

    fn get(&self, address: u64) -> Option<RawBuffer> {
        Addresses::get(self, address)
    }

    #[inline]
    fn take(&self, address: u64) -> Option<RawBuffer> {
        Addresses::take(self, address)
    }

    fn at_or_before(&self, address: u64) -> Option<(u64, RawBuffer)> {
        Addresses::at_or_before(self, address)
    }
}

/// An allocator of a device.
///
/// Every block that the program holds is in `blocks`, once, at its address: a block enters after it was granted and
/// leaves before it is freed.
pub(crate) struct Of<D: Device, T = Addresses> {
    pub(crate) blocks: T,
    streams: Streams<D>,
    pub(crate) pools: Pools<D>,
    pub(crate) scopes: Scopes<D>,
    pub(crate) hooks: Hooks,
    pub(crate) allocator: Allocator<D>,
    /// The number of the device.
    pub(crate) number: u32,
}

impl<D: Device, T: Blocks> Of<D, T> {
    pub(crate) fn new(device: D, conf: Option<&str>, number: u32, blocks: T) -> Result<Self, Failure> {
        let builder = Allocator::builder(device).device(number);
        let allocator = match conf {
            Some(conf) => builder.conf(conf),
            None => builder.environment(),
        };
        Ok(Self {
            blocks,
            streams: Streams::new(),
            pools: Pools::new(),
            scopes: Scopes::new(),
            hooks: Hooks::default(),
            allocator: allocator.build()?,
            number,
        })
    }

    /// Allocates on a stream. Returns the address, which is 0 for 0 bytes.
    #[inline]
    pub(crate) fn allocate(&self, bytes: u64, native: u64) -> Result<u64, Failure> {
        let stream = self.stream(native)?;
        if bytes == 0 {
            return Ok(0);
        }
        self.enter(stream.allocate(bytes)?)
    }

    /// Allocates on a stream that the program may destroy after the call. Returns the address, which is 0 for 0 bytes.
    pub(crate) fn allocate_async(&self, bytes: u64, native: u64) -> Result<u64, Failure> {
        let (stream, arrived) = self.arrive(native, false)?;
        arrived?;
        if bytes == 0 {
            return Ok(0);
        }
        self.enter(stream.allocate(bytes)?)
    }

    /// Frees the block at an address on a stream, which the program may destroy after the call. The block is freed even
    /// if the device fails.
    pub(crate) fn free_async(&self, address: u64, native: u64) -> Result<(), Failure> {
        let raw = self.blocks.get(address).ok_or_else(|| Failure::not_a_block(address))?;
        let recorded = self.arrive(native, true).and_then(|(stream, arrived)| {
            // Even if that has failed: other streams get the memory after the stream's next call then.
            self.allocator.record_stream_raw(raw, stream)?;
            arrived
        });
        self.free(address).and(recorded)
    }

    /// Allocates on a stream from the cache alone. Returns the address, which is 0 for 0 bytes and where the cache has
    /// nothing for the request.
    pub(crate) fn allocate_cached(&self, bytes: u64, native: u64) -> Result<u64, Failure> {
        let stream = self.stream(native)?;
        let buffer = if bytes == 0 { None } else { stream.allocate_cached(bytes)? };
        buffer.map_or(Ok(0), |buffer| self.enter(buffer))
    }

    /// Allocates on a stream in a pool. Returns the address, which is 0 for 0 bytes.
    pub(crate) fn allocate_in(&self, number: u64, bytes: u64, native: u64) -> Result<u64, Failure> {
        let stream = self.stream_in(number, native)?;
        if bytes == 0 {
            return Ok(0);
        }
        self.enter(stream.allocate(bytes)?)
    }

    /// Allocates on a stream at a multiple of an alignment. Returns the address, which is 0 for 0 bytes.
    pub(crate) fn allocate_aligned(&self, bytes: u64, alignment: u64, native: u64) -> Result<u64, Failure> {
        let buffer = self.stream(native)?.allocate_aligned(bytes, alignment)?;
        if bytes == 0 { Ok(0) } else { self.enter(buffer) }
    }

    /// Allocates on a stream, with addresses for a capacity. Returns the address.
    pub(crate) fn allocate_growable(&self, bytes: u64, capacity: u64, native: u64) -> Result<u64, Failure> {
        self.enter(self.stream(native)?.allocate_growable(bytes, capacity)?)
    }

    /// Makes the block at an address longer.
    ///
    /// # Safety
    ///
    /// No other thread frees the block or makes it longer meanwhile.
    pub(crate) unsafe fn grow(&self, address: u64, bytes: u64) -> Result<(), Failure> {
        let raw = self.blocks.get(address).ok_or_else(|| Failure::not_a_block(address))?;
        // SAFETY: the number of a live block of this allocator is there, and the caller promises that it stays so.
        Ok(unsafe { self.allocator.grow_raw(raw, bytes) }?)
    }

    /// Puts a buffer into the tree of addresses. Returns its address.
    #[inline]
    fn enter(&self, buffer: Buffer<D>) -> Result<u64, Failure> {
        self.blocks.enter(buffer)
    }

    /// Frees the block at an address.
    #[inline]
    pub(crate) fn free(&self, address: u64) -> Result<(), Failure> {
        let raw = self.blocks.take(address).ok_or_else(|| Failure::not_a_block(address))?;
        // SAFETY: `allocate` put the number of a buffer of this allocator there, and only one thread takes it out.
        unsafe { self.allocator.free_raw(raw) };
        Ok(())
    }

    /// Records that the block at an address is used on a stream.
    pub(crate) fn record_stream(&self, address: u64, native: u64) -> Result<(), Failure> {
        let raw = self.blocks.get(address).ok_or_else(|| Failure::not_a_block(address))?;
        let stream = self.stream(native)?;
        Ok(self.allocator.record_stream_raw(raw, stream)?)
    }

    /// Returns the start and the length of the live block in which an address lies.
    pub(crate) fn find(&self, address: u64) -> Result<(u64, u64), Failure> {
        let found = self.blocks.at_or_before(address);
        let found = found.and_then(|found| self.place_within(found, address));
        found.ok_or_else(|| Failure::not_a_block(address))
    }

    /// Returns the start and the length of the block that was found, if it is live and an address lies in it.
    fn place_within(&self, found: (u64, RawBuffer), address: u64) -> Option<(u64, u64)> {
        place_within(&self.allocator, found, address, || self.blocks.get(found.0))
    }

    /// Creates a stream and returns its handle.
    pub(crate) fn create_stream(&self) -> Result<u64, Failure> {
        let stream = self.allocator.create_stream()?;
        let native = self.allocator.backend().native(stream.id())?;
        self.streams.add(native, stream, Tenure::Lasting);
        Ok(native)
    }

    /// Ends the use of a stream.
    pub(crate) fn release_stream(&self, native: u64) -> Result<(), Failure> {
        if D::is_default(native) {
            return Err(Failure::bad_argument("the default stream (NULL) cannot be released"));
        }
        let key = D::key(native);
        let released = self.streams.release(key, |stream| self.allocator.backend().close(stream.id()));
        if let Some(Ok(())) = released {
            self.pools.release_stream(key);
        }
        released.unwrap_or_else(|| {
            let text = format!("the stream {native:#x} was not used with this allocator, or was released before");
            Err(Failure::bad_argument(text))
        })
    }

    /// Creates a pool and returns its number.
    pub(crate) fn create_pool(&self) -> Result<u64, Failure> {
        Ok(self.pools.enter(self.allocator.create_pool()?))
    }

    /// Creates a pool whose segments come from a source, and returns its number.
    pub(crate) fn create_pool_from(&self, source: Supplier) -> Result<u64, Failure> {
        Ok(self.pools.enter(self.allocator.create_pool_from(source)?))
    }

    /// Gives the cached memory of a pool that was released back to the driver.
    pub(crate) fn empty_pool(&self, number: u64) -> Result<(), Failure> {
        Ok(self.allocator.empty_cache_of(PoolId(number))?)
    }

    /// Gives all cached memory back to the driver.
    pub(crate) fn empty_cache(&self) -> Result<(), Failure> {
        self.allocator.backend().settle_uncovered()?;
        Ok(self.allocator.empty_cache()?)
    }

    /// Begins a capture of a stream in a pool, or has the stream join the one that there is.
    pub(crate) fn begin_capture(&self, number: u64, native: u64) -> Result<(), Failure> {
        self.pools.begin_capture(number, &self.stream_in(number, native)?)
    }

    /// Frees every block of the pool of a checkpoint, and hands out what was live then. Returns the number of blocks.
    ///
    /// The blocks leave the tree of addresses before they are freed, and enter it after they were granted.
    pub(crate) fn restore(&self, to: &Checkpoint) -> Result<u64, Failure> {
        let pool = self.pools.held(to.pool().0)?;
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

    /// Returns the stream of a handle.
    #[inline]
    pub(crate) fn stream(&self, native: u64) -> Result<&Stream<D>, Failure> {
        match self.streams.get(D::key(native)) {
            Some(stream) => Ok(stream),
            None => self.open_stream(native),
        }
    }

    /// Returns the stream of a handle in a pool.
    fn stream_in(&self, number: u64, native: u64) -> Result<Stream<D>, Failure> {
        self.pools.stream(number, D::key(native), || Ok(self.stream(native)?.id()))
    }

    #[cold]
    fn open_stream(&self, native: u64) -> Result<&Stream<D>, Failure> {
        let key = D::key(native);
        if !D::HANDLES_COME_BACK && self.streams.was_released(key) {
            return Err(Failure::bad_argument(format!("the stream {native:#x} was released")));
        }
        self.note(key, Tenure::Lasting, |device| device.open(native))
    }

    /// Notes the stream that the device has for a handle. Another thread may release that stream before it is noted:
    /// then the device has another one.
    fn note(
        &self,
        key: u64,
        tenure: Tenure,
        open: impl Fn(&D) -> Result<StreamId, Failure>,
    ) -> Result<&Stream<D>, Failure> {
        let device = self.allocator.backend();
        loop {
            let stream = self.streams.add(key, self.allocator.stream(open(device)?)?, tenure);
            if device.takes_work(stream.id()) {
                return Ok(stream);
            }
            self.streams.forget(key, stream.id());
        }
    }

    /// Begins a call with the stream of a handle, after which the program may destroy it. With `frees` the call gives
    /// up memory that is used there. Returns the stream, and what came of it on the device.
    fn arrive(&self, native: u64, frees: bool) -> Result<(&Stream<D>, Result<(), Failure>), Failure> {
        loop {
            let (stream, is_borrowed) = self.find_or_borrow(native)?;
            let arrived = if is_borrowed { self.allocator.backend().arrive(stream.id(), frees) } else { Ok(true) };
            match arrived {
                Ok(false) => self.streams.forget(native, stream.id()),
                arrived => return Ok((stream, arrived.map(drop))),
            }
        }
    }

    /// Returns the stream of a handle, and whether it is borrowed.
    fn find_or_borrow(&self, native: u64) -> Result<(&Stream<D>, bool), Failure> {
        if D::is_lasting(native) {
            return Ok((self.stream(native)?, false));
        }
        if let Some(found) = self.streams.find(native) {
            return Ok(found);
        }
        let stream = self.note(native, Tenure::Borrowed, |device| device.borrow(native))?;
        Ok((stream, true))
    }
}

impl<D: Device> Of<D> {
    /// Frees all live blocks and returns their number. The allocator's memory goes back when this returns, after a wait
    /// for the device.
    pub(crate) fn close(mut self) -> u64 {
        let mut live = 0;
        self.hooks.clear();
        self.pools.clear();
        let allocator = &self.allocator;
        self.blocks.drain(|raw| {
            if live == 0 {
                // Where that fails, no work is left to wait for, or a graph has it.
                let _ = allocator.backend().settle_borrowed();
            }
            live += 1;
            // SAFETY: the numbers are those of buffers of this allocator, and `drain` takes each out once.
            unsafe { allocator.free_raw(raw) };
        });
        live
    }
}

#[cfg(test)]
mod tests {
    use millpond_sim::Sim;

    use super::*;
    use crate::devices;

    const MIB: u64 = 1 << 20;

    fn of(conf: &str) -> Of<Sim> {
        let sim = devices::open_sim(0).expect("a device");
        Of::new(sim, Some(conf), 0, Addresses::new()).expect("an allocator")
    }

    fn opened() -> Of<Sim> {
        of("policy:classic")
    }

    /// A table had a block, which another thread has freed before its place was looked up. Its number names a free
    /// block then, or a later one.
    #[test]
    fn a_block_that_is_gone_has_no_address() {
        for conf in ["policy:classic", "policy:paged"] {
            let of = of(conf);
            let [before, small, keep] = [(); 3].map(|()| of.allocate(512, 0).expect("memory"));
            let found = of.blocks.at_or_before(small + 511).expect("it is there");
            let within = |beside| of.place_within(found, small + beside);
            assert_eq!([0, 511, 512].map(within), [Some((small, 512)), Some((small, 512)), None], "{conf}");
            assert_eq!(place_within(&of.allocator, found, small, || None), None, "{conf}: the table has it no more");
            of.free(small).expect("it is live");
            assert_eq!([0, 511, 512].map(within), [None; 3], "{conf}: it is free");
            // It is joined with the block in front of it, so that its number is vacant.
            of.free(before).expect("it is live");
            let mut held = Vec::new();
            let same = |raw: RawBuffer| raw.to_bits().get() as u32 == found.1.to_bits().get() as u32;
            let number = |address| of.blocks.get(address).expect("it is live");
            while !held.last().is_some_and(|&large| same(number(large))) {
                held.push(of.allocate(64 << 20, 0).expect("memory"));
                assert!(held.len() < 10, "{conf}: no block gets the number");
            }
            assert_eq!([0, 511, 4096].map(within), [None; 3], "{conf}: its number is another block's");
            assert!(of.find(small + 4096).is_err() && of.find(small).is_err(), "{conf}");
            assert_eq!(of.find(keep + 1).expect("it is live"), (keep, 512), "{conf}");
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
        assert!(of.blocks.get(inside).is_some() && of.blocks.get(outside).is_some());
        of.pools.release(pool).unwrap();
        assert!(of.allocate_in(pool, MIB, 0).is_err() && of.pools.release(pool).is_err());
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
        of.pools.end_capture(pools[0]).unwrap();
        streams.iter().for_each(|&stream| of.begin_capture(pools[1], stream).unwrap());
    }

    #[test]
    fn a_restored_pool_has_just_the_blocks_of_the_checkpoint() {
        let of = opened();
        let pool = of.create_pool().unwrap();
        let noted = [3, 5].map(|mib| of.allocate_in(pool, mib * MIB, 0).unwrap());
        let checkpoint = of.pools.held(pool).unwrap().checkpoint();
        noted.into_iter().for_each(|address| of.free(address).unwrap());
        let others = [2, 4, 12].map(|mib| of.allocate_in(pool, mib * MIB, 0).unwrap());
        of.begin_capture(pool, 0).unwrap();
        assert!(of.restore(&checkpoint).is_err(), "a stream is being captured");
        assert!(others.iter().all(|&address| of.blocks.get(address).is_some()), "nothing was freed for it");
        of.pools.end_capture(pool).unwrap();
        assert_eq!(of.restore(&checkpoint), Ok(2));
        assert!(noted.iter().all(|&address| of.blocks.get(address).is_some()));
        let live = live_in(&of.allocator, PoolId(pool)).count();
        assert_eq!((live, of.blocks.get(others[2]).is_some()), (2, false), "the others were freed");
        noted.into_iter().for_each(|address| of.free(address).unwrap());
    }
}
