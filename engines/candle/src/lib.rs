//! Millpond under [candle](https://docs.rs/candle-core), and under every other program whose device memory comes from
//! cudarc: [`install`] has an [`Allocator`] serve cudarc's stream-ordered allocations on one device.
//!
//! ```no_run
//! let millpond = millpond_candle::install(0, "policy:paged")?;
//! // let device = candle_core::Device::new_cuda(0)?; ... run the model ...
//! println!("{}", millpond.allocator().memory_summary(true));
//! # Ok::<(), millpond_candle::InstallError>(())
//! ```
//!
//! cudarc has no hook for this. The program's `Cargo.toml` has to replace it by the cudarc that `patch.sh` writes:
//!
//! ```toml
//! [patch.crates-io]
//! cudarc = { path = "cudarc" }
//! ```
//!
//! # What is served
//!
//! Everything that goes through `cudarc::driver::result::malloc_async`: each `CudaSlice`, and so each tensor of candle,
//! whatever made it. Memory that libraries take from the driver themselves stays theirs, such as cuBLAS's workspaces.
//! So does memory on other devices, in other contexts than the primary one, from before the call, and on a stream that
//! is captured into a graph.
//!
//! # Order
//!
//! A slice is allocated and freed in the order of its stream, as with `cuMemAllocAsync`. Memory that is freed on
//! another stream than its own waits for both.
//!
//! The library does not depend on candle. Only the programs that compare do.

mod hook;

use std::collections::HashMap;
use std::sync::Arc;

use millpond::{Allocator, Buffer, BuildError, Error, ErrorKind, Stream};
use millpond_cuda::cudarc::driver::sys::{CUresult, CUstream};
use millpond_cuda::{Cuda, CudaError, cudarc::driver::DriverError};
use parking_lot::{Mutex, RwLock};

use hook::Key;

/// Why [`install`] changed nothing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InstallError {
    /// The device does not open.
    #[error(transparent)]
    Device(#[from] CudaError),
    /// The configuration is wrong, or the device does not have what it asks for.
    #[error(transparent)]
    Allocator(#[from] BuildError),
    /// The device has an allocator already.
    #[error("device {ordinal} has an allocator already: install one per device")]
    Installed {
        /// The device.
        ordinal: usize,
    },
    /// Other code of the program has set cudarc's allocator.
    #[error("cudarc has another allocator already, which cannot be replaced: install Millpond first")]
    Taken,
}

/// What [`install`] put in place. It stays for the rest of the process, with or without this handle.
#[derive(Clone, Copy)]
pub struct Installed(&'static Device);

/// A device whose memory is Millpond's.
struct Device {
    allocator: Allocator<Cuda>,
    /// The device's primary context, as a number.
    context: usize,
    /// The streams that were seen, by what the driver calls them.
    streams: RwLock<HashMap<Key, Arc<Stream<Cuda>>>>,
    refusal: Mutex<Option<String>>,
}

/// Serves cudarc's allocations on a device from an allocator of Millpond's, from now until the process ends. `conf` is
/// a configuration in the [grammar](https://docs.rs/millpond) of `PYTORCH_CUDA_ALLOC_CONF`, such as `"policy:paged"`;
/// `""` leaves the defaults.
///
/// Call it before the first tensor. What was allocated before is freed as before. The device's primary context stays
/// open.
///
/// # Errors
///
/// [`InstallError`] says what is wrong. Nothing is changed then.
pub fn install(ordinal: usize, conf: &str) -> Result<Installed, InstallError> {
    let cuda = Cuda::open(ordinal)?;
    let context = cuda.context().cu_ctx() as usize;
    let allocator = Allocator::builder(cuda).conf(conf).device(ordinal as u32).build()?;
    let device = Device { allocator, context, streams: RwLock::default(), refusal: Mutex::default() };
    hook::add(device, ordinal).map(Installed)
}

impl Installed {
    /// Returns the allocator: for its statistics, its report, its limit, and for buffers of the program's own.
    pub fn allocator(self) -> &'static Allocator<Cuda> {
        &self.0.allocator
    }

    /// Returns what the allocator said about the last request that it refused. Through cudarc, a program sees only
    /// `CUDA_ERROR_OUT_OF_MEMORY`.
    pub fn last_refusal(self) -> Option<String> {
        self.0.refusal.lock().clone()
    }
}

impl Device {
    /// Returns the stream that the driver calls so, on this thread. The first call for a stream registers it.
    fn stream(&self, handle: CUstream) -> Result<Arc<Stream<Cuda>>, Error<CudaError>> {
        let key = Key::new(handle);
        if let Some(stream) = self.streams.read().get(&key) {
            return Ok(Arc::clone(stream));
        }
        let id = hook::register(self.allocator.backend(), handle)?;
        let stream = Arc::new(self.allocator.stream(id)?);
        Ok(Arc::clone(self.streams.write().entry(key).or_insert(stream)))
    }

    /// Allocates in the order of a stream. A request for 0 bytes gets an address of its own too, because cudarc frees
    /// by address.
    fn allocate(&self, handle: CUstream, bytes: usize) -> Result<Buffer<Cuda>, DriverError> {
        let allocated = self.stream(handle).and_then(|stream| stream.allocate(bytes.max(1) as u64));
        allocated.map_err(|error| {
            let code = code_of(&error);
            *self.refusal.lock() = Some(error.to_string());
            code
        })
    }

    /// Frees in the order of a stream, or after all work of the device where there is none.
    fn free(&self, buffer: Buffer<Cuda>, handle: Option<CUstream>) {
        let ordered =
            handle.is_some_and(|handle| self.stream(handle).and_then(|user| buffer.record_stream(&user)).is_ok());
        if !ordered {
            // Fails only if the context is broken. Then no work is left that could use the memory.
            let _ = self.allocator.backend().context().synchronize();
        }
        drop(buffer);
    }

    /// Forgets a stream that is about to be destroyed.
    fn forget(&self, handle: CUstream) {
        let removed = self.streams.write().remove(&Key::new(handle));
        let Some(stream) = removed else { return };
        // Fails for a stream that is captured at this moment. It stays registered, and its number is not used again.
        let _ = self.allocator.backend().unregister(stream.id());
    }
}

/// Returns the driver's code for an error of the allocator's.
fn code_of(error: &Error<CudaError>) -> DriverError {
    DriverError(match error.kind() {
        ErrorKind::OutOfMemory => CUresult::CUDA_ERROR_OUT_OF_MEMORY,
        ErrorKind::Lost => CUresult::CUDA_ERROR_ILLEGAL_STATE,
        ErrorKind::Input => CUresult::CUDA_ERROR_INVALID_VALUE,
        _ => CUresult::CUDA_ERROR_UNKNOWN,
    })
}
