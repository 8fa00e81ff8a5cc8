//! Addresses of the host.

use std::ptr::NonNull;

use ash::vk;

/// The address at which the host sees the beginning of mapped memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostPointer(pub(crate) NonNull<u8>);

// SAFETY: it is an address of mapped device memory, valid on every thread; code that writes through it orders that.
unsafe impl Send for HostPointer {}
// SAFETY: as for `Send`: a shared reference gives only the address.
unsafe impl Sync for HostPointer {}

/// A buffer that the host sees, for bytes on their way to or from the device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MappedBuffer {
    pub(crate) buffer: vk::Buffer,
    pub(crate) pointer: HostPointer,
}
