//! The functions of `millpond.h` about groups of memory that can be paused.

use std::ffi::c_char;

use super::served;
use crate::boundary::{self, Out};
use crate::handles::CAllocator;
use crate::kind::on;
use crate::table::groups::keep_of;
use crate::table::types::GroupInfo;

/// Returns the pool of a group.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_group_pool(pond: *mut CAllocator, name: *const c_char, out: *mut u64) -> i32 {
    boundary::status(|| {
        // SAFETY: the caller promises that the allocator lives and the pointers are null, or a text and valid.
        let (served, name, out) = unsafe { (served(pond)?, boundary::text("name", name)?, Out::required("out", out)?) };
        out.put(on!(served, of => of.pools.keep(of.allocator.group(name)?.pool())));
        Ok(())
    })
}

/// Makes a pool a part of a group.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_group_add(pond: *mut CAllocator, name: *const c_char, pool: u64) -> i32 {
    boundary::status(|| {
        // SAFETY: the caller promises that the allocator lives and the pointer is null or a text.
        let (served, name) = unsafe { (served(pond)?, boundary::text("name", name)?) };
        on!(served, of => Ok(of.allocator.group(name)?.add(&of.pools.held(pool)?)?))
    })
}

/// Pauses a group.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_group_pause(pond: *mut CAllocator, name: *const c_char, keep: i32) -> i32 {
    boundary::status(|| {
        // SAFETY: the caller promises that the allocator lives and the pointer is null or a text.
        let (served, name) = unsafe { (served(pond)?, boundary::text("name", name)?) };
        let keep = keep_of(keep)?;
        on!(served, of => Ok(of.allocator.group(name)?.pause(keep)?))
    })
}

/// Resumes a group.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_group_resume(pond: *mut CAllocator, name: *const c_char) -> i32 {
    boundary::status(|| {
        // SAFETY: the caller promises that the allocator lives and the pointer is null or a text.
        let (served, name) = unsafe { (served(pond)?, boundary::text("name", name)?) };
        on!(served, of => Ok(of.allocator.group(name)?.resume()?))
    })
}

/// Returns how much memory a group has.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_get_group(pond: *mut CAllocator, name: *const c_char, out: *mut GroupInfo) -> i32 {
    boundary::status(|| {
        // SAFETY: the caller promises that the allocator lives and the pointers are null, or a text and valid.
        let (served, name, out) = unsafe { (served(pond)?, boundary::text("name", name)?, Out::required("out", out)?) };
        out.put(on!(served, of => of.allocator.group(name)?.stats()).into());
        Ok(())
    })
}
