//! The functions for programs that are short of memory.

use std::ffi::c_void;

use super::pond::on;
use super::ponds;
use crate::boundary::{self, Out};
use crate::shortage::{CFit, CHook};

pub(super) unsafe extern "C" fn hook_add(device: i32, hook: *const CHook, out: *mut u64) -> i32 {
    boundary::status(|| {
        // SAFETY: the caller promises that the pointer is null or valid.
        let out = unsafe { Out::required("out", out)? };
        let number = on!(ponds::get(device)?, of => {
            let served = &of.served;
            // SAFETY: the caller promises that the pointer is null or valid, and the functions do what the header says.
            unsafe { served.hooks.add(&served.allocator, served.number, hook)? }
        });
        out.put(number);
        Ok(())
    })
}

pub(super) extern "C" fn hook_remove(device: i32, hook: u64) -> i32 {
    boundary::status(|| on!(ponds::get(device)?, of => of.served.hooks.remove(hook)))
}

pub(super) unsafe extern "C" fn would_fit(device: i32, stream: *mut c_void, bytes: u64, out: *mut CFit) -> i32 {
    boundary::status(|| {
        // SAFETY: the caller promises that the pointer is null or valid.
        let out = unsafe { Out::required("out", out)? };
        out.put(on!(ponds::get(device)?, of => of.served.stream(stream.addr() as u64)?.would_fit(bytes)?).into());
        Ok(())
    })
}
