//! Sources of C programs: two functions that supply the segments of a private pool.

use std::ffi::c_void;
use std::ptr;

use millpond::SegmentSource;
use millpond_backend::StreamId;

use crate::code::Failure;
use crate::device::Device;

/// `millpond_source` of the header.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CSource {
    /// What the functions are called with.
    pub user: *mut c_void,
    /// Allocates.
    pub alloc: Option<unsafe extern "C" fn(*mut c_void, u64, i32, *mut c_void) -> *mut c_void>,
    /// Frees.
    pub free: Option<unsafe extern "C" fn(*mut c_void, *mut c_void, u64, i32, *mut c_void)>,
    /// Is told that the source is over.
    pub end: Option<unsafe extern "C" fn(*mut c_void)>,
}

/// A source that a pool has. Its drop says to the program that it is over.
pub(crate) struct Supplier {
    user: *mut c_void,
    alloc: unsafe extern "C" fn(*mut c_void, u64, i32, *mut c_void) -> *mut c_void,
    free: unsafe extern "C" fn(*mut c_void, *mut c_void, u64, i32, *mut c_void),
    end: Option<unsafe extern "C" fn(*mut c_void)>,
    /// The number of the device, which the functions are told.
    device: i32,
}

// SAFETY: the header asks for functions that any thread may call, with a `user` that is valid on all of them.
unsafe impl Send for Supplier {}
// SAFETY: as above; they may be called at the same time, too.
unsafe impl Sync for Supplier {}

impl Supplier {
    /// Takes a source of the caller's. On an error the program is told nothing, as the source never began.
    ///
    /// # Safety
    ///
    /// The functions do what the header says, until `end` is called.
    pub(crate) unsafe fn new(source: &CSource, device: u32) -> Result<Supplier, Failure> {
        let alloc = source.alloc.ok_or_else(|| Failure::null("source->alloc"))?;
        let free = source.free.ok_or_else(|| Failure::null("source->free"))?;
        Ok(Supplier { user: source.user, alloc, free, end: source.end, device: device as i32 })
    }

    /// Leaves the source to the program, which keeps it as it gave it.
    pub(crate) fn leave(mut self) {
        self.end = None;
    }

    fn give<D: Device>(&self, device: &D, stream: StreamId, address: u64, bytes: u64) {
        let (address, stream) = (pointer(address), handle(device, stream));
        // SAFETY: the header asks for a function of this type that does not unwind, and the memory came from `alloc`.
        unsafe { (self.free)(self.user, address, bytes, self.device, stream) }
    }
}

fn pointer(address: u64) -> *mut c_void {
    ptr::with_exposed_provenance_mut(address as usize)
}

/// Returns the program's handle of a stream; null if the device does not know the stream any more.
fn handle<D: Device>(device: &D, stream: StreamId) -> *mut c_void {
    pointer(device.native(stream).unwrap_or(0))
}

// SAFETY: the header asks the program for memory of these bytes, which is a multiple of 512 away from 0, overlaps no
// other, is not in use, and stays until it is freed. What the device does not take is freed at once.
unsafe impl<D: Device> SegmentSource<D> for Supplier {
    fn reserve(&self, device: &D, stream: StreamId, bytes: u64) -> Option<D::Segment> {
        // SAFETY: the header asks for a function of this type that does not unwind.
        let address = unsafe { (self.alloc)(self.user, bytes, self.device, handle(device, stream)) };
        let address = address.expose_provenance() as u64;
        if address == 0 {
            return None;
        }
        // SAFETY: the header asks the program for what this call does.
        let segment = unsafe { device.adopt(address, bytes) };
        if segment.is_err() {
            self.give(device, stream, address, bytes);
        }
        segment.ok()
    }

    unsafe fn release(&self, device: &D, stream: StreamId, segment: D::Segment) {
        let (address, bytes) = (device.address(&segment).unwrap_or(0), D::length(&segment));
        // SAFETY: the caller keeps the contract.
        unsafe { device.release(segment) };
        self.give(device, stream, address, bytes);
    }
}

impl Drop for Supplier {
    fn drop(&mut self) {
        if let Some(end) = self.end {
            // SAFETY: the header asks for a function of this type that does not unwind, and this is its only call.
            unsafe { end(self.user) }
        }
    }
}
