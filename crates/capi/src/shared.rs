//! The allocator of each device that a whole process shares, as C programs name it: one handle for each device. The
//! allocators themselves are those of the table, so that a framework on the table and programs with a handle have one
//! cache, one configuration and one set of streams.
//!
//! # Safety
//!
//! As for [`crate::api`].

#![allow(clippy::missing_safety_doc)] // The header has it, and so has the module.

use std::ffi::{c_char, c_int};
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::boundary::{self, Out};
use crate::code::Failure;
use crate::devices::{DEVICES, place};
use crate::handles::{self, CAllocator, Handle, pointer_of};
use crate::kind::Served;
use crate::table::ponds;

/// The handle of each device's allocator, or 0.
static HANDLES: [AtomicU64; DEVICES] = [const { AtomicU64::new(0) }; DEVICES];

/// Held by a thread that makes a handle.
static MAKING: Mutex<()> = Mutex::new(());

/// Returns whether a handle is one of these, which are never destroyed.
pub(crate) fn has(handle: Handle) -> bool {
    handle.0 != 0 && HANDLES.iter().any(|known| known.load(Ordering::Acquire) == handle.0)
}

/// Returns the handle of a device's allocator, which is made at its first use. Of a configuration it must be the one.
pub(crate) fn of(device: c_int, conf: Option<&str>) -> Result<Handle, Failure> {
    let pond = ponds::get_with(device, conf)?;
    let known = &HANDLES[place(device)?];
    let _making = MAKING.lock();
    match known.load(Ordering::Acquire) {
        0 => {
            let handle = handles::enter(Box::new(Served::Shared(pond)))?;
            known.store(handle.0, Ordering::Release);
            Ok(handle)
        }
        handle => Ok(Handle(handle)),
    }
}

/// Returns the allocator of a device that the process shares.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_shared(device: c_int, conf: *const c_char, out: *mut *mut CAllocator) -> i32 {
    boundary::status(|| {
        // SAFETY: the caller promises that the pointer is null or valid.
        let out = unsafe { Out::required("out", out)? };
        // SAFETY: as above.
        let conf = if conf.is_null() { None } else { Some(unsafe { boundary::text("conf", conf) }?) };
        out.put(pointer_of(of(device, conf)?));
        Ok(())
    })
}
