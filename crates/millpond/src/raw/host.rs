//! The bytes of host memory.

use std::ptr::NonNull;

use millpond_backend::Backend;

use crate::buffer::Buffer;
use crate::pinned::uses::NoConflict;

/// The address at which the host sees a block of host memory.
pub(crate) struct HostPlace {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: it is an address, which alone gives no access to the memory; slices are lent under the borrows of the buffer
// that holds it.
unsafe impl Send for HostPlace {}
// SAFETY: as above.
unsafe impl Sync for HostPlace {}

impl HostPlace {
    /// Returns the address of a buffer; `None` if the host does not see the memory. An empty buffer has a dangling
    /// address and no bytes to reach.
    pub(crate) fn of<B: Backend>(buffer: &Buffer<B>) -> Option<Self> {
        let Some(segment) = buffer.segment() else { return Some(Self { start: NonNull::dangling(), bytes: 0 }) };
        let base = buffer.lane().owner().backend.host_memory()?.host_address(segment)?;
        let (offset, bytes) = (usize::try_from(buffer.offset()).ok()?, usize::try_from(buffer.len()).ok()?);
        // SAFETY: the backend's pointer is valid for the whole segment, and the block lies in it.
        Some(Self { start: unsafe { base.add(offset) }, bytes })
    }

    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }
}

/// Writes zeros over the whole of a block of host memory that was just granted and not handed out yet. Returns whether
/// the host sees the memory.
pub(crate) fn overwrite_by_host<B: Backend>(buffer: &mut Buffer<B>) -> bool {
    let Some(segment) = buffer.segment() else { return true };
    let Some(host) = buffer.lane().owner().backend.host_memory() else { return false };
    let Some(base) = host.host_address(segment) else { return false };
    let (Ok(offset), Ok(bytes)) = (usize::try_from(buffer.offset()), usize::try_from(buffer.capacity())) else {
        return false;
    };
    // SAFETY: the backend's pointer is valid for the whole segment, and the block, live and borrowed mutably, lies in
    // it. No other code can access its bytes, because it was not handed out yet. Device work of former owners on them
    // is complete, which the core guarantees before it grants memory of this kind.
    unsafe { base.add(offset).write_bytes(0, bytes) };
    true
}

/// Returns the bytes of a pinned buffer, to be read. The buffer owns the place, and is borrowed with it.
pub(crate) fn host_bytes<'b>(place: &'b HostPlace, _proof: &NoConflict) -> &'b [u8] {
    let HostPlace { start, bytes } = *place;
    // SAFETY: the buffer is a live block for as long as the borrow, so its segment stays and no other block has its
    // bytes, which the driver handed out initialised. No device writes them: `NoConflict` proves it for work that was
    // recorded, work that is recorded through the library later needs the buffer mutably, and a program that launches
    // work of its own guarantees it there.
    unsafe { std::slice::from_raw_parts(start.as_ptr(), bytes) }
}

/// Returns the bytes of a pinned buffer, to be written. The buffer is borrowed with its place.
pub(crate) fn host_bytes_mut<'b>(place: &'b mut HostPlace, _proof: &NoConflict) -> &'b mut [u8] {
    let HostPlace { start, bytes } = *place;
    // SAFETY: as above, and the mutable borrow excludes every other slice and every copy from or to the buffer.
    unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), bytes) }
}
