//! Host memory that other code has allocated, page-locked in place.

use std::ffi::c_void;
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use millpond_kit::Misuse;

use super::{Memory, PINNED, size};
use crate::error::CudaError;
use crate::gear::Gear;
use crate::streams::handle::HostPointer;

/// `CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP`.
const PORTABLE_MAPPED: u32 = 1 | 2;

/// Host memory that other code has allocated and that is page-locked while this value lives. Dropping the value ends
/// the page-lock and leaves the memory.
pub struct RegisteredHost {
    pub(crate) device: Arc<dyn Registrar>,
    pub(crate) pointer: HostPointer,
    pub(crate) bytes: u64,
    pub(crate) address: u64,
}

/// A device that has page-locked memory in place.
pub(crate) trait Registrar: Send + Sync {
    /// Ends the page-lock of memory that [`Memory::register_host`] has page-locked. Called once for each.
    fn unregister_host(&self, pointer: HostPointer);
}

impl<G: Gear> Memory<G> {
    /// Page-locks host memory in place and returns the address at which devices see it. If that address cannot be had,
    /// the memory stays page-locked no longer than this call.
    ///
    /// # Safety
    ///
    /// The memory exists and is not unmapped before it is unregistered.
    pub(crate) unsafe fn register_host(&self, pointer: HostPointer, bytes: u64) -> Result<u64, CudaError> {
        const CALL: &str = "cuMemHostRegister";
        Misuse::if_empty(CALL, bytes)?;
        self.enter(CALL)?;
        let _bound = self.bind_relaxed()?;
        let raw: *mut c_void = pointer.0.as_ptr().cast();
        // SAFETY: the caller promises that the memory exists.
        let code = unsafe { (self.driver.cuMemHostRegister_v2)(raw, size(bytes)?, PORTABLE_MAPPED) };
        self.check_memory(CALL, code, PINNED, bytes)?;
        let mut address = 0;
        // SAFETY: the memory was just registered, mapped for devices.
        let code = unsafe { (self.driver.cuMemHostGetDevicePointer_v2)(&raw mut address, raw, 0) };
        self.check("cuMemHostGetDevicePointer", code).inspect_err(|_| self.unregister_host(pointer))?;
        Ok(address)
    }

    /// Ends the page-lock of memory that was registered.
    pub(crate) fn unregister_host(&self, pointer: HostPointer) {
        let Ok(_bound) = self.bind_relaxed() else { return };
        // SAFETY: it was registered, as the callers guarantee, and is unregistered once.
        let code = unsafe { (self.driver.cuMemHostUnregister)(pointer.0.as_ptr().cast()) };
        self.keep("cuMemHostUnregister", code);
    }
}

impl RegisteredHost {
    /// Returns the address at which the host sees it.
    pub fn host_address(&self) -> NonNull<u8> {
        self.pointer.0
    }

    /// Returns the address at which devices see it.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Returns its size in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for RegisteredHost {
    fn drop(&mut self) {
        self.device.unregister_host(self.pointer);
    }
}

impl fmt::Debug for RegisteredHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegisteredHost")
            .field("host_address", &self.pointer.0)
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

/// Returns the bytes of the host's memory, in total and available, where the system reports them.
pub(crate) fn memory() -> Option<(u64, u64)> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    Some((field(&text, "MemTotal:")?, field(&text, "MemAvailable:")?))
}

/// Returns a field of `/proc/meminfo`, in bytes.
fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kibibytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    kibibytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_in_bytes() {
        let text = "MemTotal:       16 kB\nMemFree:        2 kB\nMemAvailable:   10 kB\n";
        assert_eq!(field(text, "MemTotal:"), Some(16 << 10));
        assert_eq!(field(text, "MemAvailable:"), Some(10 << 10));
        assert_eq!(field(text, "SwapTotal:"), None);
    }
}
