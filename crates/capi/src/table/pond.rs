//! The allocator of one device that the whole process shares: frameworks through the table, and C programs through its
//! handle ([`shared`](crate::shared)).

use millpond::hooks::{Answer, Shortage};
use millpond::{Error, RawBuffer, Stream};
use millpond_backend::Backend;
use millpond_cuda::Cuda;
use millpond_sim::Sim;

use super::live::{self, Marked, OfDevice};
use super::named::Pools;
use super::oom::remember;
use super::told::{self, Told};
use super::types::{Block, Oom, Pool};
use crate::code::Failure;
use crate::device::Device;
use crate::devices::{self, shares_pages};
use crate::served;

/// The allocator of a device of any kind.
pub(crate) enum Pond {
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
pub(crate) use on;

/// The allocator of a device of one kind.
pub(crate) struct Of<D: Device> {
    /// The allocator with its streams, which programs in C have, too.
    pub(crate) served: served::Of<Told<D>, OfDevice>,
    /// The private pools that the framework has named.
    pub(super) pools: Pools<D>,
}

type ErrorOf<D> = Error<<D as Backend>::Error>;

impl Pond {
    /// Opens a device and creates its allocator.
    pub(super) fn open(number: u32, conf: &str, is_simulated: bool) -> Result<Pond, Failure> {
        if is_simulated {
            return Ok(Pond::Sim(Of::new(devices::open_sim(number)?, conf, number)?));
        }
        let cuda = devices::open_cuda(Cuda::builder().device(number as usize).shareable_pages(shares_pages()))?;
        Ok(Pond::Cuda(Of::new(cuda, conf, number)?))
    }

    /// Forgets the handle of a stream in the pools that the framework has named: it may come back for another one.
    #[cold]
    pub(crate) fn forget_stream(&self, native: u64) {
        on!(self, of => of.forget_stream(native));
    }
}

impl<D: Device> Of<D> {
    fn new(device: D, conf: &str, number: u32) -> Result<Self, Failure> {
        let served = served::Of::new(Told::new(device, number), Some(conf), number, OfDevice(number))?;
        // The host frees what it can do without before hooks of the program are called, and once for a request.
        let freed = move |shortage: &Shortage<'_>| {
            let may_help = shortage.attempt() == 1 && !shortage.report().rejected;
            if may_help && told::free_memory(number) { Answer::Retry } else { Answer::Pass }
        };
        served.allocator.on_out_of_memory(freed).keep();
        Ok(Self { served, pools: Pools::new() })
    }

    /// Allocates on a stream.
    #[inline]
    pub(super) fn allocate(&self, bytes: u64, native: u64) -> Result<Block, Failure> {
        self.allocate_on(self.served.stream(native)?, bytes)
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
        live::enter(buffer, self.number())
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
            live::enter(buffer, self.number())
        };
        match pool {
            Some(pool) => at(&self.stream_in(pool, native)?),
            None => at(self.served.stream(native)?),
        }
    }

    /// Keeps the numbers of a request that was refused, and returns the failure that it is.
    #[cold]
    fn refused(&self, error: ErrorOf<D>) -> Failure {
        if let Error::OutOfMemory(oom) = &error {
            let report = oom.report();
            let numbers = Oom {
                device: self.number() as i32,
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
        self.served.number
    }

    /// Returns what the driver says is free, if it says so.
    pub(super) fn free_bytes(&self) -> Result<u64, Failure> {
        Ok(self.served.allocator.memory_usage()?.map_or(0, |usage| usage.free_bytes))
    }

    /// Frees the block of a number that was taken out of the tree.
    #[inline]
    pub(super) fn free(&self, raw: RawBuffer) {
        // SAFETY: `live::enter` put the number of a buffer of this device's allocator there, and only one thread
        // takes it out.
        unsafe { self.served.allocator.free_raw(raw) };
    }

    /// Records that a block is used on a stream.
    pub(crate) fn record_stream(&self, marked: Marked, native: u64) -> Result<(), Failure> {
        let stream = self.served.stream(native)?;
        Ok(self.served.allocator.record_stream_raw(marked.raw(), stream)?)
    }

    /// Returns the handle of a stream of the layout, or 0 if the device does not know it any more.
    pub(super) fn native(&self, stream: millpond_backend::StreamId) -> u64 {
        self.served.allocator.backend().native(stream).unwrap_or(0)
    }

    fn forget_stream(&self, native: u64) {
        self.pools.release_stream(D::key(native));
    }

    /// Returns the stream of a handle in a private pool.
    fn stream_in(&self, pool: Pool, native: u64) -> Result<Stream<Told<D>>, Failure> {
        self.pools.stream(pool, D::key(native), || Ok(self.served.stream(native)?.id()))
    }

    /// Begins a capture of a stream in a private pool, or has the stream join the one that there is.
    pub(super) fn begin_capture(&self, pool: Pool, native: u64) -> Result<(), Failure> {
        self.pools.begin_capture(pool, D::key(native), || Ok(self.served.stream(native)?.id()))
    }
}
