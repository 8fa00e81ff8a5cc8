//! Host memory that other code has allocated, page-locked in place.

use std::ffi::c_void;
use std::fmt;
use std::ptr::NonNull;

use crate::memory::{PINNED, size};
use crate::segment::HostPointer;
use crate::{Cuda, CudaError};

/// `CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP`.
const PORTABLE_MAPPED: u32 = 1 | 2;

/// Host memory that other code has allocated and that is page-locked while this value lives. Dropping the value ends
/// the page-lock and leaves the memory.
pub struct RegisteredHost {
    cuda: Cuda,
    pointer: HostPointer,
    bytes: u64,
    address: u64,
}

impl Cuda {
    /// Page-locks host memory in place, so that devices reach it directly. Costs time in proportion to the bytes.
    ///
    /// # Errors
    ///
    /// [`CudaError::Empty`], and the driver's errors: for example if some of the memory is registered already.
    ///
    /// # Safety
    ///
    /// The memory exists and is not unmapped while the returned value lives, and no work of a device touches it any
    /// more when the value is dropped.
    pub unsafe fn register_host(&self, pointer: NonNull<u8>, bytes: u64) -> Result<RegisteredHost, CudaError> {
        const CALL: &str = "cuMemHostRegister";
        if bytes == 0 {
            return Err(CudaError::Empty { call: CALL });
        }
        let device = &*self.device;
        device.enter(CALL)?;
        let _bound = device.bind_relaxed()?;
        let raw: *mut c_void = pointer.as_ptr().cast();
        // SAFETY: the caller promises that the memory exists.
        let code = unsafe { (device.driver.cuMemHostRegister_v2)(raw, size(bytes)?, PORTABLE_MAPPED) };
        device.check_memory(CALL, code, PINNED, bytes)?;
        let mut registered = RegisteredHost { cuda: self.clone(), pointer: HostPointer(pointer), bytes, address: 0 };
        // SAFETY: the memory was just registered, mapped for devices.
        let code = unsafe { (device.driver.cuMemHostGetDevicePointer_v2)(&raw mut registered.address, raw, 0) };
        device.check("cuMemHostGetDevicePointer", code)?;
        Ok(registered)
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
        let device = &*self.cuda.device;
        let Ok(_bound) = device.bind_relaxed() else { return };
        // SAFETY: it was registered when this value was made, and is unregistered once.
        let code = unsafe { (device.driver.cuMemHostUnregister)(self.pointer.0.as_ptr().cast()) };
        device.keep("cuMemHostUnregister", code);
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
