//! The allocator of one device, with its streams by handle.

use millpond::hooks::{Answer, Shortage};
use millpond::{Allocator, Error, RawBuffer, Stream};
use millpond_backend::Backend;
use millpond_cuda::Cuda;
use millpond_sim::Sim;

use super::live::{self, Marked};
use super::named::Pools;
use super::oom::remember;
use super::told::{self, Told};
use super::types::{Block, Oom, Pool};
use crate::code::Failure;
use crate::device::Device;
use crate::devices::{self, shares_pages};
use crate::scopes::Scopes;
use crate::shortage::Hooks;
use crate::streams::Streams;

/// The allocator of a device of any kind.
pub(super) enum Pond {
    Sim(Of<Sim>),
    Cuda(Of<Cuda>),
}

/// Calls a method of the allocator, whatever its device is.
macro_rules! on {
    ($pond:expr, $of:ident => $call:expr) => {
        match $pond {
            $crate::table::pond::Pond::Sim($of) => $call,
            $crate::table::pond::Pond::Cuda($of) => $call,
        }
    };
}
pub(super) use on;

/// The allocator of a device of one kind.
pub(super) struct Of<D: Device> {
    streams: Streams<Told<D>>,
    pub(super) pools: Pools<D>,
    pub(super) scopes: Scopes<Told<D>>,
    pub(super) hooks: Hooks,
    pub(super) allocator: Allocator<Told<D>>,
    number: u32,
}

type ErrorOf<D> = Error<<D as Backend>::Error>;

impl Pond {
    /// Opens a device and creates its allocator. Without a configuration that of the environment applies.
    pub(super) fn open(number: u32, conf: Option<&str>, is_simulated: bool) -> Result<Pond, Failure> {
        if is_simulated {
            return Ok(Pond::Sim(Of::new(devices::open_sim(number)?, conf, number)?));
        }
        let cuda = devices::open_cuda(Cuda::builder().device(number as usize).shareable_pages(shares_pages()))?;
        Ok(Pond::Cuda(Of::new(cuda, conf, number)?))
    }
}

impl<D: Device> Of<D> {
    fn new(device: D, conf: Option<&str>, number: u32) -> Result<Self, Failure> {
        let builder = Allocator::builder(Told::new(device, number)).device(number);
        let builder = match conf {
            Some(conf) => builder.conf(conf),
            None => builder.environment(),
        };
        let allocator = builder.build()?;
        // The host frees what it can do without before hooks of the program are called, and once for a request.
        let freed = move |shortage: &Shortage<'_>| {
            let may_help = shortage.attempt() == 1 && !shortage.report().rejected;
            if may_help && told::free_memory(number) { Answer::Retry } else { Answer::Pass }
        };
        allocator.on_out_of_memory(freed).keep();
        let (streams, pools, scopes) = (Streams::new(), Pools::new(), Scopes::new());
        Ok(Self { streams, pools, scopes, hooks: Hooks::default(), allocator, number })
    }

    /// Allocates on a stream.
    #[inline]
    pub(super) fn allocate(&self, bytes: u64, native: u64) -> Result<Block, Failure> {
        self.allocate_on(self.stream(native)?, bytes)
    }

    /// Allocates on a stream in a private pool.
    #[cold]
    pub(super) fn allocate_in(&self, pool: Pool, bytes: u64, native: u64) -> Result<Block, Failure> {
        self.allocate_on(&self.stream_in(pool, native)?, bytes)
    }

    #[inline]
    fn allocate_on(&self, stream: &Stream<Told<D>>, bytes: u64) -> Result<Block, Failure> {
        if bytes == 0 {
            return Ok(live::NOTHING);
        }
        let buffer = match stream.allocate(bytes) {
            Ok(buffer) => buffer,
            Err(error) => return Err(self.refused(error)),
        };
        live::enter(buffer, self.number)
    }

    /// Allocates just the memory at an address, on a stream in a private pool or in the default pool.
    #[cold]
    pub(super) fn allocate_at(
        &self,
        pool: Option<Pool>,
        bytes: u64,
        native: u64,
        address: u64,
    ) -> Result<Block, Failure> {
        let at = |stream: &Stream<Told<D>>| {
            if bytes == 0 {
                return Ok(live::NOTHING);
            }
            let buffer = stream.allocate_at(bytes, address)?.ok_or_else(|| {
                Failure::bad_argument(format!(
                    "{bytes} bytes at {address:#x} are not free for this stream and pool: drop what lies there, and \
                     use policy:classic, as addresses of windows are not kept"
                ))
            })?;
            live::enter(buffer, self.number)
        };
        match pool {
            Some(pool) => at(&self.stream_in(pool, native)?),
            None => at(self.stream(native)?),
        }
    }

    /// Keeps the numbers of a request that was refused, and returns the failure that it is.
    #[cold]
    fn refused(&self, error: ErrorOf<D>) -> Failure {
        if let Error::OutOfMemory(oom) = &error {
            let report = oom.report();
            let numbers = Oom {
                device: self.number as i32,
                rejected: report.rejected.into(),
                requested_bytes: report.requested_bytes,
                tried_bytes: report.tried_bytes,
                total_bytes: report.total_bytes,
                free_bytes: self.free_bytes().unwrap_or(0),
                limit_bytes: report.limit_bytes.unwrap_or(u64::MAX),
                allocated_bytes: report.allocated_bytes,
                reserved_bytes: report.reserved_bytes,
                explanation: std::ptr::null(),
            };
            remember(numbers, &oom.to_string());
        }
        error.into()
    }

    /// Returns the number of the device.
    pub(super) fn number(&self) -> u32 {
        self.number
    }

    /// Returns what the driver says is free, if it says so.
    pub(super) fn free_bytes(&self) -> Result<u64, Failure> {
        Ok(self.allocator.memory_usage()?.map_or(0, |usage| usage.free_bytes))
    }

    /// Frees the block of a number that was taken out of the tree.
    #[inline]
    pub(super) fn free(&self, raw: RawBuffer) {
        // SAFETY: `live::enter` put the number of a buffer of this device's allocator there, and only one thread
        // takes it out.
        unsafe { self.allocator.free_raw(raw) };
    }

    /// Records that a block is used on a stream.
    pub(super) fn record_stream(&self, marked: Marked, native: u64) -> Result<(), Failure> {
        let stream = self.stream(native)?;
        Ok(self.allocator.record_stream_raw(marked.raw(), stream)?)
    }

    /// Returns the handle of a stream of the layout, or 0 if the device does not know it any more.
    pub(super) fn native(&self, stream: millpond_backend::StreamId) -> u64 {
        self.allocator.backend().native(stream).unwrap_or(0)
    }

    /// Returns the stream of a handle.
    #[inline]
    pub(super) fn stream(&self, native: u64) -> Result<&Stream<Told<D>>, Failure> {
        match self.streams.get(native) {
            Some(stream) => Ok(stream),
            None => self.open_stream(native),
        }
    }

    /// Returns the stream of a handle in a private pool.
    fn stream_in(&self, pool: Pool, native: u64) -> Result<Stream<Told<D>>, Failure> {
        self.pools.stream(pool, native, || Ok(self.stream(native)?.id()))
    }

    /// Begins a capture of a stream in a private pool, or has the stream join the one that there is.
    pub(super) fn begin_capture(&self, pool: Pool, native: u64) -> Result<(), Failure> {
        self.pools.begin_capture(pool, native, || Ok(self.stream(native)?.id()))
    }

    #[cold]
    fn open_stream(&self, native: u64) -> Result<&Stream<Told<D>>, Failure> {
        let id = self.allocator.backend().open(native)?;
        Ok(self.streams.add(native, self.allocator.stream(id)?))
    }
}
