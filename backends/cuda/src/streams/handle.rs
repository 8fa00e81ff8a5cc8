//! The driver's handles as values that can be kept and passed between threads.

use std::ptr::{self, NonNull};

use cudarc::driver::sys::{CUevent, CUstream};

/// `CU_STREAM_PER_THREAD`: the handle of the default stream of whatever thread uses it.
pub(crate) const PER_THREAD: usize = 2;

/// The driver's handle of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Handle(pub(crate) CUstream);

impl Handle {
    /// The legacy default stream: a null pointer as a stream.
    pub(crate) const LEGACY: Handle = Handle(ptr::null_mut());
}

// SAFETY: it is a name for the driver, whose functions take it on every thread.
unsafe impl Send for Handle {}
// SAFETY: as for `Send`.
unsafe impl Sync for Handle {}

/// The driver's handle of an event.
#[derive(Debug)]
pub(crate) struct Event(pub(crate) CUevent);

// SAFETY: it is a name for the driver, whose functions take it on every thread.
unsafe impl Send for Event {}
// SAFETY: as for `Send`.
unsafe impl Sync for Event {}

/// The address at which the host sees the beginning of page-locked memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostPointer(pub(crate) NonNull<u8>);

// SAFETY: it is an address of page-locked host memory, valid on every thread; code that writes through it orders that.
unsafe impl Send for HostPointer {}
// SAFETY: as for `Send`: a shared reference gives only the address.
unsafe impl Sync for HostPointer {}
