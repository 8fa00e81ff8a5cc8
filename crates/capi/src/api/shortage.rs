//! The functions of `millpond.h` for programs that are short of memory.

use std::ffi::c_void;

use super::{address_of, served};
use crate::boundary::{self, Out};
use crate::handles::CAllocator;
use crate::kind::on;
use crate::shortage::{CFit, CHook};

/// Adds a hook.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_hook_add(pond: *mut CAllocator, hook: *const CHook, out: *mut u64) -> i32 {
    boundary::status(|| {
        // SAFETY: the caller promises that the allocator lives and the pointer is null or valid.
        let (served, out) = unsafe { (served(pond)?, Out::required("out", out)?) };
        // SAFETY: the caller promises that the pointer is null or valid, and the functions do what the header says.
        out.put(on!(served, of => unsafe { of.hooks.add(&of.allocator, of.number, hook)? }));
        Ok(())
    })
}

/// Removes a hook.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_hook_remove(pond: *mut CAllocator, hook: u64) -> i32 {
    boundary::status(|| {
        // SAFETY: the caller promises that the allocator lives.
        let served = unsafe { served(pond)? };
        on!(served, of => of.hooks.remove(hook))
    })
}

/// Allocates a block from the cache alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_alloc_cached(
    pond: *mut CAllocator,
    bytes: u64,
    stream: *mut c_void,
    out: *mut *mut c_void,
) -> i32 {
    boundary::status(|| {
        // SAFETY: the caller promises that the allocator lives and the pointer is null or valid.
        let (served, out) = unsafe { (served(pond)?, Out::required("out", out)?) };
        let address = on!(served, of => of.allocate_cached(bytes, address_of(stream))?);
        out.put(std::ptr::with_exposed_provenance_mut(address as usize));
        Ok(())
    })
}

/// Forecasts a request.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_would_fit(
    pond: *mut CAllocator,
    bytes: u64,
    stream: *mut c_void,
    out: *mut CFit,
) -> i32 {
    boundary::status(|| {
        // SAFETY: the caller promises that the allocator lives and the pointer is null or valid.
        let (served, out) = unsafe { (served(pond)?, Out::required("out", out)?) };
        out.put(on!(served, of => of.stream(address_of(stream))?.would_fit(bytes)?).into());
        Ok(())
    })
}
