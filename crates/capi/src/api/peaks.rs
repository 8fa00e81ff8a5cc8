//! The functions of `millpond.h` about the peaks of a part of a program.

use std::ffi::c_char;

use super::served;
use crate::boundary::{self, Out};
use crate::handles::CAllocator;
use crate::kind::on;
use crate::statistics::{self, Usage, usage_of};

/// Opens a scope.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_peak_open(pond: *mut CAllocator, out: *mut u64) -> i32 {
    boundary::status(|| {
        // SAFETY: the caller promises that the allocator lives and the pointer is null or valid.
        let (served, out) = unsafe { (served(pond)?, Out::required("out", out)?) };
        out.put(on!(served, of => of.scopes.open(&of.allocator)));
        Ok(())
    })
}

/// Returns the most used statistics, with the peaks of a scope.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_peak_usage(pond: *mut CAllocator, peak: u64, out: *mut Usage) -> i32 {
    boundary::status(|| {
        // SAFETY: the caller promises that the allocator lives and the pointer is null or valid.
        let (served, out) = unsafe { (served(pond)?, Out::required("out", out)?) };
        out.put(usage_of(&on!(served, of => of.scopes.stats(peak)?)));
        Ok(())
    })
}

/// Returns PyTorch's statistics as JSON, with the peaks of a scope.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_peak_json(pond: *mut CAllocator, peak: u64, out: *mut *mut c_char) -> i32 {
    boundary::status(|| {
        // SAFETY: the caller promises that the allocator lives and the pointer is null or valid.
        let (served, out) = unsafe { (served(pond)?, Out::required("out", out)?) };
        let stats = on!(served, of => of.scopes.stats(peak)?);
        out.put(boundary::give_text(&statistics::memory_json(&stats)));
        Ok(())
    })
}

/// Ends a scope.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_peak_close(pond: *mut CAllocator, peak: u64) -> i32 {
    boundary::status(|| {
        // SAFETY: the caller promises that the allocator lives.
        let served = unsafe { served(pond)? };
        on!(served, of => of.scopes.close(peak))
    })
}
