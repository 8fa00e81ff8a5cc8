//! A kernel for CUDA: compiled on this machine, bound to buffers and launched, as an engine does with its own kernels.

#![allow(unsafe_code)] // Calls into the compiler, and launches.

use std::ffi::{CStr, CString, c_char};
use std::sync::Arc;

use cudarc::driver::sys as driver_sys;
use cudarc::driver::{CudaFunction, CudaStream, LaunchConfig, PushKernelArg};
use cudarc::nvrtc::{Ptx, result as compiler_calls, sys as compiler_sys};
use millpond::Buffer;
use millpond_cuda::{Cuda, View};

use crate::engine::Result;

/// One thread for each number: `out[i] = a * x[i] + y[i]`. With `beyond` of 1 the last thread also writes one number
/// behind the end of `out`.
const SAXPY: &str = r#"
extern "C" __global__ void saxpy(float a, const float *x, const float *y, float *out, unsigned count, unsigned beyond) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) {
        out[i] = a * x[i] + y[i];
    }
    if (beyond != 0 && i == count - 1) {
        out[count] = 1.0f;
    }
}
"#;

/// Checks that NVRTC, the library that compiles kernels, is installed.
///
/// # Errors
///
/// Returns what to install, if it is not.
pub fn compiler() -> Result<()> {
    // SAFETY: it loads a library and does nothing with it.
    if unsafe { compiler_sys::is_culib_present() } {
        return Ok(());
    }
    Err("there is no NVRTC (libnvrtc.so): install NVIDIA's CUDA toolkit, or its package nvidia-cuda-nvrtc for Python, \
         and name the folder in LD_LIBRARY_PATH; a file that is called libnvrtc.so.13 needs a link called libnvrtc.so"
        .into())
}

/// Checks that the driver of this device, which is open, runs kernels at all: a simulated driver may not.
///
/// # Errors
///
/// Returns what the driver lacks.
pub fn runs_kernels(_cuda: &Cuda) -> Result<()> {
    // SAFETY: the driver is loaded, as a device is open; the function is looked for and not called.
    match unsafe { driver_sys::culib().get::<*const ()>(b"cuModuleLoadData") } {
        Ok(_) => Ok(()),
        Err(error) => Err(format!("the driver runs no kernels: {error}").into()),
    }
}

/// The kernel `a * x + y`, ready to be launched.
pub struct Saxpy {
    function: CudaFunction,
}

impl Saxpy {
    /// Compiles the kernel for this very device and loads it.
    ///
    /// # Errors
    ///
    /// Returns the error of [`compiler`], an error of NVRTC with what it printed, or an error of the driver.
    pub fn new(cuda: &Cuda) -> Result<Saxpy> {
        let image = compiled_for(cuda, SAXPY)?;
        let module = cuda.context().load_module(Ptx::from_binary(image))?;
        Ok(Saxpy { function: module.load_function("saxpy")? })
    }

    /// Queues the kernel on the stream: `out = a * x + y`, for as many numbers as `out` has. This frees no buffer and
    /// records no event, as the views own nothing.
    ///
    /// `beyond` plants a mistake, for a memory checker to find: one number is written behind the end of `out`.
    ///
    /// # Errors
    ///
    /// Returns an error if a buffer is empty, if `x` or `y` is shorter than `out`, or if the driver fails.
    pub fn launch(
        &self,
        stream: &Arc<CudaStream>,
        a: f32,
        (x, y): (&Buffer<Cuda>, &Buffer<Cuda>),
        out: &Buffer<Cuda>,
        beyond: bool,
    ) -> Result<()> {
        let (x, y, mut out) = (numbers(stream, x)?, numbers(stream, y)?, numbers(stream, out)?);
        if x.len() < out.len() || y.len() < out.len() {
            let lengths = format!("x has {} numbers, y has {}, out has {}", x.len(), y.len(), out.len());
            return Err(format!("the kernel reads as many numbers as it writes: {lengths}").into());
        }
        let (count, beyond) = (u32::try_from(out.len())?, u32::from(beyond));
        let mut out = out.as_view_mut();
        let mut launch = stream.launch_builder(&self.function);
        launch.arg(&a).arg(&*x).arg(&*y).arg(&mut out).arg(&count).arg(&beyond);
        // SAFETY: the arguments are those of the kernel, in order; it stays within the lengths that were compared
        // above, unless `beyond` is set, which plants the mistake on purpose.
        unsafe { launch.launch(LaunchConfig::for_num_elems(count)) }?;
        Ok(())
    }
}

/// Returns a view of a buffer for cudarc: numbers in device memory.
fn numbers<'a>(stream: &Arc<CudaStream>, buffer: &'a Buffer<Cuda>) -> Result<View<'a, f32>> {
    let segment = buffer.segment().ok_or("an empty buffer has no memory that a kernel could use")?;
    let len = usize::try_from(buffer.len())? / size_of::<f32>();
    // SAFETY: the bytes are the buffer's, which the caller holds; any bytes are numbers; all work of the example is on
    // one stream.
    Ok(unsafe { segment.view(stream, buffer.offset(), len) }?)
}

/// Compiles a source for this very device: to machine code, as PTX, which the driver compiles, must not be newer than
/// the driver.
///
/// # Errors
///
/// Returns the error of [`compiler`], or an error of NVRTC with what it printed.
pub(crate) fn compiled_for(cuda: &Cuda, source: &str) -> Result<Vec<u8>> {
    compiler()?;
    let (major, minor) = cuda.info().compute;
    compiled(source, &format!("--gpu-architecture=sm_{major}{minor}"))
}

fn compiled(source: &str, architecture: &str) -> Result<Vec<u8>> {
    let source = CString::new(source)?;
    let program = Program { handle: compiler_calls::create_program(&source, None)? };
    // SAFETY: the program is alive until the end of this function.
    if let Err(error) = unsafe { compiler_calls::compile_program(program.handle, &[architecture]) } {
        return Err(
            format!("NVRTC does not compile the source for {architecture}: {error:?}\n{}", program.log()).into()
        );
    }
    let mut bytes = 0;
    // SAFETY: as above; the pointer is to a local number.
    unsafe { compiler_sys::nvrtcGetCUBINSize(program.handle, &raw mut bytes) }.result()?;
    let mut image = vec![0_u8; bytes];
    // SAFETY: as above; the buffer has the number of bytes that the compiler has just returned.
    unsafe { compiler_sys::nvrtcGetCUBIN(program.handle, image.as_mut_ptr().cast::<c_char>()) }.result()?;
    Ok(image)
}

/// A program of the compiler, which is destroyed when this is dropped.
struct Program {
    handle: compiler_sys::nvrtcProgram,
}

impl Program {
    /// Returns what the compiler has printed.
    fn log(&self) -> String {
        // SAFETY: the program is alive.
        let log = unsafe { compiler_calls::get_program_log(self.handle) }.unwrap_or_default();
        let bytes: Vec<u8> = log.into_iter().map(|byte| byte as u8).collect();
        CStr::from_bytes_until_nul(&bytes).map_or(String::new(), |text| text.to_string_lossy().into_owned())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: the program is alive, as only this destroys it, and is not used again. If this fails, it stays until
        // the process ends.
        let _ = unsafe { compiler_calls::destroy_program(self.handle) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The compiler needs no device, so where it is installed the kernel is compiled.
    #[test]
    fn the_kernel_compiles_where_there_is_a_compiler() {
        if let Err(error) = compiler() {
            eprintln!("SKIPPED: {error}");
            return;
        }
        let image = compiled(SAXPY, "--gpu-architecture=sm_90").unwrap();
        assert_eq!(image[..4], *b"\x7fELF", "machine code is an ELF file");
        let error = compiled("not a program", "--gpu-architecture=sm_90").unwrap_err().to_string();
        assert!(error.contains("error"), "{error}");
    }
}
