//! An allocator with what C needs beside it: its live blocks by address, and its streams by handle.

use millpond::{Allocator, Stream};
use millpond_cuda::Cuda;
use millpond_sim::Sim;

use crate::addresses::Addresses;
use crate::code::Failure;
use crate::device::{self, Device, Name};
use crate::places::{misplaced, place_within};
use crate::pools::Pools;
use crate::streams::Streams;

/// An allocator of any device.
pub(crate) enum Served {
    Sim(Of<Sim>),
    Cuda(Of<Cuda>),
}

/// Calls a method of the allocator, whatever its device is.
macro_rules! on {
    ($served:expr, $of:ident => $call:expr) => {
        match $served {
            $crate::served::Served::Sim($of) => $call,
            $crate::served::Served::Cuda($of) => $call,
        }
    };
}
pub(crate) use on;

/// An allocator of a device.
///
/// Every block that the program holds is in `blocks`, once, at its address: a block enters after it was granted and
/// leaves before it is freed.
pub(crate) struct Of<D: Device> {
    pub(crate) blocks: Addresses,
    streams: Streams<D>,
    pub(crate) pools: Pools<D>,
    pub(crate) allocator: Allocator<D>,
    /// The number of the device.
    pub(crate) number: u32,
}

impl Served {
    /// Opens a device and creates an allocator on it. Without a configuration that of the environment applies.
    pub(crate) fn open(device: &str, conf: Option<&str>) -> Result<Served, Failure> {
        match Name::parse(device)? {
            Name::Sim(number) => Ok(Served::Sim(Of::new(device::open_sim(number)?, conf, number)?)),
            Name::Cuda(ordinal) => {
                let cuda = device::open_cuda(Cuda::builder().device(ordinal))?;
                Ok(Served::Cuda(Of::new(cuda, conf, ordinal as u32)?))
            }
        }
    }

    /// Gives all cached memory back to the driver.
    pub(crate) fn empty_cache(&self) -> Result<(), Failure> {
        on!(self, of => of.allocator.empty_cache().map_err(Failure::from))
    }
}

impl<D: Device> Of<D> {
    pub(crate) fn new(device: D, conf: Option<&str>, number: u32) -> Result<Self, Failure> {
        let builder = Allocator::builder(device).device(number);
        let allocator = match conf {
            Some(conf) => builder.conf(conf),
            None => builder.environment(),
        };
        Ok(Self {
            blocks: Addresses::new(),
            streams: Streams::new(),
            pools: Pools::new(),
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
        let buffer = stream.allocate(bytes)?;
        let address = buffer.address().unwrap_or(0);
        let Some(entry) = self.blocks.entry(address).filter(|_| address != 0) else { return Err(misplaced(address)) };
        entry.put(buffer.into_raw());
        Ok(address)
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

    /// Returns whether a live block begins at an address.
    pub(crate) fn has(&self, address: u64) -> bool {
        self.blocks.get(address).is_some()
    }

    /// Returns the start and the length of the live block in which an address lies.
    pub(crate) fn find(&self, address: u64) -> Result<(u64, u64), Failure> {
        let found = self.blocks.at_or_before(address);
        let found = found.and_then(|found| place_within(&self.allocator, found, address));
        found.ok_or_else(|| Failure::not_a_block(address))
    }

    /// Creates a stream and returns its handle.
    pub(crate) fn create_stream(&self) -> Result<u64, Failure> {
        let stream = self.allocator.create_stream()?;
        let native = self.allocator.backend().native(stream.id())?;
        self.streams.add(native, stream);
        Ok(native)
    }

    /// Ends the use of a stream.
    pub(crate) fn release_stream(&self, native: u64) -> Result<(), Failure> {
        if native == 0 {
            return Err(Failure::bad_argument("the default stream (NULL) cannot be released"));
        }
        let released = self.streams.release(native, |stream| self.allocator.backend().close(stream.id()));
        if let Some(Ok(())) = released {
            self.pools.release_stream(native);
        }
        released.unwrap_or_else(|| {
            let text = format!("the stream {native:#x} was not used with this allocator, or was released before");
            Err(Failure::bad_argument(text))
        })
    }

    /// Frees all live blocks and returns their number. The allocator's memory goes back when this returns, after a wait
    /// for the device.
    pub(crate) fn close(mut self) -> u64 {
        let mut live = 0;
        self.pools.clear();
        let allocator = &self.allocator;
        self.blocks.drain(|raw| {
            live += 1;
            // SAFETY: the numbers are those of buffers of this allocator, and `drain` takes each out once.
            unsafe { allocator.free_raw(raw) };
        });
        live
    }

    /// Returns the stream of a handle.
    #[inline]
    pub(crate) fn stream(&self, native: u64) -> Result<&Stream<D>, Failure> {
        match self.streams.get(native) {
            Some(stream) => Ok(stream),
            None => self.open_stream(native),
        }
    }

    #[cold]
    fn open_stream(&self, native: u64) -> Result<&Stream<D>, Failure> {
        if !D::HANDLES_COME_BACK && self.streams.was_released(native) {
            return Err(Failure::bad_argument(format!("the stream {native:#x} was released")));
        }
        let id = self.allocator.backend().open(native)?;
        Ok(self.streams.add(native, self.allocator.stream(id)?))
    }
}

#[cfg(test)]
mod tests {
    use millpond::RawBuffer;

    use super::*;

    /// A table had a block, which another thread has freed before its place was looked up. Its number names a free
    /// block then, or a later one.
    #[test]
    fn a_block_that_is_gone_has_no_address() {
        for conf in ["policy:classic", "policy:paged"] {
            let of = Of::new(device::open_sim(0).expect("a device"), Some(conf), 0).expect("an allocator");
            let [before, small, keep] = [(); 3].map(|()| of.allocate(512, 0).expect("memory"));
            let found = of.blocks.at_or_before(small + 511).expect("it is there");
            let within = |beside| place_within(&of.allocator, found, small + beside);
            assert_eq!([0, 511, 512].map(within), [Some((small, 512)), Some((small, 512)), None], "{conf}");
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
}
