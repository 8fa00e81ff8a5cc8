//! What all tests start with, and the calls that the bindings have no safe wrapper for.

use std::ffi::c_void;
use std::sync::{Arc, MutexGuard};

use cudarc::driver::sys::{self, CUresult};
use cudarc::driver::{CudaContext, CudaStream};
use millpond_cuda_driver::{Control, DEVICE_NAME, install};

pub(crate) type Answer<T> = Result<T, CUresult>;

/// The simulator during one test, which has it alone.
pub(crate) struct Turn {
    pub(crate) control: Control,
    pub(crate) context: Arc<CudaContext>,
    _alone: MutexGuard<'static, ()>,
}

/// Loads the simulator, makes sure that it is not a real device, and opens the first device.
pub(crate) fn turn() -> Turn {
    let control = install().expect("the simulator is a library target of this package");
    let alone = control.alone();
    let context = CudaContext::new(0).expect("the simulator has a device 0");
    let name = context.name().expect("a device has a name");
    assert_eq!(name, format!("{DEVICE_NAME} 0"), "these tests must not run on a real device");
    Turn { control, context, _alone: alone }
}

impl Turn {
    pub(crate) fn stream(&self) -> Arc<CudaStream> {
        self.context.new_stream().expect("a stream")
    }

    /// Returns the number by which the controls name a stream.
    pub(crate) fn number(stream: &CudaStream) -> usize {
        stream.cu_stream() as usize
    }
}

/// Converts the code of a raw call to a result.
pub(crate) fn answer(code: CUresult) -> Answer<()> {
    if code == CUresult::CUDA_SUCCESS { Ok(()) } else { Err(code) }
}

pub(crate) fn alloc(bytes: usize) -> Answer<u64> {
    let mut address = 0;
    // SAFETY: the pointer is to a local number.
    answer(unsafe { sys::cuMemAlloc_v2(&raw mut address, bytes) }).map(|()| address)
}

pub(crate) fn free(address: u64) -> Answer<()> {
    // SAFETY: the simulator checks the address.
    answer(unsafe { sys::cuMemFree_v2(address) })
}

/// Queues a fill.
pub(crate) fn fill(address: u64, value: u8, bytes: usize, stream: &CudaStream) -> Answer<()> {
    // SAFETY: the simulator checks the range, now and when the work runs.
    answer(unsafe { sys::cuMemsetD8Async(address, value, bytes, stream.cu_stream()) })
}

/// Reads device memory, after all that is queued on the stream.
pub(crate) fn read(address: u64, bytes: usize, stream: &CudaStream) -> Answer<Vec<u8>> {
    let mut host = vec![0; bytes];
    let start = host.as_mut_ptr().cast::<c_void>();
    // SAFETY: the vector is as long, and lives until the stream is waited for.
    answer(unsafe { sys::cuMemcpyDtoHAsync_v2(start, address, bytes, stream.cu_stream()) })?;
    wait(stream)?;
    Ok(host)
}

pub(crate) fn wait(stream: &CudaStream) -> Answer<()> {
    // SAFETY: the stream is alive.
    answer(unsafe { sys::cuStreamSynchronize(stream.cu_stream()) })
}

pub(crate) fn query(stream: &CudaStream) -> Answer<()> {
    // SAFETY: the stream is alive.
    answer(unsafe { sys::cuStreamQuery(stream.cu_stream()) })
}
