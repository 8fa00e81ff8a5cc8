//! What a candle program can have from Millpond without the patch of cudarc: the memory that its own operations need
//! besides their results. Nothing is installed here, so tensors are candle's, as they would be without the patch.
//!
//! This workspace names the patched cudarc, so run `./patch.sh` once. Then, on a machine with a GPU, nvcc and NVRTC:
//! `cargo run --release --features candle --example scratch`.

#![allow(unsafe_code)] // Launches, and memory that kernels write first.

use std::error::Error;

use candle_core::backend::BackendStorage;
use candle_core::cuda_backend::WrapErr;
use candle_core::{CpuStorage, CudaStorage, CustomOp1, Device, Layout, Result, Shape, Tensor};
use millpond_cuda::SliceStream;
use millpond_cuda::cudarc::driver::{LaunchConfig, PushKernelArg};
use millpond_cuda::cudarc::nvrtc::{Ptx, compile_ptx};

/// One thread for each row: the first kernel writes the means, the second reads them.
const SOURCE: &str = r#"
extern "C" __global__ void mean(const float *x, float *means, unsigned rows, unsigned columns) {
    unsigned row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float sum = 0.0f;
    for (unsigned at = 0; at < columns; at++) sum += x[row * columns + at];
    means[row] = sum / columns;
}

extern "C" __global__ void variance(const float *x, const float *means, float *out, unsigned rows, unsigned columns) {
    unsigned row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float sum = 0.0f;
    for (unsigned at = 0; at < columns; at++) {
        float off = x[row * columns + at] - means[row];
        sum += off * off;
    }
    out[row] = sum / columns;
}
"#;

/// The variance of each row of a matrix, with the means of the rows in a slice of Millpond's.
struct RowVariance {
    scratch: SliceStream,
    kernels: Ptx,
}

impl CustomOp1 for RowVariance {
    fn name(&self) -> &'static str {
        "row-variance"
    }

    fn cpu_fwd(&self, storage: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let (rows, columns) = layout.shape().dims2()?;
        let (start, end) = layout.contiguous_offsets().ok_or_else(|| candle_core::Error::msg("not contiguous"))?;
        let of_row = |row: &[f32]| {
            let mean = row.iter().sum::<f32>() / columns as f32;
            row.iter().map(|x| (x - mean) * (x - mean)).sum::<f32>() / columns as f32
        };
        let found = storage.as_slice::<f32>()?[start..end].chunks(columns).map(of_row).collect();
        Ok((CpuStorage::F32(found), Shape::from(rows)))
    }

    fn cuda_fwd(&self, storage: &CudaStorage, layout: &Layout) -> Result<(CudaStorage, Shape)> {
        let device = storage.device();
        let (rows, columns) = layout.shape().dims2()?;
        let (start, end) = layout.contiguous_offsets().ok_or_else(|| candle_core::Error::msg("not contiguous"))?;
        let from = storage.as_cuda_slice::<f32>()?.slice(start..end);
        let count = |len: usize| u32::try_from(len).map_err(candle_core::Error::wrap);
        let (row_count, column_count) = (count(rows)?, count(columns)?);
        let config = LaunchConfig::for_num_elems(row_count);
        let kernels = self.kernels.to_src();
        let kernel = |name| device.get_or_load_custom_func(name, "row-variance", &kernels);

        // SAFETY: the first kernel writes every element, and the second runs after it.
        let mut means = unsafe { self.scratch.allocate::<f32>(rows) }.map_err(candle_core::Error::wrap)?;
        let mean = kernel("mean")?;
        let mut launch = mean.builder();
        launch.arg(&from).arg(&mut means).arg(&row_count).arg(&column_count);
        // SAFETY: these are the kernel's arguments, in order, and it stays within the rows.
        unsafe { launch.launch(config) }.w()?;

        // SAFETY: the kernel writes every element.
        let mut out = unsafe { device.alloc::<f32>(rows) }?;
        let variance = kernel("variance")?;
        let mut launch = variance.builder();
        launch.arg(&from).arg(&means).arg(&mut out).arg(&row_count).arg(&column_count);
        // SAFETY: as above.
        unsafe { launch.launch(config) }.w()?;
        // The means are dropped here, while the kernels run: later work of the stream gets the memory.
        Ok((CudaStorage::wrap_cuda_slice(out, device.clone()), Shape::from(rows)))
    }
}

fn main() -> std::result::Result<(), Box<dyn Error>> {
    let device = Device::new_cuda(0)?;
    let scratch = SliceStream::from_stream(&device.as_cuda_device()?.cuda_stream())?;
    let allocator = scratch.allocator().allocator().clone();
    let operation = RowVariance { scratch, kernels: compile_ptx(SOURCE)? };
    for rows in [1, 1000, 4096, 777, 50_000, 4096] {
        let matrix = Tensor::rand(0f32, 1f32, (rows, 64), &device)?;
        let found = matrix.apply_op1_no_bwd(&operation)?.to_vec1::<f32>()?;
        let expected = matrix.to_device(&Device::Cpu)?.apply_op1_no_bwd(&operation)?.to_vec1::<f32>()?;
        for (row, (found, expected)) in found.iter().zip(&expected).enumerate() {
            if (found - expected).abs() > 1e-4 {
                return Err(format!("row {row} of {rows} has {found}, not {expected}").into());
            }
        }
        let (live, reserved) = (allocator.memory_allocated(), allocator.memory_reserved());
        println!("{rows} rows are right; {live} bytes are live and {reserved} reserved for the next operation");
    }
    Ok(())
}
