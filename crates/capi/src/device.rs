//! What the interface needs of a device beyond the contract: its streams by the driver's own handles.

use std::sync::atomic::{AtomicU64, Ordering};

use millpond_backend::{Backend, StreamId};
use millpond_cuda::cudarc::driver::sys::CUstream;
use millpond_cuda::{Cuda, CudaError};
use millpond_sim::Sim;

use crate::code::Failure;

/// A device whose streams C programs can pass.
pub(crate) trait Device: Backend + Clone {
    /// Whether the handle of a stream may come back, for another stream, once the stream was released.
    const HANDLES_COME_BACK: bool;

    /// Returns whether a handle is one of the default stream, which is never released.
    fn is_default(native: u64) -> bool;

    /// Returns the number under which the stream of a handle is known: the handle, unless that names another stream on
    /// each thread.
    fn key(native: u64) -> u64;

    /// Returns the stream of a handle of the program's.
    ///
    /// The handle is that of a stream of this device, which lives until [`close`](Device::close) or until the device
    /// is dropped: the header asks that of the program.
    fn open(&self, native: u64) -> Result<StreamId, Failure>;

    /// Returns whether a handle is that of a stream which the program never destroys.
    fn is_lasting(native: u64) -> bool;

    /// Works like [`open`](Device::open), for a stream that the program may destroy whenever no call with it is under
    /// way. `is_lasting` is not true of it.
    fn borrow(&self, native: u64) -> Result<StreamId, Failure>;

    /// Begins a call of the program's with a borrowed stream, which is alive. With `frees` it gives up memory that is
    /// used there. Returns `false` if the number is over, so that the stream has to be borrowed anew.
    fn arrive(&self, stream: StreamId, frees: bool) -> Result<bool, Failure>;

    /// Waits for work on borrowed streams that uses memory which was not freed.
    fn settle_borrowed(&self) -> Result<(), Failure>;

    /// Waits for work on borrowed streams that uses memory which was freed in a capture.
    fn settle_uncovered(&self) -> Result<(), Failure>;

    /// Returns the handle of a stream.
    fn native(&self, stream: StreamId) -> Result<u64, Failure>;

    /// Ends the use of a stream.
    fn close(&self, stream: StreamId) -> Result<(), Failure>;

    /// Returns memory that the program has allocated as a segment. Its release leaves the memory to the program.
    ///
    /// # Safety
    ///
    /// There are that many bytes of this device at the address. They overlap no other segment, and stay until this one
    /// is released.
    unsafe fn adopt(&self, address: u64, bytes: u64) -> Result<Self::Segment, Self::Error>;

    /// Returns the length of a segment in bytes.
    fn length(segment: &Self::Segment) -> u64;

    /// Lets kernels of another device of the same kind touch the memory of this one.
    fn open_to(&self, other: u32) -> Result<(), Failure>;
}

/// `CU_STREAM_PER_THREAD`.
const PER_THREAD: u64 = 2;

/// Returns a number for the default stream of the calling thread. No other thread's stream has it, and no handle, as
/// handles are small numbers and addresses of programs.
#[cold]
fn of_this_thread() -> u64 {
    static THREADS: AtomicU64 = AtomicU64::new(0);
    thread_local!(static OWN: u64 = 1 << 63 | THREADS.fetch_add(1, Ordering::Relaxed));
    OWN.with(|own| *own)
}

impl Device for Cuda {
    const HANDLES_COME_BACK: bool = true;

    /// NULL and `CU_STREAM_LEGACY` are the same stream.
    fn is_default(native: u64) -> bool {
        native <= 1
    }

    #[inline]
    fn key(native: u64) -> u64 {
        if native == PER_THREAD { of_this_thread() } else { native }
    }

    fn open(&self, native: u64) -> Result<StreamId, Failure> {
        // SAFETY: the header asks the program for what this call does.
        Ok(unsafe { self.register_raw(native as CUstream) }?)
    }

    fn is_lasting(native: u64) -> bool {
        native <= PER_THREAD
    }

    fn borrow(&self, native: u64) -> Result<StreamId, Failure> {
        // SAFETY: the header asks the program for a stream that is alive.
        Ok(unsafe { self.borrow_raw(native as CUstream) }?)
    }

    fn arrive(&self, stream: StreamId, frees: bool) -> Result<bool, Failure> {
        // SAFETY: as above.
        match unsafe { Cuda::arrive(self, stream, frees) } {
            Ok(()) => Ok(true),
            Err(CudaError::Unregistered { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn settle_borrowed(&self) -> Result<(), Failure> {
        Ok(Cuda::settle_borrowed(self)?)
    }

    fn settle_uncovered(&self) -> Result<(), Failure> {
        Ok(Cuda::settle_uncovered(self)?)
    }

    fn native(&self, stream: StreamId) -> Result<u64, Failure> {
        Ok(self.raw_stream(stream)? as u64)
    }

    fn close(&self, stream: StreamId) -> Result<(), Failure> {
        Ok(self.unregister(stream)?)
    }

    unsafe fn adopt(&self, address: u64, bytes: u64) -> Result<Self::Segment, Self::Error> {
        // SAFETY: as the caller promises.
        unsafe { self.adopt_memory(address, bytes) }
    }

    fn length(segment: &Self::Segment) -> u64 {
        segment.bytes()
    }

    fn open_to(&self, other: u32) -> Result<(), Failure> {
        Ok(Cuda::open_to(self, other as usize)?)
    }
}

impl Device for Sim {
    const HANDLES_COME_BACK: bool = false;

    fn is_default(native: u64) -> bool {
        native == 0
    }

    #[inline]
    fn key(native: u64) -> u64 {
        native
    }

    fn open(&self, native: u64) -> Result<StreamId, Failure> {
        match u32::try_from(native).map(StreamId) {
            Ok(stream) if self.has_stream(stream) => Ok(stream),
            _ => Err(Failure::bad_argument(format!(
                "the simulated device has no stream {native:#x}: pass NULL, or what millpond_stream_create wrote"
            ))),
        }
    }

    /// Only Millpond destroys a simulated stream.
    fn is_lasting(_native: u64) -> bool {
        true
    }

    fn borrow(&self, native: u64) -> Result<StreamId, Failure> {
        self.open(native)
    }

    fn arrive(&self, _stream: StreamId, _frees: bool) -> Result<bool, Failure> {
        Ok(true)
    }

    /// No simulated stream is borrowed.
    fn settle_borrowed(&self) -> Result<(), Failure> {
        Ok(())
    }

    fn settle_uncovered(&self) -> Result<(), Failure> {
        Ok(())
    }

    fn native(&self, stream: StreamId) -> Result<u64, Failure> {
        Ok(u64::from(stream.0))
    }

    /// A simulated stream needs nothing.
    fn close(&self, _stream: StreamId) -> Result<(), Failure> {
        Ok(())
    }

    unsafe fn adopt(&self, address: u64, bytes: u64) -> Result<Self::Segment, Self::Error> {
        self.adopt_memory(address, bytes)
    }

    fn length(segment: &Self::Segment) -> u64 {
        segment.bytes()
    }

    /// No device can tell whose memory it touches.
    fn open_to(&self, _other: u32) -> Result<(), Failure> {
        Ok(())
    }
}
