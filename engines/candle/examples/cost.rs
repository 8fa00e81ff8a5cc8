//! What one allocation and its free cost the host: the driver's pool through cudarc, and Millpond through the hook.
//!
//! Prints a table, in nanoseconds for both together. Without a device it says so and ends well. It runs on the
//! simulated driver too, whose own calls cost what they cost there (`scripts/candle.sh cost`). It must not name the
//! simulator: the driver's functions would be in the program then.

#![allow(unsafe_code)] // cudarc leaves uninitialized memory to the caller.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use millpond_cuda::Cuda;
use millpond_cuda::cudarc::driver::{CudaContext, CudaStream, DriverError, result, sys};

/// Requests in a run. The driver's pool has no more in flight than it had in the first of them.
const REQUESTS: usize = 20_000;

/// Runs of each case, of which the best counts.
const RUNS: usize = 5;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cost: {error}");
            ExitCode::from(2)
        }
    }
}

fn run() -> Result<()> {
    if let Err(error) = Cuda::devices() {
        println!("######## SKIPPED: NOTHING WAS MEASURED: {error} ########");
        return Ok(());
    }
    let context = CudaContext::new(0)?;
    println!("{}, nanoseconds of the host per allocation and free", context.name()?);
    let stream = context.new_stream()?;
    keep_pool(&context)?;
    let driver = measured(&stream)?;
    let millpond = millpond_candle::install(0, "")?;
    let ours = measured(&stream)?;
    println!("| bytes | what | driver's pool | Millpond |\n|---|---|---|---|");
    for (driver, ours) in driver.iter().zip(&ours) {
        println!("| {} | {} | {:.0} | {:.0} |", driver.bytes, driver.what, driver.nanoseconds, ours.nanoseconds);
    }
    millpond.allocator().check();
    Ok(())
}

/// One cell of the table.
struct Case {
    bytes: usize,
    what: &'static str,
    nanoseconds: f64,
}

/// Has the driver's pool keep its memory, so that the cost is that of its hits.
fn keep_pool(context: &Arc<CudaContext>) -> Result<()> {
    let mut all = u64::MAX;
    // SAFETY: the device is open; the attribute is a number of 64 bits.
    unsafe {
        let pool = result::device::get_default_mem_pool(context.cu_device())?;
        let attribute = sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
        sys::cuMemPoolSetAttribute(pool, attribute, (&raw mut all).cast()).result()?;
    }
    Ok(())
}

fn measured(stream: &Arc<CudaStream>) -> Result<Vec<Case>> {
    let mut cases = Vec::new();
    for bytes in [512, 1 << 20, 64 << 20] {
        let raw = best(stream, || {
            // SAFETY: the stream is alive, and the address is freed once.
            unsafe { result::free_async(result::malloc_async(stream.cu_stream(), bytes)?, stream.cu_stream()) }
        })?;
        cases.push(Case { bytes, what: "address", nanoseconds: raw });
        // SAFETY: nothing reads the bytes.
        let slice = best(stream, || unsafe { stream.alloc::<u8>(bytes) }.map(drop))?;
        cases.push(Case { bytes, what: "CudaSlice, with its two events", nanoseconds: slice });
    }
    Ok(cases)
}

/// Returns the time of one call in the best run, in nanoseconds.
fn best(stream: &Arc<CudaStream>, mut call: impl FnMut() -> std::result::Result<(), DriverError>) -> Result<f64> {
    let mut best = f64::INFINITY;
    for _ in 0..RUNS {
        stream.synchronize()?;
        let began = Instant::now();
        for _ in 0..REQUESTS {
            call()?;
        }
        best = best.min(began.elapsed().as_nanos() as f64 / REQUESTS as f64);
    }
    Ok(best)
}
