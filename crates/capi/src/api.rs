//! The functions of `millpond.h`, which documents them. Each reads its pointers, and leaves the rest to the other
//! modules.
//!
//! # Safety
//!
//! What a caller promises is in the header, in the same words for all functions: pointers are null or valid, texts end
//! with a 0, streams are alive, and an allocator is not destroyed while another call uses it.

#![allow(clippy::missing_safety_doc)] // The header has it, and so has the module.

use std::ffi::{c_char, c_int, c_void};

use millpond::summary::Terms;
use millpond_cuda::Cuda;
use serde_json::json;

use crate::boundary::{self, Out};
use crate::code::Failure;
use crate::handles::{self, handle_of, pointer_of};
use crate::kind::{Served, on};
use crate::last_error;
use crate::statistics::{self, usage_of};
use crate::{shared, watch};

pub use crate::handles::CAllocator;
pub use crate::statistics::Usage;

/// The version of the interface: `MILLPOND_ABI` of the header.
pub const ABI: u32 = 1;

fn address_of(pointer: *const c_void) -> u64 {
    pointer.addr() as u64
}

/// Returns the allocator that a caller names.
///
/// # Safety
///
/// The allocator is not destroyed while the reference is in use.
#[inline(always)]
unsafe fn served<'a>(pond: *mut CAllocator) -> Result<&'a Served, Failure> {
    // SAFETY: as the caller promises.
    unsafe { handles::look_up(handle_of(pond)) }
}

/// Writes an address or a handle that a call makes.
///
/// # Safety
///
/// The allocator is not destroyed meanwhile, and the pointer is null or valid.
#[inline(always)]
unsafe fn put(pond: *mut CAllocator, out: *mut *mut c_void, make: impl FnOnce(&Served) -> Result<u64, Failure>) -> i32 {
    boundary::status(|| {
        // SAFETY: as the caller promises.
        let (served, out) = unsafe { (served(pond)?, Out::required("out", out)?) };
        out.put(std::ptr::with_exposed_provenance_mut(make(served)? as usize));
        Ok(())
    })
}

/// Frees a block; a null pointer has no effect.
///
/// # Safety
///
/// The allocator is not destroyed meanwhile.
#[inline(always)]
unsafe fn end(
    pond: *mut CAllocator,
    address: *mut c_void,
    free: impl FnOnce(&Served, u64) -> Result<(), Failure>,
) -> i32 {
    boundary::status(|| {
        // SAFETY: as the caller promises.
        let served = unsafe { served(pond)? };
        if address.is_null() { Ok(()) } else { free(served, address_of(address)) }
    })
}

/// Returns the version of the interface.
#[unsafe(no_mangle)]
pub extern "C" fn millpond_abi() -> u32 {
    ABI
}

/// Returns the version of the library.
#[unsafe(no_mangle)]
pub extern "C" fn millpond_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

/// Returns the text of this thread's last error.
#[unsafe(no_mangle)]
pub extern "C" fn millpond_last_error() -> *const c_char {
    last_error::get()
}

/// Ends a text that was returned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_string_free(text: *mut c_char) {
    // SAFETY: the caller promises that the text came from this library and was not ended before.
    unsafe { boundary::end_text(text) };
}

/// Returns the CUDA devices of this machine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_devices_json(out: *mut *mut c_char) -> i32 {
    boundary::status(|| {
        // SAFETY: the caller promises that the pointer is null or valid.
        let out = unsafe { Out::required("out", out)? };
        let (major, minor) = Cuda::driver_version()?;
        let devices = Cuda::devices()?.into_iter().map(|info| {
            json!({
                "ordinal": info.ordinal,
                "name": info.name,
                "total_bytes": info.total_bytes,
                "compute": format!("{}.{}", info.compute.0, info.compute.1),
                "virtual_memory": info.virtual_memory,
            })
        });
        let found = json!({ "driver": format!("{major}.{minor}"), "devices": devices.collect::<Vec<_>>() });
        out.put(boundary::give_text(&found.to_string()));
        Ok(())
    })
}

/// Creates an allocator.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_create(device: *const c_char, conf: *const c_char, out: *mut *mut CAllocator) -> i32 {
    boundary::status(|| {
        // SAFETY: the caller promises that the pointers are null or valid.
        let (device, out) = unsafe { (boundary::text("device", device)?, Out::required("out", out)?) };
        // SAFETY: the caller promises that the pointer is null or valid.
        let conf = if conf.is_null() { None } else { Some(unsafe { boundary::text("conf", conf) }?) };
        watch::start();
        out.put(pointer_of(handles::enter(Box::new(Served::open(device, conf)?))?));
        Ok(())
    })
}

/// Destroys an allocator.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_destroy(pond: *mut CAllocator, live: *mut u64) -> i32 {
    boundary::status(|| {
        if pond.is_null() {
            return Ok(());
        }
        // SAFETY: the caller promises that the pointer is null or valid.
        let live = unsafe { Out::optional(live) };
        if shared::has(handle_of(pond)) {
            return Err(Failure::bad_argument("allocators that the process shares live as long as the process"));
        }
        live.put(handles::leave(handle_of(pond))?.close());
        Ok(())
    })
}

/// Creates a stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_stream_create(pond: *mut CAllocator, out: *mut *mut c_void) -> i32 {
    // SAFETY: the caller promises that the allocator lives and the pointer is null or valid.
    unsafe { put(pond, out, |served| on!(served, of => of.create_stream())) }
}

/// Ends the use of a stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_stream_release(pond: *mut CAllocator, stream: *mut c_void) -> i32 {
    boundary::status(|| {
        // SAFETY: the caller promises that the allocator lives.
        unsafe { served(pond)? }.release_stream(address_of(stream))
    })
}

/// Allocates a block.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_alloc(
    pond: *mut CAllocator,
    bytes: u64,
    stream: *mut c_void,
    out: *mut *mut c_void,
) -> i32 {
    // SAFETY: the caller promises that the allocator lives and the pointer is null or valid.
    unsafe { put(pond, out, |served| on!(served, of => of.allocate(bytes, address_of(stream)))) }
}

/// Allocates a block at a multiple of an alignment.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_alloc_aligned(
    pond: *mut CAllocator,
    bytes: u64,
    alignment: u64,
    stream: *mut c_void,
    out: *mut *mut c_void,
) -> i32 {
    // SAFETY: the caller promises that the allocator lives and the pointer is null or valid.
    unsafe { put(pond, out, |served| on!(served, of => of.allocate_aligned(bytes, alignment, address_of(stream)))) }
}

/// Allocates a block that can become longer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_alloc_growable(
    pond: *mut CAllocator,
    bytes: u64,
    capacity: u64,
    stream: *mut c_void,
    out: *mut *mut c_void,
) -> i32 {
    // SAFETY: the caller promises that the allocator lives and the pointer is null or valid.
    unsafe { put(pond, out, |served| on!(served, of => of.allocate_growable(bytes, capacity, address_of(stream)))) }
}

/// Makes a block longer at its address.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_grow(pond: *mut CAllocator, address: *mut c_void, bytes: u64) -> i32 {
    boundary::status(|| {
        // SAFETY: the caller promises that the allocator lives.
        let served = unsafe { served(pond)? };
        // SAFETY: the caller promises that no other thread frees or grows the block meanwhile.
        on!(served, of => unsafe { of.grow(address_of(address), bytes) })
    })
}

/// Frees a block.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_free(pond: *mut CAllocator, address: *mut c_void) -> i32 {
    // SAFETY: the caller promises that the allocator lives.
    unsafe { end(pond, address, |served, address| on!(served, of => of.free(address))) }
}

/// Allocates a block on a stream that may be destroyed after the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_alloc_async(
    pond: *mut CAllocator,
    bytes: u64,
    stream: *mut c_void,
    out: *mut *mut c_void,
) -> i32 {
    // SAFETY: the caller promises that the allocator lives and the pointer is null or valid.
    unsafe { put(pond, out, |served| on!(served, of => of.allocate_async(bytes, address_of(stream)))) }
}

/// Frees a block on a stream that may be destroyed after the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_free_async(pond: *mut CAllocator, address: *mut c_void, stream: *mut c_void) -> i32 {
    // SAFETY: the caller promises that the allocator lives.
    unsafe { end(pond, address, |served, address| on!(served, of => of.free_async(address, address_of(stream)))) }
}

/// Records that a block is used on another stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_record_stream(
    pond: *mut CAllocator,
    address: *mut c_void,
    stream: *mut c_void,
) -> i32 {
    boundary::status(|| {
        // SAFETY: the caller promises that the allocator lives.
        let served = unsafe { served(pond)? };
        on!(served, of => of.record_stream(address_of(address), address_of(stream)))
    })
}

/// Finds the block in which an address lies.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_find(
    pond: *mut CAllocator,
    address: *const c_void,
    start: *mut *mut c_void,
    bytes: *mut u64,
) -> i32 {
    boundary::status(|| {
        // SAFETY: the caller promises that the allocator lives and the pointers are null or valid.
        let (served, start, bytes) = unsafe { (served(pond)?, Out::optional(start), Out::optional(bytes)) };
        let (begins_at, length) = on!(served, of => of.find(address_of(address))?);
        start.put(std::ptr::with_exposed_provenance_mut(begins_at as usize));
        bytes.put(length);
        Ok(())
    })
}

/// Limits the reserved bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_set_limit(pond: *mut CAllocator, bytes: u64) -> i32 {
    boundary::status(|| {
        // SAFETY: the caller promises that the allocator lives.
        let served = unsafe { served(pond)? };
        on!(served, of => of.allocator.set_limit((bytes != u64::MAX).then_some(bytes)));
        Ok(())
    })
}

/// Releases cached memory until at most a number of bytes are reserved.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_trim(pond: *mut CAllocator, bytes: u64, reserved: *mut u64) -> i32 {
    boundary::status(|| {
        // SAFETY: the caller promises that the allocator lives and the pointer is null or valid.
        let (served, reserved) = unsafe { (served(pond)?, Out::optional(reserved)) };
        reserved.put(on!(served, of => of.allocator.trim(bytes)?));
        Ok(())
    })
}

/// Asks the device how far it is, and gives idle memory back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_poll(pond: *mut CAllocator, released: *mut u64) -> i32 {
    boundary::status(|| {
        // SAFETY: the caller promises that the allocator lives and the pointer is null or valid.
        let (served, released) = unsafe { (served(pond)?, Out::optional(released)) };
        released.put(on!(served, of => of.allocator.poll()?));
        Ok(())
    })
}

/// Gives all cached memory back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_empty_cache(pond: *mut CAllocator) -> i32 {
    boundary::status(|| {
        // SAFETY: the caller promises that the allocator lives.
        unsafe { served(pond)? }.empty_cache()
    })
}

/// Returns the most used statistics.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_get_usage(pond: *mut CAllocator, out: *mut Usage) -> i32 {
    boundary::status(|| {
        // SAFETY: the caller promises that the allocator lives and the pointer is null or valid.
        let (served, out) = unsafe { (served(pond)?, Out::required("out", out)?) };
        let stats = on!(served, of => of.allocator.stats());
        out.put(usage_of(&stats));
        Ok(())
    })
}

/// Returns all statistics as JSON.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_stats_json(pond: *mut CAllocator, out: *mut *mut c_char) -> i32 {
    boundary::status(|| {
        // SAFETY: the caller promises that the allocator lives and the pointer is null or valid.
        let (served, out) = unsafe { (served(pond)?, Out::required("out", out)?) };
        let text = on!(served, of => {
            let pond = &of.allocator;
            statistics::json(pond)
        });
        out.put(boundary::give_text(&text));
        Ok(())
    })
}

/// Returns PyTorch's table.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_summary(pond: *mut CAllocator, abbreviated: c_int, out: *mut *mut c_char) -> i32 {
    boundary::status(|| {
        // SAFETY: the caller promises that the allocator lives and the pointer is null or valid.
        let (served, out) = unsafe { (served(pond)?, Out::required("out", out)?) };
        out.put(boundary::give_text(
            &on!(served, of => of.allocator.memory_summary_with(Terms::PyTorch, abbreviated != 0)),
        ));
        Ok(())
    })
}

/// Sets every peak to its current value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_reset_peaks(pond: *mut CAllocator) -> i32 {
    boundary::status(|| {
        // SAFETY: the caller promises that the allocator lives.
        let served = unsafe { served(pond)? };
        on!(served, of => of.allocator.reset_peak_stats());
        Ok(())
    })
}

/// Sets the totals to 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_reset_totals(pond: *mut CAllocator) -> i32 {
    boundary::status(|| {
        // SAFETY: the caller promises that the allocator lives.
        let served = unsafe { served(pond)? };
        on!(served, of => of.allocator.reset_accumulated_stats());
        Ok(())
    })
}

pub mod groups;
pub mod peaks;
pub mod pools;
pub mod shortage;

#[cfg(test)]
mod tests;
