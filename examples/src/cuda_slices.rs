//! Kernels on slices: a reduction on either stream, and cuBLAS's product of matrices.

#![allow(unsafe_code)] // Launches.

use std::sync::Arc;

use cudarc::driver::{CudaFunction, CudaStream, LaunchConfig, PushKernelArg};
use cudarc::nvrtc::Ptx;
use millpond_cuda::{Cuda, Slice, SliceStream};

use crate::cuda_kernel::compiled_for;
use crate::engine::Result;

/// Each block adds up its numbers in shared memory, and its sum to `out[0]`.
const SUM: &str = r#"
extern "C" __global__ void sum(const float *from, float *out, unsigned count) {
    __shared__ float part[256];
    float mine = 0.0f;
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
        mine += from[i];
    }
    part[threadIdx.x] = mine;
    __syncthreads();
    for (unsigned half = 128; half > 0; half /= 2) {
        if (threadIdx.x < half) {
            part[threadIdx.x] += part[threadIdx.x + half];
        }
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        atomicAdd(out, part[0]);
    }
}
"#;

const CONFIG: LaunchConfig = LaunchConfig { grid_dim: (64, 1, 1), block_dim: (256, 1, 1), shared_mem_bytes: 0 };

/// The kernel that adds up a slice, ready to be launched.
pub struct Sum {
    function: CudaFunction,
}

impl Sum {
    /// Compiles the kernel for this very device and loads it.
    ///
    /// # Errors
    ///
    /// Returns what is missing, an error of NVRTC with what it printed, or an error of the driver.
    pub fn new(cuda: &Cuda) -> Result<Sum> {
        let module = cuda.context().load_module(Ptx::from_binary(compiled_for(cuda, SUM)?))?;
        Ok(Sum { function: module.load_function("sum")? })
    }

    /// Queues the sum on the home stream of the slices, and returns the slice of one number that will have it.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no memory, or if the driver fails.
    pub fn on_home(&self, home: &SliceStream, from: &Slice<f32>) -> Result<Slice<f32>> {
        let (mut total, count) = (home.zeros::<f32>(1)?, u32::try_from(from.len())?);
        let mut launch = home.cudarc().launch_builder(&self.function);
        launch.arg(from).arg(&mut total).arg(&count);
        // SAFETY: the arguments are those of the kernel, in order, and it reads `count` numbers.
        unsafe { launch.launch(CONFIG) }?;
        Ok(total)
    }

    /// Queues the sum on another stream than the slices' home.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no memory, or if the driver fails.
    pub fn on(&self, home: &SliceStream, other: &Arc<CudaStream>, from: &Slice<f32>) -> Result<Slice<f32>> {
        let (mut total, count) = (home.zeros::<f32>(1)?, u32::try_from(from.len())?);
        let mut launch = other.launch_builder(&self.function);
        launch.arg(from.on(other)?).arg(total.on_mut(other)?).arg(&count);
        // SAFETY: as above.
        unsafe { launch.launch(CONFIG) }?;
        Ok(total)
    }
}

/// Multiplies matrices of 64 by 64 with cuBLAS, and checks the result.
///
/// # Errors
///
/// Returns an error if cuBLAS is missing, if the driver fails, or if the result is wrong.
#[cfg(feature = "cublas")]
pub fn product(home: &SliceStream) -> Result<()> {
    use cudarc::cublas::sys::cublasOperation_t::CUBLAS_OP_N;
    use cudarc::cublas::{CudaBlas, Gemm, GemmConfig, sys};

    const N: usize = 64;
    // SAFETY: it loads a library and does nothing with it.
    if !unsafe { sys::is_culib_present() } {
        println!("SKIPPED: there is no cuBLAS (libcublas.so): install NVIDIA's CUDA toolkit");
        return Ok(());
    }
    let own = home.cudarc();
    let blas = CudaBlas::new(Arc::clone(own))?;
    let left: Vec<f32> = (0..N * N).map(|at| (at % 5) as f32).collect();
    let right: Vec<f32> = (0..N * N).map(|at| (at % 3) as f32).collect();
    let (a, b, mut c) = (home.upload(&left)?, home.upload(&right)?, home.zeros::<f32>(N * N)?);
    let n = N as i32;
    let (transa, transb, alpha, beta) = (CUBLAS_OP_N, CUBLAS_OP_N, 1.0, 0.0);
    let config = GemmConfig { transa, transb, m: n, n, k: n, alpha, lda: n, ldb: n, beta, ldc: n };
    // SAFETY: the matrices have the sizes that the configuration says.
    unsafe { blas.gemm(config, &a, &b, &mut c) }?;
    drop((a, b));
    let found = own.clone_dtoh(&c)?;
    for (at, found) in found.iter().enumerate() {
        // Columns come one after the other.
        let (row, column) = (at % N, at / N);
        let expected: f32 = (0..N).map(|k| left[k * N + row] * right[column * N + k]).sum();
        if *found != expected {
            return Err(format!("the product has {found} in row {row} of column {column}, not {expected}").into());
        }
    }
    println!("cuBLAS multiplied matrices of {N} by {N}");
    Ok(())
}
