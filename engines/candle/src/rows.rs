//! Where candle's memory comes from in each row of the table, and how much of it there is.

#![allow(unsafe_code)] // The driver's pool has no safe interface, and the hook is an unsafe trait.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};

use millpond_candle::Installed;
use millpond_cuda::cudarc::driver::result::{self, StreamAllocator};
use millpond_cuda::cudarc::driver::sys::{self, CUdeviceptr, CUmemPool_attribute, CUstream};
use millpond_cuda::cudarc::driver::{CudaContext, DriverError};

use crate::Result;

/// A way to get memory, by its name in the table.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Row {
    /// `cuMemAllocAsync`, which is what cudarc does.
    Pool,
    /// That, with a pool that gives nothing back, as CUDA's manual recommends.
    KeptPool,
    /// `cuMemAlloc`, which is what cudarc does where a device has no pools.
    Plain,
    /// Millpond with this policy.
    Millpond(&'static str),
}

pub const ROWS: [Row; 5] =
    [Row::Pool, Row::KeptPool, Row::Plain, Row::Millpond("policy:classic"), Row::Millpond("policy:paged")];

/// Bytes that the tensors take, and that are reserved for them.
#[derive(Clone, Copy, Default)]
pub struct Peak {
    pub live: u64,
    pub reserved: u64,
}

/// A row at work.
pub struct Source {
    row: Row,
    millpond: Option<Installed>,
}

impl Row {
    pub fn name(self) -> &'static str {
        match self {
            Row::Pool => "pool",
            Row::KeptPool => "kept-pool",
            Row::Plain => "plain",
            Row::Millpond(conf) => conf.trim_start_matches("policy:"),
        }
    }

    pub fn title(self) -> &'static str {
        match self {
            Row::Pool => "candle (cuMemAllocAsync)",
            Row::KeptPool => "candle, pool keeps all",
            Row::Plain => "candle (cuMemAlloc)",
            Row::Millpond("policy:classic") => "Millpond, classic",
            Row::Millpond(_) => "Millpond, paged",
        }
    }

    /// Puts the row in place on a device, before candle opens it.
    pub fn set(self, ordinal: usize) -> Result<Source> {
        let mut millpond = None;
        match self {
            Row::Pool => {}
            Row::KeptPool => {
                let mut all = u64::MAX;
                let name = CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
                // SAFETY: the attribute is a number of 64 bits, which lives until the call returns.
                unsafe { sys::cuMemPoolSetAttribute(pool(ordinal)?, name, (&raw mut all).cast()).result()? };
            }
            Row::Plain => {
                if !result::set_allocator(&*PLAIN) {
                    return Err("cudarc has an allocator already".into());
                }
            }
            Row::Millpond(conf) => millpond = Some(millpond_candle::install(ordinal, conf)?),
        }
        Ok(Source { row: self, millpond })
    }
}

impl Source {
    /// Returns the peaks since the start of the process.
    pub fn peak(&self, ordinal: usize) -> Result<Peak> {
        if let Some(millpond) = self.millpond {
            let allocator = millpond.allocator();
            return Ok(Peak { live: allocator.max_memory_allocated(), reserved: allocator.max_memory_reserved() });
        }
        if self.row == Row::Plain {
            let peak = PLAIN.state.lock().unwrap_or_else(PoisonError::into_inner).peak;
            return Ok(Peak { live: peak, reserved: peak });
        }
        let of = |name| -> Result<u64> {
            let mut bytes = 0_u64;
            // SAFETY: the attributes are numbers of 64 bits.
            unsafe { sys::cuMemPoolGetAttribute(pool(ordinal)?, name, (&raw mut bytes).cast()).result()? };
            Ok(bytes)
        };
        Ok(Peak {
            live: of(CUmemPool_attribute::CU_MEMPOOL_ATTR_USED_MEM_HIGH)?,
            reserved: of(CUmemPool_attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH)?,
        })
    }
}

/// Returns the bytes of the device that all processes use.
pub fn used_bytes(ordinal: usize) -> Result<u64> {
    let (free, total) = CudaContext::new(ordinal)?.mem_get_info()?;
    Ok((total - free) as u64)
}

fn pool(ordinal: usize) -> Result<sys::CUmemoryPool> {
    result::init()?;
    let device = result::device::get(ordinal as i32)?;
    // SAFETY: the device is one of the driver's.
    Ok(unsafe { result::device::get_default_mem_pool(device) }?)
}

/// `cuMemAlloc` and `cuMemFree`, called as cudarc calls them where a device has no pools.
#[derive(Default)]
struct Plain {
    state: Mutex<Counted>,
}

#[derive(Default)]
struct Counted {
    sizes: HashMap<CUdeviceptr, u64>,
    live: u64,
    peak: u64,
}

static PLAIN: LazyLock<Plain> = LazyLock::new(Plain::default);

// SAFETY: the driver's own memory, which is free of work when it is handed out and is freed after its stream.
unsafe impl StreamAllocator for Plain {
    unsafe fn alloc(&self, _: CUstream, num_bytes: usize) -> Option<std::result::Result<CUdeviceptr, DriverError>> {
        // The driver refuses 0 bytes here, and does not for the pool.
        // SAFETY: as the caller promises.
        let allocated = unsafe { result::malloc_sync(num_bytes.max(1)) };
        if let Ok(address) = allocated {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.sizes.insert(address, num_bytes as u64);
            state.live += num_bytes as u64;
            state.peak = state.peak.max(state.live);
        }
        Some(allocated)
    }

    unsafe fn free(&self, dptr: CUdeviceptr, stream: Option<CUstream>) -> bool {
        let Some(stream) = stream else { return false };
        {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(size) = state.sizes.remove(&dptr) else { return false };
            state.live -= size;
        }
        // SAFETY: the stream is alive and the address is the driver's, as the caller promises; it is freed once.
        let freed = unsafe { result::stream::synchronize(stream).and_then(|()| result::free_sync(dptr)) };
        if let Err(error) = freed {
            eprintln!("cuMemFree: {error:?}");
        }
        true
    }

    unsafe fn destroyed(&self, _: CUstream) {}
}
