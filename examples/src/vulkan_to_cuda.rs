//! Memory of Vulkan in CUDA.

#![allow(unsafe_code)] // Calls into CUDA.

use std::os::fd::{AsRawFd as _, IntoRawFd as _};
use std::sync::Arc;

use cudarc::driver::{CudaContext, result, sys};
use millpond_vulkan::ExportedMemory;

use crate::engine::Result;

/// Returns a context of the CUDA device with this identifier, which Vulkan's device also has; `None` if there is none.
///
/// # Errors
///
/// Returns CUDA's errors, and that the driver imports no memory.
pub fn context(uuid: [u8; 16]) -> Result<Option<Arc<CudaContext>>> {
    for ordinal in 0..CudaContext::device_count()? {
        let context = CudaContext::new(ordinal as usize)?;
        if context.uuid()?.bytes.map(|byte| byte as u8) != uuid {
            continue;
        }
        // SAFETY: the driver is loaded; the function is looked for and not called.
        unsafe { sys::culib().get::<*const ()>(b"cuImportExternalMemory") }?;
        return Ok(Some(context));
    }
    eprintln!("SKIPPED: CUDA does not have Vulkan's device");
    Ok(None)
}

/// A segment of Vulkan's, at an address of CUDA's.
pub struct InCuda {
    context: Arc<CudaContext>,
    memory: sys::CUexternalMemory,
    address: sys::CUdeviceptr,
    bytes: u64,
}

impl InCuda {
    /// Imports what was exported.
    ///
    /// # Errors
    ///
    /// Returns CUDA's errors.
    pub fn import(context: &Arc<CudaContext>, exported: ExportedMemory) -> Result<InCuda> {
        context.bind_to_thread()?;
        let described = sys::CUDA_EXTERNAL_MEMORY_HANDLE_DESC {
            type_: sys::CUexternalMemoryHandleType::CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD,
            handle: sys::CUDA_EXTERNAL_MEMORY_HANDLE_DESC_st__bindgen_ty_1 { fd: exported.descriptor.as_raw_fd() },
            size: exported.bytes,
            // Millpond allocates the memory of class 0 for its buffer alone.
            flags: sys::CUDA_EXTERNAL_MEMORY_DEDICATED,
            reserved: [0; 16],
        };
        let mut memory = std::ptr::null_mut();
        // SAFETY: the descriptor is Vulkan's, of memory with these bytes.
        unsafe { sys::cuImportExternalMemory(&raw mut memory, &raw const described) }.result()?;
        // The descriptor is CUDA's from now on.
        let _ = exported.descriptor.into_raw_fd();
        let mut imported = InCuda { context: Arc::clone(context), memory, address: 0, bytes: exported.buffer_bytes };
        let whole =
            sys::CUDA_EXTERNAL_MEMORY_BUFFER_DESC { offset: 0, size: imported.bytes, flags: 0, reserved: [0; 16] };
        // SAFETY: the memory was imported, and is as long as the buffer at least.
        unsafe { sys::cuExternalMemoryGetMappedBuffer(&raw mut imported.address, memory, &raw const whole) }
            .result()?;
        Ok(imported)
    }

    /// Fills a range of the segment with a byte, and waits.
    ///
    /// # Errors
    ///
    /// Returns that the range is not inside, and CUDA's errors.
    pub fn fill(&self, offset: u64, bytes: u64, value: u8) -> Result<()> {
        self.expect_inside(offset, bytes)?;
        self.context.bind_to_thread()?;
        // SAFETY: the range is in the segment, whose block the caller owns, and no other work uses it.
        unsafe { result::memset_d8_sync(self.address + offset, value, bytes as usize) }?;
        self.context.synchronize()?;
        Ok(())
    }

    /// Returns the bytes of a range of the segment.
    ///
    /// # Errors
    ///
    /// Returns that the range is not inside, and CUDA's errors.
    pub fn read(&self, offset: u64, bytes: u64) -> Result<Vec<u8>> {
        self.expect_inside(offset, bytes)?;
        self.context.bind_to_thread()?;
        let mut read = vec![0; bytes as usize];
        // SAFETY: as above.
        unsafe { result::memcpy_dtoh_sync(&mut read, self.address + offset) }?;
        Ok(read)
    }

    fn expect_inside(&self, offset: u64, bytes: u64) -> Result<()> {
        let is_inside = offset.checked_add(bytes).is_some_and(|end| end <= self.bytes);
        if is_inside { Ok(()) } else { Err("the range is not in the segment".into()) }
    }
}

impl Drop for InCuda {
    fn drop(&mut self) {
        // An error means that the context is lost, and the memory with it.
        let _ = self.context.bind_to_thread();
        if self.address != 0 {
            // SAFETY: the mapping is this value's own, and its work was waited for.
            let _ = unsafe { result::free_sync(self.address) };
        }
        // SAFETY: as above; nothing is mapped any more.
        let _ = unsafe { sys::cuDestroyExternalMemory(self.memory) };
    }
}
