//! The kernels on CUDA.

#![allow(unsafe_code)] // Calls into the driver.

use std::ffi::{CString, c_void};
use std::fmt;

use cudarc::driver::{result, sys};
use millpond::{Buffer, Stream};
use millpond_cuda::Cuda;

use super::{Bound, Kernel, Kernels, Result, TILE};
use crate::cuda_kernel;

/// A CUDA device with the engine's kernels, which NVRTC compiles.
pub struct OnCuda {
    device: Cuda,
    module: sys::CUmodule,
    functions: [sys::CUfunction; Kernel::ALL.len()],
}

// SAFETY: modules and functions are handles of the driver, which any thread may use while the module is loaded.
unsafe impl Send for OnCuda {}
// SAFETY: as above; a launch changes nothing in them.
unsafe impl Sync for OnCuda {}

impl OnCuda {
    /// Compiles the kernels for this very device and loads them.
    ///
    /// # Errors
    ///
    /// Returns the error of [`cuda_kernel::compiler`], an error of NVRTC with what it printed, or one of the driver.
    pub fn new(device: Cuda) -> Result<OnCuda> {
        let image = cuda_kernel::compiled_for(&device, include_str!("kernels.cu"))?;
        device.context().bind_to_thread()?;
        // SAFETY: the context is current, and the image is what NVRTC made for this device.
        let module = unsafe { result::module::load_data(image.as_ptr().cast()) }?;
        // What was loaded is unloaded when the value is dropped, also if a kernel is not there.
        let mut kernels = OnCuda { device, module, functions: [std::ptr::null_mut(); Kernel::ALL.len()] };
        for kernel in Kernel::ALL {
            // SAFETY: the module is loaded.
            let function = unsafe { result::module::get_function(module, CString::new(kernel.entry_point())?) }?;
            kernels.functions[kernel as usize] = function;
        }
        Ok(kernels)
    }
}

impl Kernels for OnCuda {
    type Backend = Cuda;

    fn device(&self) -> Cuda {
        self.device.clone()
    }

    fn dispatch(&self, stream: &Stream<Cuda>, kernel: Kernel, bound: &Bound<'_, Cuda>, groups: [u32; 2]) -> Result<()> {
        let [first, second, result, shape] = bound.in_order();
        let mut addresses = [address(first)?, address(second)?, address(result)?, address(shape)?];
        let mut arguments = addresses.each_mut().map(|address| std::ptr::from_mut(address).cast::<c_void>());
        let (grid, block) = ((groups[0], groups[1], 1), (TILE, TILE, 1));
        let stream = self.device.raw_stream(stream.id())?;
        self.device.context().bind_to_thread()?;
        // SAFETY: each kernel takes four pointers and stays within the sizes in the last one, which are those of the
        // blocks. The blocks outlive the work because the allocator reuses them only behind it.
        unsafe { result::launch_kernel(self.functions[kernel as usize], grid, block, 0, stream, &mut arguments) }?;
        Ok(())
    }
}

/// Returns where a buffer lies.
fn address(buffer: &Buffer<Cuda>) -> Result<u64> {
    buffer.address().ok_or_else(|| "a buffer of 0 bytes has no address: give the tensor at least one row".into())
}

impl Drop for OnCuda {
    /// Waits for the device and unloads the kernels.
    fn drop(&mut self) {
        if self.device.context().bind_to_thread().is_ok() {
            // A failure of either call means that the device is lost, and the module with it.
            let _ = self.device.context().synchronize();
            // SAFETY: the module was loaded in this context, no work of the device is left, and the functions go too.
            let _ = unsafe { result::module::unload(self.module) };
        }
    }
}

impl fmt::Debug for OnCuda {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnCuda").field("device", &self.device).finish_non_exhaustive()
    }
}
