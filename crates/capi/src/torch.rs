//! The functions of PyTorch's `CUDAPluggableAllocator`, which the header documents. They use the allocators that the
//! process shares ([`crate::shared`]).
//!
//! # Safety
//!
//! As for [`crate::api`].

#![allow(clippy::missing_safety_doc)] // The header has it, and so has the module.

use std::ffi::{c_int, c_void};
use std::io::Write as _;
use std::ptr;

use crate::boundary::{self, Out};
use crate::code::Failure;
use crate::devices::place;
use crate::fork;
use crate::handles::{CAllocator, pointer_of};
use crate::shared;
use crate::table::pond::on;
use crate::table::{blocks, live, opened, ponds};

/// Runs the body of a function that cannot return an error: a failure is printed, and kept as the thread's last error.
#[inline(always)]
fn or_print<T>(otherwise: T, body: impl FnOnce() -> Result<T, Failure>) -> T {
    boundary::outcome(body).unwrap_or_else(|failure| {
        boundary::told(&failure);
        // Where standard error is closed, there is no other way to tell.
        let _ = writeln!(std::io::stderr(), "millpond: {}", failure.text);
        otherwise
    })
}

/// Allocates, as `CUDAPluggableAllocator` asks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_torch_alloc(size: isize, device: c_int, stream: *mut c_void) -> *mut c_void {
    or_print(ptr::null_mut(), || {
        let bytes = u64::try_from(size).map_err(|_| Failure::bad_argument(format!("{size} bytes are asked for")))?;
        let address = on!(ponds::get(device)?, of => of.served.allocate(bytes, stream.addr() as u64)?);
        Ok(ptr::with_exposed_provenance_mut(address as usize))
    })
}

/// Frees, as `CUDAPluggableAllocator` asks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_torch_free(address: *mut c_void, _size: isize, device: c_int, _stream: *mut c_void) {
    or_print((), || {
        if address.is_null() {
            return Ok(());
        }
        place(device)?;
        let address = address.addr() as u64;
        match live::take_out(address) {
            Some(marked) => blocks::free_taken(marked),
            // What a child drops of its parent's is gone from the child alone.
            None if fork::DEVICES.is_inherited() => {}
            None => return Err(Failure::not_a_block(address)),
        }
        Ok(())
    });
}

/// Records that a block is used on another stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_torch_record_stream(address: *mut c_void, stream: *mut c_void) {
    or_print((), || {
        if address.is_null() {
            return Ok(());
        }
        let (address, stream) = (address.addr() as u64, stream.addr() as u64);
        let marked = live::known(address).ok_or_else(|| Failure::not_a_block(address))?;
        on!(blocks::pond_of(marked)?, of => of.record_stream(marked, stream))
    });
}

/// Empties the caches of all devices in use.
#[unsafe(no_mangle)]
pub extern "C" fn millpond_torch_empty_cache() {
    or_print((), || {
        // Each device is tried, whatever becomes of the others.
        let emptied = opened::all().map(|pond| on!(pond, of => Ok(of.served.allocator.empty_cache()?)));
        let emptied: Vec<_> = emptied.collect();
        emptied.into_iter().collect()
    });
}

/// Limits the reserved bytes of a device to a share of its memory.
#[unsafe(no_mangle)]
pub extern "C" fn millpond_torch_memory_fraction(fraction: f64, device: c_int) {
    or_print((), || ponds::set_fraction(device, fraction));
}

/// Returns the allocator of a device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_torch_allocator(device: c_int, out: *mut *mut CAllocator) -> i32 {
    boundary::status(|| {
        // SAFETY: the caller promises that the pointer is null or valid.
        let out = unsafe { Out::required("out", out)? };
        out.put(pointer_of(shared::of(device, None)?));
        Ok(())
    })
}
